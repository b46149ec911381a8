//! Interceptors of tests: they make chosen requests of a client fail.
//!
//! Upstream: `interceptor.Funcs` of controller-runtime.

use evenkeel_runtime::client::{ApiCall, Intercepted, Interceptor, Status};
use std::{
    fmt,
    ops::RangeInclusive,
    sync::atomic::{AtomicU32, Ordering},
};

/// Function that decides about the nth request of a rule.
type Decide = Box<dyn Fn(&ApiCall<'_>, u32) -> Intercepted + Send + Sync>;

/// Rules about the requests of a client. The first rule that matches a request decides about it. All other requests are
/// sent.
///
/// ```
/// use evenkeel_test::{Funcs, TestServer};
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kube::{Api, api::{Patch, PatchParams}};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> anyhow::Result<()> {
/// let server = TestServer::start().await?;
/// let funcs = Funcs::new().fail("patch", "configmaps", 1..=1, Funcs::conflict());
/// let maps: Api<ConfigMap> = Api::default_namespaced(server.intercepted(funcs));
/// let map: ConfigMap = serde_json::from_value(serde_json::json!({
///     "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"},
/// }))?;
/// let (parameters, patch) = (PatchParams::apply("test"), Patch::Apply(&map));
/// let refused = maps.patch("settings", &parameters, &patch).await.unwrap_err();
/// assert!(matches!(refused, kube::Error::Api(status) if status.code == 409));
/// maps.patch("settings", &parameters, &patch).await?;
/// # Ok(())
/// # }
/// ```
#[doc(alias = "interceptor.Funcs")]
#[derive(Default)]
#[must_use = "rules do nothing until a client has them"]
pub struct Funcs {
    rules: Vec<Rule>,
}

/// Rule that decides about requests with a verb and a resource.
struct Rule {
    verb: String,
    resource: String,
    /// Number of requests that the rule matched.
    seen: AtomicU32,
    decide: Decide,
}

impl Funcs {
    /// Returns an interceptor without rules, which lets all requests pass.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a rule: `decide` gets each request with this verb for this resource, and its number, which begins with 1. `verb`
    /// is one of RBAC, or `*`. `resource` has group and sub-resource, such as `deployments.apps/status`, or is `*`.
    pub fn on(
        mut self,
        verb: &str,
        resource: &str,
        decide: impl Fn(&ApiCall<'_>, u32) -> Intercepted + Send + Sync + 'static,
    ) -> Self {
        self.rules.push(Rule {
            verb: verb.to_owned(),
            resource: resource.to_owned(),
            seen: AtomicU32::new(0),
            decide: Box::new(decide),
        });
        self
    }

    /// Makes the requests with these numbers fail, such as the third one: `3..=3`.
    pub fn fail(
        self,
        verb: &str,
        resource: &str,
        requests: RangeInclusive<u32>,
        status: Status,
    ) -> Self {
        self.on(verb, resource, move |_, number| {
            if requests.contains(&number) {
                Intercepted::Fail(status.clone())
            } else {
                Intercepted::Pass
            }
        })
    }

    /// Returns the error of a write whose object has another version.
    pub fn conflict() -> Status {
        let message = "the object has been modified; please apply your changes to the latest version and try again";
        failure(409, "Conflict", message)
    }

    /// Returns the error of a request without permission.
    pub fn forbidden() -> Status {
        failure(403, "Forbidden", "forbidden by a test")
    }

    /// Returns the error of a server with an internal error.
    pub fn internal_error() -> Status {
        failure(500, "InternalError", "an internal error of a test")
    }
}

fn failure(code: u16, reason: &str, message: &str) -> Status {
    Status { code, reason: reason.into(), message: message.into(), ..Status::default() }
}

impl Interceptor for Funcs {
    fn intercept(&self, call: &ApiCall<'_>) -> Intercepted {
        let resource = full_resource(call);
        let Some(rule) = self.rules.iter().find(|rule| rule.matches(call.verb, &resource)) else {
            return Intercepted::Pass;
        };
        let number = rule.seen.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        (rule.decide)(call, number)
    }
}

impl Rule {
    fn matches(&self, verb: &str, resource: &str) -> bool {
        (self.verb == "*" || self.verb == verb)
            && (self.resource == "*" || self.resource == resource)
    }
}

/// Returns a resource with its group and sub-resource, such as `deployments.apps/status`.
fn full_resource(call: &ApiCall<'_>) -> String {
    let mut resource = call.resource.to_owned();
    for (separator, part) in [('.', call.group), ('/', call.subresource)] {
        if !part.is_empty() {
            resource.push(separator);
            resource.push_str(part);
        }
    }
    resource
}

impl fmt::Debug for Funcs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules = self.rules.iter().map(|rule| format!("{} {}", rule.verb, rule.resource));
        f.debug_list().entries(rules).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_that_matches_decides() {
        let funcs = Funcs::new()
            .fail("update", "deployments.apps/status", 2..=3, Funcs::conflict())
            .fail("*", "secrets", 1..=1, Funcs::forbidden())
            .on("get", "*", |call, number| {
                Intercepted::Disconnect(format!("{} {number}", call.name))
            });
        let code = |verb, group, resource, subresource| {
            let body = Default::default();
            let call = ApiCall {
                verb,
                group,
                version: "v1",
                resource,
                namespace: "default",
                name: "web",
                subresource,
                body: &body,
            };
            match funcs.intercept(&call) {
                Intercepted::Pass => "pass".to_owned(),
                Intercepted::Fail(status) => status.code.to_string(),
                Intercepted::Disconnect(reason) => reason,
                Intercepted::Answer(object) => object.to_string(),
            }
        };
        let updates: Vec<String> =
            (0..4).map(|_| code("update", "apps", "deployments", "status")).collect();
        assert_eq!(updates, ["pass", "409", "409", "pass"]);
        assert_eq!(code("update", "apps", "deployments", ""), "pass");
        assert_eq!([0, 1].map(|_| code("get", "", "secrets", "")), ["403", "pass"]);
        assert_eq!([0, 1].map(|_| code("get", "", "pods", "log")), ["web 1", "web 2"]);
    }
}
