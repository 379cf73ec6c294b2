//! The metrics of a daemon.

/// One response of `/metrics`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScrapedMetrics(String);

impl ScrapedMetrics {
    pub fn new(body: String) -> Self {
        Self(body)
    }

    /// The sum of all series of this name with at least these labels. `None` without such a series.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let values = self.0.lines().filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            let (of, rest) = series.split_once('{').unwrap_or((series, ""));
            let has = |(label, value): &(&str, &str)| {
                let pair = format!("{label}=\"{value}\"");
                rest.trim_end_matches('}').split(',').any(|it| it == pair)
            };
            (of == name && labels.iter().all(has)).then(|| value.parse::<f64>().ok())
        });
        let values: Vec<f64> = values.collect::<Option<_>>()?;
        (!values.is_empty()).then(|| values.iter().sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP pods Pods that are attached\n\
        # TYPE pods gauge\n\
        pods 3\n\
        calls_count{operation=\"list\",outcome=\"ok\"} 4\n\
        calls_count{operation=\"approve\",outcome=\"ok\"} 1\n\
        calls_count{operation=\"list\",outcome=\"not ok\"} 0.5\n\
        bad{a=\"b\"} much\n";

    #[test]
    fn series_are_summed_by_their_labels() {
        let metrics = ScrapedMetrics::new(TEXT.to_owned());
        for (name, labels, sum) in [
            ("pods", &[][..], Some(3.0)),
            ("calls_count", &[], Some(5.5)),
            ("calls_count", &[("outcome", "ok")], Some(5.0)),
            (
                "calls_count",
                &[("operation", "list"), ("outcome", "ok")],
                Some(4.0),
            ),
            ("calls_count", &[("outcome", "o")], None),
            ("calls", &[], None),
            ("bad", &[], None),
        ] {
            assert_eq!(metrics.sum(name, labels), sum, "{name} {labels:?}");
        }
    }
}
