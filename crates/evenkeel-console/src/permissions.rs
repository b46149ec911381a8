//! Permissions that a user needs for the content of a page. The API server decides: by its response to a read with the user's
//! token or, for data of this process, by a SelfSubjectAccessReview.

use crate::source::PageError;
use evenkeel_api::Kind;
use evenkeel_runtime::client::{ApiError, full_text};
use http::StatusCode;
use serde_json::{Value, json};

/// Path at which controllers serve their reports. Users who may read this path may see the reports in the console.
pub(crate) const CONTROLLERS: &str = "/debug/controllers";
/// Path at which programs serve their metrics. Users who may read this path may see the metrics in the console.
pub(crate) const METRICS: &str = "/metrics";

/// Permission that the API server grants or denies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Permission {
    /// A verb on a resource.
    Resource {
        /// Verb of the request.
        verb: &'static str,
        /// API group. Empty for the core group.
        group: String,
        /// Plural of the resource.
        resource: String,
        /// Namespace. Empty for all, and for cluster-scoped objects.
        namespace: String,
        /// Name of the object. Empty for all.
        name: String,
    },
    /// The verb `get` on a non-resource URL.
    Path(&'static str),
}

impl Permission {
    /// Returns the permission to list objects.
    pub(crate) fn list(kind: &Kind, namespace: &str) -> Self {
        Self::on("list", kind, namespace, "")
    }

    /// Returns the permission to list all objects.
    pub(crate) fn everything() -> Self {
        let [all, none] = ["*", ""].map(str::to_owned);
        Self::Resource {
            verb: "list",
            group: all.clone(),
            resource: all,
            namespace: none.clone(),
            name: none,
        }
    }

    /// Returns the permission to a verb on an object.
    pub(crate) fn on(verb: &'static str, kind: &Kind, namespace: &str, name: &str) -> Self {
        let [group, resource, namespace, name] =
            [&*kind.group, &kind.plural, namespace, name].map(str::to_owned);
        Self::Resource { verb, group, resource, namespace, name }
    }

    /// Returns the `spec` of a SelfSubjectAccessReview.
    pub(crate) fn spec(&self) -> Value {
        match self {
            Self::Resource { verb, group, resource, namespace, name } => json!({
                "resourceAttributes": {
                    "verb": verb, "group": group, "resource": resource, "namespace": namespace, "name": name,
                },
            }),
            Self::Path(path) => json!({"nonResourceAttributes": {"verb": "get", "path": path}}),
        }
    }

    /// Returns the error for a user without the permission. It names the role that grants the permission.
    pub(crate) fn refusal(&self, user: &str) -> PageError {
        let message = match self {
            Self::Resource { verb, group, resource, namespace, name } => {
                let dot = if group.is_empty() { "" } else { "." };
                let object = if name.is_empty() { String::new() } else { format!(" {name}") };
                let (place, role) = match &**namespace {
                    "" => (String::new(), "ClusterRole"),
                    namespace => (format!(" in namespace {namespace}"), "Role"),
                };
                format!(
                    "User {user} may not {verb} {resource}{dot}{group}{object}{place}. A {role} with this verb and \
                     resource, bound to the user, allows it."
                )
            }
            Self::Path(path) => format!(
                "User {user} may not get {path}. A ClusterRole with the verb get for the nonResourceURL {path}, bound to \
                 the user, allows it."
            ),
        };
        PageError { status: StatusCode::FORBIDDEN, message }
    }

    /// Returns the reason why the API server refuses a request that needs the permission. `user` is the name of its sender; `None`
    /// for the cluster's administrator.
    pub(crate) fn error(&self, user: Option<&str>, error: &ApiError) -> PageError {
        match (error.code(), user) {
            (403, Some(user)) => self.refusal(user),
            (401, Some(user)) => PageError {
                status: StatusCode::UNAUTHORIZED,
                message: format!(
                    "The token of user {user} is no longer valid. Log in with another one."
                ),
            },
            (code, _) => {
                let status = StatusCode::from_u16(code).ok().filter(StatusCode::is_client_error);
                let status = status.unwrap_or(StatusCode::BAD_GATEWAY);
                PageError {
                    status,
                    message: format!("The API server answers: {}", full_text(error)),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PODS: Kind = Kind::new("", "v1", "Pod", "pods", true);

    #[test]
    fn a_refusal_names_user_verb_and_place() {
        let deployments = Kind::new("apps", "v1", "Deployment", "deployments", true);
        for (permission, want) in [
            (
                Permission::list(&PODS, "shop"),
                "User ann may not list pods in namespace shop. A Role ",
            ),
            (Permission::list(&PODS, ""), "User ann may not list pods. A ClusterRole "),
            (
                Permission::on("get", &deployments, "shop", "web"),
                "User ann may not get deployments.apps web in namespace shop. ",
            ),
            (
                Permission::Path(CONTROLLERS),
                "User ann may not get /debug/controllers. A ClusterRole ",
            ),
        ] {
            let refusal = permission.refusal("ann");
            assert_eq!(refusal.status, StatusCode::FORBIDDEN);
            assert!(refusal.message.starts_with(want), "{}", refusal.message);
        }
    }

    #[test]
    fn reviews_have_the_attributes_of_the_request() {
        let spec = Permission::on("patch", &PODS, "shop", "web").spec();
        let want = json!({"verb": "patch", "group": "", "resource": "pods", "namespace": "shop", "name": "web"});
        assert_eq!(spec["resourceAttributes"], want);
        let spec = Permission::Path(METRICS).spec();
        assert_eq!(spec["nonResourceAttributes"], json!({"verb": "get", "path": "/metrics"}));
    }
}
