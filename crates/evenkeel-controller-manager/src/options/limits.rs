//! Upstream's limits on the values of controllers' flags, with upstream's messages. They also apply to
//! controllers that are not implemented.

use evenkeel_component::flags::{Reader, Value, duration};
use std::time::Duration;

/// Flags with a number of workers. Upstream only checks some of them; with an invalid value of another, it runs
/// the controller without workers.
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

/// Flags with a maximum.
const RANGES: [(&str, i64); 4] = [
    ("concurrent-service-endpoint-syncs", 50),
    ("max-endpoints-per-slice", 1000),
    ("mirroring-concurrent-service-endpoint-syncs", 50),
    ("mirroring-max-endpoints-per-subset", 1000),
];

/// Pairs of files that must be set together: upstream's name, and the prefix of the flags.
const SIGNERS: [(&str, &str); 4] = [
    ("cluster-signing-kubelet-serving", "cluster-signing-kubelet-serving"),
    ("cluster-signing-kube-apiserver-client", "cluster-signing-kubelet-client"),
    ("cluster-signing-kube-apiserver", "cluster-signing-kube-apiserver-client"),
    ("cluster-signing-legacy-unknown", "cluster-signing-legacy-unknown"),
];

/// Refuses values that are out of bounds. Flags that are only checked here still count as unread.
pub(super) fn check(read: &Reader) {
    let int = |flag: &str| match read.given().value(flag) {
        Some(Value::Int(value)) => value,
        _ => 0,
    };
    for flag in WORKERS {
        let value = int(flag);
        if value < 1 {
            read.refuse(flag, format!("{flag} must be greater than 0, but got {value}"));
        }
    }
    let flag = "concurrent-device-taint-eviction-syncs";
    if int(flag) < 1 {
        read.refuse(flag, format!("{flag} must be greater than zero, got {}", int(flag)));
    }
    for (flag, most) in RANGES {
        let value = int(flag);
        if value < 1 {
            read.refuse(flag, format!("{flag} must not be less than 1, but got {value}"));
        } else if value > most {
            read.refuse(flag, format!("{flag} must not be more than {most}, but got {value}"));
        }
    }
    periods(read);
    signers(read);
    cloud(read);
}

fn periods(read: &Reader) {
    let flag = "attach-detach-reconcile-sync-period";
    let value = read.given().value(flag);
    if let Some(Value::Duration(period)) = value
        && period < Duration::from_secs(1)
    {
        let given = duration::print(period);
        read.refuse(flag, format!("{flag} must be greater than one second, but got {given}"));
    }
}

fn signers(read: &Reader) {
    let given = |flag: &str| !text(read, flag).is_empty();
    let mut special = false;
    for (name, flag) in SIGNERS {
        let (certificate, key) = (format!("{flag}-cert-file"), format!("{flag}-key-file"));
        let rule = match (given(&certificate), given(&key)) {
            (false, false) => continue,
            (true, true) => None,
            (false, true) => Some("cannot specify key without cert"),
            (true, false) => Some("cannot specify cert without key"),
        };
        special = true;
        if let Some(rule) = rule {
            read.refuse(&certificate, format!("{name:?}: {rule}"));
        }
    }
    let (certificate, key) = ("cluster-signing-cert-file", "cluster-signing-key-file");
    if special && (given(certificate) || given(key)) {
        let rule = "cannot specify --cluster-signing-{cert,key}-file and other --cluster-signing-*-file flags at the same time";
        read.refuse(certificate, rule);
    }
}

fn cloud(read: &Reader) {
    let cloud = text(read, "cloud-provider");
    if !matches!(cloud.as_str(), "" | "external") {
        read.refuse("cloud-provider", format!(
            "cloud provider {cloud:?} was specified, but built-in cloud providers are disabled. \
             Please set --cloud-provider=external and migrate to an external cloud provider"
        ));
    }
    let allocator = text(read, "cidr-allocator-type");
    if !matches!(allocator.as_str(), "" | "RangeAllocator") {
        let rule = "built-in cloud providers are disabled. The ipam";
        read.refuse("cidr-allocator-type", format!("{rule} {allocator} is not available"));
    }
    let flag = "service-cluster-ip-range";
    if text(read, flag).split(',').count() > 2 {
        read.refuse(flag, format!("--{flag} can not contain more than two entries"));
    }
}

fn text(read: &Reader, flag: &str) -> String {
    match read.given().value(flag) {
        Some(Value::Text(text)) => text,
        _ => String::new(),
    }
}
