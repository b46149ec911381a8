//! Printers of the core API group.

use super::cells::{
    Cells, NONE, UNKNOWN, UNSET, age, containers, count, created_at, join, labels, name, name_age,
    scalar_text, since, text_or,
};
use super::{PrintedObject, Printer, pod};
use evenkeel_apimachinery::value::{flag, get, int, list, object, text};
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub(crate) fn printer(kind: &str) -> Option<Printer> {
    Some(match kind {
        "Pod" => pod::pod,
        "ConfigMap" => config_map,
        "Endpoints" => endpoints,
        "Event" => event,
        "Namespace" => |o| vec![json!(name(o)), json!(text(o, "status.phase")), json!(age(o))],
        "Node" => node,
        "PersistentVolumeClaim" => claim,
        "PersistentVolume" => volume,
        "PodTemplate" => pod_template,
        "ReplicationController" => replication_controller,
        "ResourceQuota" => quota,
        "Secret" => |o| {
            vec![
                json!(name(o)),
                json!(text(o, "type")),
                json!(object(o, "data").map_or(0, serde_json::Map::len)),
                json!(age(o)),
            ]
        },
        "ServiceAccount" => name_age,
        "Service" => service,
        "ComponentStatus" => component_status,
        _ => created_at,
    })
}

/// Upstream: `printConfigMap`.
fn config_map(o: &PrintedObject<'_>) -> Cells {
    let keys = |field: &str| object(o, field).map_or(0, serde_json::Map::len);
    vec![json!(name(o)), json!(keys("data") + keys("binaryData")), json!(age(o))]
}

/// Upstream: `printEndpoints`.
fn endpoints(o: &PrintedObject<'_>) -> Cells {
    let mut endpoints: Vec<String> = Vec::new();
    for subset in list(o, "subsets") {
        let ips = || list(subset, "addresses").iter().map(|address| text(address, "ip"));
        if list(subset, "ports").is_empty() {
            endpoints.extend(ips().map(str::to_owned));
        }
        for port in list(subset, "ports") {
            let number = count(port, "port");
            endpoints.extend(ips().map(|ip| {
                if ip.contains(':') { format!("[{ip}]:{number}") } else { format!("{ip}:{number}") }
            }));
        }
    }
    let shown = if endpoints.is_empty() { NONE.to_owned() } else { first_three(&endpoints) };
    vec![json!(name(o)), json!(shown), json!(age(o))]
}

/// Joins the first three items of a list, followed by the number of further ones.
pub(super) fn first_three(items: &[String]) -> String {
    let shown = items.iter().take(3).map(String::as_str).collect::<Vec<_>>().join(",");
    if items.len() > 3 { format!("{shown} + {} more...", items.len() - 3) } else { shown }
}

/// Upstream: `printEvent`.
fn event(o: &PrintedObject<'_>) -> Cells {
    let first = if get(o, "firstTimestamp").is_some() {
        since(o, "firstTimestamp")
    } else {
        since(o, "eventTime")
    };
    let last = match get(o, "series") {
        Some(_) => since(o, "series.lastObservedTime"),
        None if get(o, "lastTimestamp").is_some() => since(o, "lastTimestamp"),
        None => first.clone(),
    };
    let times = int(o, "series.count").or(int(o, "count")).filter(|times| *times != 0).unwrap_or(1);
    let kind = text(o, "involvedObject.kind").to_lowercase();
    let target = match text(o, "involvedObject.name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let component = text_or(o, "source.component", text(o, "reportingComponent"));
    let source = match text_or(o, "source.host", text(o, "reportingInstance")) {
        "" => component.to_owned(),
        instance => format!("{component}, {instance}"),
    };
    vec![
        json!(last),
        json!(text(o, "type")),
        json!(text(o, "reason")),
        json!(target),
        json!(text(o, "involvedObject.fieldPath")),
        json!(source),
        json!(text(o, "message").trim()),
        json!(first),
        json!(times),
        json!(name(o)),
    ]
}

/// Upstream: `printNode`.
fn node(o: &PrintedObject<'_>) -> Cells {
    let ready =
        list(o, "status.conditions").iter().find(|condition| text(condition, "type") == "Ready");
    let mut status = match ready.map(|condition| text(condition, "status")) {
        Some("True") => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if flag(o, "spec.unschedulable") {
        status.push_str(",SchedulingDisabled");
    }
    // A role is in the key of one label, or in the value of another.
    let mut roles = BTreeSet::new();
    for (key, value) in object(o, "metadata.labels").into_iter().flatten() {
        let role = match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => role,
            None if key == "kubernetes.io/role" => value.as_str().unwrap_or_default(),
            None => continue,
        };
        if !role.is_empty() {
            roles.insert(role);
        }
    }
    let roles = if roles.is_empty() {
        NONE.to_owned()
    } else {
        roles.into_iter().collect::<Vec<_>>().join(",")
    };
    let address = |kind: &str| {
        let found =
            list(o, "status.addresses").iter().find(|address| text(address, "type") == kind);
        found.map_or(NONE, |address| text(address, "address")).to_owned()
    };
    let mut kernel = text_or(o, "status.nodeInfo.kernelVersion", UNKNOWN).to_owned();
    let architecture = text(o, "status.nodeInfo.architecture");
    if !architecture.is_empty() {
        kernel = format!("{kernel} ({architecture})");
    }
    vec![
        json!(name(o)),
        json!(status),
        json!(roles),
        json!(age(o)),
        json!(text(o, "status.nodeInfo.kubeletVersion")),
        json!(address("InternalIP")),
        json!(address("ExternalIP")),
        json!(text_or(o, "status.nodeInfo.osImage", UNKNOWN)),
        json!(kernel),
        json!(text_or(o, "status.nodeInfo.containerRuntimeVersion", UNKNOWN)),
    ]
}

/// Formats the access modes at `path` in their short forms, in upstream's order.
///
/// Upstream: `GetAccessModesAsString`.
fn access_modes(o: &Value, path: &str) -> String {
    let modes = list(o, path);
    let short_forms = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let present = short_forms.iter().filter(|(mode, _)| modes.iter().any(|listed| listed == mode));
    let shown: Vec<&str> = present.map(|(_, short_form)| *short_form).collect();
    shown.join(",")
}

fn phase(o: &Value) -> &str {
    if get(o, "metadata.deletionTimestamp").is_some() {
        "Terminating"
    } else {
        text(o, "status.phase")
    }
}

/// Returns the storage class of a volume or claim, from the beta annotation or else from the field.
///
/// Upstream: `GetPersistentVolumeClass`.
fn storage_class(o: &Value) -> &str {
    object(o, "metadata.annotations")
        .and_then(|annotations| annotations.get("volume.beta.kubernetes.io/storage-class"))
        .and_then(Value::as_str)
        .unwrap_or_else(|| text(o, "spec.storageClassName"))
}

/// Upstream: `printPersistentVolumeClaim`.
fn claim(o: &PrintedObject<'_>) -> Cells {
    let is_bound = !text(o, "spec.volumeName").is_empty();
    let (capacity, modes) = if is_bound {
        let capacity = scalar_text(get(o, "status.capacity.storage"), "0");
        (capacity, access_modes(o, "status.accessModes"))
    } else {
        (String::new(), String::new())
    };
    vec![
        json!(name(o)),
        json!(phase(o)),
        json!(text(o, "spec.volumeName")),
        json!(capacity),
        json!(modes),
        json!(storage_class(o)),
        json!(text_or(o, "spec.volumeAttributesClassName", UNSET)),
        json!(age(o)),
        json!(text_or(o, "spec.volumeMode", UNSET)),
    ]
}

/// Upstream: `printPersistentVolume`.
fn volume(o: &PrintedObject<'_>) -> Cells {
    let claim = match get(o, "spec.claimRef") {
        Some(claim) => format!("{}/{}", text(claim, "namespace"), text(claim, "name")),
        None => String::new(),
    };
    vec![
        json!(name(o)),
        json!(scalar_text(get(o, "spec.capacity.storage"), "0")),
        json!(access_modes(o, "spec.accessModes")),
        json!(text(o, "spec.persistentVolumeReclaimPolicy")),
        json!(phase(o)),
        json!(claim),
        json!(storage_class(o)),
        json!(text_or(o, "spec.volumeAttributesClassName", UNSET)),
        json!(text(o, "status.reason")),
        json!(age(o)),
        json!(text_or(o, "spec.volumeMode", UNSET)),
    ]
}

/// Upstream: `printPodTemplate`.
fn pod_template(o: &PrintedObject<'_>) -> Cells {
    let [names, images] = containers(get(o, "template.spec"));
    vec![json!(name(o)), json!(names), json!(images), json!(labels(o, "template.metadata.labels"))]
}

/// Upstream: `printReplicationController`.
fn replication_controller(o: &PrintedObject<'_>) -> Cells {
    super::workloads::replicas(o, &labels(o, "spec.selector"))
}

/// Upstream: `printResourceQuota`.
fn quota(o: &PrintedObject<'_>) -> Cells {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for (resource, hard) in object(o, "status.hard").into_iter().flatten() {
        let used = object(o, "status.used").and_then(|used| used.get(resource));
        let cell =
            format!("{resource}: {}/{}", scalar_text(used, "0"), scalar_text(Some(hard), "0"));
        if resource.starts_with("limits.") { limits.push(cell) } else { requests.push(cell) }
    }
    vec![json!(name(o)), json!(requests.join(", ")), json!(limits.join(", ")), json!(age(o))]
}

/// Returns the sorted addresses of a load balancer, without duplicates.
///
/// Upstream: `loadBalancerStatusStringer`.
pub(super) fn load_balancer(o: &Value) -> String {
    let addresses: BTreeSet<&str> = list(o, "status.loadBalancer.ingress")
        .iter()
        .map(|ingress| text_or(ingress, "ip", text(ingress, "hostname")))
        .filter(|address| !address.is_empty())
        .collect();
    addresses.into_iter().collect::<Vec<_>>().join(",")
}

/// Formats the addresses at which a Service is reachable from outside the cluster.
///
/// Upstream: `getServiceExternalIP`.
fn external_ip(o: &Value) -> String {
    let external = join(o, "spec.externalIPs", ",");
    match text(o, "spec.type") {
        "ClusterIP" | "NodePort" if external.is_empty() => NONE.to_owned(),
        "ClusterIP" | "NodePort" => external,
        "LoadBalancer" => match (load_balancer(o), external) {
            (ips, external) if ips.is_empty() && external.is_empty() => "<pending>".to_owned(),
            (ips, external) if external.is_empty() => ips,
            (ips, external) if ips.is_empty() => external,
            (ips, external) => format!("{ips},{external}"),
        },
        "ExternalName" => text(o, "spec.externalName").to_owned(),
        _ => UNKNOWN.to_owned(),
    }
}

/// Upstream: `printService`.
fn service(o: &PrintedObject<'_>) -> Cells {
    let ports: Vec<String> = list(o, "spec.ports")
        .iter()
        .map(|port| {
            let (number, protocol) = (count(port, "port"), text(port, "protocol"));
            match int(port, "nodePort").filter(|port| *port > 0) {
                Some(node) => format!("{number}:{node}/{protocol}"),
                None => format!("{number}/{protocol}"),
            }
        })
        .collect();
    let ip = list(o, "spec.clusterIPs").first().and_then(Value::as_str).unwrap_or(NONE);
    vec![
        json!(name(o)),
        json!(text(o, "spec.type")),
        json!(ip),
        json!(external_ip(o)),
        json!(if ports.is_empty() { NONE.to_owned() } else { ports.join(",") }),
        json!(age(o)),
        json!(labels(o, "spec.selector")),
    ]
}

/// Upstream: `printComponentStatus`.
fn component_status(o: &PrintedObject<'_>) -> Cells {
    let healthy =
        list(o, "conditions").iter().find(|condition| text(condition, "type") == "Healthy");
    let field = |field: &str| healthy.map_or("", |condition| text(condition, field)).to_owned();
    let status = match field("status").as_str() {
        "True" => "Healthy",
        "False" => "Unhealthy",
        _ => "Unknown",
    };
    vec![json!(name(o)), json!(status), json!(field("message")), json!(field("error"))]
}
