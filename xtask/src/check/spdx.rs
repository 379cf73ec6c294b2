//! Licence expressions: <https://spdx.github.io/spdx-spec/v3.0.1/annexes/spdx-license-expressions/>.

use std::iter::Peekable;
use std::vec::IntoIter;

use anyhow::{Result, bail};

/// Whether one may follow an expression by following only the allowed licences.
pub(super) fn is_satisfied(expression: &str, allowed: &[&str]) -> Result<bool> {
    let mut words = words(expression).into_iter().peekable();
    let satisfied = any_of(&mut words, allowed)?;
    match words.next() {
        None => Ok(satisfied),
        Some(word) => bail!("unexpected {word:?}"),
    }
}

/// Splits into words; a slash is how old manifests wrote `OR`.
fn words(expression: &str) -> Vec<String> {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    spaced.split_whitespace().map(str::to_owned).collect()
}

type Words = Peekable<IntoIter<String>>;

fn any_of(words: &mut Words, allowed: &[&str]) -> Result<bool> {
    let mut satisfied = all_of(words, allowed)?;
    while words.next_if(|word| word == "OR").is_some() {
        satisfied |= all_of(words, allowed)?;
    }
    Ok(satisfied)
}

fn all_of(words: &mut Words, allowed: &[&str]) -> Result<bool> {
    let mut satisfied = one(words, allowed)?;
    while words.next_if(|word| word == "AND").is_some() {
        satisfied &= one(words, allowed)?;
    }
    Ok(satisfied)
}

fn one(words: &mut Words, allowed: &[&str]) -> Result<bool> {
    let Some(word) = words.next() else {
        bail!("a licence is missing")
    };
    if word == "(" {
        let satisfied = any_of(words, allowed)?;
        if words.next().as_deref() != Some(")") {
            bail!("a bracket stays open");
        }
        return Ok(satisfied);
    }
    if matches!(word.as_str(), ")" | "AND" | "OR" | "WITH") {
        bail!("unexpected {word:?}");
    }
    // An exception only ever grants more than its licence.
    if words.next_if(|word| word == "WITH").is_some() && words.next().is_none() {
        bail!("an exception is missing");
    }
    Ok(allowed.contains(&word.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn satisfied(expression: &str) -> bool {
        is_satisfied(expression, &["MIT", "Apache-2.0"]).unwrap()
    }

    #[test]
    fn one_allowed_alternative_is_enough() {
        assert!(satisfied("MIT"));
        assert!(satisfied("GPL-3.0-only OR MIT"));
        assert!(satisfied("Unlicense/MIT"));
        assert!(satisfied("Apache-2.0 WITH LLVM-exception OR GPL-2.0-only"));
        assert!(!satisfied("GPL-3.0-only"));
    }

    #[test]
    fn all_parts_of_a_conjunction_count() {
        assert!(satisfied("(MIT OR GPL-3.0-only) AND Apache-2.0"));
        assert!(!satisfied("(MIT OR Apache-2.0) AND OpenSSL"));
    }

    #[test]
    fn and_binds_before_or() {
        assert!(satisfied("MIT OR GPL-3.0-only AND OpenSSL"));
        assert!(!satisfied("GPL-3.0-only OR MIT AND OpenSSL"));
    }

    #[test]
    fn nonsense_is_an_error() {
        for text in [
            "",
            "MIT OR",
            "(MIT",
            "MIT)",
            "AND",
            "MIT Apache-2.0",
            "MIT WITH",
        ] {
            assert!(is_satisfied(text, &["MIT"]).is_err(), "{text:?}");
        }
    }
}
