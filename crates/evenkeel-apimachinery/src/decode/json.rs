//! JSON parser that preserves duplicate keys, the order of keys, and numbers as written, which strict decoding needs.

use std::borrow::Cow;
use std::collections::HashSet;

use evenkeel_api::json::{MAX_DEPTH, MAX_VALUES, TOO_DEEP, TOO_MANY_VALUES};
use evenkeel_api::quote::quote;
use serde_json::Value;

use super::typed;

/// A JSON value as written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Json<'a> {
    Null,
    Bool(bool),
    Number(Cow<'a, str>),
    String(Cow<'a, str>),
    Array(Vec<Json<'a>>),
    /// Entries in the order written, possibly with duplicate keys.
    Object(Vec<(Cow<'a, str>, Json<'a>)>),
}

impl<'a> Json<'a> {
    /// Returns Go's name for the JSON type of a value.
    pub(crate) fn json_type(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "bool",
            Self::Number(_) => "number",
            Self::String(_) => "string",
            Self::Array(_) => "array",
            Self::Object(_) => "object",
        }
    }

    /// Returns the last value of a key, which wins over earlier ones.
    pub(crate) fn get(&self, key: &str) -> Option<&Json<'a>> {
        match self {
            Self::Object(entries) => entries.iter().rev().find(|(k, _)| k == key).map(|(_, v)| v),
            _ => None,
        }
    }

    /// Sorts the entries of all objects by key.
    pub(crate) fn sort(&mut self) {
        match self {
            Self::Array(items) => items.iter_mut().for_each(Self::sort),
            Self::Object(entries) => {
                entries.sort_by(|(a, _), (b, _)| a.cmp(b));
                entries.iter_mut().for_each(|(_, value)| value.sort());
            }
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::String(_) => {}
        }
    }

    /// Converts to an untyped value: integers remain integers, other numbers become floats, and the last one of
    /// duplicate keys wins.
    pub(crate) fn to_value(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(b) => Value::Bool(*b),
            Self::Number(text) => number(text),
            Self::String(s) => Value::String(s.clone().into_owned()),
            Self::Array(items) => Value::Array(items.iter().map(Json::to_value).collect()),
            Self::Object(entries) => Value::Object(
                entries.iter().map(|(k, v)| (k.clone().into_owned(), v.to_value())).collect(),
            ),
        }
    }
}

impl<'a> From<&'a Value> for Json<'a> {
    fn from(value: &'a Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(b) => Self::Bool(*b),
            Value::Number(n) => Self::Number(Cow::Owned(n.to_string())),
            Value::String(s) => Self::String(Cow::Borrowed(s)),
            Value::Array(items) => Self::Array(items.iter().map(Into::into).collect()),
            Value::Object(entries) => Self::Object(
                entries.iter().map(|(k, v)| (Cow::Borrowed(k.as_str()), v.into())).collect(),
            ),
        }
    }
}

/// Returns an error message of upstream's strict decoding of unstructured objects for each duplicate key.
pub(crate) fn duplicate_keys(json: &Json<'_>) -> Vec<String> {
    let mut found = Vec::new();
    collect_duplicate_keys(json, &mut String::new(), &mut found);
    found
}

fn collect_duplicate_keys(json: &Json<'_>, path: &mut String, found: &mut Vec<String>) {
    let length = path.len();
    match json {
        Json::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                path.push_str(&format!("[{i}]"));
                collect_duplicate_keys(item, path, found);
                path.truncate(length);
            }
        }
        Json::Object(entries) => {
            let mut seen = HashSet::with_capacity(entries.len());
            for (key, value) in entries {
                if length > 0 {
                    path.push('.');
                }
                path.push_str(key);
                if !seen.insert(key) && typed::is_reported(found) {
                    found.push(format!("duplicate field \"{path}\""));
                }
                collect_duplicate_keys(value, path, found);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

/// Converts a number without a type: an `i64` if it fits, else a float.
pub(crate) fn number(text: &str) -> Value {
    if let Ok(int) = text.parse::<i64>() {
        return int.into();
    }
    text.parse::<f64>()
        .ok()
        .and_then(serde_json::Number::from_f64)
        .map_or(Value::Null, Value::Number)
}

/// Parses one document. Errors have the message of Go's decoder.
pub(crate) fn parse(text: &[u8]) -> Result<Json<'_>, String> {
    let mut reader = Parser { text, position: 0, depth: 0, values: 0 };
    let value = reader.value()?;
    reader.skip_whitespace();
    match reader.peek() {
        None => Ok(value),
        Some(_) => Err(reader.unexpected("after top-level value")),
    }
}

/// Parser of a JSON document.
struct Parser<'a> {
    text: &'a [u8],
    position: usize,
    depth: usize,
    /// Number of values so far.
    values: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.position).copied()
    }

    /// Skips one byte.
    fn advance(&mut self) {
        self.position = self.position.saturating_add(1);
    }

    fn skip_whitespace(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.advance();
        }
    }

    fn unexpected(&self, context: &str) -> String {
        match self.peek() {
            None => "unexpected end of JSON input".to_owned(),
            Some(b'\'') => format!(r"invalid character '\'' {context}"),
            Some(b'"') => format!("invalid character '\"' {context}"),
            Some(byte) => {
                // Go takes the byte for a code point.
                let quoted = quote(char::from(byte).encode_utf8(&mut [0; 4]));
                format!("invalid character '{}' {context}", quoted.trim_matches('"'))
            }
        }
    }

    fn value(&mut self) -> Result<Json<'a>, String> {
        self.values = self.values.saturating_add(1);
        if self.values > MAX_VALUES {
            return Err(TOO_MANY_VALUES.to_owned());
        }
        self.skip_whitespace();
        match self.peek() {
            Some(b'{') => self.nested(Self::object),
            Some(b'[') => self.nested(Self::array),
            Some(b'"') => self.string().map(Json::String),
            Some(b'-' | b'0'..=b'9') => self.number().map(Json::Number),
            Some(b't') => self.literal("true", Json::Bool(true)),
            Some(b'f') => self.literal("false", Json::Bool(false)),
            Some(b'n') => self.literal("null", Json::Null),
            _ => Err(self.unexpected("looking for beginning of value")),
        }
    }

    fn nested(
        &mut self,
        read: fn(&mut Self) -> Result<Json<'a>, String>,
    ) -> Result<Json<'a>, String> {
        self.depth = self.depth.saturating_add(1);
        if self.depth > MAX_DEPTH {
            return Err(TOO_DEEP.to_owned());
        }
        self.advance();
        let value = read(self);
        self.depth = self.depth.saturating_sub(1);
        value
    }

    fn object(&mut self) -> Result<Json<'a>, String> {
        let mut entries = Vec::new();
        self.skip_whitespace();
        if self.peek() == Some(b'}') {
            self.advance();
            return Ok(Json::Object(entries));
        }
        loop {
            self.skip_whitespace();
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("looking for beginning of object key string"));
            }
            let key = self.string()?;
            self.skip_whitespace();
            if self.peek() != Some(b':') {
                return Err(self.unexpected("after object key"));
            }
            self.advance();
            entries.push((key, self.value()?));
            self.skip_whitespace();
            match self.peek() {
                Some(b',') => self.advance(),
                Some(b'}') => {
                    self.advance();
                    return Ok(Json::Object(entries));
                }
                _ => return Err(self.unexpected("after object key:value pair")),
            }
        }
    }

    fn array(&mut self) -> Result<Json<'a>, String> {
        let mut items = Vec::new();
        self.skip_whitespace();
        if self.peek() == Some(b']') {
            self.advance();
            return Ok(Json::Array(items));
        }
        loop {
            items.push(self.value()?);
            self.skip_whitespace();
            match self.peek() {
                Some(b',') => self.advance(),
                Some(b']') => {
                    self.advance();
                    return Ok(Json::Array(items));
                }
                _ => return Err(self.unexpected("after array element")),
            }
        }
    }

    fn literal(&mut self, word: &str, value: Json<'a>) -> Result<Json<'a>, String> {
        for expected in word.bytes() {
            if self.peek() != Some(expected) {
                return Err(self.unexpected(&format!(
                    "in literal {word} (expecting '{}')",
                    char::from(expected)
                )));
            }
            self.advance();
        }
        Ok(value)
    }

    fn number(&mut self) -> Result<Cow<'a, str>, String> {
        let start = self.position;
        if self.peek() == Some(b'-') {
            self.advance();
        }
        match self.peek() {
            Some(b'0') => self.advance(),
            Some(b'1'..=b'9') => self.digits(),
            _ => return Err(self.unexpected("in numeric literal")),
        }
        if self.peek() == Some(b'.') {
            self.advance();
            if !matches!(self.peek(), Some(b'0'..=b'9')) {
                return Err(self.unexpected("after decimal point in numeric literal"));
            }
            self.digits();
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.advance();
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.advance();
            }
            if !matches!(self.peek(), Some(b'0'..=b'9')) {
                return Err(self.unexpected("in exponent of numeric literal"));
            }
            self.digits();
        }
        Ok(String::from_utf8_lossy(self.since(start)))
    }

    /// Returns the input from `start` to the current position.
    fn since(&self, start: usize) -> &'a [u8] {
        self.text.get(start..self.position).unwrap_or_default()
    }

    /// Returns the input that is not parsed yet.
    fn rest(&self) -> &'a [u8] {
        self.text.get(self.position..).unwrap_or_default()
    }

    fn digits(&mut self) {
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.advance();
        }
    }

    fn string(&mut self) -> Result<Cow<'a, str>, String> {
        self.advance();
        let start = self.position;
        loop {
            match self.peek() {
                Some(b'"') => {
                    let text = String::from_utf8_lossy(self.since(start));
                    self.advance();
                    return Ok(text);
                }
                Some(b'\\') => return self.escaped(start).map(Cow::Owned),
                Some(0..=0x1f) | None => return Err(self.unexpected("in string literal")),
                Some(_) => self.advance(),
            }
        }
    }

    /// Parses the rest of a string, beginning with its first escape.
    fn escaped(&mut self, start: usize) -> Result<String, String> {
        let mut out = self.since(start).to_vec();
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.advance();
                    return Ok(String::from_utf8_lossy(&out).into_owned());
                }
                Some(b'\\') => {
                    self.advance();
                    let c = self.escape()?;
                    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                }
                Some(0..=0x1f) | None => return Err(self.unexpected("in string literal")),
                Some(c) => {
                    out.push(c);
                    self.advance();
                }
            }
        }
    }

    fn escape(&mut self) -> Result<char, String> {
        let c = match self.peek() {
            Some(c @ (b'"' | b'\\' | b'/')) => char::from(c),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode(),
            _ => return Err(self.unexpected("in string escape code")),
        };
        self.advance();
        Ok(c)
    }

    /// Parses `uXXXX`, with a low surrogate if one follows. A lone surrogate becomes U+FFFD.
    fn unicode(&mut self) -> Result<char, String> {
        let first = self.hex4()?;
        if (0xD800..0xDC00).contains(&first) && self.rest().starts_with(b"\\u") {
            let after_first = self.position;
            self.advance();
            let second = self.hex4()?;
            if (0xDC00..0xE000).contains(&second) {
                let code = 0x10000_u32.saturating_add((first & 0x3ff) << 10 | second & 0x3ff);
                return Ok(char::from_u32(code).unwrap_or('\u{fffd}'));
            }
            self.position = after_first;
        }
        Ok(char::from_u32(first).unwrap_or('\u{fffd}'))
    }

    fn hex4(&mut self) -> Result<u32, String> {
        self.advance();
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|c| char::from(c).to_digit(16));
            let Some(digit) = digit else {
                return Err(self.unexpected(r"in \u hexadecimal character escape"));
            };
            code = (code << 4) | digit;
            self.advance();
        }
        Ok(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_equal_those_of_serde() {
        for text in
            [r#"{"a":[1,-2.5e3,true,null,"x\n\u00fc\ud83d\ude00"],"b":{}}"#, "[]", " 0 ", r#""""#]
        {
            let ours = parse(text.as_bytes()).map(|j| j.to_value());
            assert_eq!(ours.ok(), serde_json::from_str(text).ok(), "{text}");
        }
    }

    #[test]
    fn the_number_of_values_is_limited() {
        // The list is a value, too.
        let list = |values: usize| format!("[{}0]", "0,".repeat(values - 2));
        assert!(parse(list(MAX_VALUES).as_bytes()).is_ok());
        let error = parse(list(MAX_VALUES + 1).as_bytes()).err();
        assert_eq!(error.as_deref(), Some(TOO_MANY_VALUES));
    }

    #[test]
    fn syntax_errors_have_gos_text() {
        for (text, error) in [
            ("", "unexpected end of JSON input"),
            ("{", "unexpected end of JSON input"),
            ("a", "invalid character 'a' looking for beginning of value"),
            ("{a", "invalid character 'a' looking for beginning of object key string"),
            ("[1 2]", "invalid character '2' after array element"),
            ("{} x", "invalid character 'x' after top-level value"),
            ("nope", "invalid character 'o' in literal null (expecting 'u')"),
            ("\"a\nb\"", "invalid character '\\n' in string literal"),
            ("\"a\u{7}\"", "invalid character '\\a' in string literal"),
            ("\"a\0\"", "invalid character '\\x00' in string literal"),
            ("ü", "invalid character 'Ã' looking for beginning of value"),
            ("\\", "invalid character '\\\\' looking for beginning of value"),
            ("\u{7f}", "invalid character '\\x7f' looking for beginning of value"),
        ] {
            assert_eq!(parse(text.as_bytes()).err().as_deref(), Some(error), "{text}");
        }
    }

    #[test]
    fn duplicate_keys_are_kept_and_the_last_wins() {
        let json = parse(br#"{"a":1,"a":2}"#).expect("valid");
        assert_eq!(json.get("a"), Some(&Json::Number("2".into())));
        assert!(matches!(json, Json::Object(entries) if entries.len() == 2));
    }
}
