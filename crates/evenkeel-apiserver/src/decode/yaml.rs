//! YAML bodies: events of the parser into JSON, read as YAML 1.1 is read upstream (`yes` is true, `0777` is octal).

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use granit_parser::{Event, Parser, Span, StrInput};

use super::json::Json;
use super::yaml_scalar;

/// Aliases may blow a document up to this many values and no further.
const MAX_VALUES: usize = 400_000;
/// The reader recurses; no API object is nearly as deep.
const MAX_DEPTH: usize = 1_000;

/// A document that was read.
#[derive(Debug)]
pub(crate) struct Document {
    /// The value; of a key given twice only the last.
    pub json: Json<'static>,
    /// `line 7: key "k" already set in map`.
    pub repeated: Vec<String>,
}

/// Reads the first document of a stream. An empty stream is null.
pub(crate) fn parse(text: &[u8]) -> Result<Document, String> {
    let text =
        std::str::from_utf8(text).map_err(|_| "yaml: invalid leading UTF-8 octet".to_owned())?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = Reader {
        parser: Parser::new_from_str(text),
        anchors: HashMap::new(),
        repeated: Vec::new(),
        values: 0,
        depth: 0,
    };
    loop {
        match reader.next()? {
            (Event::StreamEnd, _) => {
                return Ok(Document { json: Json::Null, repeated: Vec::new() });
            }
            (Event::StreamStart | Event::DocumentStart(..), _) => {}
            (event, span) => {
                let (json, _) = reader.value(event, span)?;
                return Ok(Document { json, repeated: reader.repeated });
            }
        }
    }
}

struct Reader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    anchors: HashMap<usize, Json<'static>>,
    repeated: Vec<String>,
    values: usize,
    depth: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Span), String> {
        match self.parser.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => {
                Err(format!("yaml: line {}: {}", error.marker().line(), error.info()))
            }
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    /// The value that starts with `event`, and the line it starts on.
    fn value(&mut self, event: Event<'a>, span: Span) -> Result<(Json<'static>, usize), String> {
        let mut line = span.start.line();
        self.count(1)?;
        let (json, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let tag = tag.as_deref().and_then(granit_parser::Tag::core_suffix);
                (yaml_scalar::resolve(&text, style, tag)?, anchor)
            }
            Event::SequenceStart(_, anchor, _) => (self.nested(Self::sequence)?, anchor),
            Event::MappingStart(_, anchor, _) => {
                let mut first = None;
                let json = self.nested(|reader| reader.mapping(&mut first))?;
                line = first.unwrap_or(line);
                (json, anchor)
            }
            Event::Alias(id) => {
                let json =
                    self.anchors.get(&id).cloned().ok_or("yaml: unknown anchor referenced")?;
                self.count(size(&json))?;
                (json, 0)
            }
            other => return Err(format!("yaml: unexpected {other:?}")),
        };
        if anchor != 0 {
            self.anchors.insert(anchor, json.clone());
        }
        Ok((json, line))
    }

    fn count(&mut self, values: usize) -> Result<(), String> {
        self.values += values;
        if self.values > MAX_VALUES && !self.anchors.is_empty() {
            return Err("yaml: document contains excessive aliasing".to_owned());
        }
        Ok(())
    }

    fn nested<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, String>,
    ) -> Result<T, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("yaml: exceeded max depth of {MAX_DEPTH}"));
        }
        let value = read(self);
        self.depth -= 1;
        value
    }

    fn sequence(&mut self) -> Result<Json<'static>, String> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(Json::Array(items)),
                (event, span) => items.push(self.value(event, span)?.0),
            }
        }
    }

    fn mapping(&mut self, first: &mut Option<usize>) -> Result<Json<'static>, String> {
        let mut map = Entries::default();
        loop {
            let (event, span) = self.next()?;
            if matches!(event, Event::MappingEnd) {
                return Ok(Json::Object(map.entries));
            }
            first.get_or_insert(span.start.line());
            let merge = matches!(&event, Event::Scalar(text, granit_parser::ScalarStyle::Plain, _, None) if text == "<<");
            let (key, _) = self.value(event, span)?;
            let (event, span) = self.next()?;
            let (value, line) = self.value(event, span)?;
            if merge {
                map.merge(value)?;
                continue;
            }
            let key = key_text(&key)?;
            if map.set(key.clone(), value) {
                self.repeated.push(format!("line {line}: key \"{key}\" already set in map"));
            }
        }
    }
}

/// A mapping being read.
#[derive(Default)]
struct Entries {
    entries: Vec<(Cow<'static, str>, Json<'static>)>,
    seen: HashSet<String>,
}

impl Entries {
    /// Sets a key, and says whether it was set before.
    fn set(&mut self, key: String, value: Json<'static>) -> bool {
        let repeated = !self.seen.insert(key.clone());
        if repeated {
            self.entries.retain(|(k, _)| *k != key);
        }
        self.entries.push((Cow::Owned(key), value));
        repeated
    }

    /// Takes over the entries of a `<<` value: a mapping or a list of mappings.
    fn merge(&mut self, value: Json<'static>) -> Result<(), String> {
        match value {
            Json::Object(entries) => {
                for (key, value) in entries {
                    self.set(key.into_owned(), value);
                }
                Ok(())
            }
            // Earlier mappings of the list win, so they come last.
            Json::Array(items) => items.into_iter().rev().try_for_each(|item| self.merge(item)),
            _ => Err("yaml: map merge requires map or sequence of maps as the value".to_owned()),
        }
    }
}

/// JSON has only strings as keys.
fn key_text(key: &Json<'_>) -> Result<String, String> {
    match key {
        Json::String(text) | Json::Number(text) => Ok(text.clone().into_owned()),
        Json::Bool(b) => Ok(b.to_string()),
        other => Err(format!("unsupported map key of type: {}", other.form())),
    }
}

fn size(json: &Json<'_>) -> usize {
    match json {
        Json::Array(items) => 1 + items.iter().map(size).sum::<usize>(),
        Json::Object(entries) => 1 + entries.iter().map(|(_, v)| size(v)).sum::<usize>(),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn value(text: &str) -> serde_json::Value {
        parse(text.as_bytes()).expect("valid").json.to_value()
    }

    #[test]
    fn reads_yaml_as_version_one_one() {
        let text = "a: yes\nb: 0777\nc: 1_000\nd: 0x1F\ne: .5\nf: ~\ng: 'yes'\nh: 2001-01-01\ni: 1e3\nj: on\nk: 0b11\nl: \nm: 3.0\n1: x\ntrue: z\n";
        let want = json!({"a": true, "b": 511, "c": 1000, "d": 31, "e": 0.5, "f": null, "g": "yes", "h": "2001-01-01",
            "i": 1000, "j": true, "k": 3, "l": null, "m": 3, "1": "x", "true": "z"});
        assert_eq!(value(text), want);
    }

    #[test]
    fn reads_anchors_blocks_and_merges() {
        let text = "base: &b {x: 1, z: 2}\nuse:\n  <<: *b\n  z: 3\ntext: |\n  a\n  b\nfold: >-\n  a\n  b\n";
        let want = json!({"base": {"x": 1, "z": 2}, "use": {"x": 1, "z": 3}, "text": "a\nb\n", "fold": "a b"});
        assert_eq!(value(text), want);
        assert_eq!(value(""), json!(null));
        assert_eq!(value("{}"), json!({}));
        assert_eq!(value("a: 1\n---\nb: 2\n"), json!({"a": 1}));
    }

    #[test]
    fn reports_repeated_keys_with_their_line() {
        let text =
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: one\n  k: two\n";
        let read = parse(text.as_bytes()).expect("valid");
        assert_eq!(read.repeated, ["line 7: key \"k\" already set in map"]);
        assert_eq!(read.json.to_value()["data"], json!({"k": "two"}));
    }

    #[test]
    fn refuses_a_bomb() {
        let mut text = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
        for i in 1..9 {
            let refs = vec![format!("*a{}", i - 1); 10].join(",");
            text.push_str(&format!("a{i}: &a{i} [{refs}]\n"));
        }
        assert_eq!(
            parse(text.as_bytes()).err().as_deref(),
            Some("yaml: document contains excessive aliasing")
        );
    }
}
