//! Stages of KWOK (`kwok.x-k8s.io/v1alpha1`): custom resources that define how simulated nodes and their pods change.
//!
//! While Stages for pods exist, the pods of simulated nodes follow them instead of the built-in life cycle. While Stages for
//! nodes exist, they write the status of the nodes. The kubelets renew leases in any case.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | fields of a Stage; `next` as steps | `spec::parse`, `definition::stage_definition` |
//! | selectors, weights, delays and jitter | `spec::Stage`, `plan::plan` |
//! | steps: events, finalizers, patches, deletion | `steps::actions` |
//! | retries of failed requests | `refusal::classify` |
//! | jq and CEL expressions | `expressions::Expression`, `jq/mod.rs` |
//! | an invalid Stage has no effect, and its condition has the reason | `spec::parse` |

mod definition;
mod expressions;
mod jq;
mod node_workers;
mod plan;
mod refusal;
mod spec;
mod stage_controller;
mod steps;
#[cfg(test)]
mod tests;

pub use definition::{STAGE_DEFINITION, stage_definition};
pub(crate) use node_workers::NodeWorkers;
pub(crate) use spec::ResourceRef;
pub(crate) use stage_controller::{PlayResult, StageController, StagedObject};

use evenkeel_api::{Kind, Text};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent, Caches, Dynamic},
    client::{ApiError, Client, Metadata},
    plan::PatchType,
    queue::{Priority, Queue},
    tasks::Tasks,
};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::behaviors::{status, synced_or_undefined};
use spec::Stage;

const GROUP: &str = "kwok.x-k8s.io";
const VERSION: &str = "v1alpha1";
const KIND: &str = "Stage";
const PLURAL: &str = "stages";

/// Returns the kind of Stages.
fn kind() -> Kind {
    Kind::new(GROUP, VERSION, KIND, PLURAL, false)
}

/// Valid Stages of the cluster. Clones share them.
#[derive(Clone)]
pub(crate) struct Stages {
    cache: Cache<Dynamic>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Whether there are Stages for pods and for nodes, by [`ResourceRef`].
    exist: [AtomicBool; 2],
    valid: Mutex<Valid>,
}

#[derive(Default)]
struct Valid {
    by_name: BTreeMap<Text, Arc<Stage>>,
    /// Numbers of changes of the Stages for pods and for nodes, by [`ResourceRef`].
    generations: [u64; 2],
}

/// Stages for a resource at one time.
#[derive(Debug, Clone, Default)]
pub(crate) struct StageSet {
    /// Stages, sorted by name.
    pub(crate) stages: Vec<Arc<Stage>>,
    /// Number of changes of these Stages since the start.
    pub(crate) generation: u64,
}

impl Stages {
    /// Watches the Stages of the cluster, whose definition may be installed later.
    pub(crate) fn watch(caches: &Caches) -> Self {
        let cache = caches.dynamic(kind());
        cache.mark_optional();
        let stages = Self { cache, shared: Arc::default() };
        let shared = Arc::clone(&stages.shared);
        stages.cache.subscribe(move |event| {
            let parsed = match event {
                CacheEvent::Updated { old, new }
                    if old.data.get("spec") == new.data.get("spec") =>
                {
                    return;
                }
                CacheEvent::Deleted(_) => None,
                CacheEvent::Added { object, .. } | CacheEvent::Updated { new: object, .. } => {
                    parse(object).ok().map(Arc::new)
                }
            };
            shared.set(name(event.object()), parsed);
        });
        stages
    }

    /// Waits until the cache has the Stages. Does not wait if their CustomResourceDefinition is not installed, or if the server
    /// forbids the list.
    pub(crate) async fn synced(&self, client: &Client) {
        synced_or_undefined(client, &kind(), self.cache.synced()).await;
    }

    /// Calls `on_change` after each change of a Stage's `spec`.
    pub(crate) fn subscribe(&self, on_change: impl Fn() + Send + Sync + 'static) {
        self.cache.subscribe(move |event| {
            let keeps_spec = matches!(event, CacheEvent::Updated { old, new }
                if old.data.get("spec") == new.data.get("spec"));
            if !keeps_spec {
                on_change();
            }
        });
    }

    /// Returns whether a resource has Stages.
    pub(crate) fn exist_for(&self, resource: ResourceRef) -> bool {
        self.shared.exist[resource as usize].load(Ordering::Acquire)
    }

    /// Returns the Stages for a resource.
    fn of(&self, resource: ResourceRef) -> StageSet {
        let valid = self.shared.lock();
        let stages = valid.by_name.values().filter(|stage| stage.resource == resource);
        let generation = valid.generations[resource as usize];
        StageSet { stages: stages.cloned().collect(), generation }
    }

    /// Returns the number of changes of the Stages for a resource.
    fn generation(&self, resource: ResourceRef) -> u64 {
        self.shared.lock().generations[resource as usize]
    }

    /// Starts the task that writes the condition `Valid` of each Stage.
    pub(crate) fn start_status(&self, client: &Client, tasks: &Tasks) {
        let queue: Queue<Text> = Queue::unnamed(client.clock());
        let changed = queue.clone();
        self.cache.subscribe(move |event| {
            if !matches!(event, CacheEvent::Deleted(_)) {
                changed.add(name(event.object()), Priority::NORMAL);
            }
        });
        let (cache, client) = (self.cache.clone(), client.clone());
        tasks.spawn_restarting_until_cancelled("stages", move || {
            write_conditions(cache.clone(), client.clone(), queue.clone())
        });
    }
}

impl Shared {
    /// Stores the Stage with this name. `None` removes it, because it is invalid or deleted. Counts a change for the resource
    /// of the old Stage and of the new one.
    fn set(&self, name: Text, stage: Option<Arc<Stage>>) {
        let mut valid = self.lock();
        let new = stage.as_ref().map(|stage| stage.resource);
        let old = match stage {
            Some(stage) => valid.by_name.insert(name, stage),
            None => valid.by_name.remove(&name),
        };
        let old = old.map(|stage| stage.resource);
        for resource in [ResourceRef::Pod, ResourceRef::Node] {
            if [old, new].contains(&Some(resource)) {
                valid.generations[resource as usize] += 1;
            }
            let exist = valid.by_name.values().any(|stage| stage.resource == resource);
            self.exist[resource as usize].store(exist, Ordering::Release);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Valid> {
        self.valid.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn name(object: &Dynamic) -> Text {
    object.metadata.name.as_deref().unwrap_or_default().into()
}

fn parse(object: &Dynamic) -> Result<Stage, Vec<String>> {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    spec::parse(name, object.data.get("spec").unwrap_or(&Value::Null))
}

/// Writes the condition `Valid` of each Stage in the queue.
async fn write_conditions(cache: Cache<Dynamic>, client: Client, queue: Queue<Text>) {
    while let Some(name) = queue.next().await {
        let work = async {
            match write_condition(&cache, &client, &name).await {
                Ok(()) => queue.forget(&name),
                Err(error) => {
                    tracing::debug!(stage = %name, %error, "Stage condition not written");
                    queue.add_rate_limited(name.clone());
                }
            }
        };
        queue.process(&name, work).await;
    }
}

async fn write_condition(
    cache: &Cache<Dynamic>,
    client: &Client,
    name: &str,
) -> Result<(), ApiError> {
    let Some(object) = cache.get("", name) else { return Ok(()) };
    let errors = parse(&object).err().unwrap_or_default();
    let generation = object.metadata.generation.unwrap_or_default();
    let status = object.data.get("status").unwrap_or(&Value::Null);
    let now = client.clock().now();
    let Some(patch) = status::patch(status, &errors, generation, now) else { return Ok(()) };
    let form = PatchType::Merge;
    match client.patch::<Metadata>(&kind(), "", name, "status", form, patch.into()).await {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}
