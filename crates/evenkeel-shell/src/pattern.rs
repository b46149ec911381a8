//! Patterns of `case`, `[[` and `${NAME#…}`: `*`, `?` and `[…]`.

/// Pattern as a sequence of matchers for characters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Pattern(Vec<Matcher>);

/// Matcher for one character or, for `*`, any number of characters.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Matcher {
    /// Exactly this character.
    Literal(char),
    /// `?`: any character.
    AnyCharacter,
    /// `*`: any number of characters.
    AnySequence,
    /// `[…]`: a character within one of the ranges. If `negated`, a character outside of all of them.
    Class { negated: bool, ranges: Vec<(char, char)> },
}

impl Pattern {
    /// Appends text as a pattern, or literally if `quoted`.
    pub(crate) fn push(&mut self, text: &str, quoted: bool) {
        if quoted {
            self.0.extend(text.chars().map(Matcher::Literal));
            return;
        }
        let mut rest = text;
        while let Some(next) = rest.chars().next() {
            let mut length = next.len_utf8();
            self.0.push(match next {
                '*' => Matcher::AnySequence,
                '?' => Matcher::AnyCharacter,
                '[' => match parse_class(rest) {
                    Some((matcher, end)) => {
                        length = end;
                        matcher
                    }
                    None => Matcher::Literal('['),
                },
                other => Matcher::Literal(other),
            });
            rest = &rest[length..];
        }
    }

    /// Returns whether the pattern matches all of `text`. The number of steps is at most the product of both
    /// lengths.
    pub(crate) fn matches(&self, text: &[char]) -> bool {
        let (matchers, mut index, mut position) = (&self.0, 0, 0);
        // The matcher after the last `*`, and the first character that this `*` does not match.
        let mut last_star: Option<(usize, usize)> = None;
        while position < text.len() {
            match matchers.get(index) {
                Some(Matcher::AnySequence) => {
                    last_star = Some((index + 1, position));
                    index += 1;
                }
                Some(matcher) if matcher.matches(text[position]) => {
                    index += 1;
                    position += 1;
                }
                _ => {
                    // Retry from the last `*`, which matches one character more.
                    let Some((after_star, star_end)) = last_star else { return false };
                    last_star = Some((after_star, star_end + 1));
                    index = after_star;
                    position = star_end + 1;
                }
            }
        }
        matchers[index..].iter().all(|matcher| *matcher == Matcher::AnySequence)
    }
}

impl Matcher {
    fn matches(&self, c: char) -> bool {
        match self {
            Self::Literal(literal) => *literal == c,
            Self::AnyCharacter | Self::AnySequence => true,
            Self::Class { negated, ranges } => {
                ranges.iter().any(|(from, to)| (*from..=*to).contains(&c)) != *negated
            }
        }
    }
}

/// Parses `[…]` at the start of the text. Returns the matcher and its length in bytes.
fn parse_class(text: &str) -> Option<(Matcher, usize)> {
    let body = text.strip_prefix('[')?;
    let negated = body.starts_with(['!', '^']);
    let body = &body[usize::from(negated)..];
    // A `]` directly after the opening is part of the class.
    let end = body.char_indices().skip(1).find(|(_, c)| *c == ']')?.0;
    let chars: Vec<char> = body[..end].chars().collect();
    let (mut ranges, mut index) = (Vec::new(), 0);
    while index < chars.len() {
        if index + 2 < chars.len() && chars[index + 1] == '-' {
            ranges.push((chars[index], chars[index + 2]));
            index += 3;
        } else {
            ranges.push((chars[index], chars[index]));
            index += 1;
        }
    }
    Some((Matcher::Class { negated, ranges }, 1 + usize::from(negated) + end + 1))
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
            assert_eq!(read.matches(&text), want, "{pattern} {text:?}");
        }
        let mut quoted = Pattern::default();
        quoted.push("*", true);
        assert!(!quoted.matches(&['a']) && quoted.matches(&['*']));
    }

    #[test]
    fn many_stars_take_at_most_quadratic_time() {
        let mut pattern = Pattern::default();
        pattern.push(&"*a".repeat(1000), false);
        assert!(!pattern.matches(&vec!['b'; 10_000]));
    }
}
