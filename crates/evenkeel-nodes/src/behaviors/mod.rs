//! Behaviors: custom resources that determine how the containers of selected pods run, and how selected nodes fail.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | fields are those of the annotations of pods | `spec::parse`, `definition::behavior_definition` |
//! | ranges, rates and curves | `draw::resolve`, `draw::happens`, `draw::value` |
//! | faults of nodes, by mean times | `outages::NodeFault`; with annotations, `node_faults::NodeFaults` |
//! | selectors; weight, then name; containers | `select::selects`, `select::sort`, `select::apply` |
//! | an invalid Behavior has no effect, and its condition has the reason | `spec::parse`, `status::patch` |
//! | a change takes effect immediately | `subscribe` |

mod definition;
mod draw;
mod outages;
mod select;
mod spec;
pub(crate) mod status;

pub use definition::{BEHAVIOR_DEFINITION, behavior_definition};
pub(crate) use draw::{draw as draw_of, happens, hash};
pub(crate) use select::{apply, selecting_node, sets_usage, sort, usage};
pub(crate) use spec::Behavior;
#[cfg(test)]
pub(crate) use spec::parse as parse_spec;

use evenkeel_api::{
    Kind, StrMap, Text, time,
    views::{Namespace, Node, Pod},
};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent, Caches, Dynamic},
    client::{ApiError, Client, ListOptions, Metadata},
    plan::PatchType,
    queue::{Priority, Queue},
    tasks::Tasks,
};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

const GROUP: &str = "sim.evenkeel.dev";
const VERSION: &str = "v1alpha1";
const KIND: &str = "Behavior";
const PLURAL: &str = "behaviors";

/// Interval between requests for the objects while the cache has not synced.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Returns the kind of Behaviors.
fn kind() -> Kind {
    Kind::new(GROUP, VERSION, KIND, PLURAL, false)
}

/// Waits until a cache has synced, or the server does not serve the kind or forbids the list.
pub(crate) async fn synced_or_undefined(
    client: &Client,
    kind: &Kind,
    synced: impl Future<Output = ()>,
) {
    let undefined = async {
        loop {
            let one = ListOptions { limit: 1, ..ListOptions::default() };
            match client.list_metadata(kind, "", &one).await {
                Err(error) if error.is_not_found() || error.is_forbidden() => break,
                Ok(_) | Err(_) => client.clock().sleep(RETRY_INTERVAL).await,
            }
        }
    };
    tokio::select! {
        biased;
        () = synced => {}
        () = undefined => {}
    }
}

/// Valid Behaviors of the cluster. Clones share them.
#[derive(Clone)]
pub(crate) struct Behaviors {
    cache: Cache<Dynamic>,
    namespaces: Cache<Namespace>,
    nodes: Cache<Node>,
    valid: Arc<Mutex<Valid>>,
}

/// Valid Behaviors of the cluster.
#[derive(Default)]
struct Valid {
    by_name: BTreeMap<Text, Arc<Behavior>>,
    /// All valid Behaviors, by precedence.
    sorted: Arc<[Arc<Behavior>]>,
    /// Behaviors that make nodes fail, by precedence.
    failing: Arc<[Arc<Behavior>]>,
}

impl Behaviors {
    /// Watches the Behaviors of the cluster, whose definition may be installed later.
    pub(crate) fn watch(caches: &Caches) -> Self {
        let cache = caches.dynamic(kind());
        cache.mark_optional();
        let behaviors =
            Self { cache, namespaces: caches.of(), nodes: caches.of(), valid: Arc::default() };
        let valid = Arc::clone(&behaviors.valid);
        behaviors.cache.subscribe(move |event| {
            let parsed = match event {
                CacheEvent::Deleted(_) => None,
                CacheEvent::Added { object, .. } | CacheEvent::Updated { new: object, .. } => {
                    parse(object).ok().map(Arc::new)
                }
            };
            lock(&valid).set(name(event.object()), parsed);
        });
        behaviors
    }

    /// Calls `changed` after each change of Behaviors, and of the labels of namespaces and nodes that their selectors
    /// read.
    pub(crate) fn subscribe(&self, changed: impl Fn() + Clone + Send + Sync + 'static) {
        let of_behaviors = changed.clone();
        self.cache.subscribe(move |event| {
            let is_of_status = matches!(event, CacheEvent::Updated { old, new }
                if old.data.get("spec") == new.data.get("spec"));
            if !is_of_status {
                of_behaviors();
            }
        });
        let (valid, of_nodes) = (Arc::clone(&self.valid), changed.clone());
        let has_any = move || !lock(&valid).sorted.is_empty();
        let has_behaviors = has_any.clone();
        self.nodes.subscribe(move |event| {
            if has_new_labels(event, |node| &node.meta.labels) && has_behaviors() {
                of_nodes();
            }
        });
        self.namespaces.subscribe(move |event| {
            if has_new_labels(event, |namespace| &namespace.meta.labels) && has_any() {
                changed();
            }
        });
    }

    /// Waits until the caches have the Behaviors, and the namespaces that their selectors read. Does not wait for
    /// Behaviors if their definition is not installed, or if the server forbids the list.
    pub(crate) async fn synced(&self, client: &Client) {
        self.namespaces.synced().await;
        synced_or_undefined(client, &kind(), self.cache.synced()).await;
    }

    /// Returns the Behaviors that select a pod, in ascending order of precedence.
    pub(crate) fn of_pod(&self, pod: &Pod) -> Vec<Arc<Behavior>> {
        let sorted = Arc::clone(&lock(&self.valid).sorted);
        if sorted.is_empty() {
            return Vec::new();
        }
        let namespace = self.namespaces.get("", &pod.meta.namespace);
        let node = self.nodes.get("", &pod.spec.node_name);
        let namespace = namespace.as_ref().map(|namespace| &namespace.meta.labels);
        let node = node.as_ref().map(|node| &node.meta.labels);
        let selected =
            sorted.iter().filter(|behavior| select::selects(behavior, pod, namespace, node));
        selected.cloned().collect()
    }

    /// Returns the Behaviors that make a node fail, in ascending order of precedence.
    pub(crate) fn of_node(&self, node: &Node) -> Vec<Arc<Behavior>> {
        let failing = Arc::clone(&lock(&self.valid).failing);
        selecting_node(&failing, node)
    }

    /// Calls `changed` after each change of Behaviors that changes the faults of nodes.
    pub(crate) fn subscribe_node_faults(&self, changed: impl Fn() + Send + Sync + 'static) {
        let faults = |object: &Dynamic| {
            let spec = object.data.get("spec")?;
            // A change of the seed or of a selector also changes the faults.
            spec.get("nodeFaults").is_some().then(|| spec.clone())
        };
        self.cache.subscribe(move |event| {
            let is_other = match event {
                CacheEvent::Updated { old, new } => faults(old) != faults(new),
                CacheEvent::Added { object, .. } | CacheEvent::Deleted(object) => {
                    faults(object).is_some()
                }
            };
            if is_other {
                changed();
            }
        });
    }

    /// Starts the task that writes the condition `Valid` of each Behavior.
    pub(crate) fn start_status(&self, client: &Client, tasks: &Tasks) {
        let queue: Queue<Text> = Queue::unnamed(client.clock());
        let changed = queue.clone();
        self.cache.subscribe(move |event| {
            if !matches!(event, CacheEvent::Deleted(_)) {
                changed.add(name(event.object()), Priority::NORMAL);
            }
        });
        let (cache, client) = (self.cache.clone(), client.clone());
        tasks.spawn_restarting_until_cancelled("behaviors", move || {
            write_conditions(cache.clone(), client.clone(), queue.clone())
        });
    }
}

/// Returns whether a selector may select other objects after an event: the object's labels changed, or the object was
/// created after the initial list.
fn has_new_labels<V>(event: &CacheEvent<V>, labels: impl Fn(&V) -> &StrMap) -> bool {
    match event {
        CacheEvent::Added { initial, .. } => !initial,
        CacheEvent::Updated { old, new } => labels(old) != labels(new),
        CacheEvent::Deleted(_) => false,
    }
}

impl Valid {
    /// Adds, replaces or removes a Behavior.
    fn set(&mut self, name: Text, behavior: Option<Arc<Behavior>>) {
        match behavior {
            Some(behavior) => self.by_name.insert(name, behavior),
            None => self.by_name.remove(&name),
        };
        let mut sorted: Vec<Arc<Behavior>> = self.by_name.values().cloned().collect();
        select::sort(&mut sorted);
        let fails_nodes = |behavior: &&Arc<Behavior>| behavior.fails_nodes();
        self.failing = sorted.iter().filter(fails_nodes).cloned().collect();
        self.sorted = sorted.into();
    }
}

fn lock(valid: &Mutex<Valid>) -> MutexGuard<'_, Valid> {
    valid.lock().unwrap_or_else(PoisonError::into_inner)
}

fn name(object: &Dynamic) -> Text {
    object.metadata.name.as_deref().unwrap_or_default().into()
}

fn parse(object: &Dynamic) -> Result<Behavior, Vec<String>> {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let parsed = spec::parse(name, object.data.get("spec").unwrap_or(&Value::Null));
    let created = object.metadata.creation_timestamp.as_ref().map(|time| time.0);
    parsed.map(|behavior| Behavior { created: created.unwrap_or_default(), ..behavior })
}

/// Parses a Behavior object of the API server; `None` if it is invalid.
pub(crate) fn parse_object(object: &Value) -> Option<Behavior> {
    let metadata = &object["metadata"];
    let parsed = spec::parse(metadata["name"].as_str().unwrap_or_default(), &object["spec"]);
    let created = metadata["creationTimestamp"].as_str().and_then(|time| time::parse(time).ok());
    parsed.ok().map(|behavior| Behavior { created: created.unwrap_or_default(), ..behavior })
}

/// Writes the conditions of the Behaviors in the queue.
async fn write_conditions(cache: Cache<Dynamic>, client: Client, queue: Queue<Text>) {
    while let Some(name) = queue.next().await {
        let work = async {
            match write_condition(&cache, &client, &name).await {
                Ok(()) => queue.forget(&name),
                Err(error) => {
                    tracing::debug!(behavior = %name, %error, "Behavior condition not written");
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

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_api::{Encoding, View};

    #[test]
    fn nodes_that_come_late_may_be_selected() {
        let node = |pool: &str| {
            let node =
                serde_json::json!({ "metadata": { "name": "n", "labels": { "pool": pool } } });
            Arc::new(Node::decode(node.to_string().as_bytes(), Encoding::Json).unwrap())
        };
        for (event, want) in [
            (CacheEvent::Added { object: node("a"), initial: true }, false),
            (CacheEvent::Added { object: node("a"), initial: false }, true),
            (CacheEvent::Updated { old: node("a"), new: node("a") }, false),
            (CacheEvent::Updated { old: node("a"), new: node("b") }, true),
            (CacheEvent::Deleted(node("a")), false),
        ] {
            assert_eq!(has_new_labels(&event, |node| &node.meta.labels), want, "{event:?}");
        }
    }
}
