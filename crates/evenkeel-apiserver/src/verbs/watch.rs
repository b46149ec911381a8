//! Watch: sends the existing objects, then each change, until the client disconnects or the timeout expires.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | `resourceVersion` unset, 0, or another: initial synthetic events | `serve`, `initial_piece` |
//! | streaming lists: `sendInitialEvents`, `resourceVersionMatch`, `k8s.io/initial-events-end` | `validate_watch_options`, `bookmark` |
//! | `allowWatchBookmarks` | `next`, `bookmark` |
//! | `timeoutSeconds` | `serve` |
//! | 410 `Expired` for a revision that is compacted | `too_old_status` |
//! | an object that starts or stops matching the selectors: `ADDED`, `DELETED` | `event_type` |
//! | `shardSelector`, with the feature gate `ShardedListAndWatch` | `serve`, `selector::sharded` |

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Response, StatusCode};
use rand::Rng as _;
use serde_json::json;
use tokio::time::Instant;

use super::list::{parse_version, validate_list_options};
use crate::api::Api;
use crate::custom::codec;
use crate::metrics::{InFlight, ShardedWatch};
use crate::output::{Format, Purpose};
use crate::request::RequestContext;
use crate::request::query::{Query, check_errors};
use crate::resource::ResourceType;
use crate::response::Body;
use crate::response::answer;
use crate::selector::{ParsedSelectors, Selectors};
use crate::store::{Change, Cursor, Entry, Event, Range};
use evenkeel_apimachinery::schema;
use evenkeel_apimachinery::status::{FieldError, StatusError};

/// Interval of bookmark events. The first one is up to 20 % earlier or later.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);
/// Time before the end of a watch at which it sends the last bookmark.
const LAST_BOOKMARK_LEAD: Duration = Duration::from_secs(2);
/// Size in bytes at which a chunk of initial events is sent.
const MAX_PIECE_BYTES: usize = 64 * 1024;
/// Default of upstream's `--min-request-timeout`, in seconds. A watch without `timeoutSeconds` ends after one to two
/// times this value.
const MIN_REQUEST_TIMEOUT_SECONDS: u64 = 1800;

/// Maximum `timeoutSeconds` that takes effect: about a century, so that the deadline is a valid instant.
const MAX_TIMEOUT_SECONDS: u64 = 1 << 32;

/// Serves a watch request.
///
/// Upstream: `serveWatchHandler`.
pub(super) async fn serve(request: &RequestContext<'_>) -> Result<Response<Body>, StatusError> {
    let format = request.format()?;
    let resource = request.resource();
    let query = request.query;
    let seconds = match query.number("timeoutSeconds")? {
        Some(seconds) if seconds > 0 => seconds.unsigned_abs().min(MAX_TIMEOUT_SECONDS),
        _ => {
            MIN_REQUEST_TIMEOUT_SECONDS
                + request.api.random(|rng| rng.random_range(0..MIN_REQUEST_TIMEOUT_SECONDS))
        }
    };
    query.number("limit")?;
    let selectors = ParsedSelectors::parse(query)?;
    let initial_events = validate_watch_options(query, request.is_watch_path)?;
    let mut selectors = selectors.resolve(resource)?;
    if !request.target.name.is_empty() {
        selectors = selectors.named(request.target.name)?;
    }
    if request.api.sharded_list_and_watch {
        selectors = selectors.sharded(query)?;
    }
    let version = match query.get("resourceVersion") {
        "" => 0,
        text => parse_version(text)?,
    };
    format.check(resource, request.target.subresource, &query.0, Purpose::Watch)?;
    let store = &request.api.store;
    let content_type = format.content_type(Purpose::Watch);
    let (entries, start) = if initial_events.unwrap_or(version == 0) {
        if version > 0
            && let Err(error) = super::list::wait_until_revision(request, version).await
        {
            // The watch cache begins the response before it waits. Events have none.
            if super::list::is_uncached(request) {
                return Err(error);
            }
            let frame = format.event(resource, "ERROR", &error.to_json(), true, request.now)?;
            return Ok(only(content_type, frame));
        }
        let range = Range { namespace: request.target.namespace, ..Range::default() };
        let snapshot = store.list(&resource.resource_prefix, range);
        (snapshot.entries, snapshot.revision)
    } else if version == 0 {
        (Vec::new(), store.revision())
    } else {
        (Vec::new(), version)
    };
    let entries = codec::entries(request.api, resource, entries).await?;
    let scope = selectors.scope(resource, request.target.namespace);
    let Ok(cursor) = store.follow(&resource.resource_prefix, &scope, start) else {
        let frame = format.event(
            resource,
            "ERROR",
            &too_old_status(start, store.revision()),
            true,
            request.now,
        )?;
        return Ok(only(content_type, frame));
    };
    let now = request.api.clock.instant();
    // An event is not a list: upstream ends a watch in a form of lists at its first event.
    let frames_fail = format.is_metadata_list();
    let allows_bookmarks = request.query.flag("allowWatchBookmarks");
    let sends_end_of_initial = allows_bookmarks && initial_events == Some(true);
    let key_prefix = match request.target.namespace {
        "" => None,
        namespace => Some(format!("{namespace}/")),
    };
    let sharded = selectors.shards().map(|_| request.api.metrics.watching_shards(&resource.name));
    let watcher = Watcher {
        api: request.api.clone(),
        resource: resource.clone(),
        key_prefix,
        is_stored_form: format.is_stored_form(resource),
        format,
        selectors,
        initial: entries.into_iter(),
        end_of_initial: sends_end_of_initial.then_some(start),
        cursor,
        _counted: request.api.metrics.watching(),
        sharded,
        is_first: true,
        allows_bookmarks,
        next_bookmark: next_bookmark(
            now,
            now + Duration::from_secs(seconds),
            BOOKMARK_INTERVAL.mul_f64(request.api.random(|rng| rng.random_range(0.8..1.2))),
        ),
        deadline: now + Duration::from_secs(seconds),
        replaced: resource.custom.as_ref().map(|custom| custom.definition.replaced()),
        is_ended: false,
    };
    let stream = futures::stream::unfold(watcher, move |mut watcher| async move {
        let frame = watcher.next().await.filter(|_| !frames_fail)?;
        Some((frame, watcher))
    });
    Ok(answer(StatusCode::OK, content_type, Body::stream(stream)))
}

/// Returns the response of a watch with one event.
fn only(content_type: HeaderValue, frame: Bytes) -> Response<Body> {
    answer(StatusCode::OK, content_type, Body::stream(futures::stream::iter([frame])))
}

/// Validates the options. Returns whether the watch begins with initial events for the existing objects, whose end a
/// bookmark marks. `None` means only if `resourceVersion` is unset or 0, and without that bookmark.
///
/// Upstream: `validateWatchOptions`.
fn validate_watch_options(query: &Query, is_watch_path: bool) -> Result<Option<bool>, StatusError> {
    let version_match = query.get("resourceVersionMatch");
    let initial = query.has("sendInitialEvents").then(|| query.flag("sendInitialEvents"));
    // Upstream: `SetListOptionsDefaults`.
    let has_initial_default = initial.is_none()
        && version_match.is_empty()
        && matches!(query.get("resourceVersion"), "" | "0")
        && !is_watch_path;
    let (initial, version_match) =
        if has_initial_default { (Some(true), "NotOlderThan") } else { (initial, version_match) };
    let forbidden = |why: &str| FieldError::forbidden("resourceVersionMatch", why);
    let mut errors = Vec::new();
    if is_watch_path {
        // Upstream validates a request with the deprecated path as a list.
        errors = validate_list_options(query);
    } else {
        if initial.is_some() && version_match != "NotOlderThan" {
            let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            errors.push(forbidden(why));
        }
        if !version_match.is_empty() {
            if initial.is_none() {
                let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
                errors.push(forbidden(why));
            }
            if version_match != "NotOlderThan" {
                let supported = &["NotOlderThan"];
                let field = "resourceVersionMatch";
                errors.push(FieldError::not_supported(field, version_match, supported));
            }
            if !query.get("continue").is_empty() {
                let why = "resourceVersionMatch is forbidden when continue is provided";
                errors.push(forbidden(why));
            }
        }
    }
    check_errors("ListOptions", &errors)?;
    Ok(initial)
}

/// Returns the time of the next bookmark: after the interval, or shortly before the watch ends, so that the client can
/// resume from there.
///
/// Upstream: `nextBookmarkTime`.
fn next_bookmark(now: Instant, deadline: Instant, interval: Duration) -> Instant {
    match deadline.checked_sub(LAST_BOOKMARK_LEAD) {
        Some(last) if last > now => last.min(now + interval),
        // The watch ends before another bookmark.
        _ => deadline,
    }
}

/// Returns the Status 410 of a watch at a revision that the store no longer has, as JSON.
fn too_old_status(version: u64, current: u64) -> Vec<u8> {
    StatusError::expired(format!("too old resource version: {version} ({current})")).to_json()
}

/// Waits until the definition of a custom resource changes or is deleted. Never returns for a built-in resource.
async fn definition_replaced(replaced: Option<&mut evenkeel_tasks::watch::Receiver<bool>>) {
    match replaced {
        Some(replaced) => {
            let _ = replaced.wait_for(|replaced| *replaced).await;
        }
        None => std::future::pending().await,
    }
}

/// State of a watch.
struct Watcher {
    api: Arc<Api>,
    resource: Arc<ResourceType>,
    /// Prefix of the keys in the watched namespace; `None` for all namespaces.
    key_prefix: Option<String>,
    format: Format,
    /// Whether the format is JSON in the stored version, for which entries contain encoded frames.
    is_stored_form: bool,
    selectors: Selectors,
    /// Existing objects that are not sent yet.
    initial: std::vec::IntoIter<Arc<Entry>>,
    /// Revision of the bookmark that ends the initial events.
    end_of_initial: Option<u64>,
    cursor: Cursor,
    /// Counts the watch as active while it lasts.
    _counted: InFlight,
    /// Counts the watch as one of some shards; `None` without a shard selector.
    sharded: Option<ShardedWatch>,
    /// Whether no event was sent yet.
    is_first: bool,
    /// Whether the client accepts bookmarks.
    allows_bookmarks: bool,
    next_bookmark: Instant,
    deadline: Instant,
    /// Becomes true when the definition of the custom resource changes or is deleted.
    replaced: Option<evenkeel_tasks::watch::Receiver<bool>>,
    /// Whether the last event was sent.
    is_ended: bool,
}

impl Watcher {
    /// Returns the next chunk of the response; `None` at its end.
    async fn next(&mut self) -> Option<Bytes> {
        if self.is_ended {
            return None;
        }
        if let Some(piece) = self.initial_piece() {
            return Some(piece);
        }
        if let Some(revision) = self.end_of_initial.take() {
            return Some(self.bookmark(revision, true));
        }
        loop {
            match self.changes().await {
                Ok(Some(piece)) => return Some(piece),
                Ok(None) => {}
                Err(piece) => {
                    self.is_ended = true;
                    return Some(piece);
                }
            }
            let wake_at = if self.allows_bookmarks {
                self.next_bookmark.min(self.deadline)
            } else {
                self.deadline
            };
            tokio::select! {
                biased;
                () = self.cursor.changed() => {}
                () = definition_replaced(self.replaced.as_mut()) => {
                    self.is_ended = true;
                    return self.changes().await.unwrap_or_else(Some);
                }
                () = tokio::time::sleep_until(wake_at) => {
                    if self.api.clock.instant() >= self.deadline {
                        self.is_ended = true;
                        return None;
                    }
                    self.next_bookmark =
                        next_bookmark(self.api.clock.instant(), self.deadline, BOOKMARK_INTERVAL);
                    // Send new events before a bookmark, because it contains the store's revision.
                    match self.changes().await {
                        Ok(None) => return Some(self.bookmark(self.cursor.at(), false)),
                        Ok(Some(piece)) => return Some(piece),
                        Err(piece) => {
                            self.is_ended = true;
                            return Some(piece);
                        }
                    }
                }
            }
        }
    }

    /// Returns the next initial events, or `None` after the last one.
    fn initial_piece(&mut self) -> Option<Bytes> {
        let mut piece = BytesMut::new();
        while let Some(entry) = self.initial.next() {
            if !self.matches(&entry) {
                continue;
            }
            let frame = if self.is_stored_form {
                Ok(entry.event(Change::Added))
            } else {
                self.encode(&entry, Change::Added, self.is_first)
            };
            match frame {
                Ok(frame) => {
                    self.is_first = false;
                    piece.extend_from_slice(&frame);
                }
                Err(error) => {
                    tracing::error!(object = %entry.key, %error, "an object cannot be encoded for a watch");
                }
            }
            if piece.len() >= MAX_PIECE_BYTES {
                break;
            }
        }
        (!piece.is_empty()).then(|| piece.freeze())
    }

    /// Returns the changes since the last call, or an `ERROR` event if the store no longer has all of them.
    async fn changes(&mut self) -> Result<Option<Bytes>, Bytes> {
        loop {
            let Ok(events) = self.cursor.take() else {
                return Err(
                    self.error(&too_old_status(self.cursor.at(), self.api.store.revision()))
                );
            };
            if events.is_empty() {
                return Ok(None);
            }
            let events = self.convert(events).await.map_err(|e| self.error(&e.to_json()))?;
            // A single frame is not copied.
            let mut single: Option<Bytes> = None;
            let mut piece = BytesMut::new();
            for event in &events {
                let Some(frame) = self.frame(event) else { continue };
                match single.take() {
                    None if piece.is_empty() => single = Some(frame),
                    None => piece.extend_from_slice(&frame),
                    Some(before) => {
                        piece.extend_from_slice(&before);
                        piece.extend_from_slice(&frame);
                    }
                }
            }
            if let Some(piece) = single.or_else(|| (!piece.is_empty()).then(|| piece.freeze())) {
                return Ok(Some(piece));
            }
        }
    }

    /// Converts the events to the watched version, if a webhook converts the custom resource.
    async fn convert(&self, mut events: Vec<Arc<Event>>) -> Result<Vec<Arc<Event>>, StatusError> {
        if codec::needs_webhook(&self.resource) {
            events.retain(|event| self.is_in_namespace(event));
        }
        // Selectors also apply to the object before a change.
        let converts_previous = !self.selectors.is_everything();
        codec::events(&self.api, &self.resource, events, converts_previous).await
    }

    /// Returns the frame of an `ERROR` event.
    fn error(&self, status: &[u8]) -> Bytes {
        let now = self.api.clock.now();
        self.format.event(&self.resource, "ERROR", status, self.is_first, now).unwrap_or_default()
    }

    /// Returns whether an event is in the watched namespace.
    fn is_in_namespace(&self, event: &Event) -> bool {
        self.key_prefix.as_ref().is_none_or(|prefix| event.entry.key.starts_with(&**prefix))
    }

    /// Encodes the frame of an event in a format other than the stored one.
    fn encode(&self, entry: &Entry, change: Change, first: bool) -> Result<Bytes, StatusError> {
        let (resource, change) = (&self.resource, change.as_str());
        if self.format.is_stored_protobuf(resource) {
            let message = entry.protobuf(|json| Format::message(resource, json))?;
            return self.format.message_event(resource, change, message);
        }
        self.format.event(resource, change, entry.json(), first, self.api.clock.now())
    }

    /// Returns the frame of an event, or `None` if the watch does not include it.
    fn frame(&mut self, event: &Event) -> Option<Bytes> {
        if !self.is_in_namespace(event) {
            return None;
        }
        let change = self.event_type(event)?;
        // The DELETED event of an object that stops matching the selectors contains its last matching state, with the
        // revision of the change.
        let stops_matching = change == Change::Deleted && event.entry.change != Change::Deleted;
        let last_matching = match &event.previous {
            Some(previous) if stops_matching => {
                Some(previous.with_revision(event.entry.revision, Change::Deleted))
            }
            _ => None,
        };
        let entry = last_matching.as_ref().unwrap_or(&event.entry);
        if self.is_stored_form {
            return Some(entry.event(change));
        }
        let is_first = self.is_first;
        let encode = || self.encode(entry, change, is_first);
        // Watches do not share the first frame of a Table, which has the columns, and frames in other versions.
        let frame = if is_first || !self.resource.stored {
            encode()
        } else {
            event.frame(&self.format, change, encode)
        };
        match frame {
            Ok(frame) => {
                self.is_first = false;
                Some(frame)
            }
            Err(error) => {
                tracing::error!(object = %entry.key, %error, "an event cannot be encoded for a watch");
                None
            }
        }
    }

    /// Returns the type of an event for the selectors: ADDED for an object that starts to match, and DELETED for one
    /// that stops matching. Returns `None` if it matches neither before nor after the change.
    ///
    /// Upstream: `convertToWatchEvent`.
    fn event_type(&self, event: &Event) -> Option<Change> {
        if self.selectors.is_everything() {
            return Some(event.entry.change);
        }
        let matches_now = event.entry.change != Change::Deleted && self.matches(&event.entry);
        let matched_before = match &event.previous {
            Some(previous) => self.matches(previous),
            None => false,
        };
        match (matched_before, matches_now) {
            (false, true) => Some(Change::Added),
            (true, true) => Some(Change::Modified),
            (true, false) => Some(Change::Deleted),
            (false, false) => None,
        }
    }

    /// Returns whether the selectors select a state of an object. Counts an object that is in another shard.
    fn matches(&self, entry: &Entry) -> bool {
        if self.selectors.matches_sharding(entry) {
            return self.selectors.matches_attributes(entry);
        }
        if let Some(sharded) = &self.sharded {
            sharded.record_filtered_event();
        }
        false
    }

    /// Returns the frame of a bookmark. `end_of_initial` marks the end of the initial events.
    fn bookmark(&mut self, revision: u64, end_of_initial: bool) -> Bytes {
        let mut object = json!({
            "kind": self.resource.kind(),
            "apiVersion": &*self.resource.api_version,
            "metadata": {"resourceVersion": revision.to_string()},
        });
        if end_of_initial {
            object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        // Upstream sends an empty object of the kind.
        if let Some(schema) = self.resource.schema(&self.resource.gvk) {
            schema::set_unset_fields(&schema, &mut object);
        }
        let object = object.to_string();
        let first = std::mem::take(&mut self.is_first);
        let now = self.api.clock.now();
        self.format
            .event(&self.resource, "BOOKMARK", object.as_bytes(), first, now)
            .unwrap_or_default()
    }
}
