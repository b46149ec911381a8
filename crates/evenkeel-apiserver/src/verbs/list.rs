//! List: GET of a collection, with selectors, chunks (`limit`, `continue`), `resourceVersion` and
//! `resourceVersionMatch`.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | `labelSelector`, `fieldSelector` | `parse`, `read_page` |
//! | `shardSelector` and `shardInfo`, with the feature gate `ShardedListAndWatch` | `parse`, `read_page` |
//! | chunks: `limit`, `continue`, `remainingItemCount` | `read_page`, `Token` |
//! | resourceVersionMatch unset, resourceVersion unset: most recent state | `list_revision` |
//! | resourceVersionMatch unset, resourceVersion 0: any state; this server returns the most recent one | `list_revision` |
//! | resourceVersionMatch unset, resourceVersion n, no limit: not older than n | `list_revision`, `wait_until_revision` |
//! | resourceVersionMatch unset, resourceVersion n, limit: exactly n | `is_exact_match` |
//! | NotOlderThan, resourceVersion 0 or n, with or without limit: not older than that | `list_revision` |
//! | Exact, resourceVersion n, with or without limit: exactly n | `is_exact_match`, `list_revision` |
//! | Exact with resourceVersion 0; any match without resourceVersion: refused | `validate_list_options` |
//! | resourceVersion 0 ignores limit, as upstream's watch cache does | `page_limit` |
//! | continue: exactly the revision of the first chunk; resourceVersion must be unset or 0 | `list_revision`, `parse` |
//! | continue with resourceVersionMatch: refused | `validate_list_options` |
//! | Exact or continue at a compacted revision: 410 Expired. For continue, the error carries a token that continues at the most recent state | `page_expired` |
//! | resourceVersion n in the future: waits 3 s, then 504 Timeout, cause ResourceVersionTooLarge | `wait_until_revision` |

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{DecodeError, Engine as _, alphabet};
use evenkeel_tasks::run_busy;
use http::{Response, StatusCode};
use serde::Serialize;
use serde_json::Value;

use crate::custom::codec;
use crate::output::{Format, ListEncoder, ListMeta, Purpose};
use crate::request::RequestContext;
use crate::request::query::{Query, check_errors, number_error};
use crate::resource::ResourceType;
use crate::response::Body;
use crate::response::{answer, compress};
use crate::selector::{ParsedSelectors, Selectors};
use crate::store::{Entry, Range, Snapshot};
use crate::verbs::list_pieces::{Pieces, ShortOrLong};
use evenkeel_apimachinery::decode;
use evenkeel_apimachinery::status::{FieldError, StatusError};

/// Base64 of continue tokens as Go decodes it: without padding, and with any trailing bits.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone),
);

/// Size in bytes of stored objects whose decoding keeps a core busy for long.
const BUSY_BYTES: usize = 1024 * 1024;

/// Parsed options of a list request.
pub(super) struct ListOptions<'a> {
    pub(super) selectors: Selectors,
    /// `limit`; `None` without a limit.
    limit: Option<usize>,
    /// Position that the `continue` token names.
    token: Option<Token>,
    /// `resourceVersion`; empty if it is unset.
    version: &'a str,
    /// Whether the list shows exactly the state at `version`.
    is_exact: bool,
}

/// Continue token of a list. Its JSON has upstream's field names.
///
/// Upstream: `continueToken`.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Token {
    /// Version of the token's format: `meta.k8s.io/v1`.
    v: String,
    /// Revision of the list, or -1 for the most recent one.
    rv: i64,
    /// Least key of the next chunk: the last key of the previous chunk with a zero character. In a list of one
    /// namespace, keys do not contain the namespace.
    start: String,
}

impl Token {
    /// Encodes the token of the chunk that starts at a key.
    ///
    /// Upstream: `EncodeContinue`.
    pub(crate) fn encode(revision: i64, start: &str) -> String {
        let token = Self { v: "meta.k8s.io/v1".to_owned(), rv: revision, start: start.to_owned() };
        BASE64.encode(serde_json::to_vec(&token).unwrap_or_default())
    }

    fn decode(text: &str) -> Result<Self, StatusError> {
        Self::read(text).map_err(|why| {
            StatusError::bad_request(format!(
                "invalid continue token: continue key is not valid{why}"
            ))
        })
    }

    /// Decodes and validates a token. The error is the end of the message, after "not valid".
    ///
    /// Upstream: `DecodeContinue`.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let bytes = BASE64.decode(text).map_err(|error| {
            // Go reports the first character that is none of base64 before the length.
            let is_of_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
            let other = text.bytes().position(|byte| !is_of_base64(byte));
            let offset = other.unwrap_or(match error {
                DecodeError::InvalidByte(offset, _) | DecodeError::InvalidLastSymbol(offset, _) => {
                    offset
                }
                DecodeError::InvalidLength(_) | DecodeError::InvalidPadding => text.len() / 4 * 4,
            });
            format!(": illegal base64 data at input byte {offset}")
        })?;
        let token = Self::from_json(&bytes).map_err(|error| format!(": {error}"))?;
        if token.v != "meta.k8s.io/v1" {
            return Err(format!(": server does not recognize this encoded version {}", token.v));
        }
        if token.rv == 0 {
            let why = ": incorrect encoded start resourceVersion (version meta.k8s.io/v1)";
            return Err(why.to_owned());
        }
        if token.start.is_empty() {
            return Err(": encoded start key empty (version meta.k8s.io/v1)".to_owned());
        }
        let path = token.start.strip_prefix('/').unwrap_or(&token.start);
        if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(format!(": {}", token.start));
        }
        Ok(token)
    }

    /// Decodes the JSON of a token, with the errors of Go's decoder. Ignores other fields.
    fn from_json(bytes: &[u8]) -> Result<Self, String> {
        let fields = match decode::json_value(bytes)? {
            Value::Object(fields) => fields,
            Value::Null => return Ok(Self::default()),
            other => {
                let form = go_form(&other);
                return Err(format!(
                    "json: cannot unmarshal {form} into Go value of type storage.continueToken"
                ));
            }
        };
        let mut token = Self::default();
        for (name, value) in fields {
            let name = name.to_ascii_lowercase();
            let refused = |form: &str, go_type: &str| {
                Err(format!(
                    "json: cannot unmarshal {form} into Go struct field continueToken.{name} of type {go_type}"
                ))
            };
            match (name.as_str(), value) {
                (_, Value::Null) => {}
                ("v", Value::String(text)) => token.v = text,
                ("start", Value::String(text)) => token.start = text,
                ("rv", Value::Number(number)) => match number.as_i64() {
                    Some(revision) => token.rv = revision,
                    None => return refused(&format!("number {number}"), "int64"),
                },
                ("rv", other) => return refused(go_form(&other), "int64"),
                ("v" | "start", other) => return refused(go_form(&other), "string"),
                _ => {}
            }
        }
        Ok(token)
    }

    /// Returns the list's revision.
    pub(crate) fn revision(&self) -> i64 {
        self.rv
    }

    /// Returns the least key of the chunk, without the namespace in a list of one.
    pub(crate) fn start(&self) -> &str {
        self.start.strip_prefix('/').unwrap_or(&self.start)
    }
}

/// Returns the name of a value's form in the errors of Go's JSON decoder.
fn go_form(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Returns a key as a list of `namespace` (empty: of all) has it in its continue tokens.
fn without_namespace<'a>(namespace: &str, key: &'a str) -> &'a str {
    if namespace.is_empty() {
        return key;
    }
    key.strip_prefix(namespace).and_then(|rest| rest.strip_prefix('/')).unwrap_or(key)
}

/// Parses the `resourceVersion` parameter of a list.
pub(super) fn parse_list_version(text: &str) -> Result<u64, StatusError> {
    parse_revision(text)
        .map_err(|error| StatusError::bad_request(format!("invalid resource version: {error}")))
}

/// Parses the `resourceVersion` parameter of a GET or a watch, for which upstream reports an internal error.
///
/// Upstream: `ParseResourceVersion`.
pub(super) fn parse_version(text: &str) -> Result<u64, StatusError> {
    parse_revision(text).map_err(|error| StatusError::plain_internal(error.to_string()))
}

fn parse_revision(text: &str) -> Result<u64, FieldError> {
    text.parse().map_err(|error| {
        FieldError::invalid("resourceVersion", text, number_error("ParseUint", text, &error))
    })
}

/// Returns whether upstream reads objects of the resource from etcd, never from a watch cache.
pub(super) fn is_uncached(request: &RequestContext<'_>) -> bool {
    request.resource().kind() == "Event" && request.resource().custom.is_none()
}

/// Waits up to 3 s, as upstream does, until the store has reached a revision. Returns a 504 if it has not.
///
/// Upstream: `NewTooLargeResourceVersionError`.
pub(super) async fn wait_until_revision(
    request: &RequestContext<'_>,
    revision: u64,
) -> Result<(), StatusError> {
    let store = &request.api.store;
    if store.revision() >= revision {
        return Ok(());
    }
    // Upstream does not wait for Events, because it has no watch cache of them.
    let (max_wait, retry_after) =
        if is_uncached(request) { (Duration::ZERO, 0) } else { (Duration::from_secs(3), 1) };
    match tokio::time::timeout(max_wait, store.wait_for_revision(revision)).await {
        Ok(reached) => Ok(reached?),
        Err(_) => {
            let current = store.revision();
            let mut error = StatusError::timeout(
                format!("Too large resource version: {revision}, current: {current}"),
                retry_after,
            );
            error.details_mut();
            Err(error.cause("ResourceVersionTooLarge", "Too large resource version", ""))
        }
    }
}

impl<'a> ListOptions<'a> {
    /// Parses and validates the options. `is_sharded` is whether `shardSelector` has an effect.
    pub(super) fn parse(
        resource: &ResourceType,
        query: &'a Query,
        is_sharded: bool,
    ) -> Result<Self, StatusError> {
        query.number("timeoutSeconds")?;
        let limit = query.number("limit")?.and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0);
        let selectors = ParsedSelectors::parse(query)?;
        let version = query.get("resourceVersion");
        let version_match = query.get("resourceVersionMatch");
        let token = query.get("continue");
        check_errors("ListOptions", &validate_list_options(query))?;
        let mut selectors = selectors.resolve(resource)?;
        if is_sharded {
            selectors = selectors.sharded(query)?;
        }
        let token = if token.is_empty() { None } else { Some(Token::decode(token)?) };
        if token.is_some() && !matches!(version, "" | "0") {
            return Err(StatusError::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let is_exact = is_exact_match(version_match, limit);
        Ok(Self { selectors, limit, token, version, is_exact })
    }
}

/// Returns the errors of a list's `resourceVersionMatch` and `sendInitialEvents`.
///
/// Upstream: `ValidateListOptions`.
pub(super) fn validate_list_options(query: &Query) -> Vec<FieldError> {
    let version = query.get("resourceVersion");
    let version_match = query.get("resourceVersionMatch");
    let mut errors = Vec::new();
    if !version_match.is_empty() {
        let mut forbid =
            |why: &str| errors.push(FieldError::forbidden("resourceVersionMatch", why));
        if version.is_empty() {
            forbid("resourceVersionMatch is forbidden unless resourceVersion is provided");
        }
        if !query.get("continue").is_empty() {
            forbid("resourceVersionMatch is forbidden when continue is provided");
        }
        if version_match == "Exact" && version == "0" {
            forbid("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"");
        }
        if !matches!(version_match, "Exact" | "NotOlderThan") {
            errors.push(FieldError::not_supported(
                "resourceVersionMatch",
                version_match,
                &["Exact", "NotOlderThan", ""],
            ));
        }
    }
    if query.has("sendInitialEvents") {
        errors.push(FieldError::forbidden(
            "sendInitialEvents",
            "sendInitialEvents is forbidden for list",
        ));
    }
    errors
}

/// Checks the options that choose the objects of a deletion, which upstream reads before the options of the deletion.
///
/// Upstream: `DeleteCollection` of `endpoints/handlers`.
pub(super) fn check_options(request: &RequestContext<'_>) -> Result<(), StatusError> {
    let query = request.query;
    query.number("timeoutSeconds")?;
    query.number("limit")?;
    let selectors = ParsedSelectors::parse(query)?;
    check_errors("ListOptions", &validate_list_options(query))?;
    selectors.resolve(request.resource()).map(drop)
}

/// Returns whether a list shows exactly the state at its `resourceVersion`. Without a `resourceVersionMatch`, a list
/// with a limit is exact, because clients relied on that before the parameter existed.
fn is_exact_match(version_match: &str, limit: Option<usize>) -> bool {
    version_match == "Exact" || version_match.is_empty() && limit.is_some()
}

/// Returns the maximum number of objects in the response; `None` for all. A list at `resourceVersion=0` without a
/// continue token ignores `limit`, because upstream serves it from the watch cache.
fn page_limit(options: &ListOptions<'_>) -> Option<usize> {
    let ignores_limit = options.version == "0" && options.token.is_none();
    if ignores_limit { None } else { options.limit }
}

/// Returns the revision at which to list; `None` for the most recent state. Waits until the store has reached the
/// `resourceVersion` of the request. A list that is not exact (NotOlderThan) only waits for that revision, and then reads
/// the most recent state.
async fn list_revision(
    request: &RequestContext<'_>,
    options: &ListOptions<'_>,
) -> Result<Option<u64>, StatusError> {
    match (&options.token, options.version) {
        // A token with revision -1 continues an expired list at the most recent state.
        (Some(token), _) => {
            let revision = u64::try_from(token.rv).ok();
            // A forged token may have a future revision.
            wait_until_revision(request, revision.unwrap_or(0)).await?;
            Ok(revision)
        }
        (None, "" | "0") => Ok(None),
        (None, text) => {
            let revision = parse_list_version(text)?;
            wait_until_revision(request, revision).await?;
            Ok(options.is_exact.then_some(revision))
        }
    }
}

/// One chunk of a list with its list metadata.
pub(super) struct Page {
    pub(super) entries: Vec<Arc<Entry>>,
    pub(super) meta: ListMeta,
}

/// Reads one chunk of a list: the objects that match the selectors, up to the limit, and the list's metadata.
///
/// Upstream: `GetList`, `PrepareContinueToken`.
async fn read_page(
    request: &RequestContext<'_>,
    options: &ListOptions<'_>,
) -> Result<Page, StatusError> {
    let store = &request.api.store;
    let resource = request.resource();
    let limit = page_limit(options);
    let selects_all = options.selectors.is_everything();
    let namespace = request.target.namespace;
    let start = options.token.as_ref().map(|token| match namespace {
        "" => Cow::Borrowed(token.start()),
        namespace => Cow::Owned(format!("{namespace}/{}", token.start())),
    });
    // With selectors, the store returns all objects, and the limit applies to the selected ones.
    let range =
        Range { namespace, start: start.as_deref(), limit: if selects_all { limit } else { None } };
    let snapshot = match list_revision(request, options).await? {
        None => store.list(&resource.resource_prefix, range),
        Some(revision) => match store.list_at(&resource.resource_prefix, range, revision) {
            Ok(snapshot) => snapshot,
            Err(_) => return Err(page_expired(options)),
        },
    };
    let Snapshot { revision, entries, mut remaining } = snapshot;
    // Selectors apply to objects in the API version of the request, so convert them first.
    let mut entries = codec::entries(request.api, resource, entries).await?;
    if !selects_all {
        entries.retain(|entry| options.selectors.matches(entry));
        if let Some(limit) = limit
            && entries.len() > limit
        {
            remaining = entries.len() - limit;
            entries.truncate(limit);
        }
    }
    let mut meta = ListMeta { resource_version: revision, ..ListMeta::default() };
    // Upstream's lists of custom objects have no such field.
    if resource.custom.is_none() {
        let shards = options.selectors.shards();
        meta.shard_selector = shards.map(ToString::to_string).unwrap_or_default();
    }
    if remaining > 0
        && let Some(last) = entries.last()
    {
        // All chunks have the revision of the first one. After a token with revision -1, they have the revision of this
        // chunk.
        let token_revision = match &options.token {
            Some(token) if token.rv > 0 => token.rv,
            _ => i64::try_from(revision).unwrap_or(i64::MAX),
        };
        let start = format!("{}\u{0}", without_namespace(namespace, &last.key));
        meta.token = Token::encode(token_revision, &start);
        meta.remaining = selects_all.then_some(remaining as u64);
    }
    Ok(Page { entries, meta })
}

/// Returns 410 Expired for a revision that the store no longer has. The error for an expired continue token contains a
/// new token that continues the list at the most recent state.
fn page_expired(options: &ListOptions<'_>) -> StatusError {
    match &options.token {
        Some(token) => {
            let mut error = StatusError::expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
            );
            error.0.metadata.token = Token::encode(-1, token.start());
            error
        }
        None => StatusError::expired("The resourceVersion for the provided list is too old."),
    }
}

/// Returns the objects and the metadata of a list request. `deletecollection` deletes these objects.
pub(super) async fn list_page(request: &RequestContext<'_>) -> Result<Page, StatusError> {
    let is_sharded = request.api.sharded_list_and_watch;
    let options = ListOptions::parse(request.resource(), request.query, is_sharded)?;
    read_page(request, &options).await
}

/// Serves a list request.
///
/// Upstream: `ListResource`.
pub(super) async fn serve(request: &RequestContext<'_>) -> Result<Response<Body>, StatusError> {
    let format = request.format()?;
    let Page { entries, meta } = list_page(request).await?;
    respond(request, &format, entries, &meta)
}

/// Responds with a list of stored objects.
pub(super) fn respond(
    request: &RequestContext<'_>,
    format: &Format,
    mut entries: Vec<Arc<Entry>>,
    meta: &ListMeta,
) -> Result<Response<Body>, StatusError> {
    let resource = request.resource();
    if let Some(key) = format.row_order(resource) {
        entries.sort_by_cached_key(|entry| {
            key(&serde_json::from_slice(entry.json()).unwrap_or_default())
        });
    }
    let content_type = format.content_type(Purpose::List);
    format.check(resource, request.target.subresource, &request.query.0, Purpose::List)?;
    let pieces = if format.is_stored_form(resource) {
        Pieces::json(resource, entries, meta)
    } else if format.is_stored_protobuf(resource) && !format.is_metadata() {
        Pieces::protobuf(resource, entries, meta)?
    } else {
        let stored_bytes: usize = entries.iter().map(|entry| entry.size()).sum();
        let prepare = || {
            let mut objects = entries.iter().map(|entry| entry.object());
            ListEncoder::new(format, resource, &mut objects, meta, request.now)
        };
        let encoder = if stored_bytes > BUSY_BYTES { run_busy(prepare) } else { prepare() };
        Pieces::encoded(encoder?, entries)
    };
    let pieces = match pieces.into_short_or_long().map_err(StatusError::internal)? {
        // Send a short list as a complete body, which has a `Content-Length`.
        ShortOrLong::Short(bytes) => {
            return Ok(answer(StatusCode::OK, content_type, Body::whole(bytes)));
        }
        ShortOrLong::Long(pieces) => pieces,
    };
    if compress::accepts_gzip(request.headers) {
        let mut response =
            answer(StatusCode::OK, content_type, Body::pieces(compress::Gzip::new(pieces)));
        compress::set_gzip_headers(&mut response);
        return Ok(response);
    }
    Ok(answer(StatusCode::OK, content_type, Body::pieces(pieces)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn continue_tokens_survive_encoding_and_invalid_ones_are_refused() {
        let token = Token::read(&Token::encode(7, "ns/a\u{0}")).expect("its own token");
        assert_eq!((token.rv, token.start()), (7, "ns/a\u{0}"));
        let encoded = |text: &str| BASE64.encode(text);
        for (token, why) in [
            ("a=".to_owned(), ": illegal base64 data at input byte 1"),
            ("abcda".to_owned(), ": illegal base64 data at input byte 4"),
            ("$abcd".to_owned(), ": illegal base64 data at input byte 0"),
            (
                encoded(r#"{"v":"v2","rv":1,"start":"a"}"#),
                ": server does not recognize this encoded version v2",
            ),
            (
                encoded(r#"{"v":"meta.k8s.io/v1","start":"a"}"#),
                ": incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
            ),
            (
                encoded(r#"{"v":"meta.k8s.io/v1","rv":1}"#),
                ": encoded start key empty (version meta.k8s.io/v1)",
            ),
            (encoded(r#"{"v":"meta.k8s.io/v1","rv":1,"start":"a/../b"}"#), ": a/../b"),
            (encoded("x"), ": invalid character 'x' looking for beginning of value"),
            (encoded("null"), ": server does not recognize this encoded version "),
            (
                encoded("[]"),
                ": json: cannot unmarshal array into Go value of type storage.continueToken",
            ),
            (
                encoded(r#"{"v":"meta.k8s.io/v1","rv":"1"}"#),
                ": json: cannot unmarshal string into Go struct field continueToken.rv of type int64",
            ),
            (
                encoded(r#"{"v":"meta.k8s.io/v1","rv":1.5}"#),
                ": json: cannot unmarshal number 1.5 into Go struct field continueToken.rv of type int64",
            ),
        ] {
            assert_eq!(Token::read(&token).expect_err(why), why);
        }
    }
}
