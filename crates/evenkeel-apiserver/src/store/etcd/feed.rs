//! Feed of memory from etcd: the objects at one revision, then every change in order.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures::channel::mpsc::unbounded;
use tokio::time::sleep;
use tonic::{Code, Status};

use super::client::CallError;
use super::compaction;
use super::connection::Etcd;
use super::wire::{
    self, KeyValue, RangeRequest, WatchCreateRequest, WatchEvent, WatchEventType, WatchOperation,
    WatchRequest, WatchResponse,
};
use crate::resource::ResourcePrefix;
use crate::store::entry::{Change, Entry};
use crate::store::event::Event;
use crate::store::index::IndexedResources;
use crate::store::shared::Shared;
use crate::store::state::{Staged, State};

/// Number of objects per page of the initial list. Upstream: `maxLimit` of a reflector's pages.
const PAGE_SIZE: i64 = 500;
/// Maximum number of revisions of history that a starting server reads, so that the start does not take long.
const MAX_HISTORY: u64 = 16_384;
/// First delay before the watch is restarted after an error. The delay doubles as long as etcd sends nothing.
const RETRY_DELAY: Duration = Duration::from_millis(20);
/// Upper bound of the delay.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(1);
/// Number of attempts to reach etcd at the start.
const START_ATTEMPTS: u32 = 20;
/// Delay between the attempts at the start.
const START_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Reason why a watch ended.
enum Ended {
    /// etcd no longer has the changes after memory's revision.
    Compacted,
    /// The connection or the cluster failed.
    Lost(String),
}

impl From<CallError> for Ended {
    fn from(error: CallError) -> Self {
        Self::Lost(error.message().to_owned())
    }
}

/// Loads the objects at the revision of etcd's last compaction, or at a later one if that revision is more than [`MAX_HISTORY`] revisions old. The watch then
/// reads the changes since, so that watches of clients resume after a restart.
pub(super) async fn load(
    etcd: &Etcd,
    indexed_resources: IndexedResources,
) -> Result<State, CallError> {
    let mut attempt = 1;
    loop {
        match try_load(etcd, indexed_resources).await {
            Err(error) if super::client::is_temporary(&error) && attempt < START_ATTEMPTS => {
                tracing::warn!(error = error.message(), "etcd does not answer yet");
                attempt += 1;
                sleep(START_RETRY_DELAY).await;
            }
            result => return result,
        }
    }
}

async fn try_load(etcd: &Etcd, indexed_resources: IndexedResources) -> Result<State, CallError> {
    let current = etcd.current_revision().await?;
    let compacted = compaction::last(etcd).await?;
    let start = compacted.max(current.saturating_sub(MAX_HISTORY)).max(1);
    let (revision, objects) = match list(etcd, indexed_resources, start).await {
        // Another program has compacted etcd.
        Err(error) if is_compacted(&error) => list(etcd, indexed_resources, 0).await?,
        listed => listed?,
    };
    let mut state = State::new(revision, indexed_resources);
    state.replace(revision, objects);
    tracing::info!(revision, current, "the objects are read from etcd");
    Ok(state)
}

/// Returns whether etcd no longer has the revision of a call.
fn is_compacted(error: &Status) -> bool {
    error.code() == Code::OutOfRange
}

/// Returns all objects at a revision; 0 means the current one.
async fn list(
    etcd: &Etcd,
    indexed_resources: IndexedResources,
    revision: u64,
) -> Result<(u64, Vec<Staged>), CallError> {
    let mut revision = revision;
    let mut objects = Vec::new();
    let mut key = etcd.prefix.clone().into_bytes();
    loop {
        let request = RangeRequest {
            key: key.clone(),
            range_end: etcd.range_end(),
            limit: PAGE_SIZE,
            revision: wire::signed(revision),
            ..RangeRequest::default()
        };
        let page = etcd.client.range(request).await?;
        if revision == 0 {
            revision = wire::revision(page.header.as_ref());
        }
        for kv in &page.kvs {
            objects.extend(added(etcd, indexed_resources, kv));
        }
        match page.kvs.last() {
            Some(last) if page.more => {
                key = last.key.to_vec();
                key.push(0);
            }
            _ => return Ok((revision, objects)),
        }
    }
}

/// Returns the object of a key as created; `None` if this server cannot read it.
fn added(etcd: &Etcd, indexed_resources: IndexedResources, kv: &KeyValue) -> Option<Staged> {
    let (resource_prefix, key) = etcd.locate(&kv.key)?;
    staged(etcd, indexed_resources, kv, resource_prefix, key, None)
}

/// Returns the write of an object; `None` if this server cannot read it.
fn staged(
    etcd: &Etcd,
    indexed_resources: IndexedResources,
    kv: &KeyValue,
    resource_prefix: ResourcePrefix,
    key: &str,
    previous: Option<Arc<Entry>>,
) -> Option<Staged> {
    let encoded = match etcd.layout.decode(&resource_prefix, &kv.value) {
        Ok(encoded) => encoded,
        Err(error) => {
            let key = String::from_utf8_lossy(&kv.key);
            tracing::error!(%key, error, "an object in etcd cannot be decoded, and is ignored");
            return None;
        }
    };
    let indexed = indexed_resources.iter().find(|(name, _)| *name == &*resource_prefix);
    let values = indexed.map(|(_, values_of)| values_of(&encoded.decode().unwrap_or_default()));
    let change = if previous.is_some() { Change::Modified } else { Change::Added };
    let key = previous.as_ref().map_or_else(|| key.into(), |previous| previous.key.clone());
    let entry = encoded.into_entry(key, wire::unsigned(kv.mod_revision), change);
    let event = Arc::new(Event::new(Arc::new(entry), previous));
    Some(Staged { resource_prefix, event, values: values.unwrap_or_default() })
}

/// Follows etcd until the server shuts down.
pub(super) async fn run(shared: Arc<Shared>) {
    let Some(etcd) = &shared.etcd else { return };
    let mut delay = RETRY_DELAY;
    loop {
        let before = shared.read().revision;
        let ended = follow(&shared, etcd).await;
        *etcd.watch_requests.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let reason = match ended {
            Ended::Lost(reason) => reason,
            Ended::Compacted => {
                tracing::warn!("etcd has compacted changes that were not read: watches expire");
                match list(etcd, shared.indexed_resources, 0).await {
                    Ok((revision, objects)) => {
                        shared.replace(revision, objects);
                        continue;
                    }
                    Err(error) => error.message().to_owned(),
                }
            }
        };
        tracing::warn!(reason, "the watch of etcd ended, and is restarted");
        let has_progress = shared.read().revision > before;
        delay = if has_progress { RETRY_DELAY } else { (delay * 2).min(MAX_RETRY_DELAY) };
        sleep(delay).await;
    }
}

/// Follows etcd from memory's revision on, until the watch ends.
async fn follow(shared: &Shared, etcd: &Etcd) -> Ended {
    let start = shared.read().revision.saturating_add(1);
    let (requests, receiver) = unbounded();
    let create = WatchCreateRequest {
        key: etcd.prefix.clone().into_bytes(),
        range_end: etcd.range_end(),
        start_revision: wire::signed(start),
        progress_notify: true,
    };
    let request = WatchRequest { request: Some(WatchOperation::Create(create)) };
    if requests.unbounded_send(request).is_err() {
        return Ended::Lost("the request cannot be sent".to_owned());
    }
    let mut responses = match etcd.client.watch(receiver).await {
        Ok(responses) => responses,
        Err(error) => return error.into(),
    };
    *etcd.watch_requests.lock().unwrap_or_else(PoisonError::into_inner) = Some(requests);
    loop {
        match responses.message().await {
            Ok(Some(response)) => {
                if let Err(ended) = apply(shared, etcd, &response) {
                    return ended;
                }
            }
            Ok(None) => return Ended::Lost("etcd closed the watch".to_owned()),
            Err(error) => return Box::new(error).into(),
        }
    }
}

/// Applies one response of the watch to memory.
fn apply(shared: &Shared, etcd: &Etcd, response: &WatchResponse) -> Result<(), Ended> {
    if response.canceled {
        let is_compacted = response.compact_revision > 0;
        let lost = || Ended::Lost(response.cancel_reason.clone());
        return Err(if is_compacted { Ended::Compacted } else { lost() });
    }
    let Some(last) = response.events.iter().rev().find_map(|event| event.kv.as_ref()) else {
        // All changes up to the revision of a progress notification are applied.
        if !response.created {
            shared.publish_up_to(wire::revision(response.header.as_ref()), Vec::new());
        }
        return Ok(());
    };
    let revision = wire::unsigned(last.mod_revision);
    let writes = writes(shared, etcd, &response.events);
    shared.publish_up_to(revision, writes);
    Ok(())
}

/// Returns the writes of a response's events.
fn writes(shared: &Shared, etcd: &Etcd, events: &[WatchEvent]) -> Vec<Staged> {
    // New states of the objects that the earlier events wrote.
    let mut written: HashMap<(ResourcePrefix, &str), Option<Arc<Entry>>> = HashMap::new();
    let mut writes = Vec::with_capacity(events.len());
    for event in events {
        let Some(kv) = &event.kv else { continue };
        let Some((resource_prefix, key)) = etcd.locate(&kv.key) else { continue };
        let id = (resource_prefix.clone(), key);
        let previous = match written.get(&id) {
            Some(previous) => previous.clone(),
            None => shared.read().get(&resource_prefix, key).cloned(),
        };
        let put = if event.r#type == i32::from(WatchEventType::Put) {
            let indexed = shared.indexed_resources;
            staged(etcd, indexed, kv, resource_prefix.clone(), key, previous.clone())
        } else {
            None
        };
        // If the new state cannot be decoded, clients see a deletion.
        let deletion = || deleted(resource_prefix, previous, wire::unsigned(kv.mod_revision));
        let Some(staged) = put.or_else(deletion) else { continue };
        let entry = &staged.event.entry;
        written.insert(id, (entry.change != Change::Deleted).then(|| entry.clone()));
        writes.push(staged);
    }
    writes
}

/// Returns the deletion of an object; `None` if memory does not have it.
fn deleted(
    resource_prefix: ResourcePrefix,
    previous: Option<Arc<Entry>>,
    revision: u64,
) -> Option<Staged> {
    let entry = Arc::new(previous.as_ref()?.with_revision(revision, Change::Deleted));
    let event = Arc::new(Event::new(entry, previous));
    Some(Staged { resource_prefix, event, values: Vec::new() })
}
