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
    /// Parses a query string. In values, a backslash escapes commas, equal signs and backslashes.
    ///
    /// # Errors
    /// Fails if a term has no operator, or an escape is unknown or missing.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let terms = split_terms(text).into_iter().filter(|term| !term.is_empty());
        terms.map(parse_term).collect::<Result<_, _>>().map(Self)
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

/// Parses a term such as `a=b`. The first operator in the term separates field and value.
fn parse_term(term: &str) -> Result<FieldTerm, SelectorError> {
    let first_operator = term.char_indices().find_map(|(index, _)| {
        let (operator, equal) =
            OPERATORS.into_iter().find(|(operator, _)| term[index..].starts_with(operator))?;
        Some((index, operator, equal))
    });
    let Some((index, operator, equal)) = first_operator else {
        return Err(SelectorError::new(format!(
            "invalid selector: '{term}'; can't understand '{term}'"
        )));
    };
    Ok(FieldTerm {
        field: term[..index].into(),
        equal,
        value: unescape(&term[index + operator.len()..])?.into(),
    })
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
                return Err(SelectorError::new(format!(
                    "invalid field selector: unescaped character in value: {value:?} ({c})"
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
