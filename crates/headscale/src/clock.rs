//! The server's clock, as its answers tell it.

use hyper::HeaderMap;
use hyper::header::DATE;
use jiff::fmt::rfc2822::DateTimeParser;
use jiff::{SignedDuration, Timestamp};

/// Two clocks, read at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// The server's, or that of a proxy in front of it; whole seconds.
    pub server: Timestamp,
    /// This node's.
    pub local: Timestamp,
}

impl Clock {
    /// How far this node's clock is ahead of the server's; less than nought if it is behind.
    pub fn local_ahead(&self) -> SignedDuration {
        self.local.duration_since(self.server)
    }

    pub(super) fn read(headers: &HeaderMap, local: Timestamp) -> Option<Self> {
        let text = headers.get(DATE)?.to_str().ok()?;
        let server = DateTimeParser::new().parse_timestamp(text).ok()?;
        Some(Self { server, local })
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn read(date: &'static str) -> Option<Clock> {
        let local = "2026-11-16T06:00:00Z".parse().unwrap();
        let headers = HeaderMap::from_iter([(DATE, HeaderValue::from_static(date))]);
        Clock::read(&headers, local)
    }

    #[test]
    fn a_node_whose_server_says_a_later_time_is_behind() {
        let ahead = |date| read(date).unwrap().local_ahead().as_secs();
        assert_eq!(ahead("Mon, 16 Nov 2026 06:01:30 GMT"), -90);
        assert_eq!(ahead("Mon, 16 Nov 2026 05:59:00 GMT"), 60);
    }

    #[test]
    fn what_is_no_date_tells_nothing() {
        assert_eq!(read("soon"), None);
        assert_eq!(Clock::read(&HeaderMap::new(), Timestamp::UNIX_EPOCH), None);
    }
}
