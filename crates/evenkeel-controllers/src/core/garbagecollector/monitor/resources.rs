//! Rules for resources that are collected, and for updates that can change the graph. Pure.

use evenkeel_api::Meta;
use evenkeel_runtime::discovery::Resource;

/// Groups whose `events` are not collected, because events expire. Upstream: `DefaultIgnoredResources`.
const EVENT_GROUPS: [&str; 2] = ["", "events.k8s.io"];

/// Returns whether objects of the resource are collected: it has the verbs delete, list and watch. Upstream:
/// `GetDeletableResources`.
pub(in super::super) fn is_deletable(resource: &Resource) -> bool {
    let is_event =
        resource.kind.plural == "events" && EVENT_GROUPS.contains(&&*resource.kind.group);
    !is_event && ["delete", "list", "watch"].iter().all(|verb| resource.supports_verb(verb))
}

/// Returns whether an update can change the graph. Most updates change only the status and cannot.
pub(super) fn can_change_graph(old: &Meta, new: &Meta) -> bool {
    old.uid != new.uid
        || old.owners != new.owners
        || old.deletion != new.deletion
        || old.finalizers != new.finalizers
}
