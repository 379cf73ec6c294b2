//! Lists as text, for conditions and logs.

use std::fmt;

/// A node may have hundreds of peers.
const MAX_ITEMS: usize = 4;

/// The first items, and how many more there are.
pub fn truncate_list<T: fmt::Display>(all: impl IntoIterator<Item = T>, separator: &str) -> String {
    let mut all = all.into_iter();
    let named: Vec<String> = all
        .by_ref()
        .take(MAX_ITEMS)
        .map(|it| it.to_string())
        .collect();
    let named = named.join(separator);
    match all.count() {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_items_are_listed_and_the_others_counted() {
        assert_eq!(truncate_list([""; 0], ", "), "");
        assert_eq!(truncate_list(1..=4, ", "), "1, 2, 3, 4");
        assert_eq!(truncate_list(1..=200, "; "), "1; 2; 3; 4 and 196 more");
    }
}
