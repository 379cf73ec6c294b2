//! A strict parser of OpenMetrics 1.0, as far as the daemon writes it:
//! <https://prometheus.io/docs/specs/om/open_metrics_spec/>.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Family {
    pub(crate) kind: String,
    pub(crate) help: String,
    pub(crate) unit: Option<String>,
    pub(crate) samples: Vec<Sample>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
}

pub(crate) type Families = BTreeMap<String, Family>;

/// Parses a body; the error names the line that is wrong.
pub(crate) fn read(body: &str) -> Result<Families, String> {
    let body = body.strip_suffix("# EOF\n").ok_or("no # EOF at the end")?;
    if !body.is_empty() && !body.ends_with('\n') {
        return Err("the last line has no end".to_owned());
    }
    let mut reader = Reader {
        families: Families::new(),
        current: String::new(),
        series: BTreeSet::new(),
    };
    for line in body.lines() {
        reader.line(line).map_err(|why| format!("{why}: {line}"))?;
    }
    for (name, family) in &reader.families {
        if family.kind.is_empty() || family.help.is_empty() {
            return Err(format!("{name} has no TYPE or no HELP"));
        }
        if family.kind == "histogram" {
            histograms(name, family).map_err(|why| format!("{name}: {why}"))?;
        }
    }
    Ok(reader.families)
}

struct Reader {
    families: Families,
    current: String,
    series: BTreeSet<String>,
}

impl Reader {
    fn line(&mut self, line: &str) -> Result<(), String> {
        if let Some(rest) = line.strip_prefix("# ") {
            let mut words = rest.splitn(3, ' ');
            let mut word = || words.next().ok_or("too few words");
            return self.metadata(word()?, word()?, word()?);
        }
        let sample = sample(line)?;
        let family = self.families.get_mut(&self.current);
        let family = family.ok_or("a sample before any family")?;
        let suffix = sample.name.strip_prefix(self.current.as_str());
        let suffix = suffix.ok_or("a sample of another family")?;
        if !suffixes(&family.kind).contains(&suffix) {
            return Err(format!("{suffix:?} is no part of a {}", family.kind));
        }
        if sample.value.is_nan() || (family.kind != "gauge" && sample.value < 0.0) {
            return Err("a value that can't be".to_owned());
        }
        if !self
            .series
            .insert(format!("{} {:?}", sample.name, sample.labels))
        {
            return Err("a second sample of this series".to_owned());
        }
        family.samples.push(sample);
        Ok(())
    }

    fn metadata(&mut self, keyword: &str, name: &str, rest: &str) -> Result<(), String> {
        if !is_name(name) {
            return Err("not a name".to_owned());
        }
        if name != self.current {
            if self.families.contains_key(name) {
                return Err("a family in two pieces".to_owned());
            }
            name.clone_into(&mut self.current);
        }
        let family = self.families.entry(name.to_owned()).or_default();
        if !family.samples.is_empty() {
            return Err("metadata behind samples".to_owned());
        }
        match keyword {
            "HELP" if family.help.is_empty() => rest.clone_into(&mut family.help),
            "TYPE" if family.kind.is_empty() => {
                if !["counter", "gauge", "histogram", "info"].contains(&rest) {
                    return Err("an unknown type".to_owned());
                }
                if name.ends_with("_total") {
                    return Err("_total belongs to the sample".to_owned());
                }
                rest.clone_into(&mut family.kind);
            }
            "UNIT" if family.unit.is_none() => {
                if !name.ends_with(&format!("_{rest}")) {
                    return Err("a name that does not end in its unit".to_owned());
                }
                family.unit = Some(rest.to_owned());
            }
            _ => return Err("unknown, or there already".to_owned()),
        }
        Ok(())
    }
}

/// The suffixes of a type's samples.
fn suffixes(kind: &str) -> &'static [&'static str] {
    match kind {
        "counter" => &["_total"],
        "gauge" => &[""],
        "histogram" => &["_bucket", "_sum", "_count"],
        "info" => &["_info"],
        _ => &[],
    }
}

fn is_name(text: &str) -> bool {
    !text.starts_with(|c: char| c.is_ascii_digit())
        && !text.is_empty()
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn sample(line: &str) -> Result<Sample, String> {
    let end = line.find(['{', ' ']).ok_or("no value")?;
    let (name, mut rest) = line.split_at(end);
    if !is_name(name) {
        return Err("not a name".to_owned());
    }
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (key, behind) = rest.split_once("=\"").ok_or("a label without a value")?;
            let (value, behind) = quoted(behind)?;
            if !is_name(key) || labels.insert(key.to_owned(), value).is_some() {
                return Err(format!("label {key:?} is wrong or there twice"));
            }
            rest = match behind.strip_prefix(',') {
                Some(next) if !next.starts_with('}') => next,
                None if behind.starts_with('}') => behind,
                _ => return Err("labels not separated".to_owned()),
            };
        }
        rest = &rest[1..];
    }
    let value = rest.strip_prefix(' ').ok_or("no value")?;
    Ok(Sample {
        name: name.to_owned(),
        labels,
        value: value.parse().map_err(|_| "not a number")?,
    })
}

/// The text before the closing quote, and the rest.
fn quoted(text: &str) -> Result<(String, &str), String> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((value, &text[at + 1..])),
            '\\' => value.push(match chars.next() {
                Some((_, 'n')) => '\n',
                Some((_, c @ ('"' | '\\'))) => c,
                _ => return Err("an unknown escape".to_owned()),
            }),
            c => value.push(c),
        }
    }
    Err("a quote is open".to_owned())
}

fn histograms(name: &str, family: &Family) -> Result<(), String> {
    let mut by_labels: BTreeMap<String, Vec<&Sample>> = BTreeMap::new();
    for sample in &family.samples {
        let mut labels = sample.labels.clone();
        let has_bound = labels.remove("le").is_some();
        if has_bound != sample.name.ends_with("_bucket") {
            return Err("le belongs to buckets".to_owned());
        }
        by_labels
            .entry(format!("{labels:?}"))
            .or_default()
            .push(sample);
    }
    for samples in by_labels.values() {
        let value = |suffix: &str| {
            let wanted = format!("{name}{suffix}");
            let found = samples.iter().find(|sample| sample.name == wanted);
            found.map(|sample| sample.value).ok_or(wanted)
        };
        let (count, _) = (value("_count")?, value("_sum")?);
        let mut last = (f64::NEG_INFINITY, 0.0);
        for bucket in samples
            .iter()
            .filter(|sample| sample.labels.contains_key("le"))
        {
            let bound: f64 = bucket.labels["le"].parse().map_err(|_| "le is no number")?;
            if bound <= last.0 || bucket.value < last.1 {
                return Err("buckets do not grow".to_owned());
            }
            last = (bound, bucket.value);
        }
        if last != (f64::INFINITY, count) {
            return Err("the last bucket is not +Inf with the count".to_owned());
        }
    }
    Ok(())
}
