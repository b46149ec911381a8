//! Follows the Stages of simulated nodes.

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

use super::{Played, Player, player::Subject, spec::Governed};
use crate::{NodeFaults, NodesOptions};

/// Workers of all simulated nodes of the process, idle without Stages of nodes.
pub(crate) struct NodeWorkers {
    player: Arc<Player>,
    options: NodesOptions,
    /// Indexes into `options.nodes`, by node name.
    indexes: HashMap<Text, usize>,
    nodes: Cache<Node>,
    faults: NodeFaults,
    queue: Queue<usize>,
}

impl NodeWorkers {
    pub(crate) fn new(
        player: &Arc<Player>,
        options: &NodesOptions,
        (nodes, faults): (&Cache<Node>, &NodeFaults),
        queue: Queue<usize>,
    ) -> Arc<Self> {
        let names = options.nodes.iter().enumerate();
        let indexes = names.map(|(index, node)| (node.name.as_str().into(), index)).collect();
        let (player, options) = (Arc::clone(player), options.clone());
        let (nodes, faults) = (nodes.clone(), faults.clone());
        let workers = Arc::new(Self { player, options, indexes, nodes, faults, queue });
        let weak = Arc::downgrade(&workers);
        workers.nodes.subscribe(move |event| Self::handle(&weak, event));
        let weak = Arc::downgrade(&workers);
        let enqueue_all = move || {
            let Some(workers) = weak.upgrade() else { return };
            for index in 0..workers.options.nodes.len() {
                workers.queue.add(index, Priority::LOW);
            }
        };
        workers.player.stages.subscribe(enqueue_all.clone());
        workers.faults.subscribe(enqueue_all);
        workers
    }

    fn handle(workers: &Weak<Self>, event: &CacheEvent<Node>) {
        let Some(workers) = workers.upgrade() else { return };
        let Some(index) = workers.indexes.get(&event.object().meta.name) else { return };
        match event {
            CacheEvent::Deleted(_) => workers.player.forget(Governed::Node, &workers.key(*index)),
            _ if workers.player.stages.govern(Governed::Node) => {
                workers.queue.add(*index, Priority::NORMAL);
            }
            _ => {}
        }
    }

    fn key(&self, index: usize) -> Key {
        let name = &*self.options.nodes[index].name;
        Key { namespace: Arc::from(""), name: Arc::from(name) }
    }

    /// Follows Stages until the queue is shut down.
    pub(crate) async fn work(&self) {
        while let Some(index) = self.queue.next().await {
            let work = async {
                match self.sync(index).await {
                    Ok(wait) => {
                        self.queue.forget(&index);
                        if let Some(wait) = wait {
                            self.queue.add_after(index, wait);
                        }
                    }
                    Err(error) => {
                        let node = &*self.options.nodes[index].name;
                        tracing::debug!(node, %error, "Node does not follow its Stage yet");
                        self.queue.add_rate_limited(index);
                    }
                }
            };
            self.queue.process(&index, work).await;
        }
    }

    /// Decides for one node. Returns the time until the next decision. A partitioned node changes nothing.
    async fn sync(&self, index: usize) -> Result<Option<Duration>, ApiError> {
        let options = &self.options.nodes[index];
        let Some(node) = self.nodes.get("", &options.name) else { return Ok(None) };
        let now = self.player.now();
        if let Some(end) = self.faults.partition(&node, now) {
            return Ok(end.remaining(now));
        }
        if !self.player.stages.govern(Governed::Node) {
            return Ok(None);
        }
        let subject = Subject {
            kind: Governed::Node,
            key: &self.key(index),
            uid: &node.meta.uid,
            version: &node.meta.resource_version,
            node: options,
            pod_ip: None,
        };
        match self.player.play(&subject).await? {
            Played::Next(wait) => Ok(wait),
            Played::Gone => Ok(None),
        }
    }
}
