//! Paths of fields in a schema: `fieldPath` of a rule, and `jsonPath` of a selectable field.
//!
//! Upstream: `ValidFieldPath` of `schema/cel`.

use serde_json::Value;

use crate::validation::child_path;

/// Field at the end of a path.
pub(crate) struct Field<'s> {
    /// Parsed path, printed without quotes: `spec.limits[cpu]`.
    pub(crate) path: String,
    pub(crate) schema: &'s Value,
}

/// Follows a path through a schema. Only a path that may have brackets can name a field such as `['a.b']`.
///
/// # Errors
/// Fails if the path has a wrong syntax, or leads to no field of the schema.
pub(crate) fn resolve<'s>(
    text: &str,
    schema: &'s Value,
    allows_brackets: bool,
) -> Result<Field<'s>, String> {
    let ended = || "unexpected end of JSON path".to_owned();
    let mut field = Field { path: String::new(), schema };
    let mut rest = text;
    while let Some(token) = next_token(&mut rest) {
        match token {
            "[" if !allows_brackets => return Err("array notation is not allowed".to_owned()),
            "[" => {
                let token = next_token(&mut rest).ok_or_else(ended)?;
                let quoted = token.strip_prefix('\'').and_then(|token| token.strip_suffix('\''));
                let quoted = quoted
                    .ok_or_else(|| format!("expected single quoted string but got {token}"))?;
                field = field.child(&unescape(quoted)?)?;
                match next_token(&mut rest).ok_or_else(ended)? {
                    "]" => {}
                    token => return Err(format!("expected ] but got {token}")),
                }
            }
            "." => field = field.child(next_token(&mut rest).ok_or_else(ended)?)?,
            token => return Err(format!("expected [ or . but got: {token}")),
        }
    }
    Ok(field)
}

impl<'s> Field<'s> {
    /// Returns a field of this one: a property, or else an entry of a map.
    fn child(self, name: &str) -> Result<Self, String> {
        let unknown = || "does not refer to a valid field".to_owned();
        let properties = self.schema.get("properties").and_then(Value::as_object);
        if let Some(properties) = properties.filter(|properties| !properties.is_empty()) {
            let schema = properties.get(name).ok_or_else(unknown)?;
            return Ok(Self { path: child_path(&self.path, name), schema });
        }
        let values = self.schema.get("additionalProperties").filter(|values| !values.is_null());
        Ok(Self { path: format!("{}[{name}]", self.path), schema: values.ok_or_else(unknown)? })
    }
}

/// Takes the next token: a delimiter, a quoted name, or the characters up to the next delimiter.
fn next_token<'t>(rest: &mut &'t str) -> Option<&'t str> {
    let bytes = rest.as_bytes();
    let length = match bytes.first()? {
        b'.' | b'[' | b']' => 1,
        b'\'' => {
            let mut ends = (1..bytes.len()).map(|end| bytes.get(end - 1..=end));
            let end = ends.position(|pair| pair.is_some_and(|p| p[1] == b'\'' && p[0] != b'\\'));
            end.map_or(bytes.len(), |end| end + 2)
        }
        _ => rest.find(['.', '[', ']']).unwrap_or(bytes.len()),
    };
    let (token, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(token)
}

/// Replaces the escapes in a quoted name.
///
/// Upstream: `unescapeSingleQuote`.
fn unescape(text: &str) -> Result<String, String> {
    let mut unescaped = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        unescaped.push(match (letter, letter == '\\') {
            (letter, false) => letter,
            (_, true) => match letters.next() {
                Some('a') => '\u{7}',
                Some('b') => '\u{8}',
                Some('f') => '\u{c}',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('t') => '\t',
                Some('v') => '\u{b}',
                Some(sign @ ('\'' | '\\')) => sign,
                Some(other) => {
                    return Err(format!("invalid string literal: invalid escape char \\{other}"));
                }
                None => '\\',
            },
        });
    }
    Ok(unescaped)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_lead_to_properties_and_entries() {
        let schema = json!({"properties": {
            "o": {"properties": {"p": {"properties": {"q": {}}}, "a.b": {}, "it's": {}}},
            "m": {"additionalProperties": {"type": "string"}},
            "l": {"items": {}},
        }});
        let unknown = Err("does not refer to a valid field");
        for (path, wanted) in [
            (".o.p.q", Ok("o.p.q")),
            ("['o']['p'].q", Ok("o.p.q")),
            (".o['a.b']", Ok("o.a.b")),
            (r".o['it\'s']", Ok("o.it's")),
            (".m.k", Ok("m[k]")),
            (".m['k']", Ok("m[k]")),
            (".l.x", unknown),
            (".n", unknown),
            (".o['']", unknown),
            (".", Err("unexpected end of JSON path")),
            ("[", Err("unexpected end of JSON path")),
            (".o['p'", Err("unexpected end of JSON path")),
            (".o['p", Err("expected single quoted string but got 'p")),
            ("..o", unknown),
            ("o", Err("expected [ or . but got: o")),
            (".l[0]", Err("expected single quoted string but got 0")),
            (".o[\"p\"]", Err("expected single quoted string but got \"p\"")),
            (".o['p'.", Err("expected ] but got .")),
            (r".o['\p']", Err(r"invalid string literal: invalid escape char \p")),
        ] {
            let found = resolve(path, &schema, true).map(|field| field.path);
            assert_eq!(found.as_deref().map_err(String::as_str), wanted, "{path}");
        }
        assert!(resolve("['o']", &schema, false).is_err());
    }
}
