//! Text of the server or a proxy, made safe for logs and messages.

const MAX_CHARS: usize = 200;
/// Prefix of all Headscale keys since 0.28.
const KEY_PREFIX: &str = "hskey-";

/// One short line without control characters and keys.
pub(crate) fn one_line(text: &str) -> String {
    let words = text
        .split_whitespace()
        .map(|word| match word.find(KEY_PREFIX) {
            Some(at) => format!("{}{KEY_PREFIX}…", &word[..at]),
            None => word.chars().filter(|letter| !letter.is_control()).collect(),
        });
    let line = words.collect::<Vec<String>>().join(" ");
    match line.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// The title of an HTML page, or else its text; any other text as it is.
pub(crate) fn page_text(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    if !lower.contains("<html") && !lower.contains("<!doctype") {
        return text.to_owned();
    }
    let title = lower.find("<title>").zip(lower.find("</title>"));
    if let Some((begin, end)) = title
        && let Some(title) = text.get(begin + "<title>".len()..end)
        && !title.trim().is_empty()
    {
        return format!("web page: {}", title.trim());
    }
    let mut content = String::new();
    let mut in_tag = false;
    for letter in text.chars() {
        match letter {
            '<' => in_tag = true,
            '>' if in_tag => {
                in_tag = false;
                content.push(' ');
            }
            _ if !in_tag => content.push(letter),
            _ => {}
        }
    }
    format!("web page: {content}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_text_is_short_and_has_no_keys() {
        let long = one_line(&"word ".repeat(1000));
        assert_eq!(long.chars().count(), MAX_CHARS + 1);
        let line = one_line("bad key \"hskey-auth-abc-def\" and\u{1b}[31m more");
        assert_eq!(line, "bad key \"hskey-… and[31m more");
    }
}
