//! Which problem an answer is: Headscale's own refusals in JSON, its plain words, a proxy's pages.

use serde::Deserialize;

use super::problem::Problem;

/// As much as is shown of what a stranger says.
const MOST_CHARS: usize = 200;
/// What all keys of Headscale begin with since 0.28.
const KEY: &str = "hskey-";
/// <https://grpc.io/docs/guides/status-codes/>
const NOT_FOUND: i32 = 5;
const UNKNOWN: i32 = 2;
const INVALID_ARGUMENT: i32 = 3;

/// How grpc-gateway words an error.
#[derive(Deserialize)]
struct Refusal {
    code: i32,
    #[serde(default)]
    message: String,
}

/// The problem that an answer of this status, which is neither success nor redirect, stands for.
pub(super) fn problem(status: u16, body: &[u8]) -> Problem {
    let text = String::from_utf8_lossy(body);
    // Headscale 0.26 says so with a status of 500.
    let is_unauthorized = status == 401 || (status == 500 && text.trim() == "Unauthorized");
    if is_unauthorized {
        return Problem::Unauthorized;
    }
    let Ok(refusal) = serde_json::from_slice::<Refusal>(body) else {
        return Problem::Refused {
            status,
            code: None,
            message: one_line(&readable(&text)),
        };
    };
    let message = one_line(&refusal.message);
    if refusal.code == NOT_FOUND {
        return Problem::NotFound { message };
    }
    Problem::Refused {
        status,
        code: Some(refusal.code),
        message,
    }
}

/// What a call about one thing means by a refusal: not every version has a code for things that are
/// missing. It is not for calls that carry a text of ours, such as policies: what is missing there is
/// something else.
pub(super) fn about_one_thing(problem: Problem) -> Problem {
    const WORDS: [&str; 4] = [
        "record not found",
        "node not found",
        "user not found",
        "node no longer exists",
    ];
    match problem {
        Problem::Refused {
            code: Some(UNKNOWN | INVALID_ARGUMENT),
            message,
            ..
        } if WORDS.iter().any(|words| message.contains(words)) => Problem::NotFound { message },
        other => other,
    }
}

/// What a page says: its title, else its text.
pub(super) fn readable(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    if !lower.contains("<html") && !lower.contains("<!doctype") {
        return text.to_owned();
    }
    let title = lower.find("<title>").zip(lower.find("</title>"));
    if let Some((begin, end)) = title
        && let Some(title) = text.get(begin + "<title>".len()..end)
        && !title.trim().is_empty()
    {
        return format!("a page: {}", title.trim());
    }
    let mut words = String::new();
    let mut is_tag = false;
    for letter in text.chars() {
        match letter {
            '<' => is_tag = true,
            '>' if is_tag => {
                is_tag = false;
                words.push(' ');
            }
            _ if !is_tag => words.push(letter),
            _ => {}
        }
    }
    format!("a page: {words}")
}

/// A stranger's text for a log: one line, short, and without keys.
pub(super) fn one_line(text: &str) -> String {
    let is_shown = |letter: &char| !letter.is_control();
    let words = text.split_whitespace().map(|word| match word.find(KEY) {
        Some(at) => format!("{}{KEY}…", &word[..at]),
        None => word.chars().filter(is_shown).collect(),
    });
    let line = words.collect::<Vec<String>>().join(" ");
    match line.char_indices().nth(MOST_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(401, "Unauthorized")]
    #[case(500, "Unauthorized")]
    #[case(401, "<html><title>401</title></html>")]
    fn a_key_that_is_not_taken(#[case] status: u16, #[case] body: &str) {
        assert_eq!(problem(status, body.as_bytes()), Problem::Unauthorized);
    }

    #[test]
    fn what_is_missing_has_a_code() {
        let body = r#"{"code":5,"message":"Not Found","details":[]}"#;
        let message = "Not Found".to_owned();
        assert_eq!(problem(404, body.as_bytes()), Problem::NotFound { message });
    }

    #[rstest]
    #[case(500, r#"{"code":2,"message":"record not found","details":[]}"#)]
    #[case(500, r#"{"code":2,"message":"deleting: node not found"}"#)]
    #[case(400, r#"{"code":3,"message":"node no longer exists in NodeStore: 1"}"#)]
    fn what_is_missing_has_other_codes_as_well(#[case] status: u16, #[case] body: &str) {
        let problem = problem(status, body.as_bytes());
        assert!(matches!(problem, Problem::Refused { .. }), "{problem:?}");
        let problem = about_one_thing(problem);
        assert!(matches!(problem, Problem::NotFound { .. }), "{problem:?}");
    }

    #[rstest]
    #[case(404, "404 page not found", None, "404 page not found")]
    #[case(
        502,
        "<html>\n<head><title>502 Bad Gateway</title></head><body>nginx</body></html>",
        None,
        "a page: 502 Bad Gateway"
    )]
    #[case(
        503,
        "<!DOCTYPE html><body><h1>Soon</h1>back</body>",
        None,
        "a page: Soon back"
    )]
    #[case(
        400,
        r#"{"code":3,"message":"no\n\tgood","details":[]}"#,
        Some(3),
        "no good"
    )]
    #[case(500, "{}", None, "{}")]
    #[case(504, "", None, "")]
    fn a_refusal_is_shown_in_short(
        #[case] status: u16,
        #[case] body: &str,
        #[case] code: Option<i32>,
        #[case] message: &str,
    ) {
        let message = message.to_owned();
        let refused = Problem::Refused {
            status,
            code,
            message,
        };
        assert_eq!(problem(status, body.as_bytes()), refused);
    }

    #[test]
    fn strangers_words_are_short_and_have_no_keys() {
        assert_eq!(
            one_line(&"word ".repeat(1000)).chars().count(),
            MOST_CHARS + 1
        );
        let line = one_line("bad key \"hskey-auth-abc-def\" and\u{1b}[31m more");
        assert_eq!(line, "bad key \"hskey-… and[31m more");
    }
}
