//! Waits for the registration of simulated nodes.

use evenkeel_api::{Text, views::Node};
use evenkeel_nodes::NodeOptions;
use evenkeel_runtime::cache::{Cache, CacheEvent};
use evenkeel_runtime::tasks::watch;
use std::{collections::BTreeSet, sync::Arc};

/// Nodes that the cache has not shown since the start.
pub(crate) struct Unregistered(Arc<watch::Sender<BTreeSet<Text>>>);

impl Unregistered {
    /// Begins with all of these nodes, and follows the cache.
    pub(crate) fn follow(nodes: &[NodeOptions], cache: &Cache<Node>) -> Self {
        let names: BTreeSet<Text> = nodes.iter().map(|node| Text::from(&*node.name)).collect();
        let unregistered = Arc::new(watch::Sender::new(names));
        let following = Arc::clone(&unregistered);
        cache.subscribe(move |event| {
            if let CacheEvent::Added { object, .. } = event {
                following.send_if_modified(|names| names.remove(&object.meta.name));
            }
        });
        Self(unregistered)
    }

    /// Returns the names of these nodes.
    pub(crate) fn names(&self) -> Vec<String> {
        self.0.borrow().iter().map(ToString::to_string).collect()
    }

    /// Waits until the cache has shown each of the nodes.
    pub(crate) async fn none(&self) {
        // The sender cannot be dropped meanwhile: this owns it.
        let _ = self.0.subscribe().wait_for(BTreeSet::is_empty).await;
    }
}
