//! Merges the groups and versions of this server and of extension API servers, in the order of their priorities.

use std::cmp::Reverse;
use std::sync::Arc;

use super::groups::groups;
use crate::aggregation::remotes::{GROUP, Priority, Remote, Remotes};
use crate::resource::{ResourceType, Rows, version_preference};

/// Priority of the group of APIServices, which comes first.
///
/// Upstream: `APIRegistrationGroupPriority`.
const MAX_GROUP_PRIORITY: i64 = 20_001;
/// Priorities without an APIService.
const DEFAULT_PRIORITIES: Priorities = Priorities { of_group: 1000, of_version: 100 };

/// Priorities of a version and its group. The highest comes first.
#[derive(Clone, Copy)]
struct Priorities {
    /// `groupPriorityMinimum` of the APIService.
    of_group: i64,
    /// `versionPriority` of the APIService.
    of_version: i64,
}

/// Server that has the resources of a version.
pub(super) enum Resources<'a> {
    /// This server itself.
    Own(Vec<&'a Arc<ResourceType>>),
    /// An extension API server.
    Remote(&'a Arc<Remote>),
}

/// Version of a group.
pub(super) struct Version<'a> {
    pub(super) name: &'a str,
    pub(super) resources: Resources<'a>,
    priorities: Priorities,
}

/// Name that orders groups of the same priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TieBreaker {
    /// Priority of the group, as in upstream's `calculateAPIGroupsLocked`.
    Group,
    /// Priority of the APIService, as in upstream's `SortedByGroupAndVersion`.
    Service,
}

/// Returns groups in discovery's order, each with its versions in order of preference. An extension API server has
/// precedence for its version.
pub(super) fn merged<'a>(
    rows: &'a Rows,
    remotes: &'a Remotes,
    tie_breaker: TieBreaker,
) -> Vec<(&'a str, Vec<Version<'a>>)> {
    let version = |group: &str, name: &'a str, resources| Version {
        name,
        resources,
        priorities: priorities(remotes, group, name),
    };
    let mut merged: Vec<(&str, Vec<Version<'_>>)> = groups(rows)
        .into_iter()
        .map(|(group, versions)| {
            let own = |(name, resources)| version(group, name, Resources::Own(resources));
            (group, versions.into_iter().map(own).collect())
        })
        .collect();
    // The table already orders the server's own groups.
    if remotes.by_name.is_empty() {
        return merged;
    }
    for remote in remotes.by_name.values() {
        let added = version(&remote.group, &remote.version, Resources::Remote(remote));
        match merged.iter_mut().find(|(group, _)| *group == remote.group) {
            Some((_, versions)) => {
                versions.retain(|version| version.name != remote.version);
                versions.push(added);
            }
            None => merged.push((&remote.group, vec![added])),
        }
    }
    for (_, versions) in &mut merged {
        versions.sort_by(|left, right| {
            let rank = |version: &Version<'a>| {
                (version.priorities.of_version, version_preference(version.name))
            };
            rank(right).cmp(&rank(left))
        });
    }
    merged.sort_by_cached_key(|(group, versions)| {
        let key = |version: &Version<'_>| {
            let name = match tie_breaker {
                TieBreaker::Group => (*group).to_owned(),
                TieBreaker::Service => format!("{}.{group}", version.name),
            };
            (Reverse(version.priorities.of_group), name)
        };
        versions.iter().map(key).min()
    });
    merged
}

/// Returns the priorities of a version and its group.
fn priorities(remotes: &Remotes, group: &str, version: &str) -> Priorities {
    // Without extension API servers, the groups are not sorted.
    if remotes.by_name.is_empty() {
        return Priorities { of_group: 0, of_version: 0 };
    }
    if group == GROUP {
        return Priorities { of_group: MAX_GROUP_PRIORITY, ..DEFAULT_PRIORITIES };
    }
    let is_of_version =
        |priority: &&Priority| priority.group == group && priority.version == version;
    let found = remotes.priorities.iter().find(is_of_version);
    found.map_or(DEFAULT_PRIORITIES, |priority| Priorities {
        of_group: priority.of_group,
        of_version: priority.of_version,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::aggregation::remotes::Aggregation;
    use crate::resource::Table;

    fn service(name: &str, of_group: u32, of_version: u32, service: &Value) -> Value {
        let (version, group) = name.split_once('.').expect("a version and a group");
        json!({"metadata": {"name": name}, "spec": {"group": group, "version": version, "service": service,
            "groupPriorityMinimum": of_group, "versionPriority": of_version}})
    }

    #[test]
    fn priorities_determine_the_order() {
        let remote = json!({"namespace": "n", "name": "s"});
        let aggregation = Aggregation::new(None, true);
        aggregation.set_services(&[
            service("v1.", 18000, 1, &Value::Null),
            service("v1.apps", 17800, 15, &Value::Null),
            service("v1.batch", 17400, 15, &remote),
            service("v1beta1.batch", 17900, 15, &remote),
            service("v2.batch", 100, 100, &remote),
            service("v1beta1.b", 300, 10, &remote),
            service("v1.b", 300, 10, &remote),
            service("v1alpha1.a", 300, 10, &remote),
            service("v1.c", 20000, 10, &remote),
        ]);
        let (rows, remotes) = (Table::builtin().rows(), aggregation.current());
        let shown = |tie_breaker| -> Vec<String> {
            let all = merged(&rows, &remotes, tie_breaker);
            let of_interest = all.iter().filter(|(group, _)| {
                matches!(*group, "" | "apiregistration.k8s.io" | "apps" | "batch" | "a" | "b" | "c")
            });
            of_interest
                .map(|(group, versions)| {
                    let versions: Vec<String> = versions
                        .iter()
                        .map(|version| match version.resources {
                            Resources::Own(_) => version.name.to_owned(),
                            Resources::Remote(_) => format!("{}*", version.name),
                        })
                        .collect();
                    format!("{group}: {}", versions.join(" "))
                })
                .collect()
        };
        let first =
            ["apiregistration.k8s.io: v1", "c: v1*", ": v1", "batch: v2* v1* v1beta1*", "apps: v1"];
        assert_eq!(
            shown(TieBreaker::Group),
            [&first[..], &["a: v1alpha1*", "b: v1* v1beta1*"]].concat()
        );
        assert_eq!(
            shown(TieBreaker::Service),
            [&first[..], &["b: v1* v1beta1*", "a: v1alpha1*"]].concat()
        );
    }

    #[test]
    fn the_order_of_the_table_is_that_of_its_priorities() {
        let data: Value =
            serde_json::from_str(include_str!("../../data/bootstrap-objects.json")).expect("JSON");
        let services =
            data["/apis/apiregistration.k8s.io/v1/apiservices"].as_array().expect("a list");
        let remote = service("v1.z", 1, 1, &json!({"namespace": "n", "name": "s"}));
        let aggregation = Aggregation::new(None, true);
        aggregation.set_services(&[&services[..], &[remote]].concat());
        let (rows, none) = (Table::builtin().rows(), Remotes::default());
        let names = |remotes: &Remotes| -> Vec<String> {
            let all = merged(&rows, remotes, TieBreaker::Group);
            all.iter()
                .map(|(group, _)| (*group).to_owned())
                .filter(|group| !group.is_empty())
                .collect()
        };
        let mut expected = names(&none);
        expected.push("z".to_owned());
        assert_eq!(names(&aggregation.current()), expected);
    }
}
