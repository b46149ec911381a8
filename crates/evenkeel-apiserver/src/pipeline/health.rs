//! Health checks: all of them at `/healthz`, `/livez` and `/readyz`, and each single check at a path below these.

use std::collections::BTreeSet;

use evenkeel_apimachinery::status::quote;
use http::{Response, StatusCode};

use crate::metrics::Metrics;
use crate::request::Query;
use crate::response::{Body, plain_text, plain_text_nosniff};

const ROOTS: [&str; 3] = ["healthz", "livez", "readyz"];

/// Health checks in upstream's order. Checks of components that this server does not have always pass.
const CHECKS: &[&str] = &[
    "ping",
    "log",
    LOOPBACK,
    ETCD,
    KMS,
    STORAGE,
    "informer-sync",
    "poststarthook/start-apiserver-admission-initializer",
    "poststarthook/generic-apiserver-start-informers",
    "poststarthook/priority-and-fairness-config-consumer",
    "poststarthook/priority-and-fairness-filter",
    "poststarthook/storage-object-count-tracker-hook",
    "poststarthook/start-apiextensions-informers",
    "poststarthook/start-apiextensions-controllers",
    "poststarthook/crd-informer-synced",
    "poststarthook/start-system-namespaces-controller",
    "poststarthook/peer-endpoint-reconciler-controller",
    "poststarthook/start-cluster-authentication-info-controller",
    "poststarthook/start-kube-apiserver-identity-lease-controller",
    "poststarthook/start-kube-apiserver-identity-lease-garbage-collector",
    "poststarthook/storage-readiness",
    "poststarthook/start-legacy-token-tracking-controller",
    "poststarthook/start-service-ip-repair-controllers",
    "poststarthook/rbac/bootstrap-roles",
    "poststarthook/scheduling/bootstrap-system-priority-classes",
    "poststarthook/priority-and-fairness-config-producer",
    "poststarthook/bootstrap-controller",
    "poststarthook/start-kubernetes-service-cidr-controller",
    "poststarthook/start-kube-aggregator-informers",
    "poststarthook/apiservice-status-local-available-controller",
    "poststarthook/apiservice-status-remote-available-controller",
    "poststarthook/apiservice-registration-controller",
    "poststarthook/apiservice-discovery-controller",
    "poststarthook/kube-apiserver-autoregistration",
    "autoregister-completion",
    "poststarthook/apiservice-openapi-controller",
    "poststarthook/apiservice-openapiv3-controller",
    TASKS,
    "shutdown",
];

/// Check that fails while etcd does not respond, if the store is in etcd.
const ETCD: &str = "etcd";
/// Check that fails while the store refuses writes. Only readiness has it: reads still work, and a restart would not
/// help.
const STORAGE: &str = "etcd-readiness";
/// Check that fails while a KMS plugin is not healthy, if there is one.
const KMS: &str = "kms-providers";
/// Check of the certificate for the server's connections to itself, which readiness does not have.
const LOOPBACK: &str = "loopback-serving-certificate";
/// Check of the server's background tasks, which upstream checks as separate hooks. It is only listed while it fails.
const TASKS: &str = "tasks";

/// Checks of readiness only: they decide whether the server takes requests.
const READINESS_ONLY: [&str; 3] = [STORAGE, "informer-sync", "shutdown"];

fn checks(root: &str) -> impl Iterator<Item = &'static str> {
    let ready = root == "readyz";
    CHECKS.iter().copied().filter(move |check| match *check {
        LOOPBACK => !ready,
        check => ready || !READINESS_ONLY.contains(&check),
    })
}

/// Returns the root and the check that a path names. An empty check means all checks.
pub(super) fn parse_path(path: &str) -> Option<(&'static str, &str)> {
    ROOTS.into_iter().find_map(|root| {
        let rest = path.strip_prefix('/')?.strip_prefix(root)?;
        match rest.strip_prefix('/') {
            // A slash without the name of a check is not served.
            Some("") => None,
            Some(check) => Some((root, check)),
            None => rest.is_empty().then_some((root, "")),
        }
    })
}

/// Returns all health check paths.
pub(super) fn paths() -> impl Iterator<Item = String> {
    ROOTS.into_iter().flat_map(|root| {
        let single = checks(root).filter(|check| !matches!(*check, KMS | TASKS));
        let single = single.map(move |check| format!("/{root}/{check}"));
        std::iter::once(format!("/{root}")).chain(single)
    })
}

/// Results of the checks that can fail.
pub(super) struct Results {
    /// Whether etcd responds, or the reason why it does not.
    pub(super) etcd: Result<(), String>,
    /// Whether the KMS plugins are healthy; `None` without plugins.
    pub(super) kms: Option<Result<(), String>>,
    /// Whether the store accepts writes.
    pub(super) storage: Result<(), String>,
    /// Whether the server's background tasks run.
    pub(super) tasks: Result<(), String>,
}

impl Results {
    fn of(&self, check: &str) -> Result<(), &str> {
        let result = match check {
            ETCD => &self.etcd,
            KMS => self.kms.as_ref().unwrap_or(&Ok(())),
            STORAGE => &self.storage,
            TASKS => &self.tasks,
            _ => return Ok(()),
        };
        result.as_ref().copied().map_err(String::as_str)
    }
}

/// Runs one check or all checks of a root. Returns `None` for an unknown check.
pub(super) fn serve(
    metrics: &Metrics,
    root: &'static str,
    check: &str,
    query: &Query,
    results: &Results,
) -> Option<Response<Body>> {
    let run = |check: &'static str| {
        let result = results.of(check);
        metrics.record_health_check(root, check, result.is_ok());
        result.inspect_err(|reason| tracing::info!(check, reason, "health check failed"))
    };
    let is_served = |check: &&str| *check != KMS || results.kms.is_some();
    if !check.is_empty() {
        return Some(match run(checks(root).filter(is_served).find(|known| *known == check)?) {
            Ok(()) => plain_text(StatusCode::OK, "ok".to_owned()),
            Err(reason) => failed(format!("internal server error: {reason}\n")),
        });
    }
    let mut excluded: BTreeSet<&str> = query.all("exclude").collect();
    let (mut out, mut passed) = (String::new(), true);
    for check in checks(root).filter(is_served) {
        if excluded.remove(check) {
            out.push_str(&format!("[+]{check} excluded: ok\n"));
        } else if run(check).is_ok() {
            if check != TASKS {
                out.push_str(&format!("[+]{check} ok\n"));
            }
        } else {
            passed = false;
            out.push_str(&format!("[-]{check} failed: reason withheld\n"));
        }
    }
    if !excluded.is_empty() {
        let names: Vec<String> = excluded.into_iter().map(quote).collect();
        let names = names.join(",");
        out.push_str(&format!(
            "warn: some health checks cannot be excluded: no matches for {names}\n"
        ));
    }
    if !passed {
        out.push_str(&format!("{root} check failed\n"));
        return Some(failed(out));
    }
    if !query.has("verbose") {
        return Some(plain_text_nosniff(StatusCode::OK, "ok".to_owned()));
    }
    out.push_str(&format!("{root} check passed\n"));
    Some(plain_text_nosniff(StatusCode::OK, out))
}

/// Returns the response of a failed check, or of a root with a failed check.
fn failed(reason: String) -> Response<Body> {
    plain_text_nosniff(StatusCode::INTERNAL_SERVER_ERROR, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Results {
        Results { etcd: Ok(()), kms: None, storage: Ok(()), tasks: Ok(()) }
    }

    #[test]
    fn paths_name_a_root_and_a_check() {
        assert_eq!(parse_path("/readyz"), Some(("readyz", "")));
        assert_eq!(
            parse_path("/livez/poststarthook/rbac/bootstrap-roles"),
            Some(("livez", "poststarthook/rbac/bootstrap-roles"))
        );
        assert_eq!((parse_path("/healthzz"), parse_path("/apis")), (None, None));
    }

    #[test]
    fn a_store_that_refuses_writes_is_not_ready() {
        let (metrics, query) = (Metrics::default(), Query(Vec::new()));
        let full = Results { storage: Err("the disk is full".to_owned()), ..good() };
        let code = |root, check, query| {
            serve(&metrics, root, check, query, &full).map(|response| response.status().as_u16())
        };
        assert_eq!(code("readyz", "", &query), Some(500));
        assert_eq!(code("readyz", STORAGE, &query), Some(500));
        assert_eq!(code("readyz", "ping", &query), Some(200));
        assert_eq!(code("livez", "", &query), Some(200));
        let excluded = Query(vec![("exclude".into(), STORAGE.into())]);
        assert_eq!(code("readyz", "", &excluded), Some(200));
        let text = metrics.render_checks();
        let failed = "kubernetes_healthcheck{name=\"etcd-readiness\",type=\"readyz\"} 0\n";
        assert!(text.contains(failed), "{text}");
    }

    #[test]
    fn what_is_asked_is_counted() {
        let metrics = Metrics::default();
        let query = Query(Vec::new());
        assert!(serve(&metrics, "livez", "ping", &query, &good()).is_some());
        assert!(serve(&metrics, "livez", "shutdown", &query, &good()).is_none());
        assert!(serve(&metrics, "livez", "", &query, &good()).is_some());
        let text = metrics.render_checks();
        assert!(
            text.contains("kubernetes_healthcheck{name=\"ping\",type=\"livez\"} 1\n"),
            "{text}"
        );
        let total =
            "kubernetes_healthchecks_total{name=\"ping\",status=\"success\",type=\"livez\"} 2\n";
        assert!(text.contains(total), "{text}");
        assert!(!text.contains("shutdown"), "{text}");
    }

    #[test]
    fn a_failed_task_fails_its_check_and_the_whole() {
        let (metrics, query) = (Metrics::default(), Query(Vec::new()));
        let why = "task \"expiry of events\" failed: panic: no reason";
        let failed = Results { tasks: Err(why.to_owned()), ..good() };
        for root in ROOTS {
            for (check, status) in [("", 500), ("tasks", 500), ("ping", 200)] {
                let answer = serve(&metrics, root, check, &query, &failed).expect("a check");
                assert_eq!(answer.status(), status, "{root}/{check}");
            }
            let query = Query(vec![("exclude".into(), "tasks".into())]);
            let answer = serve(&metrics, root, "", &query, &failed).expect("a check");
            assert_eq!(answer.status(), 200);
        }
        let text = metrics.render_checks();
        for line in [
            "kubernetes_healthcheck{name=\"tasks\",type=\"readyz\"} 0\n",
            "kubernetes_healthchecks_total{name=\"tasks\",status=\"error\",type=\"readyz\"} 2\n",
            "kubernetes_healthcheck{name=\"ping\",type=\"readyz\"} 1\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}
