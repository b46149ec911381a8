//! Field selectors: `metadata.name=a,spec.nodeName!=b`.

use crate::text::Text;
use std::fmt;

use super::SelectorError;

/// A parsed field selector. Parsing does not check whether a kind has the fields.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct FieldSelector(Box<[FieldTerm]>);

/// Requirement on one field.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FieldTerm {
    /// Path of the field.
    pub field: Text,
    /// Whether the field must equal the value; otherwise it must differ.
    pub equal: bool,
    /// Value to compare the field with.
    pub value: Text,
}

impl FieldSelector {
    /// Parses a query string. In values, a backslash escapes commas, equal signs and backslashes. A term without field
    /// and value, such as `!=`, has no effect. The terms are sorted, which decides the one that an error names.
    ///
    /// Upstream: `parseSelector`.
    ///
    /// # Errors
    /// Fails if a term has no operator, or an escape is unknown or missing.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut parts = split_terms(text);
        parts.sort_unstable();
        let parts = parts.into_iter().filter(|part| !part.is_empty());
        let terms = parts.map(|part| {
            parse_term(part)?.ok_or_else(|| {
                let why = format!("invalid selector: '{text}'; can't understand '{part}'");
                SelectorError::new(why)
            })
        });
        let has_effect = |term: &FieldTerm| !(term.field.is_empty() && term.value.is_empty());
        let terms = terms.filter(|term| term.as_ref().map_or(true, has_effect));
        terms.collect::<Result<_, _>>().map(Self)
    }

    /// Returns the requirements; an empty list matches everything.
    pub fn terms(&self) -> &[FieldTerm] {
        &self.0
    }

    /// Returns whether the selector matches everything.
    pub fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether the selector matches an object. `get` returns a field's value, empty for a missing field.
    pub fn matches<'a>(&self, get: impl Fn(&str) -> &'a str) -> bool {
        self.0.iter().all(|term| (get(&term.field) == &*term.value) == term.equal)
    }

    /// Returns the only value that `field` can have; `None` if there may be several.
    ///
    /// Upstream: `RequiresExactMatch`.
    pub fn exact(&self, field: &str) -> Option<&str> {
        self.0.iter().find(|term| term.equal && *term.field == *field).map(|term| &*term.value)
    }
}

/// Splits at unescaped commas.
fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b',' => {
                terms.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

/// Operators of field selectors, and whether each requires equality. An operator is listed before its own prefixes.
const OPERATORS: [(&str, bool); 3] = [("!=", false), ("==", true), ("=", true)];

/// Parses a term such as `a=b`. The first operator in the term separates field and value; without one, returns `None`.
fn parse_term(term: &str) -> Result<Option<FieldTerm>, SelectorError> {
    let first_operator = term.char_indices().find_map(|(index, _)| {
        let (operator, equal) =
            OPERATORS.into_iter().find(|(operator, _)| term[index..].starts_with(operator))?;
        Some((index, operator, equal))
    });
    let Some((index, operator, equal)) = first_operator else { return Ok(None) };
    let value = unescape(&term[index + operator.len()..])?.into();
    Ok(Some(FieldTerm { field: term[..index].into(), equal, value }))
}

fn unescape(value: &str) -> Result<String, SelectorError> {
    let mut plain = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => plain.push(c),
                Some(c) => {
                    return Err(SelectorError::new(format!(
                        "invalid field selector: invalid escape sequence: \\{c}"
                    )));
                }
                None => {
                    return Err(SelectorError::new(
                        "invalid field selector: invalid escape sequence: \\",
                    ));
                }
            },
            ',' | '=' => {
                // Upstream formats the character as a number.
                return Err(SelectorError::new(format!(
                    "invalid field selector: unescaped character in value: {}",
                    u32::from(c)
                )));
            }
            c => plain.push(c),
        }
    }
    Ok(plain)
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, term) in self.0.iter().enumerate() {
            let value = term.value.replace('\\', r"\\").replace(',', r"\,").replace('=', r"\=");
            let comma = if index > 0 { "," } else { "" };
            let operator = if term.equal { "=" } else { "!=" };
            write!(f, "{comma}{}{operator}{value}", term.field)?;
        }
        Ok(())
    }
}

impl std::str::FromStr for FieldSelector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_upstreams() {
        for (text, error) in [
            ("b,a", "invalid selector: 'b,a'; can't understand 'a'"),
            ("a=b=c", "invalid field selector: unescaped character in value: 61"),
            (r"a=\x", r"invalid field selector: invalid escape sequence: \x"),
            (r"a=\", r"invalid field selector: invalid escape sequence: \"),
        ] {
            let found = FieldSelector::parse(text).expect_err("invalid").to_string();
            assert_eq!(found, error, "{text}");
        }
    }

    #[test]
    fn terms_without_field_and_value_have_no_effect() {
        let parse = |text| FieldSelector::parse(text).expect("valid");
        for text in ["", ",", "=", "==", "!=", "=,!="] {
            assert!(parse(text).is_everything(), "{text}");
        }
        assert_eq!(parse("b=1,,=,a!=2"), parse("a!=2,b==1"));
        assert_eq!(parse("=a").terms().len(), 1);
    }
}
