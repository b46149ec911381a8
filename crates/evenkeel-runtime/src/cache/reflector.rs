//! Keeps one cache up to date: initial state, then changes, and again from where it was whatever happens.

use super::{backoff::Backoff, caches::Scope, shared::Shared, store::Table};
use crate::{
    client::{
        ApiError, Client, ListOptions, Metadata, Status, full_text,
        watch::{Watch, WatchBroken},
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

const PAGE: u32 = 500;
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";
/// How much longer than it promised a server may keep a watch open without a word.
const GRACE: Duration = Duration::from_secs(30);
/// How long the initial state may stall. A server that does not know streaming lists and does not say so never ends it.
const STALL: Duration = Duration::from_secs(60);

pub(crate) struct Reflector<V> {
    client: Client,
    clock: Clock,
    scope: Scope,
    shared: Arc<Shared<V>>,
    /// Version to go on from; none to begin from scratch.
    position: Option<Text>,
}

/// How a round ended.
#[derive(Debug)]
enum End {
    /// As it should, after a while: go on at once.
    Regular,
    /// The version to go on from is not there, no longer or not at all: from scratch.
    Expired,
    /// Changes may not be watched: a new list after a pause has to do.
    Unwatchable(Text),
    /// It failed: go on after a pause.
    Failed(Text),
}

impl From<WatchBroken> for End {
    fn from(error: WatchBroken) -> Self {
        Self::Failed(error.to_string().into())
    }
}

impl From<ApiError> for End {
    fn from(error: ApiError) -> Self {
        if error.is_expired() || error.is_version_too_large() {
            Self::Expired
        } else if cannot_watch(error.code()) {
            Self::Unwatchable(full_text(&error).into())
        } else {
            Self::Failed(full_text(&error).into())
        }
    }
}

/// One event of a watch.
enum Event<V> {
    Present(V),
    Gone(V),
    Bookmark(Metadata),
    Error(Status),
    /// An object that cannot be read; its metadata, as far as that can be.
    Unreadable {
        gone: bool,
        metadata: Option<Metadata>,
        error: DecodeError,
    },
}

impl<V: View> Reflector<V> {
    pub(crate) fn new(client: Client, clock: Clock, scope: Scope, shared: Arc<Shared<V>>) -> Self {
        Self { client, clock, scope, shared, position: None }
    }

    pub(crate) async fn run(mut self) {
        let mut backoff = Backoff::new(self.clock.clone(), self.scope.kind.clone());
        loop {
            let end = match AssertUnwindSafe(self.round()).catch_unwind().await {
                Ok(Ok(())) => End::Regular,
                Ok(Err(end)) => end,
                Err(panic) => {
                    self.position = None;
                    End::Failed(format!("panicked: {}", panic_text(&*panic)).into())
                }
            };
            self.shared.queued(0);
            let resource = &*self.scope.kind.plural;
            match end {
                End::Regular => continue,
                End::Expired => {
                    tracing::debug!(resource, "the last version seen is not there; listing again");
                    self.position = None;
                }
                End::Unwatchable(error) => {
                    self.shared.set_trouble(Some(&error));
                    tracing::warn!(resource, %error, "not to be watched; will be listed again");
                    self.position = None;
                }
                End::Failed(error) => {
                    self.shared.set_trouble(Some(&error));
                    tracing::warn!(resource, %error, "watch failed; trying again");
                }
            }
            self.clock.sleep(backoff.next()).await;
        }
    }

    /// From the state there is (none, or a version) to the end of one watch.
    async fn round(&mut self) -> Result<(), End> {
        let deadline = self.deadline();
        let mut watch = match &self.position {
            Some(version) => self.open(version, false, deadline).await?,
            None => match self.stream().await? {
                Some(streamed) => streamed,
                None => {
                    self.list().await?;
                    return Ok(());
                }
            },
        };
        self.follow(&mut watch).await
    }

    /// Between five and ten minutes from now, so that servers are not asked by all at once.
    fn deadline(&self) -> u64 {
        300 + (self.clock.draw(&(&self.scope.kind, "watch")) * 300.0) as u64
    }

    async fn open(&self, version: &str, initial: bool, seconds: u64) -> Result<Opened, ApiError> {
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
        let since = Instant::now();
        let watch =
            self.client.watch::<V>(&self.scope.kind, &self.scope.namespace, query.as_str()).await?;
        self.shared.set_trouble(None);
        Ok(Opened { watch, since, until: since + Duration::from_secs(seconds) + GRACE, events: 0 })
    }

    /// The initial state as a stream of events, after which the same watch goes on. None when the server cannot.
    async fn stream(&mut self) -> Result<Option<Opened>, End> {
        let mut opened = match self.open("", true, self.deadline()).await {
            Ok(opened) => opened,
            Err(error) if cannot_stream(error.code()) || cannot_watch(error.code()) => {
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        let mut now = Table::new();
        loop {
            let next = timeout(STALL, opened.next()).await;
            let Ok(Some(frame)) = next.unwrap_or(Ok(None)) else {
                tracing::debug!(
                    resource = &*self.scope.kind.plural,
                    "no end of the initial state; listing in pages"
                );
                return Ok(None);
            };
            match decode::<V>(opened.watch.encoding(), &frame, |_| None)? {
                Event::Present(object) => {
                    now.insert(self.held_or(object));
                    self.shared.queued(now.len());
                }
                Event::Gone(object) => {
                    drop(now.remove(&object.meta().namespace, &object.meta().name));
                }
                Event::Unreadable { error, .. } => self.skip(&error),
                Event::Error(status) if cannot_stream(status.code) => return Ok(None),
                Event::Error(status) => return Err(ApiError::Status(Box::new(status)).into()),
                Event::Bookmark(Metadata { meta, .. }) => {
                    if meta.annotations.get(INITIAL_EVENTS_END) == Some("true") {
                        self.shared.replace(now, meta.version());
                        self.shared.queued(0);
                        self.position = Some(meta.resource_version);
                        return Ok(Some(opened));
                    }
                }
            }
        }
    }

    /// The initial state in pages.
    async fn list(&mut self) -> Result<(), End> {
        let mut options = ListOptions {
            labels: self.scope.labels.clone(),
            fields: self.scope.fields.clone(),
            limit: PAGE,
            ..ListOptions::default()
        };
        let mut now = Table::new();
        loop {
            let page = match self
                .client
                .list_as::<V>(&self.scope.kind, &self.scope.namespace, &options)
                .await
            {
                // The list took longer than the server keeps versions: once more, in one piece.
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
                now.insert(self.held_or(object));
            }
            self.shared.queued(now.len());
            if page.continue_.is_empty() {
                self.shared.replace(now, page.resource_version.parse().unwrap_or(0));
                self.position = Some(page.resource_version);
                return Ok(());
            }
            options.continue_ = page.continue_.into();
        }
    }

    /// Applies changes until the watch ends.
    async fn follow(&mut self, opened: &mut Opened) -> Result<(), End> {
        while let Some(frame) = opened.next().await? {
            // What is held is its last state: every change before was seen.
            let last =
                |gone: &IdentityMeta| self.shared.holding(gone)?.at_version(&gone.resource_version);
            let version = match decode::<V>(opened.watch.encoding(), &frame, last)? {
                Event::Present(object) => {
                    let version = object.meta().resource_version.clone();
                    self.shared.upsert(Arc::new(object));
                    version
                }
                Event::Gone(object) => {
                    let version = object.meta().resource_version.clone();
                    self.shared.delete(&Arc::new(object));
                    version
                }
                Event::Bookmark(Metadata { meta, .. }) => {
                    self.shared.advance(meta.version());
                    meta.resource_version
                }
                Event::Unreadable { gone, metadata, error } => {
                    self.skip(&error);
                    let Some(Metadata { meta, .. }) = metadata else { continue };
                    if gone {
                        self.shared.delete_named(&meta.namespace, &meta.name, meta.version());
                    } else {
                        self.shared.advance(meta.version());
                    }
                    meta.resource_version
                }
                Event::Error(status) => return Err(ApiError::Status(Box::new(status)).into()),
            };
            if !version.is_empty() {
                self.position = Some(version);
            }
            // A long run of events that are all there must not keep other tasks from running.
            tokio::task::coop::consume_budget().await;
        }
        if opened.events == 0 && opened.since.elapsed() < Duration::from_secs(1) {
            return Err(End::Failed("the watch ended at once without an event".into()));
        }
        Ok(())
    }

    fn held_or(&self, object: V) -> Arc<V> {
        self.shared.held(&object).unwrap_or_else(|| Arc::new(object))
    }

    fn skip(&self, error: &DecodeError) {
        tracing::error!(resource = &*self.scope.kind.plural, %error, "an object cannot be read and is skipped");
    }
}

/// A watch with its limits.
struct Opened {
    watch: Watch,
    since: Instant,
    until: Instant,
    events: u64,
}

impl Opened {
    async fn next(&mut self) -> Result<Option<Bytes>, End> {
        // Past this time the server has forgotten us, or the connection is dead without anybody having noticed.
        let Ok(frame) = timeout_at(self.until, self.watch.next()).await else { return Ok(None) };
        let frame = frame?;
        self.events += u64::from(frame.is_some());
        Ok(frame)
    }
}

/// Statuses by which a server says that it does not know streaming lists. Others may pass.
fn cannot_stream(code: u16) -> bool {
    matches!(code, 400 | 405 | 406 | 415 | 422 | 501)
}

/// Statuses by which a server says that there are no watches, or none for this client; lists there may be.
fn cannot_watch(code: u16) -> bool {
    matches!(code, 403 | 405)
}

/// Reads an event. Of an object that is gone no more is read than which it is, if its `last` state is known.
fn decode<V: View>(
    encoding: Encoding,
    frame: &[u8],
    last: impl FnOnce(&IdentityMeta) -> Option<V>,
) -> Result<Event<V>, End> {
    let broken = |error| End::from(WatchBroken::Frame(error));
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
        return Ok(Event::Gone(object));
    }
    Ok(match V::decode(object, encoding) {
        Ok(object) if gone => Event::Gone(object),
        Ok(object) => Event::Present(object),
        Err(error) => Event::Unreadable {
            gone,
            error: error.naming(object, encoding),
            metadata: Metadata::decode(object, encoding).ok(),
        },
    })
}
