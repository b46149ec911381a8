//! Reflector: lists and watches one resource, and applies the result to a cache.
//!
//! Upstream: `ListAndWatch`.

use super::{
    backoff::Backoff, caches::Scope, initial_state::InitialState, part::Feed, sharded::ReadTerms,
    store::Table,
};
use crate::{
    client::{
        ApiError, Client, ListOptions, Metadata, Status, full_text,
        watch::{Watch, WatchError},
    },
    clock::Clock,
};
use bytes::Bytes;
use evenkeel_api::{
    DecodeError, Encoding, Text, View, status,
    views::Identity,
    watch::{self, EventType},
};
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};

const MIN_WATCH_TIMEOUT_SECONDS: u64 = 300;
/// Number of objects in a page of a paged list.
const WATCH_LIST_PAGE_SIZE: u32 = 500;
/// Annotation of the bookmark that ends the initial events of a streaming list.
const INITIAL_EVENTS_ANNOTATION: &str = "k8s.io/initial-events-end";
/// Time after a watch's timeout after which the watch counts as broken.
const WATCH_TIMEOUT_GRACE: Duration = Duration::from_secs(30);
/// Limit on the silence of a streaming list, before the reflector falls back to a paged list. A server that
/// ignores `sendInitialEvents` never sends the final bookmark.
const INITIAL_EVENTS_TIMEOUT: Duration = Duration::from_secs(60);

/// Time within which a watch that ends without an event counts as failed, as in upstream's reflector.
const MIN_EMPTY_WATCH: Duration = Duration::from_secs(1);

/// Limit on the backoff while the server does not serve a kind.
const MAX_NOT_SERVED_BACKOFF: Duration = Duration::from_secs(4);

/// Lists and watches for one part of a cache.
pub(crate) struct Reflector {
    client: Client,
    clock: Clock,
    feed: Feed,
    /// Shards whose objects are read.
    shards: ReadTerms,
    /// Whether the initial state is read in pages, although the server may support streaming lists.
    lists_in_pages: bool,
    /// The resourceVersion to watch from. `None` to list first.
    last_sync_resource_version: Option<Text>,
}

/// Outcome of one list and watch.
#[derive(Debug)]
enum WatchEnd {
    /// The watch ended without an error, or a paged list is complete. Watch again immediately.
    Regular,
    /// The resourceVersion has expired or is too large. List again after a backoff.
    Expired,
    /// The server does not serve the kind, for example because its definition is not installed yet. Watch again after a
    /// short backoff.
    NotServed(Text),
    /// The server forbids or does not support watches. List again after a backoff.
    WatchForbidden(Text),
    /// An error. Watch again after a backoff.
    Failed(Text),
}

impl From<WatchError> for WatchEnd {
    fn from(error: WatchError) -> Self {
        Self::Failed(error.to_string().into())
    }
}

impl From<ApiError> for WatchEnd {
    fn from(error: ApiError) -> Self {
        if error.is_expired() || error.is_version_too_large() {
            Self::Expired
        } else if error.is_not_found() {
            Self::NotServed(full_text(&error).into())
        } else if means_watch_forbidden(error.code()) {
            Self::WatchForbidden(full_text(&error).into())
        } else {
            Self::Failed(full_text(&error).into())
        }
    }
}

/// Watch event whose object is not decoded, except for bookmarks and errors.
enum Event<'a> {
    AddedOrModified(&'a [u8]),
    Deleted(&'a [u8]),
    Bookmark(Metadata),
    Error(Status),
}

impl Reflector {
    pub(super) fn new(client: Client, clock: Clock, feed: Feed) -> Self {
        let shards = ReadTerms::new(feed.sharding());
        Self {
            client,
            clock,
            feed,
            shards,
            lists_in_pages: false,
            last_sync_resource_version: None,
        }
    }

    /// Sets whether the initial state is read in pages instead of a streaming list. Upstream: `useWatchList`.
    pub(super) fn listing_in_pages(self, lists_in_pages: bool) -> Self {
        Self { lists_in_pages, ..self }
    }

    fn scope(&self) -> &Scope {
        self.feed.scope()
    }

    /// Lists and watches forever. After a panic, the task group starts a new reflector, which lists again.
    pub(crate) async fn run(mut self) {
        let mut backoff = Backoff::new(self.clock.clone(), self.scope().kind.clone());
        loop {
            // A previous reflector that panicked may have left a count.
            self.feed.set_queued_items(0);
            let end = match self.list_and_watch().await {
                Ok(()) => WatchEnd::Regular,
                Err(end) => end,
            };
            self.feed.set_queued_items(0);
            let resource = &*self.scope().kind.plural;
            match end {
                WatchEnd::Regular => continue,
                WatchEnd::Expired => {
                    tracing::debug!(
                        resource,
                        "the last resourceVersion has expired or is too large; listing again"
                    );
                    self.last_sync_resource_version = None;
                }
                WatchEnd::NotServed(error) => {
                    let trouble = format!(
                        "the server does not serve the kind (is its definition installed?): {error}"
                    );
                    if self.feed.set_watch_error(Some(&trouble)) {
                        tracing::warn!(resource, %error, "the server does not serve the kind yet; waiting for it");
                    }
                    if self.feed.is_optional() {
                        // There are no objects yet, and passes do not wait for this cache.
                        self.shards.listed();
                    }
                    // Such a request is cheap, and the CustomResourceDefinition may be installed at any time.
                    self.pause(backoff.next().min(MAX_NOT_SERVED_BACKOFF)).await;
                    continue;
                }
                WatchEnd::WatchForbidden(error) => {
                    self.feed.set_watch_error(Some(&error));
                    tracing::warn!(resource, %error, "the resource cannot be watched; listing again after a pause");
                    self.last_sync_resource_version = None;
                }
                WatchEnd::Failed(error) => {
                    self.feed.set_watch_error(Some(&error));
                    tracing::warn!(resource, %error, "watch failed; trying again");
                }
            }
            self.pause(backoff.next()).await;
        }
    }

    /// Follows the terms of this process: removes the objects of shards without a term from the cache. Returns whether a list
    /// is necessary.
    fn follow_shards(&mut self) -> bool {
        let followed = self.shards.follow();
        if followed.has_lost {
            for object in self.feed.objects() {
                let meta = object.meta();
                if !self.shards.selects(&meta.namespace, &meta.name) {
                    self.feed.delete_named(&meta.namespace, &meta.name, 0);
                }
            }
        }
        followed.needs_list
    }

    /// Waits for a while, or until the terms of this process change.
    async fn pause(&mut self, duration: Duration) {
        tokio::select! {
            biased;
            () = self.shards.changed() => {}
            () = self.clock.sleep(duration) => {}
        }
    }

    /// Watches from the last resourceVersion until the watch ends. Without a resourceVersion, it reads the
    /// initial state first.
    ///
    /// Upstream: `ListAndWatch`.
    async fn list_and_watch(&mut self) -> Result<(), WatchEnd> {
        if self.last_sync_resource_version.is_some() && self.follow_shards() {
            self.last_sync_resource_version = None;
        }
        if self.last_sync_resource_version.is_none() && !self.shards.begin_list() {
            // Without a shard, there is nothing to read.
            self.shards.store(|| self.feed.replace(Table::new(), 0));
            self.shards.changed().await;
            return Ok(());
        }
        let timeout_seconds = self.watch_timeout_seconds();
        let mut watch = match &self.last_sync_resource_version {
            Some(version) => self.open_watch(version, false, timeout_seconds).await?,
            None => {
                let streamed = if self.lists_in_pages { None } else { self.watch_list().await? };
                let Some(streamed) = streamed else {
                    self.list().await?;
                    return Ok(());
                };
                streamed
            }
        };
        self.handle_watch(&mut watch).await
    }

    /// Returns a watch timeout between five and ten minutes, so that the watches do not all end at the same time
    /// (`minWatchTimeout`).
    fn watch_timeout_seconds(&self) -> u64 {
        MIN_WATCH_TIMEOUT_SECONDS
            + (self.clock.draw(&(&self.scope().kind, "watch")) * MIN_WATCH_TIMEOUT_SECONDS as f64)
                as u64
    }

    /// Opens a watch from `version`. With `send_initial_events`, the watch begins with the existing objects (KEP-3157).
    async fn open_watch(
        &self,
        version: &str,
        send_initial_events: bool,
        seconds: u64,
    ) -> Result<OpenWatch, ApiError> {
        let options = ListOptions {
            labels: self.scope().labels.clone(),
            fields: self.scope().fields.clone(),
            shards: self.shards.selector(),
            resource_version: version.into(),
            resource_version_match: if send_initial_events { "NotOlderThan" } else { "" },
            ..ListOptions::default()
        };
        let mut query = options.query();
        query.add("watch", "true");
        query.add("allowWatchBookmarks", "true");
        query.add("sendInitialEvents", if send_initial_events { "true" } else { "" });
        query.add("timeoutSeconds", &seconds.to_string());
        let opened_at = self.clock.instant();
        let (kind, namespace) = (&self.scope().kind, self.feed.namespace());
        let accept = self.feed.object_type().accept;
        let watch = self.client.watch(kind, namespace, query.as_str(), accept).await?;
        self.feed.set_watch_error(None);
        Ok(OpenWatch {
            watch,
            opened_at,
            deadline: opened_at + Duration::from_secs(seconds) + WATCH_TIMEOUT_GRACE,
            events: 0,
        })
    }

    /// Reads the initial state as a streaming list (KEP-3157) and returns the watch, which continues with
    /// changes. Returns `None` if the server does not support streaming lists.
    ///
    /// Upstream: `watchList`.
    async fn watch_list(&mut self) -> Result<Option<OpenWatch>, WatchEnd> {
        let mut opened = match self.open_watch("", true, self.watch_timeout_seconds()).await {
            Ok(opened) => opened,
            Err(error)
                if means_watch_list_unsupported(error.code())
                    || means_watch_forbidden(error.code()) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        let mut state = InitialState::new(self.feed.clone());
        loop {
            let next = timeout(INITIAL_EVENTS_TIMEOUT, opened.next()).await;
            let Ok(Some(frame)) = next.unwrap_or(Ok(None)) else {
                tracing::debug!(
                    resource = &*self.scope().kind.plural,
                    "the streaming list did not complete; listing in pages"
                );
                return Ok(None);
            };
            let encoding = opened.watch.encoding();
            match self.read_event(encoding, &frame)? {
                Event::AddedOrModified(object)
                    if self.shards.skipped(object, encoding).is_some() => {}
                Event::AddedOrModified(object) => {
                    let add = |object: &[u8]| state.add(object, encoding);
                    match read_object(encoding, &frame, object, add)? {
                        Ok(()) => self.feed.set_queued_items(state.len()),
                        Err(error) => self.log_skipped(&error),
                    }
                }
                Event::Deleted(object) => match Identity::decode(object, encoding) {
                    Ok(Identity { meta }) => state.remove(&meta.namespace, &meta.name),
                    Err(error) => self.log_skipped(&error),
                },
                Event::Error(status) if means_watch_list_unsupported(status.code) => {
                    return Ok(None);
                }
                Event::Error(status) => return Err(ApiError::Status(Box::new(status)).into()),
                Event::Bookmark(Metadata { meta, .. }) => {
                    if meta.annotations.get(INITIAL_EVENTS_ANNOTATION) == Some("true") {
                        self.shards.store(|| state.apply(meta.version()));
                        self.feed.set_queued_items(0);
                        self.last_sync_resource_version = Some(meta.resource_version);
                        return Ok(Some(opened));
                    }
                }
            }
        }
    }

    /// Reads the initial state in pages.
    async fn list(&mut self) -> Result<(), WatchEnd> {
        let mut options = ListOptions {
            labels: self.scope().labels.clone(),
            fields: self.scope().fields.clone(),
            shards: self.shards.selector(),
            limit: WATCH_LIST_PAGE_SIZE,
            ..ListOptions::default()
        };
        let mut state = InitialState::new(self.feed.clone());
        loop {
            let mut add = |object: &[u8], encoding| {
                if self.shards.skipped(object, encoding).is_some() {
                    return;
                }
                if let Err(error) = state.add(object, encoding) {
                    self.log_skipped(&error);
                }
            };
            let (kind, namespace) = (&self.scope().kind, self.feed.namespace());
            let accept = self.feed.object_type().accept_list;
            let page = self.client.list_items(kind, namespace, &options, accept, &mut add).await;
            let page = match page {
                // The continue token has expired: list again in one page.
                Err(error) if error.is_expired() && !options.continue_.is_empty() => {
                    options.continue_.clear();
                    options.limit = 0;
                    state = InitialState::new(self.feed.clone());
                    continue;
                }
                page => page?,
            };
            self.feed.set_queued_items(state.len());
            if page.continue_.is_empty() {
                self.shards.store(|| state.apply(page.resource_version.parse().unwrap_or(0)));
                self.last_sync_resource_version = Some(page.resource_version);
                return Ok(());
            }
            options.continue_ = page.continue_.into();
        }
    }

    /// Applies the events of a watch until it ends.
    ///
    /// Upstream: `handleWatch`.
    async fn handle_watch(&mut self, opened: &mut OpenWatch) -> Result<(), WatchEnd> {
        loop {
            let frame = tokio::select! {
                biased;
                () = self.shards.changed() => {
                    if self.follow_shards() {
                        self.last_sync_resource_version = None;
                        return Ok(());
                    }
                    continue;
                }
                frame = opened.next() => frame?,
            };
            let Some(frame) = frame else { break };
            let encoding = opened.watch.encoding();
            let event = self.read_event(encoding, &frame)?;
            let skipped = match &event {
                Event::AddedOrModified(object) | Event::Deleted(object) => {
                    self.shards.skipped(object, encoding)
                }
                Event::Bookmark(_) | Event::Error(_) => None,
            };
            let version = match event {
                _ if let Some(skipped) = skipped => {
                    self.feed.set_resource_version(skipped.version);
                    skipped.resource_version
                }
                Event::AddedOrModified(object) => {
                    let upsert = |object: &[u8]| self.feed.upsert(object, encoding);
                    read_object(encoding, &frame, object, upsert)?
                        .unwrap_or_else(|error| self.skip_in_watch(object, encoding, false, &error))
                }
                Event::Deleted(object) => self
                    .feed
                    .delete(object, encoding)
                    .unwrap_or_else(|error| self.skip_in_watch(object, encoding, true, &error)),
                Event::Bookmark(Metadata { meta, .. }) => {
                    self.feed.set_resource_version(meta.version());
                    meta.resource_version
                }
                Event::Error(status) => return Err(ApiError::Status(Box::new(status)).into()),
            };
            if !version.is_empty() {
                self.last_sync_resource_version = Some(version);
            }
            // A backlog of events must not starve other tasks.
            tokio::task::coop::consume_budget().await;
        }
        let open_time = self.clock.instant().saturating_duration_since(opened.opened_at);
        if opened.events == 0 && open_time < MIN_EMPTY_WATCH {
            return Err(WatchEnd::Failed("the watch ended at once without an event".into()));
        }
        Ok(())
    }

    /// Returns the event of a frame.
    fn read_event<'f>(&self, encoding: Encoding, frame: &'f [u8]) -> Result<Event<'f>, WatchEnd> {
        // Only the identity of an object is decoded if it may belong to another process.
        let usual = if self.shards.are_split() { None } else { usual_object(encoding, frame) };
        match usual {
            Some(object) => Ok(Event::AddedOrModified(object)),
            None => decode_event(encoding, frame),
        }
    }

    /// Skips an object that cannot be decoded and returns its resourceVersion. A deleted object is removed if
    /// at least its metadata can be decoded.
    fn skip_in_watch(
        &self,
        object: &[u8],
        encoding: Encoding,
        is_deleted: bool,
        error: &DecodeError,
    ) -> Text {
        self.log_skipped(error);
        let Ok(Metadata { meta, .. }) = Metadata::decode(object, encoding) else {
            return Text::default();
        };
        if is_deleted {
            self.feed.delete_named(&meta.namespace, &meta.name, meta.version());
        } else {
            self.feed.set_resource_version(meta.version());
        }
        meta.resource_version
    }

    fn log_skipped(&self, error: &DecodeError) {
        tracing::error!(resource = &*self.scope().kind.plural, %error, "an object cannot be read and is skipped");
    }
}

/// An open watch and its deadline.
struct OpenWatch {
    watch: Watch,
    opened_at: Instant,
    deadline: Instant,
    /// Number of received events.
    events: u64,
}

impl OpenWatch {
    async fn next(&mut self) -> Result<Option<Bytes>, WatchEnd> {
        // A watch that lasts longer than its deadline counts as broken.
        let Ok(frame) = timeout_at(self.deadline, self.watch.next()).await else { return Ok(None) };
        let frame = frame?;
        self.events += u64::from(frame.is_some());
        Ok(frame)
    }
}

/// Returns whether the HTTP status code means that the server does not support streaming lists.
fn means_watch_list_unsupported(code: u16) -> bool {
    matches!(code, 400 | 405 | 406 | 415 | 422 | 501)
}

/// Returns whether the HTTP status code means that this client cannot watch. It may still list.
fn means_watch_forbidden(code: u16) -> bool {
    matches!(code, 403 | 405)
}

/// Returns the object of a JSON frame in the usual format, with an event of type `ADDED` or `MODIFIED`. Nothing is decoded:
/// only the decoding shows whether the rest is one object without trailing data. See [`read_object`].
fn usual_object(encoding: Encoding, frame: &[u8]) -> Option<&[u8]> {
    let rest = frame.strip_prefix(b"{\"type\":\"").filter(|_| encoding == Encoding::Json)?;
    let rest = rest.strip_prefix(b"MODIFIED").or_else(|| rest.strip_prefix(b"ADDED"))?;
    rest.strip_prefix(b"\",\"object\":")?.trim_ascii_end().strip_suffix(b"}")
}

/// Reads the object of a frame with `read`. Reads it again if the frame turns out not to have the usual format.
fn read_object<T>(
    encoding: Encoding,
    frame: &[u8],
    object: &[u8],
    mut read: impl FnMut(&[u8]) -> Result<T, DecodeError>,
) -> Result<Result<T, DecodeError>, WatchEnd> {
    let error = match read(object) {
        Ok(value) => return Ok(Ok(value)),
        Err(error) => error,
    };
    let strict = watch::Event::read(frame, encoding).map_err(WatchError::Frame)?.object;
    Ok(if *strict == *object { Err(error) } else { read(strict) })
}

/// Decodes a frame of a watch.
fn decode_event(encoding: Encoding, frame: &[u8]) -> Result<Event<'_>, WatchEnd> {
    let broken = |error| WatchEnd::from(WatchError::Frame(error));
    let watch::Event { type_, object, .. } = watch::Event::read(frame, encoding).map_err(broken)?;
    Ok(match type_ {
        EventType::Added | EventType::Modified => Event::AddedOrModified(object),
        EventType::Deleted => Event::Deleted(object),
        EventType::Bookmark => Event::Bookmark(Metadata::decode(object, encoding).map_err(broken)?),
        EventType::Error => {
            let status = status::Status::decode(object, encoding).unwrap_or_default();
            Event::Error(status.into())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the object of a frame, which has to be a JSON number.
    fn number(frame: &str) -> Option<Result<Result<u8, DecodeError>, WatchEnd>> {
        let frame = frame.as_bytes();
        let object = usual_object(Encoding::Json, frame)?;
        let read = |object: &[u8]| {
            serde_json::from_slice(object).map_err(|error| DecodeError {
                kind: "number".into(),
                field: ".".into(),
                reason: error.to_string().into(),
            })
        };
        Some(read_object(Encoding::Json, frame, object, read))
    }

    #[test]
    fn a_frame_need_not_be_written_as_usual() {
        for frame in [
            "{\"type\":\"ADDED\",\"object\":7}\n",
            r#"{"type":"MODIFIED","object":7}"#,
            r#"{"type":"MODIFIED","object":7,"other":{}}"#,
        ] {
            assert!(matches!(number(frame), Some(Ok(Ok(7)))), "{frame}");
        }
        assert!(matches!(number(r#"{"type":"ADDED","object":"x"}"#), Some(Ok(Err(_)))));
        for broken in [r#"{"type":"ADDED","object":7}}"#, r#"{"type":"ADDED","object":}"#] {
            assert!(matches!(number(broken), Some(Err(WatchEnd::Failed(_)))), "{broken}");
        }
        for other in [
            r#"{"type":"DELETED","object":7}"#,
            r#"{"type":"BOOKMARK","object":7}"#,
            r#"{"object":7,"type":"ADDED"}"#,
            r#"{"type":"ADDED","object":7"#,
        ] {
            assert!(number(other).is_none(), "{other}");
        }
        assert!(usual_object(Encoding::Protobuf, br#"{"type":"ADDED","object":7}"#).is_none());
    }
}
