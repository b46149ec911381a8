//! Metrics of ResourceClaims: a counter of creations, and gauges of claims by state.

use super::{
    Claim,
    plan::{POD_CLAIM, wants_admin_access},
};
use crate::newer_kinds::ResourceClaim;
use evenkeel_api::View as _;
use evenkeel_runtime::{cache::Cache, metrics};
use prometheus::{
    IntCounterVec, IntGaugeVec, Opts, Registry,
    core::{Collector, Desc},
    proto::MetricFamily,
};

/// Annotation of claims that the scheduler creates for extended resources.
const EXTENDED_RESOURCE_CLAIM: &str = "resource.kubernetes.io/extended-resource-claim";

/// Counters of the controller.
pub(super) struct Metrics {
    creates: IntCounterVec,
}

impl Metrics {
    pub(super) fn new(registry: &Registry, claims: &Cache<Claim>) -> Self {
        let help = "Number of ResourceClaims creation requests, categorized by creation status, admin access, and owning API group and kind (either Pod or scheduling.k8s.io/PodGroup)";
        let labels = ["status", "admin_access", "owner_api_group", "owner_api_kind"];
        let name = "dynamic_resource_allocation_resourceclaim_creates_total";
        metrics::register(registry, ClaimGauge::of(claims));
        Self { creates: metrics::counters(registry, name, help, &labels) }
    }

    /// Counts a request to create a claim.
    pub(super) fn count_creation(&self, claim: &ResourceClaim, succeeded: bool) {
        let status = if succeeded { "success" } else { "failure" };
        self.creates.with_label_values(&[status, admin_access(claim), "", "Pod"]).inc();
    }
}

/// Returns the value of the label `admin_access`.
fn admin_access(claim: &ResourceClaim) -> &'static str {
    if wants_admin_access(claim.spec.as_ref()) { "true" } else { "false" }
}

/// Returns the value of the label `source`.
fn source(claim: &Claim) -> &'static str {
    let annotations = &claim.meta().annotations;
    if annotations.get(EXTENDED_RESOURCE_CLAIM) == Some("true") {
        "extended_resource"
    } else if annotations.get(POD_CLAIM).is_some_and(|name| !name.is_empty()) {
        "resource_claim_template"
    } else {
        ""
    }
}

/// Collector of the gauge of claims by state. It counts the cached claims at each scrape.
#[derive(Clone)]
struct ClaimGauge {
    claims: Cache<Claim>,
    desc: Desc,
}

/// Name of the gauge of claims.
const GAUGE_NAME: &str = "dynamic_resource_allocation_resource_claims";
/// Help text of the gauge.
const GAUGE_HELP: &str = "Number of ResourceClaims, categorized by allocation status, admin access, and source. Source can be 'resource_claim_template' (created from a template), 'extended_resource' (extended resources), or empty (manually created by a user).";
const GAUGE_LABELS: [&str; 3] = ["allocated", "admin_access", "source"];

impl ClaimGauge {
    fn of(claims: &Cache<Claim>) -> Self {
        let labels = GAUGE_LABELS.map(str::to_owned).to_vec();
        let desc = Desc::new(
            GAUGE_NAME.to_owned(),
            GAUGE_HELP.to_owned(),
            labels,
            std::collections::HashMap::new(),
        )
        .expect("name and labels are valid literals");
        Self { claims: claims.clone(), desc }
    }
}

impl Collector for ClaimGauge {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let gauge = IntGaugeVec::new(Opts::new(GAUGE_NAME, GAUGE_HELP), &GAUGE_LABELS)
            .expect("name and labels are valid literals");
        for claim in self.claims.list() {
            let allocated = claim.status.as_ref().is_some_and(|status| status.allocation.is_some());
            let allocated = if allocated { "true" } else { "false" };
            gauge.with_label_values(&[allocated, admin_access(&claim), source(&claim)]).inc();
        }
        gauge.collect()
    }
}
