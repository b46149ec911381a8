//! Watches to start and to stop after a discovery.

use evenkeel_api::Kind;
use evenkeel_runtime::discovery::{Resource, ServerResources};
use std::collections::BTreeSet;

/// Changes of the watches of one follower.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct WatchChanges {
    /// Kinds that the follower wants and does not watch yet.
    pub(super) start: Vec<Kind>,
    /// Watched kinds that the server no longer serves.
    pub(super) stop: Vec<Kind>,
}

impl WatchChanges {
    /// Compares a discovery with the watched kinds. If the discovery of a group failed, the watches of its kinds stay.
    pub(super) fn new(
        discovered: &ServerResources,
        watched: &BTreeSet<Kind>,
        wants: impl Fn(&Resource) -> bool,
    ) -> Self {
        let to_watch = discovered.preferred().filter(|resource| wants(resource));
        let to_watch: BTreeSet<Kind> = to_watch.map(|resource| resource.kind.clone()).collect();
        let discovery_failed =
            |kind: &Kind| discovered.failed.iter().any(|failed| *failed.group == *kind.group);
        let removed = watched.difference(&to_watch).filter(|kind| !discovery_failed(kind));
        Self {
            start: to_watch.difference(watched).cloned().collect(),
            stop: removed.cloned().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;
    use evenkeel_runtime::discovery::FailedGroup;

    fn kind(group: &'static str, plural: &'static str) -> Kind {
        Kind::new(group, "v1", plural, plural, true)
    }

    fn resource(group: &'static str, plural: &'static str) -> Resource {
        fixtures::resource(kind(group, plural))
    }

    #[test]
    fn only_kinds_missing_from_discovered_groups_are_stopped() {
        let failed =
            FailedGroup { group: "broken".into(), version: "v1".into(), reason: "timeout".into() };
        let resources = vec![resource("", "pods"), resource("", "events"), resource("a", "new")];
        let found = ServerResources { resources, failed: vec![failed] };
        let watched = [kind("", "pods"), kind("a", "gone"), kind("broken", "things")];
        let changes = WatchChanges::new(&found, &BTreeSet::from(watched), |resource| {
            &*resource.kind.plural != "events"
        });
        let (start, stop) = (vec![kind("a", "new")], vec![kind("a", "gone")]);
        assert_eq!(changes, WatchChanges { start, stop });
    }
}
