//! The two texts in which metrics are served, and which of them a scraper wants.
//!
//! OpenMetrics is what we write. Scrapers that do not ask for it get the older text of Prometheus,
//! in which a counter's name has its `_total` everywhere, there are no units, and info is a gauge:
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>.

/// A text format for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposition {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The text format 0.0.4 of Prometheus.
    Text,
}

impl Exposition {
    /// The one that suits an `Accept` header.
    pub fn accepted_by(accept: Option<&str>) -> Self {
        let ranges = accept.unwrap_or_default().split(',').take(32);
        if ranges.into_iter().any(wants_openmetrics) {
            Self::OpenMetrics
        } else {
            Self::Text
        }
    }

    /// The `Content-Type` to be served with.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Whether a part of an `Accept` header names OpenMetrics, and not to refuse it.
fn wants_openmetrics(range: &str) -> bool {
    let mut parts = range.split(';').map(str::trim);
    let kind = parts.next().unwrap_or_default();
    let is_refused = |parameter: &str| {
        let weight = parameter
            .strip_prefix("q=")
            .or(parameter.strip_prefix("Q="));
        weight.is_some_and(|weight| weight.trim().parse() == Ok(0.0_f32))
    };
    kind.eq_ignore_ascii_case("application/openmetrics-text") && !parts.any(is_refused)
}

/// Our OpenMetrics as the older text.
pub(super) fn plain(openmetrics: &str) -> String {
    let mut text = String::with_capacity(openmetrics.len());
    let mut put = |parts: &[&str]| {
        text.extend(parts.iter().copied());
        text.push('\n');
    };
    // A family's help comes before its type, and the type decides on the name of both.
    let mut help = None;
    for line in openmetrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap_or((rest, "unknown"));
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                other => ("", other),
            };
            if let Some((_, words)) = help.take() {
                put(&["# HELP ", name, suffix, " ", words]);
            }
            put(&["# TYPE ", name, suffix, " ", kind]);
        } else if !line.starts_with('#') {
            put(&[line]);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(None, Exposition::Text)]
    #[case(Some("*/*"), Exposition::Text)]
    #[case(Some("text/plain; version=0.0.4"), Exposition::Text)]
    #[case(Some("application/openmetrics-text"), Exposition::OpenMetrics)]
    #[case(
        Some(
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
              application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=0.0.4;q=0.3,\
              */*;q=0.2"
        ),
        Exposition::OpenMetrics
    )]
    #[case(Some("text/plain, application/openmetrics-text;q=0"), Exposition::Text)]
    #[case(
        Some("text/plain, Application/OpenMetrics-Text; q=0.1"),
        Exposition::OpenMetrics
    )]
    #[case(Some("application/openmetrics-text-of-another-kind"), Exposition::Text)]
    #[case(Some(",;,;q=,\u{7f}"), Exposition::Text)]
    fn a_scraper_gets_what_it_accepts(#[case] accept: Option<&str>, #[case] given: Exposition) {
        assert_eq!(Exposition::accepted_by(accept), given);
    }

    #[test]
    fn the_older_text_names_counters_whole_and_knows_no_units() {
        let openmetrics = "# HELP a_b Words of it.\n# TYPE a_b counter\na_b_total 1\n\
            # HELP c_seconds Time.\n# TYPE c_seconds histogram\n# UNIT c_seconds seconds\n\
            c_seconds_sum 0.0\nc_seconds_count 0\nc_seconds_bucket{le=\"+Inf\"} 0\n\
            # HELP d Which.\n# TYPE d info\nd_info{version=\"1\"} 1\n\
            # TYPE e unknown\ne 3\n# EOF\n";
        assert_eq!(
            plain(openmetrics),
            "# HELP a_b_total Words of it.\n# TYPE a_b_total counter\na_b_total 1\n\
             # HELP c_seconds Time.\n# TYPE c_seconds histogram\n\
             c_seconds_sum 0.0\nc_seconds_count 0\nc_seconds_bucket{le=\"+Inf\"} 0\n\
             # HELP d_info Which.\n# TYPE d_info gauge\nd_info{version=\"1\"} 1\n\
             # TYPE e untyped\ne 3\n"
        );
    }
}
