//! Cuts what a client sends into lines, none longer than it may be.

use api::messages::{MAX_REQUEST_BYTES, RequestError};

/// What came and was not dealt with yet.
#[derive(Debug, Default)]
pub(super) struct Lines {
    bytes: Vec<u8>,
    /// So much of it has no end of a line.
    searched: usize,
}

impl Lines {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The first line, if it is whole; it stays.
    pub(super) fn peek(&self) -> Option<&[u8]> {
        let end = self.bytes.iter().position(|byte| *byte == b'\n')?;
        Some(&self.bytes[..end])
    }

    /// The next whole line, if there is one.
    pub(super) fn next(&mut self) -> Result<Option<Vec<u8>>, RequestError> {
        let rest = &self.bytes[self.searched..];
        let end = rest.iter().position(|byte| *byte == b'\n');
        let length = self.searched + end.unwrap_or(rest.len());
        if length > MAX_REQUEST_BYTES {
            return Err(RequestError::TooLong);
        }
        if end.is_none() {
            self.searched = length;
            return Ok(None);
        }
        self.searched = 0;
        let rest = self.bytes.split_off(length + 1);
        let mut line = std::mem::replace(&mut self.bytes, rest);
        line.truncate(length);
        Ok(Some(line))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn lines_come_out_as_they_went_in_however_they_were_cut(
            lines in prop::collection::vec("[a-z]{0,50}", 0..20),
            piece in 1_usize..40,
        ) {
            let text = lines.join("\n") + if lines.is_empty() { "" } else { "\n" };
            let mut found = Lines::default();
            let mut seen = Vec::new();
            for piece in text.as_bytes().chunks(piece) {
                found.push(piece);
                while let Some(line) = found.next().unwrap() {
                    seen.push(String::from_utf8(line).unwrap());
                }
            }
            prop_assert_eq!(seen, lines);
        }
    }

    #[test]
    fn a_line_may_be_as_long_as_the_limit_and_no_longer() {
        let mut lines = Lines::default();
        lines.push(&vec![b'x'; MAX_REQUEST_BYTES]);
        assert!(lines.next().unwrap().is_none());
        lines.push(b"\n");
        assert_eq!(lines.next().unwrap().unwrap().len(), MAX_REQUEST_BYTES);
        lines.push(&vec![b'x'; MAX_REQUEST_BYTES + 1]);
        assert!(matches!(lines.next(), Err(RequestError::TooLong)));
    }

    #[test]
    fn a_long_line_is_refused_even_if_its_end_comes_with_it() {
        let mut lines = Lines::default();
        lines.push(&[vec![b'x'; MAX_REQUEST_BYTES + 1], b"\n".to_vec()].concat());
        assert!(matches!(lines.next(), Err(RequestError::TooLong)));
    }
}
