//! Patterns of `case`, `[[` and `${NAME#…}`: `*`, `?` and `[…]`.

/// Pattern as a sequence of matchers for characters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Pattern(Vec<Item>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Item {
    This(char),
    Any,
    Many,
    /// A character within one of these ranges. With `true`, a character outside of all of them.
    Of(bool, Vec<(char, char)>),
}

impl Pattern {
    /// Appends text as a pattern, or literally if `quoted`.
    pub(crate) fn push(&mut self, text: &str, quoted: bool) {
        if quoted {
            self.0.extend(text.chars().map(Item::This));
            return;
        }
        let mut rest = text;
        while let Some(next) = rest.chars().next() {
            let mut length = next.len_utf8();
            self.0.push(match next {
                '*' => Item::Many,
                '?' => Item::Any,
                '[' => match set(rest) {
                    Some((item, end)) => {
                        length = end;
                        item
                    }
                    None => Item::This('['),
                },
                other => Item::This(other),
            });
            rest = &rest[length..];
        }
    }

    /// Returns whether the pattern matches all of `text`. The number of steps is at most the product of both
    /// lengths.
    pub(crate) fn fits(&self, text: &[char]) -> bool {
        let (items, mut item, mut at) = (&self.0, 0, 0);
        let mut star: Option<(usize, usize)> = None;
        while at < text.len() {
            match items.get(item) {
                Some(Item::Many) => {
                    star = Some((item + 1, at));
                    item += 1;
                }
                Some(one) if one.fits(text[at]) => {
                    item += 1;
                    at += 1;
                }
                _ => {
                    let Some((after, from)) = star else { return false };
                    star = Some((after, from + 1));
                    item = after;
                    at = from + 1;
                }
            }
        }
        items[item..].iter().all(|item| *item == Item::Many)
    }
}

impl Item {
    fn fits(&self, c: char) -> bool {
        match self {
            Self::This(this) => *this == c,
            Self::Any | Self::Many => true,
            Self::Of(no, ranges) => {
                ranges.iter().any(|(from, to)| (*from..=*to).contains(&c)) != *no
            }
        }
    }
}

/// Parses `[…]` at the start of the text. Returns the matcher and its length in bytes.
fn set(text: &str) -> Option<(Item, usize)> {
    let body = text.strip_prefix('[')?;
    let no = body.starts_with(['!', '^']);
    let body = &body[usize::from(no)..];
    let end = body.char_indices().skip(1).find(|(_, c)| *c == ']')?.0;
    let chars: Vec<char> = body[..end].chars().collect();
    let (mut ranges, mut at) = (Vec::new(), 0);
    while at < chars.len() {
        if at + 2 < chars.len() && chars[at + 1] == '-' {
            ranges.push((chars[at], chars[at + 2]));
            at += 3;
        } else {
            ranges.push((chars[at], chars[at]));
            at += 1;
        }
    }
    Some((Item::Of(no, ranges), 1 + usize::from(no) + end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_texts() {
        for (pattern, text, want) in [
            ("*", "", true),
            ("a*c", "abbc", true),
            ("a*c", "abcd", false),
            ("a?c", "abc", true),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]]", "]", true),
            ("[", "[", true),
            ("*a*b*", "xxaxxbxx", true),
            ("é?", "éü", true),
        ] {
            let mut read = Pattern::default();
            read.push(pattern, false);
            let text: Vec<char> = text.chars().collect();
            assert_eq!(read.fits(&text), want, "{pattern} {text:?}");
        }
        let mut quoted = Pattern::default();
        quoted.push("*", true);
        assert!(!quoted.fits(&['a']) && quoted.fits(&['*']));
    }

    #[test]
    fn many_stars_take_at_most_quadratic_time() {
        let mut pattern = Pattern::default();
        pattern.push(&"*a".repeat(1000), false);
        assert!(!pattern.fits(&vec!['b'; 10_000]));
    }
}
