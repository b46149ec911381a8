//! Upstream's limits on the values of controllers' flags, with upstream's messages. They also apply to
//! controllers that are not implemented.

use evenkeel_component::flags::{Reader, Value, duration};
use std::time::Duration;

/// Flags for a number of workers; each must be at least 1. Upstream checks only some of them: with an invalid value of
/// another one, its controller runs without workers.
const WORKERS: [&str; 18] = [
    "concurrent-daemonset-syncs",
    "concurrent-deployment-syncs",
    "concurrent-disruption-syncs",
    "concurrent-resourceclaim-syncs",
    "concurrent-statefulset-syncs",
    "concurrent-endpoint-syncs",
    "concurrent-ephemeralvolume-syncs",
    "concurrent-gc-syncs",
    "concurrent-horizontal-pod-autoscaler-syncs",
    "concurrent-job-syncs",
    "concurrent-cron-job-syncs",
    "concurrent-namespace-syncs",
    "concurrent-replicaset-syncs",
    "concurrent-rc-syncs",
    "concurrent-resource-quota-syncs",
    "concurrent-serviceaccount-token-syncs",
    "concurrent-ttl-after-finished-syncs",
    "concurrent-validating-admission-policy-status-syncs",
];

/// Flags with their maximum. The minimum of each is 1.
const MAXIMUMS: [(&str, i64); 4] = [
    ("concurrent-service-endpoint-syncs", 50),
    ("max-endpoints-per-slice", 1000),
    ("mirroring-concurrent-service-endpoint-syncs", 50),
    ("mirroring-max-endpoints-per-subset", 1000),
];

/// Signers with their own certificate and key file, which are set together: upstream's name, and the flags' prefix.
const SIGNERS: [(&str, &str); 4] = [
    ("cluster-signing-kubelet-serving", "cluster-signing-kubelet-serving"),
    ("cluster-signing-kube-apiserver-client", "cluster-signing-kubelet-client"),
    ("cluster-signing-kube-apiserver", "cluster-signing-kube-apiserver-client"),
    ("cluster-signing-legacy-unknown", "cluster-signing-legacy-unknown"),
];

/// Rejects values that are out of bounds. It reads the parsed flags directly, so that a flag that only this check reads
/// still counts as unimplemented.
pub(super) fn check(read: &Reader) {
    let int = |flag: &str| match read.parsed().value(flag) {
        Some(Value::Int(value)) => value,
        _ => 0,
    };
    for flag in WORKERS {
        let value = int(flag);
        if value < 1 {
            read.record_invalid(flag, format!("{flag} must be greater than 0, but got {value}"));
        }
    }
    let flag = "concurrent-device-taint-eviction-syncs";
    if int(flag) < 1 {
        read.record_invalid(flag, format!("{flag} must be greater than zero, got {}", int(flag)));
    }
    for (flag, max) in MAXIMUMS {
        let value = int(flag);
        if value < 1 {
            read.record_invalid(flag, format!("{flag} must not be less than 1, but got {value}"));
        } else if value > max {
            read.record_invalid(
                flag,
                format!("{flag} must not be more than {max}, but got {value}"),
            );
        }
    }
    check_reconcile_period(read);
    check_signers(read);
    check_cloud(read);
}

/// Checks the period of the attach-detach controller's reconciler: at least one second.
fn check_reconcile_period(read: &Reader) {
    let flag = "attach-detach-reconcile-sync-period";
    let value = read.parsed().value(flag);
    if let Some(Value::Duration(period)) = value
        && period < Duration::from_secs(1)
    {
        let printed = duration::print(period);
        read.record_invalid(
            flag,
            format!("{flag} must be greater than one second, but got {printed}"),
        );
    }
}

/// Checks that each signer has both files or neither, and that the common files are not combined with a signer's own.
fn check_signers(read: &Reader) {
    let is_set = |flag: &str| !text(read, flag).is_empty();
    let mut has_own_files = false;
    for (name, flag) in SIGNERS {
        let (certificate, key) = (format!("{flag}-cert-file"), format!("{flag}-key-file"));
        let rule = match (is_set(&certificate), is_set(&key)) {
            (false, false) => continue,
            (true, true) => None,
            (false, true) => Some("cannot specify key without cert"),
            (true, false) => Some("cannot specify cert without key"),
        };
        has_own_files = true;
        if let Some(rule) = rule {
            read.record_invalid(&certificate, format!("{name:?}: {rule}"));
        }
    }
    let (certificate, key) = ("cluster-signing-cert-file", "cluster-signing-key-file");
    if has_own_files && (is_set(certificate) || is_set(key)) {
        let rule = "cannot specify --cluster-signing-{cert,key}-file and other --cluster-signing-*-file flags at the same time";
        read.record_invalid(certificate, rule);
    }
}

/// Rejects built-in cloud providers and CIDR allocators, and more than two service CIDRs.
fn check_cloud(read: &Reader) {
    let cloud = text(read, "cloud-provider");
    if !matches!(cloud.as_str(), "" | "external") {
        read.record_invalid("cloud-provider", format!(
            "cloud provider {cloud:?} was specified, but built-in cloud providers are disabled. \
             Please set --cloud-provider=external and migrate to an external cloud provider"
        ));
    }
    let allocator = text(read, "cidr-allocator-type");
    if !matches!(allocator.as_str(), "" | "RangeAllocator") {
        let rule = "built-in cloud providers are disabled. The ipam";
        read.record_invalid("cidr-allocator-type", format!("{rule} {allocator} is not available"));
    }
    let flag = "service-cluster-ip-range";
    if text(read, flag).split(',').count() > 2 {
        read.record_invalid(flag, format!("--{flag} can not contain more than two entries"));
    }
}

/// Returns the value of a string flag, or an empty string if it has none.
fn text(read: &Reader, flag: &str) -> String {
    match read.parsed().value(flag) {
        Some(Value::Text(text)) => text,
        _ => String::new(),
    }
}
