//! `/metrics` and `/metrics/slis` of a program. The metrics of its registry are filtered and described by
//! upstream's stability rules and the metrics flags (KEP-1209, KEP-2305, KEP-3466).

mod catalog;
mod controllers;
mod policy;
mod slis;

pub use controllers::RunningControllers;
pub use evenkeel_runtime::metrics::process::register as register_process;

use crate::secure_serving::Routes;
use crate::{features::Versions, options::MetricsOptions, version};
use bytes::Bytes;
use evenkeel_runtime::{
    health::Health,
    metrics::{answer, int_gauges},
};
use http::{HeaderMap, Response};
use policy::Policy;
use prometheus::{Registry, proto::MetricFamily};
use slis::Slis;
use std::sync::Arc;

/// Exposition of a program's metrics. Clones share it.
#[derive(Clone)]
pub struct Exposition {
    registry: Registry,
    policy: Arc<Policy>,
    slis: Slis,
}

impl Exposition {
    /// Exposes `registry`. `table` contains the stability of upstream's metrics, with the columns `metric`,
    /// `type`, `stability`, `deprecated`, `labels`, `buckets`. A metric that the table lacks is the program's
    /// own.
    pub fn new(registry: &Registry, table: &'static str, options: &MetricsOptions) -> Self {
        Self {
            registry: registry.clone(),
            policy: Arc::new(Policy::new(catalog::parse(table), options)),
            slis: Slis::new(),
        }
    }

    /// Observes health checks, for `kubernetes_healthcheck` and `kubernetes_healthchecks_total`.
    pub fn observe_health(&self, health: &Health) {
        let slis = self.slis.clone();
        health.observe(move |name, path, passed| slis.record(name, path, passed));
    }

    /// Adds the routes `/metrics` and `/metrics/slis`.
    #[must_use]
    pub fn routes(&self, routes: Routes) -> Routes {
        let (metrics, slis) = (self.clone(), self.clone());
        routes
            .get("/metrics", move |request| metrics.answer(request.headers()))
            .get("/metrics/slis", move |request| slis.answer_slis(request.headers()))
    }

    /// Returns the response of `/metrics`.
    pub fn answer(&self, headers: &HeaderMap) -> Response<Bytes> {
        answer(headers, &self.families())
    }

    /// Returns the response of `/metrics/slis`.
    pub fn answer_slis(&self, headers: &HeaderMap) -> Response<Bytes> {
        answer(headers, &self.policy.described(self.slis.gather()))
    }

    /// Returns the families of `/metrics`, sorted by name.
    pub fn families(&self) -> Vec<MetricFamily> {
        self.policy.apply(self.registry.gather())
    }
}

/// Registers `kubernetes_build_info` and `version_info`. Unknown details of the build are empty.
pub fn register_build(registry: &Registry, versions: Versions) {
    let build = int_gauges(
        registry,
        "kubernetes_build_info",
        "1, with what the program was built from and for which platform.",
        &[
            "major",
            "minor",
            "git_version",
            "git_commit",
            "git_tree_state",
            "build_date",
            "go_version",
            "compiler",
            "platform",
        ],
    );
    let platform = version::platform();
    let labels = ["1", "37", version::reported(), "", "", "", "", "rustc", &platform];
    build.with_label_values(&labels).set(1);
    let info = int_gauges(
        registry,
        "version_info",
        "1, with the versions that the program is, emulates, and is compatible with.",
        &["component", "binary", "emulation", "min_compat"],
    );
    let emulated = versions.emulated.to_string();
    let compatible = versions.min_compatibility.to_string();
    let binary = version::RELEASE.trim_start_matches('v');
    info.with_label_values(&["kube", binary, &emulated, &compatible]).set(1);
}
