//! Kinds that a policy matches. Upstream: `typesToCheck`.

use evenkeel_runtime::discovery::ServerResources;
use k8s_openapi::api::admissionregistration::v1::{NamedRuleWithOperations, ParamKind};
use std::{collections::BTreeSet, fmt};

/// Number of kinds of a rule at which the search ends. Upstream: `maxTypesToCheck`.
const MAX_KINDS: usize = 10;

/// A kind in one version of its group. The order is upstream's order of warnings.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GroupVersionKind {
    pub(super) group: Box<str>,
    pub(super) version: Box<str>,
    pub(super) kind: Box<str>,
}

impl fmt::Display for GroupVersionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}, Kind={}", self.group, self.version, self.kind)
    }
}

impl GroupVersionKind {
    /// Returns the kind of a policy's parameters; `None` without parameters. Upstream: `paramsGVK`.
    pub(super) fn of_params(params: Option<&ParamKind>) -> Option<Self> {
        let params = params?;
        let api_version = params.api_version.as_deref().unwrap_or_default();
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        if version.contains('/') {
            return None;
        }
        let kind = params.kind.as_deref().unwrap_or_default();
        let is_empty = group.is_empty() && version.is_empty() && kind.is_empty();
        (!is_empty).then(|| Self {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
        })
    }

    /// Returns the path of the kind's group and version in the index of OpenAPI documents.
    pub(super) fn document(&self) -> String {
        match (&*self.group, &self.version) {
            ("", version) => format!("api/{version}"),
            (group, version) => format!("apis/{group}/{version}"),
        }
    }
}

/// Kinds that the rules of a policy match.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Matched {
    pub(super) kinds: BTreeSet<GroupVersionKind>,
    /// Whether the server lacks a resource that a rule names.
    pub(super) lacks_resource: bool,
}

/// Returns the kinds that rules match by name. A rule with `*` in its groups or versions matches none; a resource with `*` or a
/// sub-resource is omitted.
pub(super) fn matched(rules: &[NamedRuleWithOperations], served: &ServerResources) -> Matched {
    let mut matched = Matched::default();
    for rule in rules {
        let groups = named(rule.api_groups.as_deref());
        let versions = named(rule.api_versions.as_deref());
        let (Some(groups), Some(versions)) = (groups, versions) else { continue };
        let mut resources = sorted(rule.resources.as_deref());
        resources.retain(|resource| !resource.contains(['*', '/']));
        let mut n_kinds = 0;
        for group in &groups {
            for version in &versions {
                for resource in &resources {
                    let mut lacks_resource = true;
                    for kind in kinds_of(group, version, resource, served) {
                        lacks_resource = false;
                        matched.kinds.insert(kind);
                        n_kinds += 1;
                        if n_kinds == MAX_KINDS {
                            return matched;
                        }
                    }
                    matched.lacks_resource |= lacks_resource;
                }
            }
        }
    }
    matched
}

/// Returns the kinds of a resource, by its plural or singular name. The core group, whose name is empty, represents all groups.
/// Upstream: `DefaultRESTMapper.KindsFor`.
fn kinds_of(
    group: &str,
    version: &str,
    resource: &str,
    served: &ServerResources,
) -> impl Iterator<Item = GroupVersionKind> {
    let name = resource.to_lowercase();
    let served = served.resources.iter().filter(move |served| {
        (group.is_empty() || *served.kind.group == *group)
            && *served.kind.version == *version
            && (*served.kind.plural == *name || *served.singular == *name)
    });
    served.map(|served| GroupVersionKind {
        group: (&*served.kind.group).into(),
        version: (&*served.kind.version).into(),
        kind: (&*served.kind.kind).into(),
    })
}

/// Returns the names, sorted; `None` if there are none, or if one has a `*`.
fn named(names: Option<&[String]>) -> Option<Vec<&str>> {
    let names = sorted(names);
    (!names.is_empty() && !names.iter().any(|name| name.contains('*'))).then_some(names)
}

fn sorted(names: Option<&[String]>) -> Vec<&str> {
    let mut names: Vec<&str> = names.unwrap_or_default().iter().map(String::as_str).collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::resource;
    use evenkeel_api::Kind;
    use evenkeel_runtime::discovery::Resource;

    fn rule(groups: &[&str], versions: &[&str], resources: &[&str]) -> NamedRuleWithOperations {
        let names = |names: &[&str]| Some(names.iter().map(|&name| name.to_owned()).collect());
        NamedRuleWithOperations {
            api_groups: names(groups),
            api_versions: names(versions),
            resources: names(resources),
            ..NamedRuleWithOperations::default()
        }
    }

    fn served() -> ServerResources {
        let row = |group: &'static str, version: &'static str, kind: &str| Resource {
            singular: kind.to_lowercase().into(),
            ..resource(Kind {
                group: group.into(),
                version: version.into(),
                kind: kind.to_owned().into(),
                plural: format!("{}s", kind.to_lowercase()).into(),
                namespaced: true,
            })
        };
        let mut resources = vec![
            row("", "v1", "Pod"),
            row("", "v1", "Event"),
            row("events.k8s.io", "v1", "Event"),
            row("apps", "v1", "Deployment"),
            row("apps", "v1beta1", "Deployment"),
        ];
        resources.extend((0..12).map(|n| row("many", "v1", &format!("K{n:02}"))));
        ServerResources { resources, failed: Vec::new() }
    }

    #[test]
    fn rules_match_kinds_by_name() {
        let pods = "/v1, Kind=Pod";
        let deployments = "apps/v1, Kind=Deployment";
        for (rules, want, lacks_resource) in [
            (vec![], &[][..], false),
            (vec![rule(&[""], &["v1"], &["pods"])], &[pods], false),
            (vec![rule(&[""], &["v1"], &["Pod"])], &[pods], false),
            // The core group matches every group that has the resource in this version.
            (
                vec![rule(&[""], &["v1"], &["events"])],
                &["/v1, Kind=Event", "events.k8s.io/v1, Kind=Event"],
                false,
            ),
            (vec![rule(&[""], &["v1"], &["deployments"])], &[deployments], false),
            (
                vec![rule(&["apps"], &["v1beta1", "v1"], &["deployments", "deployments/scale"])],
                &[deployments, "apps/v1beta1, Kind=Deployment"],
                false,
            ),
            (vec![rule(&["*"], &["v1"], &["pods"])], &[], false),
            (vec![rule(&["", "*"], &["v1"], &["pods"])], &[], false),
            (vec![rule(&[""], &["*"], &["pods"])], &[], false),
            (vec![rule(&[""], &["v1"], &["*", "pods/*", "*/*"])], &[], false),
            (vec![rule(&[], &["v1"], &["pods"])], &[], false),
            (
                vec![rule(&["apps"], &["v1"], &["nope"]), rule(&[""], &["v1"], &["pods"])],
                &[pods],
                true,
            ),
        ] {
            let matched = matched(&rules, &served());
            let kinds: Vec<String> = matched.kinds.iter().map(ToString::to_string).collect();
            assert_eq!(kinds, want, "{rules:?}");
            assert_eq!(matched.lacks_resource, lacks_resource, "{rules:?}");
        }
    }

    #[test]
    fn search_ends_at_the_tenth_kind_of_a_rule() {
        let names: Vec<String> = (0..12).map(|n| format!("k{n:02}s")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let pods = rule(&[""], &["v1"], &["pods"]);
        let all = rule(&["many"], &["v1"], &names);
        let nine = rule(&["many"], &["v1"], &names[..9]);
        let n_kinds = |rules: &[NamedRuleWithOperations]| matched(rules, &served()).kinds.len();
        assert_eq!(n_kinds(&[all.clone(), pods.clone()]), 10, "the second rule is not reached");
        assert_eq!(n_kinds(&[pods.clone(), all]), 11, "each rule counts its kinds again");
        assert_eq!(n_kinds(&[nine, pods]), 10);
    }

    #[test]
    fn kinds_of_parameters_are_in_their_group() {
        for (api_version, kind, want, document) in [
            ("v1", "ConfigMap", "/v1, Kind=ConfigMap", "api/v1"),
            (
                "rules.example.com/v1",
                "Limit",
                "rules.example.com/v1, Kind=Limit",
                "apis/rules.example.com/v1",
            ),
        ] {
            let params = ParamKind {
                api_version: Some(api_version.to_owned()),
                kind: Some(kind.to_owned()),
            };
            let kind = GroupVersionKind::of_params(Some(&params)).unwrap();
            assert_eq!((kind.to_string().as_str(), kind.document().as_str()), (want, document));
        }
        assert_eq!(GroupVersionKind::of_params(None), None);
        let invalid = ParamKind { api_version: Some("a/b/c".to_owned()), kind: None };
        assert_eq!(GroupVersionKind::of_params(Some(&invalid)), None);
    }
}
