//! Parser of YAML bodies. Resolves scalars by YAML 1.1, as upstream does (`yes` is true, `0777` is octal).

use std::borrow::Cow;
use std::collections::HashMap;

use evenkeel_api::json::{MAX_DEPTH, MAX_VALUES, TOO_DEEP, TOO_MANY_VALUES};
use granit_parser::{ErrorKind, Event, Options, Parser, ScalarStyle, StrInput};

use super::json::Json;
use super::yaml_scalar;

/// Numbers of values between which the permitted share of aliased values decreases. Up to the first number, 99 % of
/// the values may come from aliases; from the second on, 10 %.
///
/// Upstream: `alias_ratio_range_low`, `alias_ratio_range_high` of go-yaml.
const ALIAS_RANGE: (f64, f64) = (400_000.0, 4_000_000.0);
/// Maximum total length in bytes of strings from aliases: the maximum size of a request. Upstream counts only values,
/// so that aliases can repeat a long string without a limit.
const MAX_ALIASED_BYTES: usize = 3 * 1024 * 1024;
/// Maximum number of reported duplicate keys.
const MAX_DUPLICATE_KEYS: usize = 100;

/// Errors of go-yaml's scanner that this parser has in the same words.
const SCANNER_ERRORS: [&str; 2] = [
    "mapping values are not allowed in this context",
    "found character that cannot start any token",
];

const EXCESSIVE: &str = "yaml: document contains excessive aliasing";

/// A parsed document.
#[derive(Debug)]
pub(crate) struct Document {
    /// Value of the document. The last of duplicate keys wins.
    pub json: Json<'static>,
    /// Errors such as `line 7: key "k" already set in map`.
    pub duplicate_keys: Vec<String>,
}

/// Parses the first document of a stream. An empty stream is null. The keys are sorted, because upstream converts the
/// document to JSON before it decodes it.
pub(crate) fn parse(text: &[u8]) -> Result<Document, String> {
    let text =
        std::str::from_utf8(text).map_err(|_| "yaml: invalid leading UTF-8 octet".to_owned())?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim_start_matches([' ', '\r', '\n']).starts_with('\t') {
        return Err("yaml: found character that cannot start any token".to_owned());
    }
    let mut builder = Builder::new(text);
    loop {
        let token = builder.next()?;
        match token.kind {
            TokenKind::Skipped => {}
            TokenKind::End => return Ok(Document { json: Json::Null, duplicate_keys: Vec::new() }),
            _ => {
                let (mut json, _) = builder.value(token)?;
                json.sort();
                return Ok(Document { json, duplicate_keys: builder.duplicate_keys });
            }
        }
    }
}

/// An event of the parser, with its scalar resolved.
#[derive(Debug, Clone)]
struct Token {
    kind: TokenKind,
    line: usize,
    /// ID of the anchor that the token defines; 0 for none.
    anchor: usize,
}

/// Kind of a token of a YAML document.
#[derive(Debug, Clone)]
enum TokenKind {
    Scalar(Json<'static>),
    /// The merge key `<<`.
    Merge,
    Sequence,
    Mapping,
    /// End of a sequence or a mapping.
    Close,
    Alias(usize),
    /// End of the stream.
    End,
    /// Start and end of streams and documents.
    Skipped,
}

/// Builder of values from tokens. The node of an anchor is recorded as tokens and built again for each alias, as
/// upstream does, so that an alias allocates nothing before its values are counted.
struct Builder<'a> {
    parser: Parser<'a, StrInput<'a>>,
    /// Recorded tokens of the nodes with an anchor.
    recorded: Vec<Token>,
    /// Number of nodes with an anchor that are being recorded.
    recording_depth: usize,
    /// Index of an anchor's first recorded token; present once its node is complete.
    anchors: HashMap<usize, usize>,
    /// Index of the next recorded token, for each alias that is being expanded.
    aliases: Vec<usize>,
    duplicate_keys: Vec<String>,
    /// Number of values built.
    values: usize,
    /// Number of values that came from aliases.
    aliased: usize,
    /// Total length in bytes of the strings from aliases so far.
    aliased_bytes: usize,
    depth: usize,
}

impl<'a> Builder<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            parser: Parser::new_from_str_with_options(text, options()),
            recorded: Vec::new(),
            recording_depth: 0,
            anchors: HashMap::new(),
            aliases: Vec::new(),
            duplicate_keys: Vec::new(),
            values: 0,
            aliased: 0,
            aliased_bytes: 0,
            depth: 0,
        }
    }

    /// Returns the next token, from the innermost alias that is being expanded or from the parser.
    fn next(&mut self) -> Result<Token, String> {
        if let Some(index) = self.aliases.last_mut() {
            let token = self.recorded.get(*index).ok_or("yaml: unexpected end of an anchor")?;
            *index = index.saturating_add(1);
            return Ok(token.clone());
        }
        let token = self.parse_token()?;
        if self.recording_depth > 0 || token.anchor != 0 {
            self.recorded.push(token.clone());
        }
        Ok(token)
    }

    /// Returns the next token of the parser.
    fn parse_token(&mut self) -> Result<Token, String> {
        let (event, span) = match self.parser.next_event() {
            Some(Ok(event)) => event,
            Some(Err(error)) if matches!(error.kind(), ErrorKind::RecursionLimitExceeded) => {
                return Err(too_deep());
            }
            Some(Err(error)) => {
                let (line, why) = (error.marker().line(), error.info());
                // The scanner of go-yaml counts lines from 0, and names no line 0.
                let has_line = line > 1 || !SCANNER_ERRORS.contains(&&*why);
                let place = if has_line { format!("line {line}: ") } else { String::new() };
                return Err(format!("yaml: {place}{why}"));
            }
            None => return Ok(Token { kind: TokenKind::End, line: 0, anchor: 0 }),
        };
        let (kind, anchor) = match event {
            Event::Scalar(text, ScalarStyle::Plain, 0, None) if text == "<<" => {
                (TokenKind::Merge, 0)
            }
            Event::Scalar(text, style, anchor, tag) => {
                let tag = tag.as_deref().and_then(granit_parser::Tag::core_suffix);
                (TokenKind::Scalar(yaml_scalar::resolve(&text, style, tag)?), anchor)
            }
            Event::SequenceStart(_, anchor, _) => (TokenKind::Sequence, anchor),
            Event::MappingStart(_, anchor, _) => (TokenKind::Mapping, anchor),
            Event::SequenceEnd | Event::MappingEnd => (TokenKind::Close, 0),
            Event::Alias(id) => (TokenKind::Alias(id), 0),
            Event::StreamEnd => (TokenKind::End, 0),
            Event::StreamStart | Event::DocumentStart(..) => (TokenKind::Skipped, 0),
            other => return Err(format!("yaml: unexpected {other:?}")),
        };
        Ok(Token { kind, line: span.start.line(), anchor })
    }

    /// Builds the value that starts with `token`, and records its tokens if it has an anchor. Also returns the
    /// value's first line.
    fn value(&mut self, token: Token) -> Result<(Json<'static>, usize), String> {
        // The anchors of recorded tokens are already known.
        if token.anchor == 0 || !self.aliases.is_empty() {
            return self.node(token);
        }
        let (anchor, start) = (token.anchor, self.recorded.len().saturating_sub(1));
        self.recording_depth = self.recording_depth.saturating_add(1);
        let value = self.node(token)?;
        self.recording_depth = self.recording_depth.saturating_sub(1);
        self.anchors.insert(anchor, start);
        Ok(value)
    }

    /// Builds the value that starts with `token`, without its anchor. Also returns the value's first line.
    fn node(&mut self, token: Token) -> Result<(Json<'static>, usize), String> {
        self.count(&token)?;
        match token.kind {
            TokenKind::Scalar(json) => Ok((json, token.line)),
            TokenKind::Merge => Ok((Json::String("<<".into()), token.line)),
            TokenKind::Sequence => Ok((self.nested(Self::sequence)?, token.line)),
            TokenKind::Mapping => {
                let mut first_line = None;
                let json = self.nested(|builder| builder.mapping(&mut first_line))?;
                Ok((json, first_line.unwrap_or(token.line)))
            }
            TokenKind::Alias(id) => Ok((self.nested(|builder| builder.alias(id))?, token.line)),
            other => Err(format!("yaml: unexpected {other:?}")),
        }
    }

    /// Counts a value. Refuses a document with too many values, or too long strings, from aliases.
    ///
    /// Upstream: `(*decoder).unmarshal` and `allowedAliasRatio` of go-yaml.
    fn count(&mut self, token: &Token) -> Result<(), String> {
        self.values = self.values.saturating_add(1);
        if self.values > MAX_VALUES {
            return Err(format!("yaml: {TOO_MANY_VALUES}"));
        }
        if self.aliases.is_empty() {
            return Ok(());
        }
        self.aliased = self.aliased.saturating_add(1);
        if let TokenKind::Scalar(Json::String(text) | Json::Number(text)) = &token.kind {
            self.aliased_bytes = self.aliased_bytes.saturating_add(text.len());
        }
        let (values, aliased) = (self.values as f64, self.aliased as f64);
        let (low, high) = ALIAS_RANGE;
        // From 99 % at `low` to 10 % at `high`.
        let allowed = 0.99 - 0.89 * ((values - low) / (high - low)).clamp(0.0, 1.0);
        let is_excessive = self.aliased > 100 && self.values > 1000 && aliased / values > allowed;
        if is_excessive || self.aliased_bytes > MAX_ALIASED_BYTES {
            Err(EXCESSIVE.to_owned())
        } else {
            Ok(())
        }
    }

    /// Calls `read` one level deeper. Fails if the document nests too deeply.
    fn nested<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, String>,
    ) -> Result<T, String> {
        self.depth = self.depth.saturating_add(1);
        if self.depth > MAX_DEPTH {
            return Err(too_deep());
        }
        let value = read(self);
        self.depth = self.depth.saturating_sub(1);
        value
    }

    /// Builds the value of an alias from the recorded tokens of its anchor.
    fn alias(&mut self, id: usize) -> Result<Json<'static>, String> {
        let start = *self.anchors.get(&id).ok_or("yaml: unknown anchor referenced")?;
        self.aliases.push(start);
        let token = self.next()?;
        let (json, _) = self.value(token)?;
        self.aliases.pop();
        Ok(json)
    }

    fn sequence(&mut self) -> Result<Json<'static>, String> {
        let mut items = Vec::new();
        loop {
            let token = self.next()?;
            if matches!(token.kind, TokenKind::Close) {
                return Ok(Json::Array(items));
            }
            items.push(self.value(token)?.0);
        }
    }

    /// Builds a mapping. Sets `first_line` to the line of its first key.
    fn mapping(&mut self, first_line: &mut Option<usize>) -> Result<Json<'static>, String> {
        let mut map = Entries::default();
        loop {
            let token = self.next()?;
            if matches!(token.kind, TokenKind::Close) {
                return Ok(Json::Object(map.entries.into_iter().flatten().collect()));
            }
            first_line.get_or_insert(token.line);
            let is_merge = matches!(token.kind, TokenKind::Merge);
            let (key, _) = self.value(token)?;
            let token = self.next()?;
            let (value, line) = self.value(token)?;
            if is_merge {
                map.merge(value)?;
                continue;
            }
            let key = key_text(&key)?;
            let is_duplicate = map.set(key.clone(), value);
            if is_duplicate && self.duplicate_keys.len() < MAX_DUPLICATE_KEYS {
                self.duplicate_keys.push(format!("line {line}: key \"{key}\" already set in map"));
            }
        }
    }
}

/// Sets the parser's nesting limits to the limit of all objects. Disables events for comments, which another crate may
/// enable with a feature of the parser.
fn options() -> Options {
    let mut options = Options::default();
    options.emit_comments = false;
    options.flow_nesting_limit = MAX_DEPTH;
    options.block_nesting_limit = MAX_DEPTH;
    options
}

fn too_deep() -> String {
    format!("yaml: {TOO_DEEP} of {MAX_DEPTH}")
}

/// Entries of a mapping that is being built.
#[derive(Default)]
struct Entries {
    /// Entries in order; `None` if a later entry has the same key.
    entries: Vec<Option<(Cow<'static, str>, Json<'static>)>>,
    /// Index of the last entry of each key.
    indexes: HashMap<String, usize>,
}

impl Entries {
    /// Sets a key and returns whether it was a duplicate.
    fn set(&mut self, key: String, value: Json<'static>) -> bool {
        let before = self.indexes.insert(key.clone(), self.entries.len());
        if let Some(entry) = before.and_then(|index| self.entries.get_mut(index)) {
            *entry = None;
        }
        self.entries.push(Some((Cow::Owned(key), value)));
        before.is_some()
    }

    /// Adds the entries of a `<<` value: a mapping or a list of mappings.
    fn merge(&mut self, value: Json<'static>) -> Result<(), String> {
        match value {
            Json::Object(entries) => {
                for (key, value) in entries {
                    self.set(key.into_owned(), value);
                }
                Ok(())
            }
            // Earlier mappings of the list win, so they are merged last.
            Json::Array(items) => items.into_iter().rev().try_for_each(|item| self.merge(item)),
            _ => Err("yaml: map merge requires map or sequence of maps as the value".to_owned()),
        }
    }
}

/// Converts a key to a string, because JSON has only string keys.
fn key_text(key: &Json<'_>) -> Result<String, String> {
    match key {
        Json::String(text) | Json::Number(text) => Ok(text.clone().into_owned()),
        Json::Bool(b) => Ok(b.to_string()),
        other => Err(format!("unsupported map key of type: {}", other.json_type())),
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
    fn comments_are_ignored() {
        let text = "# above\na: 1 # beside\n# between\nb:\n# before\n- x\n# after\n";
        assert_eq!(value(text), json!({"a": 1, "b": ["x"]}));
    }

    #[test]
    fn plain_scalars_are_resolved_by_yaml_1_1() {
        let text = "a: yes\nb: 0777\nc: 1_000\nd: 0x1F\ne: .5\nf: ~\ng: 'yes'\nh: 2001-01-01\ni: 1e3\nj: on\nk: 0b11\nl: \nm: 3.0\n1: x\ntrue: z\n";
        let want = json!({"a": true, "b": 511, "c": 1000, "d": 31, "e": 0.5, "f": null, "g": "yes", "h": "2001-01-01",
            "i": 1000, "j": true, "k": 3, "l": null, "m": 3, "1": "x", "true": "z"});
        assert_eq!(value(text), want);
    }

    #[test]
    fn anchors_block_scalars_and_merge_keys_are_expanded() {
        let text = "base: &b {x: 1, z: 2}\nuse:\n  <<: *b\n  z: 3\ntext: |\n  a\n  b\nfold: >-\n  a\n  b\n";
        let want = json!({"base": {"x": 1, "z": 2}, "use": {"x": 1, "z": 3}, "text": "a\nb\n", "fold": "a b"});
        assert_eq!(value(text), want);
        assert_eq!(value(""), json!(null));
        assert_eq!(value("{}"), json!({}));
        assert_eq!(value("a: 1\n---\nb: 2\n"), json!({"a": 1}));
    }

    #[test]
    fn duplicate_keys_are_reported_with_their_line() {
        let text =
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: one\n  k: two\n";
        let read = parse(text.as_bytes()).expect("valid");
        assert_eq!(read.duplicate_keys, ["line 7: key \"k\" already set in map"]);
        assert_eq!(read.json.to_value()["data"], json!({"k": "two"}));
    }

    #[test]
    fn exponential_alias_expansion_is_refused() {
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

    fn refused(text: &str) -> Option<String> {
        parse(text.as_bytes()).err()
    }

    #[test]
    fn keys_are_sorted_and_no_document_starts_with_a_tab() {
        let read = parse(b"b: {z: 1, y: 2}\na: [{d: 1, c: 2}]\n").expect("valid");
        let sorted = parse(b"a: [{c: 2, d: 1}]\nb: {y: 2, z: 1}\n").expect("valid");
        assert_eq!(read.json, sorted.json);
        for text in ["\ta: b", "\n  \ta: b"] {
            let error = refused(text);
            let want = "yaml: found character that cannot start any token";
            assert_eq!(error.as_deref(), Some(want), "{text:?}");
        }
        assert_eq!(refused("a:\tb"), None);
    }

    #[test]
    fn the_total_length_of_aliased_texts_is_limited() {
        let long = "x".repeat(10_000);
        let aliases = |n: usize| format!("a: &a {long}\nb: [{}]\n", vec!["*a"; n].join(","));
        assert_eq!(refused(&aliases(300)), None);
        assert_eq!(refused(&aliases(320)).as_deref(), Some(EXCESSIVE));
        let keys =
            format!("a: &a {{{}: 1}}\nb: [{}]\n", "x".repeat(1_000), vec!["*a"; 3_200].join(","));
        assert_eq!(refused(&keys).as_deref(), Some(EXCESSIVE));
        // A long string with an anchor does not count without an alias.
        let anchors: String = (0..200).map(|i| format!("&a{i} [")).collect();
        assert_eq!(refused(&format!("{anchors}{long}{}", "]".repeat(200))), None);
    }

    #[test]
    fn the_permitted_share_of_aliased_values_decreases_with_size() {
        let list = |values: usize| vec!["1"; values].join(",");
        let document = |own: usize, each: usize, aliases: usize| {
            format!(
                "a: &a [{}]\no: [{}]\nb: [{}]\n",
                list(each),
                list(own),
                vec!["*a"; aliases].join(",")
            )
        };
        // In small documents, 99 % of the values may come from aliases; in large ones, fewer.
        assert_eq!(refused(&document(5_000, 100, 3_000)), None);
        assert_eq!(refused(&document(10, 10_000, 45)).as_deref(), Some(EXCESSIVE));
        assert_eq!(refused(&document(20_000, 1_000, 700)).as_deref(), Some(EXCESSIVE));
    }

    #[test]
    fn the_number_of_values_is_limited_also_through_aliases() {
        let list = |values: usize| format!("[{}]", vec!["1"; values].join(","));
        // Of these values, fewer than the permitted share come from aliases.
        let document = format!(
            "a: &a {}\no: {}\nb: [{}]\n",
            list(10_000),
            list(300_000),
            vec!["*a"; 70].join(",")
        );
        let error = format!("yaml: {TOO_MANY_VALUES}");
        assert_eq!(refused(&document), Some(error));
        assert_eq!(refused(&document.replace(&vec!["*a"; 70].join(","), "*a")), None);
    }

    #[test]
    fn nesting_is_limited_also_through_aliases() {
        let nest = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(refused(&nest(MAX_DEPTH)), None);
        assert_eq!(
            refused(&nest(MAX_DEPTH + 1)),
            Some(format!("yaml: exceeded max depth of {MAX_DEPTH}"))
        );
        assert!(refused(&"- ".repeat(100_000)).is_some());
        let mut chain = "a0: &a0 []\n".to_owned();
        for i in 1..=MAX_DEPTH {
            chain.push_str(&format!("a{i}: &a{i} [*a{}]\n", i - 1));
        }
        assert!(refused(&chain).is_some());
        assert!(refused("a: &a [*a]").is_some(), "an anchor that contains itself");
    }
}
