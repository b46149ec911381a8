//! Brace expansion of bash: `{a,b}` and `{1..5}`.

/// Maximum number of words that one word expands to.
const MAX_WORDS: usize = 10_001;
/// Maximum number of expanded pairs of braces that are nested or follow each other.
const MAX_DEPTH: usize = 16;

/// Maximum number of opening braces of one word.
const MAX_BRACES: usize = 100;

/// Expands the braces of a word without quotes and other expansions. Returns `None` if braces, nesting or words
/// exceed the maximum.
pub(crate) fn expand(text: &str) -> Option<Vec<String>> {
    if text.matches('{').nth(MAX_BRACES).is_some() { None } else { expand_nested(text, 0) }
}

fn expand_nested(text: &str, depth: usize) -> Option<Vec<String>> {
    if depth > MAX_DEPTH {
        return None;
    }
    let Some((before, choices, after)) = first_braces(text) else {
        return Some(vec![text.to_owned()]);
    };
    let choices = match choices {
        Choices::Range(words) => words,
        Choices::Texts(texts) => {
            let mut words = Vec::new();
            for text in texts {
                words.extend(expand_nested(text, depth + 1)?);
            }
            words
        }
    };
    let endings = expand_nested(after, depth + 1)?;
    if choices.len().saturating_mul(endings.len()) > MAX_WORDS {
        return None;
    }
    let words = choices
        .iter()
        .flat_map(|choice| endings.iter().map(move |ending| format!("{before}{choice}{ending}")));
    Some(words.collect())
}

/// Alternatives within a pair of braces.
enum Choices<'t> {
    Texts(Vec<&'t str>),
    Range(Vec<String>),
}

/// Returns the alternatives of the first pair of braces that can be expanded, with the text before and after it.
fn first_braces(text: &str) -> Option<(&str, Choices<'_>, &str)> {
    for (open, _) in text.match_indices('{') {
        let inner = &text[open + 1..];
        let Some((commas, close)) = comma_positions(inner) else { continue };
        let (inner, after) = (&inner[..close], &inner[close + 1..]);
        let choices = if commas.is_empty() {
            let Some(range) = range(inner) else { continue };
            Choices::Range(range)
        } else {
            let starts = [0].into_iter().chain(commas.iter().map(|comma| comma + 1));
            let ends = commas.iter().copied().chain([close]);
            Choices::Texts(starts.zip(ends).map(|(start, end)| &inner[start..end]).collect())
        };
        return Some((&text[..open], choices, after));
    }
    None
}

/// Returns the positions of the commas between a pair of braces, and of the closing brace. `inner` begins after the
/// opening brace.
fn comma_positions(inner: &str) -> Option<(Vec<usize>, usize)> {
    let (mut depth, mut commas) = (0_usize, Vec::new());
    for (at, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => return Some((commas, at)),
            '}' => depth -= 1,
            ',' if depth == 0 => commas.push(at),
            _ => {}
        }
    }
    None
}

/// Expands a range such as `1..5` or `a..e`, with an optional step as in `1..9..2`. Returns `None` if `text` is not a
/// range, or the range is too long.
fn range(text: &str) -> Option<Vec<String>> {
    let mut parts = text.split("..");
    let (from, to, step) = (parts.next()?, parts.next()?, parts.next());
    if parts.next().is_some() {
        return None;
    }
    let step: i64 = step.map_or(Some(1), |step| step.parse().ok())?;
    let step = usize::try_from(step.unsigned_abs().max(1)).ok()?;
    let letter = |text: &str| match text.as_bytes() {
        [c] if c.is_ascii_alphabetic() => Some(i64::from(*c)),
        _ => None,
    };
    if let (Some(from), Some(to)) = (letter(from), letter(to)) {
        let to_letter =
            |code: i64| u8::try_from(code).ok().map(|code| char::from(code).to_string());
        return numbers(from, to, step)?.into_iter().map(to_letter).collect();
    }
    // A leading zero pads all numbers to the width of the widest.
    let digits = |text: &str| text.trim_start_matches('-').to_owned();
    let is_padded =
        [from, to].iter().any(|number| digits(number).len() > 1 && digits(number).starts_with('0'));
    let width = if is_padded { from.len().max(to.len()) } else { 0 };
    let values = numbers(from.parse().ok()?, to.parse().ok()?, step)?;
    Some(values.into_iter().map(|value| format!("{value:0width$}")).collect())
}

/// Returns the numbers from `from` to `to`, up or down, or `None` if there are more than the maximum.
fn numbers(from: i64, to: i64, step: usize) -> Option<Vec<i64>> {
    if from.abs_diff(to) / step as u64 >= MAX_WORDS as u64 {
        return None;
    }
    Some(if from <= to {
        (from..=to).step_by(step).collect()
    } else {
        (to..=from).rev().step_by(step).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_are_expanded_as_bash_does() {
        for (text, want) in [
            ("a{b,c}d", "abd acd"),
            ("{a,b}{1,2}", "a1 a2 b1 b2"),
            ("{a,{b,c}x,}y", "ay bxy cxy y"),
            ("{1..4}", "1 2 3 4"),
            ("x{3..1}y", "x3y x2y x1y"),
            ("{01..10..4}", "01 05 09"),
            ("{-1..1}", "-1 0 1"),
            ("{a..e..2}", "a c e"),
            ("{5..1..2}", "5 3 1"),
            ("{} {a} a,b} {a,b", "{} {a} a,b} {a,b"),
            ("{a}{b,c}", "{a}b {a}c"),
            ("{1..x}", "{1..x}"),
            ("{{1..2},é}", "1 2 é"),
        ] {
            assert_eq!(expand(text).map(|words| words.join(" ")).as_deref(), Some(want), "{text}");
        }
    }

    #[test]
    fn words_beyond_the_maximum_are_rejected() {
        assert_eq!(expand(&"{1..100}".repeat(3)), None);
        assert_eq!(expand(&"{a,b}".repeat(40)), None);
        assert_eq!(expand(&"{".repeat(60_000)), None);
        assert_eq!(
            expand("{1..9223372036854775807}"),
            Some(vec!["{1..9223372036854775807}".into()])
        );
    }
}
