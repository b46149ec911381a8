//! Which changes may make room for a pod that no node had room for.

use evenkeel_api::views::Node;

use crate::{
    framework::{Change, Edit, Hint},
    pod::PodInfo,
    resources::Resources,
};

pub(super) fn hint(pod: &PodInfo, change: &Change) -> Hint {
    let asks = &pod.asks.requests;
    match change {
        Change::Node(edit) => Hint::when(edit.now().is_some_and(|new| {
            let (has, had) = (Room::of(new), edit.before().map(|old| Room::of(old)));
            has.takes(asks) && had.is_none_or(|had| has.gives_more(&had, asks))
        })),
        Change::AssignedPod(Edit::Updated { old, new }) => {
            Hint::when(gives_more(&old.asks.requests, &new.asks.requests, asks))
        }
        _ => Hint::Queue,
    }
}

/// What a node has for pods.
struct Room {
    resources: Resources,
    pods: i64,
}

impl Room {
    fn of(node: &Node) -> Self {
        let mut resources = Resources::default();
        for (name, amount) in node.status.allocatable.iter() {
            resources.set(name, *amount);
        }
        let pods = node.status.allocatable.get("pods").map_or(0, |pods| pods.value());
        Self { resources, pods }
    }

    /// Whether the pod would fit if there were no others.
    fn takes(&self, asks: &Resources) -> bool {
        let has = &self.resources;
        self.pods > 0
            && asks.cpu <= has.cpu
            && asks.memory <= has.memory
            && asks.ephemeral_storage <= has.ephemeral_storage
            && asks.scalars.iter().all(|(name, amount)| *amount <= has.scalar(name))
    }

    /// Whether there is more than there was of something that the pod takes up.
    fn gives_more(&self, before: &Self, asks: &Resources) -> bool {
        self.pods > before.pods || gives_more(&self.resources, &before.resources, asks)
    }
}

/// Whether `more` exceeds `less` in something that is asked for.
fn gives_more(more: &Resources, less: &Resources, asks: &Resources) -> bool {
    (asks.cpu > 0 && more.cpu > less.cpu)
        || (asks.memory > 0 && more.memory > less.memory)
        || (asks.ephemeral_storage > 0 && more.ephemeral_storage > less.ephemeral_storage)
        || asks
            .scalars
            .iter()
            .any(|(name, amount)| *amount > 0 && more.scalar(name) > less.scalar(name))
}
