//! Reflector: lists and watches one resource, and applies what it reads to a cache.
//!
//! Upstream: `ListAndWatch`

use super::{backoff::Backoff, caches::Scope, shared::Shared, store::Table};
use crate::{
    client::{
        ApiError, Client, ListOptions, Metadata, Status, full_text,
        watch::{Watch, WatchError},
    },
    clock::Clock,
    tasks::panic_text,
};
use bytes::Bytes;
use evenkeel_api::{
    DecodeError, Encoding, Text, View, status,
    views::{Identity, IdentityMeta},
    watch::{self, EventType},
};
use futures::FutureExt as _;
use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};
use tokio::time::{Instant, timeout, timeout_at};

const WATCH_LIST_PAGE_SIZE: u32 = 500;
const INITIAL_EVENTS_ANNOTATION: &str = "k8s.io/initial-events-end";
/// How long after its timeout a watch without events counts as broken.
const WATCH_TIMEOUT_GRACE: Duration = Duration::from_secs(30);
/// How long a streaming list may send nothing before it is replaced by a list. A server that ignores `sendInitialEvents`
/// never sends the bookmark at the end.
const INITIAL_EVENTS_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct Reflector<V> {
    client: Client,
    clock: Clock,
    scope: Scope,
    shared: Arc<Shared<V>>,
    /// The resourceVersion to watch from; `None` to list first.
    last_sync_resource_version: Option<Text>,
}

/// How one list and watch ended.
#[derive(Debug)]
enum WatchEnd {
    /// The watch timed out regularly: watch again at once.
    Regular,
    /// The resourceVersion has expired or is too large: list again.
    Expired,
    /// The server forbids or does not support watching: list again after a pause.
    WatchForbidden(Text),
    /// An error: watch again after a pause.
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
        } else if watch_forbidden(error.code()) {
            Self::WatchForbidden(full_text(&error).into())
        } else {
            Self::Failed(full_text(&error).into())
        }
    }
}

/// One event of a watch.
enum Event<V> {
    AddedOrModified(V),
    Deleted(V),
    Bookmark(Metadata),
    Error(Status),
    /// An object that cannot be decoded, with its metadata if that can.
    Unreadable {
        gone: bool,
        metadata: Option<Metadata>,
        error: DecodeError,
    },
}

impl<V: View> Reflector<V> {
    pub(crate) fn new(client: Client, clock: Clock, scope: Scope, shared: Arc<Shared<V>>) -> Self {
        Self { client, clock, scope, shared, last_sync_resource_version: None }
    }

    pub(crate) async fn run(mut self) {
        let mut backoff = Backoff::new(self.clock.clone(), self.scope.kind.clone());
        loop {
            let end = match AssertUnwindSafe(self.list_and_watch()).catch_unwind().await {
                Ok(Ok(())) => WatchEnd::Regular,
                Ok(Err(end)) => end,
                Err(panic) => {
                    self.last_sync_resource_version = None;
                    WatchEnd::Failed(format!("panicked: {}", panic_text(&*panic)).into())
                }
            };
            self.shared.queued(0);
            let resource = &*self.scope.kind.plural;
            match end {
                WatchEnd::Regular => continue,
                WatchEnd::Expired => {
                    tracing::debug!(
                        resource,
                        "the last resourceVersion has expired or is too large; listing again"
                    );
                    self.last_sync_resource_version = None;
                }
                WatchEnd::WatchForbidden(error) => {
                    self.shared.set_watch_error(Some(&error));
                    tracing::warn!(resource, %error, "the resource cannot be watched; listing again after a pause");
                    self.last_sync_resource_version = None;
                }
                WatchEnd::Failed(error) => {
                    self.shared.set_watch_error(Some(&error));
                    tracing::warn!(resource, %error, "watch failed; trying again");
                }
            }
            self.clock.sleep(backoff.next()).await;
        }
    }

    /// Lists if there is no resourceVersion to watch from, then watches until the watch ends.
    ///
    /// Upstream: `ListAndWatch`
    async fn list_and_watch(&mut self) -> Result<(), WatchEnd> {
        let timeout_seconds = self.watch_timeout_seconds();
        let mut watch = match &self.last_sync_resource_version {
            Some(version) => self.open_watch(version, false, timeout_seconds).await?,
            None => match self.watch_list().await? {
                Some(streamed) => streamed,
                None => {
                    self.list().await?;
                    return Ok(());
                }
            },
        };
        self.handle_watch(&mut watch).await
    }

    /// A watch timeout between five and ten minutes, so that watches do not all end at once (`minWatchTimeout`).
    fn watch_timeout_seconds(&self) -> u64 {
        300 + (self.clock.draw(&(&self.scope.kind, "watch")) * 300.0) as u64
    }

    async fn open_watch(
        &self,
        version: &str,
        initial: bool,
        seconds: u64,
    ) -> Result<OpenWatch, ApiError> {
        let options = ListOptions {
            labels: self.scope.labels.clone(),
            fields: self.scope.fields.clone(),
            resource_version: version.into(),
            resource_version_match: if initial { "NotOlderThan" } else { "" },
            ..ListOptions::default()
        };
        let mut query = options.query();
        query.add("watch", "true");
        query.add("allowWatchBookmarks", "true");
        query.add("sendInitialEvents", if initial { "true" } else { "" });
        query.add("timeoutSeconds", &seconds.to_string());
        let since = self.clock.instant();
        let watch =
            self.client.watch::<V>(&self.scope.kind, &self.scope.namespace, query.as_str()).await?;
        self.shared.set_watch_error(None);
        Ok(OpenWatch {
            watch,
            since,
            until: since + Duration::from_secs(seconds) + WATCH_TIMEOUT_GRACE,
            events: 0,
        })
    }

    /// Reads the initial state as a streaming list (KEP-3157) and returns the watch, which continues with changes. `None` if
    /// the server does not support it.
    ///
    /// Upstream: `watchList`
    async fn watch_list(&mut self) -> Result<Option<OpenWatch>, WatchEnd> {
        let mut opened = match self.open_watch("", true, self.watch_timeout_seconds()).await {
            Ok(opened) => opened,
            Err(error) if watch_list_unsupported(error.code()) || watch_forbidden(error.code()) => {
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        let mut now = Table::new();
        loop {
            let next = timeout(INITIAL_EVENTS_TIMEOUT, opened.next()).await;
            let Ok(Some(frame)) = next.unwrap_or(Ok(None)) else {
                tracing::debug!(
                    resource = &*self.scope.kind.plural,
                    "no end of the initial state; listing in pages"
                );
                return Ok(None);
            };
            match decode::<V>(opened.watch.encoding(), &frame, |_| None)? {
                Event::AddedOrModified(object) => {
                    now.insert(self.stored_or_new(object));
                    self.shared.queued(now.len());
                }
                Event::Deleted(object) => {
                    drop(now.remove(&object.meta().namespace, &object.meta().name));
                }
                Event::Unreadable { error, .. } => self.skip(&error),
                Event::Error(status) if watch_list_unsupported(status.code) => return Ok(None),
                Event::Error(status) => return Err(ApiError::Status(Box::new(status)).into()),
                Event::Bookmark(Metadata { meta, .. }) => {
                    if meta.annotations.get(INITIAL_EVENTS_ANNOTATION) == Some("true") {
                        self.shared.replace(now, meta.version());
                        self.shared.queued(0);
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
            labels: self.scope.labels.clone(),
            fields: self.scope.fields.clone(),
            limit: WATCH_LIST_PAGE_SIZE,
            ..ListOptions::default()
        };
        let mut now = Table::new();
        loop {
            let page = match self
                .client
                .list_as::<V>(&self.scope.kind, &self.scope.namespace, &options)
                .await
            {
                // The continue token has expired: list once more without pages.
                Err(error) if error.is_expired() && !options.continue_.is_empty() => {
                    options.continue_.clear();
                    options.limit = 0;
                    now = Table::new();
                    continue;
                }
                page => page?,
            };
            page.skipped.iter().for_each(|error| self.skip(error));
            for object in page.items {
                now.insert(self.stored_or_new(object));
            }
            self.shared.queued(now.len());
            if page.continue_.is_empty() {
                self.shared.replace(now, page.resource_version.parse().unwrap_or(0));
                self.last_sync_resource_version = Some(page.resource_version);
                return Ok(());
            }
            options.continue_ = page.continue_.into();
        }
    }

    /// Applies the events of a watch until it ends.
    ///
    /// Upstream: `handleWatch`
    async fn handle_watch(&mut self, opened: &mut OpenWatch) -> Result<(), WatchEnd> {
        while let Some(frame) = opened.next().await? {
            // The cached object is the last state: the watch sent every change before the deletion.
            let last = |gone: &IdentityMeta| {
                self.shared.stored_identity(gone)?.at_version(&gone.resource_version)
            };
            let version = match decode::<V>(opened.watch.encoding(), &frame, last)? {
                Event::AddedOrModified(object) => {
                    let version = object.meta().resource_version.clone();
                    self.shared.upsert(Arc::new(object));
                    version
                }
                Event::Deleted(object) => {
                    let version = object.meta().resource_version.clone();
                    self.shared.delete(&Arc::new(object));
                    version
                }
                Event::Bookmark(Metadata { meta, .. }) => {
                    self.shared.set_resource_version(meta.version());
                    meta.resource_version
                }
                Event::Unreadable { gone, metadata, error } => {
                    self.skip(&error);
                    let Some(Metadata { meta, .. }) = metadata else { continue };
                    if gone {
                        self.shared.delete_named(&meta.namespace, &meta.name, meta.version());
                    } else {
                        self.shared.set_resource_version(meta.version());
                    }
                    meta.resource_version
                }
                Event::Error(status) => return Err(ApiError::Status(Box::new(status)).into()),
            };
            if !version.is_empty() {
                self.last_sync_resource_version = Some(version);
            }
            // Events that are ready at once must not starve other tasks.
            tokio::task::coop::consume_budget().await;
        }
        let open = self.clock.instant().saturating_duration_since(opened.since);
        if opened.events == 0 && open < Duration::from_secs(1) {
            return Err(WatchEnd::Failed("the watch ended at once without an event".into()));
        }
        Ok(())
    }

    fn stored_or_new(&self, object: V) -> Arc<V> {
        self.shared.stored_version(&object).unwrap_or_else(|| Arc::new(object))
    }

    fn skip(&self, error: &DecodeError) {
        tracing::error!(resource = &*self.scope.kind.plural, %error, "an object cannot be read and is skipped");
    }
}

/// An open watch and its deadline.
struct OpenWatch {
    watch: Watch,
    since: Instant,
    until: Instant,
    events: u64,
}

impl OpenWatch {
    async fn next(&mut self) -> Result<Option<Bytes>, WatchEnd> {
        // After the deadline the connection counts as dead.
        let Ok(frame) = timeout_at(self.until, self.watch.next()).await else { return Ok(None) };
        let frame = frame?;
        self.events += u64::from(frame.is_some());
        Ok(frame)
    }
}

/// Whether the HTTP status code means that the server does not support streaming lists.
fn watch_list_unsupported(code: u16) -> bool {
    matches!(code, 400 | 405 | 406 | 415 | 422 | 501)
}

/// Whether the HTTP status code means that this client cannot watch; it may still list.
fn watch_forbidden(code: u16) -> bool {
    matches!(code, 403 | 405)
}

/// Decodes an event. Of a deleted object only the identity is decoded if its `last` state is cached.
fn decode<V: View>(
    encoding: Encoding,
    frame: &[u8],
    last: impl FnOnce(&IdentityMeta) -> Option<V>,
) -> Result<Event<V>, WatchEnd> {
    let broken = |error| WatchEnd::from(WatchError::Frame(error));
    let watch::Event { type_, object, .. } = watch::Event::read(frame, encoding).map_err(broken)?;
    let gone = match type_ {
        EventType::Added | EventType::Modified => false,
        EventType::Deleted => true,
        EventType::Bookmark => {
            return Metadata::decode(object, encoding).map(Event::Bookmark).map_err(broken);
        }
        EventType::Error => {
            let status = status::Status::decode(object, encoding).unwrap_or_default();
            return Ok(Event::Error(status.into()));
        }
    };
    if gone
        && let Ok(Identity { meta }) = Identity::decode(object, encoding)
        && let Some(object) = last(&meta)
    {
        return Ok(Event::Deleted(object));
    }
    Ok(match V::decode(object, encoding) {
        Ok(object) if gone => Event::Deleted(object),
        Ok(object) => Event::AddedOrModified(object),
        Err(error) => Event::Unreadable {
            gone,
            error: error.naming(object, encoding),
            metadata: Metadata::decode(object, encoding).ok(),
        },
    })
}
