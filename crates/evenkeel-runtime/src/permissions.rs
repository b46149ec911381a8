//! Permissions that an operator needs, derived from the declarations of its controllers, and their RBAC manifests.
//!
//! | a controller or manager declares | its permissions |
//! |---|---|
//! | a kind that it reconciles, owns, watches or reads | get, list, watch |
//! | a kind that it owns | create, update, patch, delete, or the verbs that it declares with `writes` |
//! | a kind that it reconciles | its `status` (get, update, patch) and `finalizers` (update); patch with a finalizer |
//! | any controller | events (create, patch) |
//! | leader election, sharding | Leases in the namespace of the operator, LeaseCandidates of a coordinated election |
//! | metrics with authentication | reviews of tokens and permissions (create) |
//!
//! Requests that an operator sends in other ways, such as with [`Context::kube`](crate::operator::Context::kube), are
//! declared with [`ControllerBuilder::writes`](crate::operator::ControllerBuilder::writes) or [`Permissions::and`].
//!
//! Upstream: the `+kubebuilder:rbac` markers, which an author updates with the code.

use crate::{
    cache::Scope,
    clock::Clock,
    manager::{Manager, Setup},
};
use evenkeel_api::Kind;
use http::{Request, Response};
use kube::client::Body;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};
use tower::BoxError;

/// Verbs with which a controller reads a kind.
const READ: [&str; 3] = ["get", "list", "watch"];

/// Verbs with which a controller writes a kind that it owns, unless it declares others.
const WRITE: [&str; 4] = ["create", "update", "patch", "delete"];

/// Resource of RBAC: group, plural with its sub-resource, and the name of the only object, if there is one.
type Resource = (String, String, String);

/// Verbs by resource.
type Rules = BTreeMap<Resource, BTreeSet<String>>;

/// Permissions of an operator. See [`Manager::permissions`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Permissions {
    /// Rules by namespace. The empty namespace is the whole cluster.
    rules: BTreeMap<String, Rules>,
    /// Namespace of the operator and of its service account.
    namespace: String,
    /// Rules in the operator's namespace.
    own: Rules,
}

/// RBAC rule of one resource, in one namespace or in the cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PolicyRule {
    /// Namespace in which the rule applies. Empty for all.
    pub namespace: String,
    /// Group of the resource. Empty for the core group.
    pub group: String,
    /// Plural of the resource, with its sub-resource, such as `deployments` or `deployments/status`.
    pub resource: String,
    /// Name of the only object. Empty for all.
    pub name: String,
    /// Verbs that are allowed, sorted.
    pub verbs: Vec<String>,
}

impl Permissions {
    pub(crate) fn of_namespace(namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), ..Self::default() }
    }

    /// Sets the namespace in which the operator runs, where its Lease and its service account are.
    #[must_use]
    pub fn in_namespace(self, namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), ..self }
    }

    /// Adds verbs on a resource, for requests that no controller declares. The resource may be a sub-resource, such as
    /// `pods/exec`. An empty namespace means the whole cluster.
    #[must_use]
    pub fn and(mut self, namespace: &str, group: &str, resource: &str, verbs: &[&str]) -> Self {
        self.add(namespace, group, resource, verbs);
        self
    }

    /// Returns the same permissions without a verb on a resource, for tests of the requests that need it.
    #[must_use]
    pub fn without(mut self, group: &str, resource: &str, verb: &str) -> Self {
        for rules in self.rules.values_mut().chain([&mut self.own]) {
            for ((rule_group, rule_resource, _), verbs) in &mut *rules {
                if rule_group == group && rule_resource == resource {
                    verbs.remove(verb);
                }
            }
            rules.retain(|_, verbs| !verbs.is_empty());
        }
        self
    }

    /// Returns the rules, one of each resource and namespace.
    pub fn rules(&self) -> Vec<PolicyRule> {
        let all = self.rules.iter().chain([(&self.namespace, &self.own)]);
        all.flat_map(|(namespace, rules)| {
            rules.iter().map(|((group, resource, name), verbs)| PolicyRule {
                namespace: namespace.clone(),
                group: group.clone(),
                resource: resource.clone(),
                name: name.clone(),
                verbs: verbs.iter().cloned().collect(),
            })
        })
        .collect()
    }

    /// Returns the manifest of the permissions: a ServiceAccount of this name in the operator's namespace, a ClusterRole with
    /// the rules of the cluster, a Role in each namespace with rules of its own, and their bindings.
    ///
    /// ```
    /// # use evenkeel_runtime::permissions::Permissions;
    /// let permissions = Permissions::default().in_namespace("shop").and("", "apps", "deployments", &["get"]);
    /// assert!(permissions.manifest("shop-operator").contains("kind: ClusterRole\n"));
    /// ```
    pub fn manifest(&self, name: &str) -> String {
        let mut all = self.rules.clone();
        let own = all.entry(self.namespace.clone()).or_default();
        for (resource, verbs) in &self.own {
            own.entry(resource.clone()).or_default().extend(verbs.iter().cloned());
        }
        let mut text = format!(
            "apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: {}\n  namespace: {}\n",
            quoted(name),
            quoted(&self.namespace),
        );
        for (namespace, rules) in all.iter().filter(|(_, rules)| !rules.is_empty()) {
            self.write_role(&mut text, name, namespace, rules);
        }
        text
    }

    fn write_role(&self, text: &mut String, name: &str, namespace: &str, rules: &Rules) {
        let kind = if namespace.is_empty() { "ClusterRole" } else { "Role" };
        let head = |text: &mut String, kind: &str| {
            // Writing into a String cannot fail.
            let _ = write!(
                text,
                "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\nmetadata:\n  name: {}\n",
                quoted(name)
            );
            if !namespace.is_empty() {
                let _ = writeln!(text, "  namespace: {}", quoted(namespace));
            }
        };
        head(text, kind);
        text.push_str("rules:\n");
        for ((group, resource, object), verbs) in rules {
            let _ = write!(
                text,
                "- apiGroups: [{}]\n  resources: [{}]\n",
                quoted(group),
                quoted(resource)
            );
            if !object.is_empty() {
                let _ = writeln!(text, "  resourceNames: [{}]", quoted(object));
            }
            let verbs: Vec<String> = verbs.iter().map(|verb| quoted(verb)).collect();
            let _ = writeln!(text, "  verbs: [{}]", verbs.join(", "));
        }
        head(text, &format!("{kind}Binding"));
        let _ = write!(
            text,
            "roleRef:\n  apiGroup: rbac.authorization.k8s.io\n  kind: {kind}\n  name: {0}\nsubjects:\n- kind: ServiceAccount\n  name: {0}\n  namespace: {1}\n",
            quoted(name),
            quoted(&self.namespace),
        );
    }

    pub(crate) fn add(&mut self, namespace: &str, group: &str, resource: &str, verbs: &[&str]) {
        if verbs.is_empty() {
            return;
        }
        let rules = self.rules.entry(namespace.to_owned()).or_default();
        add_verbs(rules, group, resource, "", verbs);
    }

    /// Adds verbs in the operator's namespace. `name` is empty for all objects.
    pub(crate) fn add_own(&mut self, group: &str, resource: &str, name: &str, verbs: &[&str]) {
        add_verbs(&mut self.own, group, resource, name, verbs);
    }

    /// Adds the verbs that a cache needs.
    pub(crate) fn add_read(&mut self, Scope { kind, namespaces, .. }: &Scope) {
        for namespace in namespaces {
            self.add(namespace, &kind.group, &kind.plural, &READ);
        }
    }

    /// Adds the permissions of a controller.
    pub(crate) fn add_declared(&mut self, declared: &DeclaredAccess) {
        let DeclaredAccess { root, caches, owned, written, records_series, .. } = declared;
        let everywhere = vec![String::new()];
        let namespaces_of = |kind: &Kind| caches.get(kind).unwrap_or(&everywhere);
        for (kind, namespaces) in caches {
            for namespace in namespaces {
                self.add(namespace, &kind.group, &kind.plural, &READ);
            }
        }
        for kind in owned {
            if !written.contains_key(kind) {
                for namespace in namespaces_of(kind) {
                    self.add(namespace, &kind.group, &kind.plural, &WRITE);
                }
            }
        }
        for (kind, verbs) in written {
            let verbs: Vec<&str> = verbs.iter().map(|verb| &**verb).collect();
            for namespace in namespaces_of(kind) {
                self.add(namespace, &kind.group, &kind.plural, &verbs);
            }
        }
        let mut event_namespaces = &everywhere;
        if let Some(root) = root {
            event_namespaces = namespaces_of(root);
            for namespace in event_namespaces {
                let (status, finalizers) =
                    (format!("{}/status", root.plural), format!("{}/finalizers", root.plural));
                self.add(namespace, &root.group, &status, &["get", "update", "patch"]);
                self.add(namespace, &root.group, &finalizers, &["update"]);
            }
        }
        let group = if *records_series { "events.k8s.io" } else { "" };
        for namespace in event_namespaces {
            self.add(namespace, group, "events", &["create", "patch"]);
        }
    }
}

/// Adds verbs to the rule of a resource. `name` is empty for all objects.
fn add_verbs(rules: &mut Rules, group: &str, resource: &str, name: &str, verbs: &[&str]) {
    let key = (group.to_owned(), resource.to_owned(), name.to_owned());
    rules.entry(key).or_default().extend(verbs.iter().map(|verb| (*verb).to_owned()));
}

/// Returns a string as a YAML scalar in double quotes, which is also valid JSON.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Kinds that one controller declares to read and write.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeclaredAccess {
    /// Name of the controller.
    pub(crate) controller: String,
    /// Kind that the controller reconciles. `None` if its keys are not objects.
    root: Option<Kind>,
    /// Namespaces of the cached kinds. The empty namespace means the whole cluster.
    caches: BTreeMap<Kind, Vec<String>>,
    owned: BTreeSet<Kind>,
    /// Verbs of the kinds with which the controller declares to write them.
    written: BTreeMap<Kind, BTreeSet<String>>,
    /// Whether the events are of events.k8s.io.
    pub(crate) records_series: bool,
}

impl DeclaredAccess {
    pub(crate) fn owns(&mut self, kind: &Kind) {
        self.owned.insert(kind.clone());
    }

    /// Declares verbs of writes. For an owned kind, they replace the default verbs.
    pub(crate) fn writes(&mut self, kind: &Kind, verbs: &[&str]) {
        let known = self.written.entry(kind.clone()).or_default();
        known.extend(verbs.iter().map(|verb| (*verb).to_owned()));
    }

    /// Sets the name, the root kind and the caches, which are known when the controller is built.
    pub(crate) fn complete<'c>(
        &mut self,
        controller: &str,
        root: &Kind,
        caches: impl Iterator<Item = &'c Scope>,
    ) {
        controller.clone_into(&mut self.controller);
        self.root = (!root.plural.is_empty()).then(|| root.clone());
        for Scope { kind, namespaces, .. } in caches {
            let known = self.caches.entry(kind.clone()).or_default();
            for namespace in namespaces.iter().map(|namespace| &**namespace) {
                if !known.iter().any(|known| known == namespace) {
                    known.push(namespace.to_owned());
                }
            }
        }
    }
}

/// Returns the permissions of an operator, from the function that builds it. It needs no cluster: its client has no server, and
/// it opens no ports. Call it inside a tokio runtime.
///
/// ```no_run
/// use evenkeel_runtime::{manager::BuildError, prelude::*, permissions};
/// use k8s_openapi::api::core::v1::{ConfigMap, Secret};
///
/// fn operator(kube: kube::Client, setup: Setup) -> Result<Manager, BuildError> {
///     let manager = Manager::builder(kube).setup(setup).leader_election_id("copier").build()?;
///     manager
///         .controller::<ConfigMap>()
///         .owns::<Secret>()
///         .reconcile(async |_map: Arc<ConfigMap>, _cx: Context| Ok(Outcome::Settled));
///     Ok(manager)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), BuildError> {
/// // With the argument `rbac`:
/// print!("{}", permissions::of(operator)?.in_namespace("copier").manifest("copier"));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Fails as `operator` does.
pub fn of<E>(
    operator: impl FnOnce(kube::Client, Setup) -> Result<Manager, E>,
) -> Result<Permissions, E> {
    let no_server = tower::service_fn(|request: Request<Body>| {
        let path = request.uri().path().to_owned();
        async move { Err::<Response<Body>, BoxError>(format!("{path}: there is no server").into()) }
    });
    let kube = kube::Client::new(no_server, "default");
    Ok(operator(kube, Setup::simulated(Clock::system(), "permissions"))?.permissions())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(group: &'static str, plural: &'static str) -> Kind {
        Kind::new(group, "v1", plural, plural, true)
    }

    fn scope(kind: &Kind, namespaces: &[&str]) -> Scope {
        Scope {
            kind: kind.clone(),
            namespaces: namespaces.iter().map(|namespace| (*namespace).into()).collect(),
            labels: String::new(),
            fields: String::new(),
        }
    }

    /// Returns the rules, one per line: namespace, group, resource, name, verbs.
    fn lines(permissions: &Permissions) -> Vec<String> {
        let line = |PolicyRule { namespace, group, resource, name, verbs }: &PolicyRule| {
            let name = if name.is_empty() { String::new() } else { format!(" {name}") };
            format!("{namespace}|{group}/{resource}{name}: {}", verbs.join(" "))
        };
        permissions.rules().iter().map(line).collect()
    }

    #[test]
    fn declarations_become_rules_of_their_namespaces() {
        let (sites, maps, secrets) = (kind("x.io", "sites"), kind("", "maps"), kind("", "secrets"));
        let mut declared = DeclaredAccess::default();
        declared.owns(&maps);
        declared.owns(&secrets);
        declared.writes(&secrets, &["create", "patch"]);
        let scopes = [scope(&sites, &[""]), scope(&maps, &["a", "b"]), scope(&secrets, &[""])];
        declared.complete("site", &sites, scopes.iter());
        let mut permissions = Permissions::of_namespace("own");
        permissions.add_declared(&declared);
        permissions.add_own("coordination.k8s.io", "leases", "site", &["get", "update"]);
        assert_eq!(
            lines(&permissions),
            [
                "|/events: create patch",
                "|/secrets: create get list patch watch",
                "|x.io/sites: get list watch",
                "|x.io/sites/finalizers: update",
                "|x.io/sites/status: get patch update",
                "a|/maps: create delete get list patch update watch",
                "b|/maps: create delete get list patch update watch",
                "own|coordination.k8s.io/leases site: get update",
            ]
        );
        let fewer = permissions.without("", "secrets", "patch").without("", "events", "create");
        let fewer = lines(&fewer.without("", "events", "patch").in_namespace("other"));
        assert_eq!(fewer[0], "|/secrets: create get list watch");
        assert_eq!(fewer.last().unwrap(), "other|coordination.k8s.io/leases site: get update");
    }

    #[test]
    fn a_manifest_has_a_role_for_each_namespace() {
        let mut permissions =
            Permissions::of_namespace("own").and("", "apps", "deployments", &["get", "list"]);
        permissions.add_own("", "secrets", "tls", &["get"]);
        let binding = |kind: &str| {
            format!(
                "roleRef:\n  apiGroup: rbac.authorization.k8s.io\n  kind: {kind}\n  name: \"op\"\nsubjects:\n- kind: ServiceAccount\n  name: \"op\"\n  namespace: \"own\"\n"
            )
        };
        let head = "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ";
        let expected = [
            "apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: \"op\"\n  namespace: \"own\"\n",
            head,
            "ClusterRole\nmetadata:\n  name: \"op\"\nrules:\n- apiGroups: [\"apps\"]\n  resources: [\"deployments\"]\n  verbs: [\"get\", \"list\"]\n",
            head,
            "ClusterRoleBinding\nmetadata:\n  name: \"op\"\n",
            &binding("ClusterRole"),
            head,
            "Role\nmetadata:\n  name: \"op\"\n  namespace: \"own\"\nrules:\n- apiGroups: [\"\"]\n  resources: [\"secrets\"]\n  resourceNames: [\"tls\"]\n  verbs: [\"get\"]\n",
            head,
            "RoleBinding\nmetadata:\n  name: \"op\"\n  namespace: \"own\"\n",
            &binding("Role"),
        ];
        assert_eq!(permissions.manifest("op"), expected.concat());
    }
}
