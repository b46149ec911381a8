//! Label and field selectors of queries, as upstream reads and refuses them.

use crate::resource::ResourceType;
use crate::status::{StatusError, quote};
use crate::store::Entry;

/// Both selectors of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Selectors {
    labels: Vec<Requirement>,
    fields: Vec<FieldRequirement>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct FieldRequirement {
    field: Field,
    equal: bool,
    value: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Name,
    Namespace,
    /// At this place among the kind's selectable fields.
    At(usize),
}

impl Selectors {
    /// Reads `labelSelector` and `fieldSelector`.
    pub(crate) fn parse(
        resource: &ResourceType,
        labels: &str,
        fields: &str,
    ) -> Result<Self, StatusError> {
        Ok(Self { labels: parse_labels(labels)?, fields: parse_fields(resource, fields)? })
    }

    /// Whether everything is selected.
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// The one name that can be selected, where the fields say so.
    pub(crate) fn name(&self) -> Option<&str> {
        self.fields.iter().find(|r| r.equal && r.field == Field::Name).map(|r| r.value.as_str())
    }

    /// Whether an object is selected.
    pub(crate) fn matches(&self, entry: &Entry) -> bool {
        self.labels.iter().all(|r| r.matches(entry.facets.label(&r.key)))
            && self.fields.iter().all(|r| {
                let (namespace, name) = entry.key.split_once('/').unwrap_or(("", &entry.key));
                let value = match r.field {
                    Field::Name => name,
                    Field::Namespace => namespace,
                    Field::At(at) => entry.facets.field(at),
                };
                (value == r.value) == r.equal
            })
    }
}

impl Requirement {
    fn matches(&self, value: Option<&str>) -> bool {
        let within = |v: &str| self.values.iter().any(|x| x == v);
        match self.operator {
            Operator::In => value.is_some_and(within),
            Operator::NotIn => !value.is_some_and(within),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan | Operator::LessThan => {
                let bound = self.values.first().and_then(|v| v.parse::<i64>().ok());
                match (value.and_then(|v| v.parse::<i64>().ok()), bound) {
                    (Some(v), Some(bound)) if self.operator == Operator::GreaterThan => v > bound,
                    (Some(v), Some(bound)) => v < bound,
                    _ => false,
                }
            }
        }
    }
}

fn unparsable(why: &str) -> StatusError {
    StatusError::bad_request(format!("unable to parse requirement: {why}"))
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    Sign(&'static str),
    End,
}

fn tokens(text: &str) -> Vec<Token> {
    const SIGNS: [&str; 10] = ["==", "!=", "=", "!", "(", ")", ",", ">", "<", "\u{0}"];
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        if let Some(sign) = SIGNS.iter().find(|s| rest.starts_with(**s)) {
            tokens.push(Token::Sign(sign));
            rest = &rest[sign.len()..];
        } else {
            let end = rest
                .find(|c: char| c.is_whitespace() || "=!(),><".contains(c))
                .unwrap_or(rest.len());
            tokens.push(Token::Word(rest[..end].to_owned()));
            rest = &rest[end..];
        }
        rest = rest.trim_start();
    }
    tokens.push(Token::End);
    tokens
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> &Token {
        self.tokens.get(self.at).unwrap_or(&Token::End)
    }

    fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.at += 1;
        token
    }

    fn shown(token: &Token) -> String {
        match token {
            Token::Word(word) => word.clone(),
            Token::Sign(sign) => (*sign).to_owned(),
            Token::End => String::new(),
        }
    }

    fn requirement(&mut self) -> Result<Requirement, StatusError> {
        let not = *self.peek() == Token::Sign("!");
        if not {
            self.next();
        }
        let key = match self.next() {
            Token::Word(word) => word,
            other => {
                let found = Self::shown(&other);
                return Err(unparsable(&format!("found '{found}', expected: identifier")));
            }
        };
        check_key(&key)?;
        if not {
            return Ok(Requirement { key, operator: Operator::DoesNotExist, values: Vec::new() });
        }
        if matches!(self.peek(), Token::End | Token::Sign(",")) {
            return Ok(Requirement { key, operator: Operator::Exists, values: Vec::new() });
        }
        let (operator, set) = match self.next() {
            Token::Sign("=" | "==") => (Operator::In, false),
            Token::Sign("!=") => (Operator::NotIn, false),
            Token::Sign(">") => (Operator::GreaterThan, false),
            Token::Sign("<") => (Operator::LessThan, false),
            Token::Word(word) if word == "in" => (Operator::In, true),
            Token::Word(word) if word == "notin" => (Operator::NotIn, true),
            other => {
                let found = Self::shown(&other);
                return Err(unparsable(&format!(
                    "found '{found}', expected: in, notin, =, ==, !=, gt, lt"
                )));
            }
        };
        let values = if set { self.set()? } else { vec![self.value()?] };
        for (at, value) in values.iter().enumerate() {
            check_value(&key, at, value)?;
            if matches!(operator, Operator::GreaterThan | Operator::LessThan)
                && value.parse::<i64>().is_err()
            {
                return Err(unparsable(&format!(
                    "values[{at}][{key}]: Invalid value: {}: for 'Gt', 'Lt' operators, the value must be an integer",
                    quote(value)
                )));
            }
        }
        Ok(Requirement { key, operator, values })
    }

    fn value(&mut self) -> Result<String, StatusError> {
        match self.peek() {
            Token::End | Token::Sign(",") => Ok(String::new()),
            Token::Word(_) => Ok(Self::shown(&self.next())),
            other @ Token::Sign(_) => {
                Err(unparsable(&format!("found '{}', expected: identifier", Self::shown(other))))
            }
        }
    }

    fn set(&mut self) -> Result<Vec<String>, StatusError> {
        let open = self.next();
        if open != Token::Sign("(") {
            return Err(unparsable(&format!("found '{}' expected: '('", Self::shown(&open))));
        }
        let mut values = Vec::new();
        let mut after_comma = true;
        loop {
            match self.next() {
                Token::Word(word) => {
                    values.push(word);
                    after_comma = false;
                }
                Token::Sign(",") => {
                    if after_comma {
                        values.push(String::new());
                    }
                    after_comma = true;
                }
                Token::Sign(")") => {
                    if after_comma {
                        values.push(String::new());
                    }
                    values.sort();
                    values.dedup();
                    return Ok(values);
                }
                other => {
                    let found = Self::shown(&other);
                    return Err(unparsable(&format!("found '{found}', expected: ',', or ')'")));
                }
            }
        }
    }
}

fn parse_labels(text: &str) -> Result<Vec<Requirement>, StatusError> {
    let mut parser = Parser { tokens: tokens(text), at: 0 };
    let mut requirements = Vec::new();
    if *parser.peek() == Token::End {
        return Ok(requirements);
    }
    loop {
        requirements.push(parser.requirement()?);
        match parser.next() {
            Token::End => return Ok(requirements),
            Token::Sign(",") => {
                if !matches!(parser.peek(), Token::Word(_) | Token::Sign("!")) {
                    let found = Parser::shown(parser.peek());
                    return Err(StatusError::bad_request(format!(
                        "found '{found}', expected: identifier after ','"
                    )));
                }
            }
            other => {
                let found = Parser::shown(&other);
                return Err(StatusError::bad_request(format!(
                    "found '{found}', expected: ',' or 'end of string'"
                )));
            }
        }
    }
}

fn check_key(key: &str) -> Result<(), StatusError> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let mut problems = Vec::new();
    match prefix {
        Some("") => problems.push("prefix part must be non-empty".to_owned()),
        Some(p) if !is_subdomain(p) => problems.push(format!("prefix part {SUBDOMAIN}")),
        _ => {}
    }
    if name.contains('/') {
        problems = vec![QUALIFIED.to_owned()];
    } else if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        problems.push("name part must be no more than 63 bytes".to_owned());
    } else if !is_name(name) {
        problems.push(format!("name part {NAME}"));
    }
    if problems.is_empty() {
        return Ok(());
    }
    Err(unparsable(&format!("key: Invalid value: {}: {}", quote(key), problems.join("; "))))
}

fn check_value(key: &str, at: usize, value: &str) -> Result<(), StatusError> {
    let problem = if value.len() > 63 {
        "must be no more than 63 bytes"
    } else if !value.is_empty() && !is_name(value) {
        LABEL_VALUE
    } else {
        return Ok(());
    };
    Err(unparsable(&format!("values[{at}][{key}]: Invalid value: {}: {problem}", quote(value))))
}

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const NAME: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const QUALIFIED: &str = "a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

fn is_name(name: &str) -> bool {
    let ends = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphanumeric());
    ends(name.bytes().next())
        && ends(name.bytes().last())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

fn is_subdomain(name: &str) -> bool {
    let lower = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    name.len() <= 253
        && name.split('.').all(|part| {
            part.bytes().next().is_some_and(lower)
                && part.bytes().last().is_some_and(lower)
                && part.bytes().all(|b| lower(b) || b == b'-')
        })
}

fn parse_fields(resource: &ResourceType, text: &str) -> Result<Vec<FieldRequirement>, StatusError> {
    let mut requirements = Vec::new();
    if text.is_empty() {
        return Ok(requirements);
    }
    for term in split_terms(text) {
        if term.is_empty() {
            continue;
        }
        let Some((field, equal, value)) = split_term(term) else {
            return Err(StatusError::bad_request(format!(
                "invalid selector: '{text}'; can't understand '{term}'"
            )));
        };
        let value = unescape(value)
            .map_err(|why| StatusError::bad_request(format!("invalid field selector: {why}")))?;
        let field = match field {
            "metadata.name" => Field::Name,
            "metadata.namespace" => Field::Namespace,
            other => {
                match resource.hooks.selectable_fields(resource).iter().position(|f| *f == other) {
                    Some(at) => Field::At(at),
                    None => return Err(unknown_field(resource, other)),
                }
            }
        };
        requirements.push(FieldRequirement { field, equal, value });
    }
    Ok(requirements)
}

fn unknown_field(resource: &ResourceType, field: &str) -> StatusError {
    // Kinds with conversion functions of their own word it differently.
    if resource.hooks.selectable_fields(resource).is_empty() {
        return StatusError::bad_request(format!(
            "{} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
            quote(field)
        ));
    }
    StatusError::bad_request(format!("field label not supported: {field}"))
}

/// Splits at commas that have no backslash before them.
fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, b) in text.bytes().enumerate() {
        match b {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b',' => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    for at in 0..term.len() {
        let rest = term.get(at..)?;
        for (sign, equal) in [("!=", false), ("==", true), ("=", true)] {
            if let Some(value) = rest.strip_prefix(sign) {
                return Some((&term[..at], equal, value));
            }
        }
    }
    None
}

fn unescape(value: &str) -> Result<String, String> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(next @ ('\\' | ',' | '=')) => out.push(next),
                Some(next) => return Err(format!("invalid escape sequence: \\{next}")),
                None => return Err("incomplete escape sequence".to_owned()),
            },
            ',' | '=' => return Err(format!("invalid unescaped character: {c}")),
            c => out.push(c),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resource::Table;
    use crate::store::{Change, Encoded, Facets};

    fn entry() -> Entry {
        let object =
            json!({"metadata": {"name": "p", "labels": {"app": "web", "n": "5", "empty": ""}}});
        Encoded::new(&object, Facets::new(&object, |_| ())).into_entry(
            "ns/p".into(),
            1,
            Change::Added,
        )
    }

    #[test]
    fn selects() {
        let table = Table::builtin();
        let resource = table.get("v1", "configmaps").expect("configmaps are there");
        let entry = entry();
        for (labels, fields, want) in [
            ("", "", true),
            ("app=web", "", true),
            ("app==web,n in (4, 5)", "", true),
            ("app!=web", "", false),
            ("other!=x", "", true),
            ("app notin (x,y)", "", true),
            ("!app", "", false),
            ("!other,app", "", true),
            ("n>4", "", true),
            ("n<4", "", false),
            ("empty=", "", true),
            ("app in ()", "", false),
            ("empty in (,1)", "", true),
            ("", "metadata.name=p", true),
            ("", "metadata.name!=p", false),
            ("", "metadata.name=p,metadata.namespace==ns", true),
        ] {
            let selectors = Selectors::parse(&resource, labels, fields).expect("it can be read");
            assert_eq!(selectors.matches(&entry), want, "{labels} {fields}");
        }
    }

    #[test]
    fn refuses() {
        let table = Table::builtin();
        let resource = table.get("v1", "configmaps").expect("configmaps are there");
        for labels in
            ["=x", "a=b=c", "a in x", "a in (x", "a,", "a b", "a=b,,c", "a/b/c=d", "a>x", "-a=b"]
        {
            assert!(Selectors::parse(&resource, labels, "").is_err(), "{labels}");
        }
        for fields in ["metadata.name", "metadata.name>a", "=x", "data.k=v"] {
            assert!(Selectors::parse(&resource, "", fields).is_err(), "{fields}");
        }
    }
}
