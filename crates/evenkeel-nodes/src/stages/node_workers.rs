//! Workers that let simulated nodes follow their Stages.

use evenkeel_api::{Text, views::Node};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    client::ApiError,
    plan::Key,
    queue::{Priority, Queue},
};
use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};

use super::{PlayResult, StageController, spec::ResourceRef, stage_controller::StagedObject};
use crate::{NodeFaults, NodesOptions};

/// Workers of all simulated nodes of the process. They are idle without Stages of nodes.
pub(crate) struct NodeWorkers {
    controller: Arc<StageController>,
    options: NodesOptions,
    /// Indexes into `options.nodes`, by node name.
    indexes: HashMap<Text, usize>,
    nodes: Cache<Node>,
    faults: NodeFaults,
    queue: Queue<usize>,
}

impl NodeWorkers {
    pub(crate) fn new(
        controller: &Arc<StageController>,
        options: &NodesOptions,
        nodes: &Cache<Node>,
        faults: &NodeFaults,
        queue: Queue<usize>,
    ) -> Arc<Self> {
        let names = options.nodes.iter().enumerate();
        let indexes = names.map(|(index, node)| (node.name.as_str().into(), index)).collect();
        let (controller, options) = (Arc::clone(controller), options.clone());
        let (nodes, faults) = (nodes.clone(), faults.clone());
        let workers = Arc::new(Self { controller, options, indexes, nodes, faults, queue });
        let weak = Arc::downgrade(&workers);
        workers.nodes.subscribe(move |event| Self::handle_event(&weak, event));
        let weak = Arc::downgrade(&workers);
        let enqueue_all = move || {
            let Some(workers) = weak.upgrade() else { return };
            for index in 0..workers.options.nodes.len() {
                workers.queue.add(index, Priority::LOW);
            }
        };
        workers.controller.stages.subscribe(enqueue_all.clone());
        workers.faults.subscribe(enqueue_all);
        workers
    }

    fn handle_event(workers: &Weak<Self>, event: &CacheEvent<Node>) {
        let Some(workers) = workers.upgrade() else { return };
        let Some(index) = workers.indexes.get(&event.object().meta.name) else { return };
        match event {
            CacheEvent::Deleted(_) => {
                workers.controller.forget(ResourceRef::Node, &workers.key(*index));
            }
            _ if workers.controller.stages.exist_for(ResourceRef::Node) => {
                workers.queue.add(*index, Priority::NORMAL);
            }
            _ => {}
        }
    }

    fn key(&self, index: usize) -> Key {
        let name = &*self.options.nodes[index].name;
        Key { namespace: Arc::from(""), name: Arc::from(name) }
    }

    /// Syncs nodes until the queue is shut down.
    pub(crate) async fn work(&self) {
        while let Some(index) = self.queue.next().await {
            let work = async {
                match self.sync(index).await {
                    Ok(delay) => {
                        self.queue.forget(&index);
                        if let Some(delay) = delay {
                            self.queue.add_after(index, delay);
                        }
                    }
                    Err(error) => {
                        let node = &*self.options.nodes[index].name;
                        tracing::debug!(node, %error, "A Stage of the node failed; it is retried");
                        self.queue.add_rate_limited(index);
                    }
                }
            };
            self.queue.process(&index, work).await;
        }
    }

    /// Runs the Stages that are due for one node. Returns the delay until the next sync. A partitioned node follows no
    /// Stage until its partition ends.
    async fn sync(&self, index: usize) -> Result<Option<Duration>, ApiError> {
        let options = &self.options.nodes[index];
        let Some(node) = self.nodes.get("", &options.name) else { return Ok(None) };
        let now = self.controller.now();
        if let Some(end) = self.faults.partition(&node, now) {
            return Ok(end.remaining(now));
        }
        if !self.controller.stages.exist_for(ResourceRef::Node) {
            return Ok(None);
        }
        let staged = StagedObject {
            resource: ResourceRef::Node,
            key: &self.key(index),
            uid: &node.meta.uid,
            version: &node.meta.resource_version,
            node: options,
            pod_ip: None,
        };
        match self.controller.play_stage(&staged).await? {
            PlayResult::NextIn(delay) => Ok(delay),
            PlayResult::Gone => Ok(None),
        }
    }
}
