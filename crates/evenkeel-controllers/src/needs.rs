//! Requirements of controllers: feature gates and served resources.

use evenkeel_api::Text;
use evenkeel_runtime::discovery::ServerResources;
use std::{collections::BTreeSet, fmt, sync::Arc};

/// Feature gates that controllers read, and that are off by default in v1.37.
const OFF_BY_DEFAULT: [&str; 6] = [
    "DRAResourcePoolStatus",
    "DRAWorkloadResourceClaims",
    "GenericWorkload",
    "StatefulSetRecreateStrategy",
    "StorageVersionAPI",
    "TaintTolerationComparisonOperators",
];

/// Enabled feature gates. The default has upstream's defaults in v1.37.
#[derive(Clone)]
pub struct Gates(Arc<dyn Fn(&str) -> bool + Send + Sync>);

impl Gates {
    /// Builds gates from a predicate.
    pub fn new(enabled: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(enabled))
    }

    /// Returns whether the gate is enabled.
    pub fn enabled(&self, name: &str) -> bool {
        (self.0)(name)
    }
}

impl Default for Gates {
    fn default() -> Self {
        Self::new(|name| !OFF_BY_DEFAULT.contains(&name))
    }
}

impl fmt::Debug for Gates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gates")
    }
}

/// A resource in one version of its group, such as `apps`, `v1`, `deployments`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Resource {
    /// The API group, empty for core.
    pub group: &'static str,
    /// The API version.
    pub version: &'static str,
    /// The plural resource name.
    pub plural: &'static str,
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { group, version, plural } = self;
        write!(f, "{plural}.{version}.{}", if group.is_empty() { "core" } else { group })
    }
}

/// Resources that the API server serves. The default contains all resources.
#[derive(Debug, Clone, Default)]
pub struct Resources(Option<Arc<Served>>);

/// Resources that discovery found.
#[derive(Debug)]
struct Served {
    /// Group, version and plural name of each resource.
    resources: BTreeSet<[Text; 3]>,
    /// Groups and versions whose discovery failed.
    undiscovered: BTreeSet<[Text; 2]>,
}

impl Resources {
    /// Builds the resources from discovery. A group whose discovery failed counts as served, so that its controllers
    /// start and wait for the resource. A controller that is skipped would need a restart.
    pub fn discovered(found: &ServerResources) -> Self {
        let resources = found.resources.iter().map(|resource| {
            let kind = &resource.kind;
            [(&*kind.group).into(), (&*kind.version).into(), (&*kind.plural).into()]
        });
        let failed = found.failed.iter();
        let undiscovered = failed.map(|group| [&group.group, &group.version].map(Text::from));
        Self(Some(Arc::new(Served {
            resources: resources.collect(),
            undiscovered: undiscovered.collect(),
        })))
    }

    /// Returns whether the server has this resource.
    pub fn has(&self, resource: &Resource) -> bool {
        let Resource { group, version, plural } = *resource;
        self.0.as_ref().is_none_or(|served| {
            served.resources.contains(&[group.into(), version.into(), plural.into()])
                || served.undiscovered.contains(&[group.into(), version.into()])
        })
    }
}

/// Unmet requirement of a controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unmet {
    /// A feature gate is off, which cannot change while the program runs.
    #[error("feature gate {0} is off")]
    Gate(&'static str),
    /// The server does not serve a resource, but may do so later.
    #[error("the server has no {0}")]
    Resource(Resource),
    /// The options leave the controller without work. Upstream: a constructor that returns no controller.
    #[error("{0}")]
    Options(&'static str),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::deployments;
    use evenkeel_runtime::discovery::FailedGroup;

    #[test]
    fn some_gates_are_off_by_default() {
        let gates = Gates::default();
        assert!(gates.enabled("VolumeAttributesClass"));
        assert!(OFF_BY_DEFAULT.iter().all(|gate| !gates.enabled(gate)));
    }

    #[test]
    fn undiscovered_groups_count_as_served() {
        let found = ServerResources {
            resources: vec![deployments()],
            failed: vec![FailedGroup {
                group: "metrics".into(),
                version: "v1".into(),
                reason: "late".into(),
            }],
        };
        let resources = Resources::discovered(&found);
        let has = |group, version, plural| resources.has(&Resource { group, version, plural });
        assert!(has("apps", "v1", "deployments") && has("metrics", "v1", "anything"));
        assert!(!has("apps", "v1", "others") && !has("apps", "v2", "deployments"));
        assert!(Resources::default().has(&Resource { group: "", version: "v1", plural: "x" }));
    }
}
