//! Comparison of upstream's metrics with those of our program.

use super::exposition::{Families, Family};
use std::collections::BTreeSet;

const TABLE: &str = include_str!("../../../../evenkeel-controller-manager/data/metrics.tsv");
const QUEUES: &str = include_str!("../../../../evenkeel-controller-manager/data/workqueues.txt");

/// Prefixes of upstream's metrics that our program may lack, each with the reason.
const ABSENT: &[(&str, &str)] = &[
    // Metrics of the API server libraries that upstream's program links: our program has nothing to count.
    ("aggregator_", "ours aggregates no discovery"),
    ("apiserver_audit_", "ours audits nothing: it serves no API"),
    ("apiserver_cel_", "ours does not measure how it checks policies"),
    ("apiserver_envelope_encryption_", "ours stores nothing"),
    ("apiserver_storage_", "ours stores nothing"),
    ("apiserver_validation_", "ours validates no objects"),
    ("apiserver_kube_aggregator_", "ours calls no aggregated APIs"),
    ("apiserver_webhooks_", "ours calls no webhooks"),
    // Only in use.
    ("leader_election_slowpath_total", "shown once a renewal had to read the lease first"),
    ("rest_client_request_retries_total", "shown once a request was sent again"),
    (
        "rest_client_exec_plugin_call_total",
        "shown with an exec plug-in; the client library does not tell",
    ),
    ("rest_client_transport_ca_reload_total", "shown once a CA was read again"),
    ("rest_client_transport_cache_gc_calls_total", "of Go's garbage collector"),
    ("rest_client_transport_cert_rotation_gc_calls_total", "of Go's garbage collector"),
    ("replicaset_controller_stale_sync_skips_total", "shown once a pass was put off"),
    ("job_controller_job_", "shown once there was a Job"),
    ("endpoint_slice_controller_", "shown once a Service with a selector was there"),
    ("endpoint_slice_mirroring_controller_", "shown once Endpoints were mirrored"),
    // Each with its controller.
    ("dynamic_resource_allocation_", "shown once there was a claim"),
    ("horizontal_pod_autoscaler_controller_", "shown once there is an autoscaler"),
    ("node_collector_", "most are by zone: shown once there is a node"),
    ("volume_operation_total_errors", "hidden since v1.36"),
    ("kubernetes_healthcheck", "in /metrics/slis, where upstream has it as well"),
    // Upstream's sources have them too. What has labels is shown with its first value.
    (
        "attach_detach_controller_attachdetach_controller_forced_detaches",
        "shown once it has counted something",
    ),
    ("attachdetach_controller_total_volumes", "shown once it has counted something"),
    ("daemonset_controller_stale_sync_skips_total", "shown once it has counted something"),
    ("job_controller_jobs_by_external_controller_total", "shown once it has counted something"),
    ("job_controller_jobs_finished_total", "shown once it has counted something"),
    (
        "job_controller_pod_failures_handled_by_failure_policy_total",
        "shown once it has counted something",
    ),
    ("job_controller_stale_sync_skips_total", "shown once it has counted something"),
    (
        "job_controller_terminated_pods_tracking_finalizer_total",
        "shown once it has counted something",
    ),
    (
        "node_ipam_controller_cidrset_allocation_tries_per_request",
        "shown with --allocate-node-cidrs",
    ),
    ("node_ipam_controller_cidrset_cidrs_allocations_total", "shown with --allocate-node-cidrs"),
    ("node_ipam_controller_cidrset_cidrs_releases_total", "shown with --allocate-node-cidrs"),
    ("node_ipam_controller_cidrset_usage_cidrs", "shown with --allocate-node-cidrs"),
    ("node_ipam_controller_cirdset_max_cidrs", "shown with --allocate-node-cidrs"),
    ("pod_gc_collector_force_delete_pod_errors_total", "shown once it has counted something"),
    ("pod_gc_collector_force_delete_pods_total", "shown once it has counted something"),
    ("pv_collector_bound_pv_count", "shown once it has counted something"),
    ("pv_collector_bound_pvc_count", "shown once it has counted something"),
    ("pv_collector_total_pv_count", "shown once it has counted something"),
    ("pv_collector_unbound_pv_count", "shown once it has counted something"),
    ("pv_collector_unbound_pvc_count", "shown once it has counted something"),
    (
        "resourcepoolstatusrequest_controller_request_processing_duration_seconds",
        "shown once it has counted something",
    ),
    (
        "resourcepoolstatusrequest_controller_request_processing_errors_total",
        "shown once it has counted something",
    ),
    (
        "resourcepoolstatusrequest_controller_requests_processed_total",
        "shown once it has counted something",
    ),
    (
        "selinux_warning_controller_selinux_volume_conflict",
        "shown with its controller, off by default",
    ),
    ("statefulset_controller_stale_sync_skips_total", "shown once it has counted something"),
    ("statefulset_controller_statefulset_max_unavailable", "shown once it has counted something"),
    (
        "statefulset_controller_statefulset_unavailable_replicas",
        "shown once it has counted something",
    ),
    ("storage_count_attachable_volumes_in_use", "shown once it has counted something"),
    ("storage_operation_duration_seconds", "shown once a volume was attached"),
    ("volume_operation_errors_total", "shown once it has counted something"),
    ("volume_operation_total_seconds", "shown once a volume was provisioned"),
];

/// Additional metrics of our program, by prefix.
const OWN: [&str; 3] = [
    "controller_runtime_",
    "evenkeel_",
    // Upstream's dashboards look for it: the number of tasks.
    "go_goroutines",
];

struct Row {
    name: &'static str,
    kind: &'static str,
    stability: &'static str,
    labels: Vec<&'static str>,
    buckets: Vec<&'static str>,
}

fn rows() -> Vec<Row> {
    let list = |text: &'static str| text.split(',').filter(|part| !part.is_empty()).collect();
    let row = |line: &'static str| {
        let mut cells = line.split('\t');
        let mut next = || cells.next().expect("six columns");
        let (name, kind, stability, _) = (next(), next(), next(), next());
        Row { name, kind, stability, labels: list(next()), buckets: list(next()) }
    };
    TABLE.lines().skip(1).map(row).collect()
}

/// Returns the differences between upstream's metrics and these.
pub(super) fn differences(families: &Families) -> Vec<String> {
    let rows = rows();
    let mut found = Vec::new();
    for row in &rows {
        match families.get(row.name) {
            Some(family) => found.extend(row.differences(family)),
            None if ABSENT.iter().any(|(start, _)| row.name.starts_with(start)) => {}
            None => found.push(format!("{}: is missing", row.name)),
        }
    }
    let ours = families.keys().filter(|name| !rows.iter().any(|row| row.name == name.as_str()));
    let ours = ours.filter(|name| !OWN.iter().any(|own| name.starts_with(own)));
    // A controller of upstream may show more series once it has values.
    let ours = ours.filter(|name| !ABSENT.iter().any(|(start, _)| name.starts_with(start)));
    found.extend(ours.map(|name| format!("{name}: is neither upstream's nor named as ours")));
    found.extend(queues(families));
    found
}

impl Row {
    fn differences(&self, family: &Family) -> Vec<String> {
        let mut found = Vec::new();
        let mut differ = |what: &str, ours: String, theirs: String| {
            if ours != theirs {
                found.push(format!("{}: {what} {ours}, upstream's {theirs}", self.name));
            }
        };
        differ("type", family.kind.clone(), self.kind.to_owned());
        let stability = family.help.strip_prefix('[').and_then(|help| help.split_once(']'));
        let stability = stability.map_or("", |(stability, _)| stability);
        differ("stability", stability.to_owned(), self.stability.to_owned());
        for sample in &family.samples {
            let labels: BTreeSet<&str> = sample
                .labels
                .iter()
                .map(|(name, _)| name.as_str())
                .filter(|l| *l != "le")
                .collect();
            // A label without a value counts as absent.
            if self.name != "kubernetes_build_info" {
                differ(
                    "labels",
                    format!("{labels:?}"),
                    format!("{:?}", self.labels.iter().collect::<BTreeSet<_>>()),
                );
            }
        }
        let first = family.samples.iter().find(|sample| sample.name.ends_with("_bucket"));
        if let Some(first) = first.filter(|_| !self.buckets.is_empty()) {
            let others = |labels: &[(String, String)]| -> Vec<(String, String)> {
                labels.iter().filter(|(name, _)| name != "le").cloned().collect()
            };
            let series = others(&first.labels);
            let bounds = family.samples.iter().filter(|s| others(&s.labels) == series);
            let bounds: Vec<&str> =
                bounds.filter_map(|s| s.label("le")).filter(|le| *le != "+Inf").collect();
            differ("buckets", bounds.join(","), self.buckets.join(","));
        }
        found
    }
}

/// Returns the names of queues that upstream does not have.
fn queues(families: &Families) -> Vec<String> {
    let known: Vec<&str> = QUEUES.lines().collect();
    let queues = families.get("workqueue_adds_total").map_or(&[][..], |family| &family.samples);
    let names = queues.iter().filter_map(|sample| sample.label("name"));
    names
        .filter(|name| !known.contains(name))
        .map(|name| format!("workqueue_adds_total: upstream has no queue {name}"))
        .collect()
}

#[test]
fn absent_metrics_are_unique_with_reasons() {
    let mut starts: Vec<&str> = ABSENT.iter().map(|(start, _)| *start).collect();
    starts.sort_unstable();
    let before = starts.len();
    starts.dedup();
    assert_eq!(before, starts.len());
    assert!(ABSENT.iter().all(|(_, reason)| !reason.is_empty()));
    assert_eq!(rows().len(), 162);
}
