//! What a person is told by a running daemon: the same in every place where one looks.

use lab::{JOIN_TIMEOUT, MeshNode, eventually};

/// Waits until a condition fails with these words, in `/ready`, as a metric and in the log alike; what
/// `/ready` says.
pub(crate) fn await_failing(member: &MeshNode, condition: &str, words: &[&str]) -> String {
    let has_all = |text: &str| words.iter().all(|word| text.contains(word));
    let what = format!("{condition} fails with {words:?}");
    let said = eventually(JOIN_TIMEOUT, &what, || {
        let (holds, said) = member.condition(condition).ok()?;
        let is_logged = || {
            let log = member.log();
            let mut lines = log.lines().filter(|line| is_of(line, condition));
            lines.any(|line| line.contains("condition does not hold") && has_all(line))
        };
        let is_told = !holds && has_all(&said) && !gauge(member, condition)? && is_logged();
        is_told.then_some(said)
    });
    said.unwrap_or_else(|error| panic!("{error:#}\n{}", member.told()))
}

/// Waits until a condition holds, in all these places.
pub(crate) fn await_holding(member: &MeshNode, condition: &str) {
    let what = format!("{condition} holds");
    let holds = eventually(JOIN_TIMEOUT, &what, || {
        let (holds, _) = member.condition(condition).ok()?;
        let log = member.log();
        let last = log.lines().rfind(|line| is_of(line, condition))?;
        let is_told = holds && gauge(member, condition)? && last.contains("condition holds");
        is_told.then_some(())
    });
    holds.unwrap_or_else(|error| panic!("{error:#}\n{}", member.told()));
}

/// Whether a condition holds by its metric.
fn gauge(member: &MeshNode, condition: &str) -> Option<bool> {
    let readings = member.readings().ok()?;
    let value = readings.sum("headcni_condition", &[("condition", condition)])?;
    Some(value > 0.5)
}

fn is_of(line: &str, condition: &str) -> bool {
    line.contains(&format!("condition={condition} "))
}
