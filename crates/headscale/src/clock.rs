//! The server's clock, from the `Date` header of its responses.

use jiff::fmt::rfc2822::DateTimeParser;
use jiff::{SignedDuration, Timestamp};
use reqwest::header::{DATE, HeaderMap};

/// Two clocks, read at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockSample {
    /// The server's, or that of a proxy in front of it, in whole seconds.
    pub server: Timestamp,
    /// This node's.
    pub local: Timestamp,
}

impl ClockSample {
    /// How far this node's clock is ahead of the server's; negative if it is behind.
    pub fn local_ahead(&self) -> SignedDuration {
        self.local.duration_since(self.server)
    }

    pub(crate) fn from_headers(headers: &HeaderMap, local: Timestamp) -> Option<Self> {
        let text = headers.get(DATE)?.to_str().ok()?;
        let server = DateTimeParser::new().parse_timestamp(text).ok()?;
        Some(Self { server, local })
    }
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    fn sample(date: &'static str) -> Option<ClockSample> {
        let local = "2026-11-16T06:00:00Z".parse().unwrap();
        let headers = HeaderMap::from_iter([(DATE, HeaderValue::from_static(date))]);
        ClockSample::from_headers(&headers, local)
    }

    #[test]
    fn the_skew_is_negative_if_the_node_is_behind() {
        let ahead = |date| sample(date).unwrap().local_ahead().as_secs();
        assert_eq!(ahead("Mon, 16 Nov 2026 06:01:30 GMT"), -90);
        assert_eq!(ahead("Mon, 16 Nov 2026 05:59:00 GMT"), 60);
    }

    #[test]
    fn an_invalid_or_missing_date_gives_no_sample() {
        assert_eq!(sample("soon"), None);
        let headers = HeaderMap::new();
        assert_eq!(
            ClockSample::from_headers(&headers, Timestamp::UNIX_EPOCH),
            None
        );
    }
}
