//! Index of the events that plugins registered for, so that the queue can ignore all other events cheaply.
//!
//! Upstream: `queueingHintMap`.

use super::PluginSet;
use crate::framework::{ActionType, EventResource, Profile};

/// Number of combinations of resource and action type.
const N_EVENTS: usize = EventResource::ALL.len() * ActionType::COUNT;

/// Plugins that registered for an event, by profile and by resource and action.
#[derive(Debug)]
pub(super) struct QueueingHintMap(Vec<[PluginSet; N_EVENTS]>);

impl QueueingHintMap {
    pub(super) fn new(profiles: &[Profile]) -> Self {
        Self(profiles.iter().map(plugins_by_event).collect())
    }

    /// Returns the plugins of a profile that registered for the event.
    pub(super) fn plugins_for(
        &self,
        profile: usize,
        resource: EventResource,
        action: ActionType,
    ) -> PluginSet {
        self.0[profile][event_index(resource, action)]
    }

    /// Returns whether any plugin registered for the event. Extenders do not count, because they never reject a pod in
    /// flight.
    pub(super) fn has_event(&self, resource: EventResource, action: ActionType) -> bool {
        self.0.iter().any(|plugins| !plugins[event_index(resource, action)].is_empty())
    }
}

/// Returns the index of an event in a profile's array.
fn event_index(resource: EventResource, action: ActionType) -> usize {
    resource as usize * ActionType::COUNT + action as usize
}

/// Returns the plugins of a profile that registered for each event, at its [`event_index`].
fn plugins_by_event(profile: &Profile) -> [PluginSet; N_EVENTS] {
    let mut sets = [PluginSet::default(); N_EVENTS];
    for (plugin_index, plugin) in profile.plugins() {
        let cluster_events = plugin.events_to_register();
        for (index, set) in sets.iter_mut().enumerate() {
            let resource = EventResource::ALL[index / ActionType::COUNT];
            let action = ActionType::ALL[index % ActionType::COUNT];
            if cluster_events.iter().any(|event| event.covers(resource, action)) {
                set.insert(plugin_index);
            }
        }
    }
    sets[event_index(EventResource::Node, ActionType::Add)].insert(PluginSet::NO_NODES);
    sets
}
