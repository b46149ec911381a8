//! Numbers with their nouns in messages.

use std::fmt::Display;

/// Formats a number with its noun, whose plural has an `s`: `1 pod`, `3 pods`.
pub fn counted<N: Copy + Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    format!("{count} {noun}{}", if count == N::from(1) { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_is_singular() {
        assert_eq!([0, 1, 2].map(|count| counted(count, "pod")), ["0 pods", "1 pod", "2 pods"]);
    }
}
