//! Which plugins want to be asked about which changes, so that a change nobody waits for costs nothing.

use super::PluginSet;
use crate::framework::{Action, Profile, Resource};

const WIDTH: usize = Resource::ALL.len() * Action::COUNT;

/// For each profile and change, the plugins that registered for it.
#[derive(Debug)]
pub(super) struct Interests(Vec<[PluginSet; WIDTH]>);

impl Interests {
    pub(super) fn new(profiles: &[Profile]) -> Self {
        Self(profiles.iter().map(of_profile).collect())
    }

    /// The plugins of a profile that want to know of this.
    pub(super) fn of(&self, profile: usize, resource: Resource, action: Action) -> PluginSet {
        self.0[profile][at(resource, action)]
    }

    /// Whether any plugin wants to know of this. Extenders are no plugins: they do not reject pods that are on their way.
    pub(super) fn any(&self, resource: Resource, action: Action) -> bool {
        self.0.iter().any(|of| !of[at(resource, action)].is_empty())
    }
}

fn at(resource: Resource, action: Action) -> usize {
    resource as usize * Action::COUNT + action as usize
}

fn of_profile(profile: &Profile) -> [PluginSet; WIDTH] {
    let mut sets = [PluginSet::default(); WIDTH];
    for (n, plugin) in profile.plugins() {
        let interests = plugin.events();
        for (at, set) in sets.iter_mut().enumerate() {
            let resource = Resource::ALL[at / Action::COUNT];
            let action = Action::ALL[at % Action::COUNT];
            if interests.iter().any(|interest| interest.covers(resource, action)) {
                set.insert(n);
            }
        }
    }
    sets[at(Resource::Node, Action::Add)].insert(PluginSet::NO_NODES);
    sets
}
