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
        "Namespace" => |printed| {
            vec![json!(name(printed)), json!(text(printed, "status.phase")), json!(age(printed))]
        },
        "Node" => node,
        "PersistentVolumeClaim" => claim,
        "PersistentVolume" => volume,
        "PodTemplate" => pod_template,
        "ReplicationController" => replication_controller,
        "ResourceQuota" => quota,
        "Secret" => |printed| {
            vec![
                json!(name(printed)),
                json!(text(printed, "type")),
                json!(object(printed, "data").map_or(0, serde_json::Map::len)),
                json!(age(printed)),
            ]
        },
        "ServiceAccount" => name_age,
        "Service" => service,
        "ComponentStatus" => component_status,
        _ => created_at,
    })
}

/// Returns the cells of a ConfigMap: name, number of keys, and age.
///
/// Upstream: `printConfigMap`.
fn config_map(printed: &PrintedObject<'_>) -> Cells {
    let keys = |field: &str| object(printed, field).map_or(0, serde_json::Map::len);
    vec![json!(name(printed)), json!(keys("data") + keys("binaryData")), json!(age(printed))]
}

/// Returns the cells of an Endpoints: name, the first three endpoints, and age.
///
/// Upstream: `printEndpoints`.
fn endpoints(printed: &PrintedObject<'_>) -> Cells {
    let mut endpoints: Vec<String> = Vec::new();
    for subset in list(printed, "subsets") {
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
    vec![json!(name(printed)), json!(shown), json!(age(printed))]
}

/// Joins the first three items of a list, followed by the number of further ones.
pub(super) fn first_three(items: &[String]) -> String {
    let shown = items.iter().take(3).map(String::as_str).collect::<Vec<_>>().join(",");
    if items.len() > 3 { format!("{shown} + {} more...", items.len() - 3) } else { shown }
}

/// Returns the cells of an Event. Series and fields of both API groups determine the times and the count.
///
/// Upstream: `printEvent`.
fn event(printed: &PrintedObject<'_>) -> Cells {
    let first = if get(printed, "firstTimestamp").is_some() {
        since(printed, "firstTimestamp")
    } else {
        since(printed, "eventTime")
    };
    let last = match get(printed, "series") {
        Some(_) => since(printed, "series.lastObservedTime"),
        None if get(printed, "lastTimestamp").is_some() => since(printed, "lastTimestamp"),
        None => first.clone(),
    };
    let times = int(printed, "series.count")
        .or(int(printed, "count"))
        .filter(|times| *times != 0)
        .unwrap_or(1);
    let kind = text(printed, "involvedObject.kind").to_lowercase();
    let target = match text(printed, "involvedObject.name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let component = text_or(printed, "source.component", text(printed, "reportingComponent"));
    let source = match text_or(printed, "source.host", text(printed, "reportingInstance")) {
        "" => component.to_owned(),
        instance => format!("{component}, {instance}"),
    };
    vec![
        json!(last),
        json!(text(printed, "type")),
        json!(text(printed, "reason")),
        json!(target),
        json!(text(printed, "involvedObject.fieldPath")),
        json!(source),
        json!(text(printed, "message").trim()),
        json!(first),
        json!(times),
        json!(name(printed)),
    ]
}

/// Returns the cells of a Node: status, roles, version, addresses and system information.
///
/// Upstream: `printNode`.
fn node(printed: &PrintedObject<'_>) -> Cells {
    let ready = list(printed, "status.conditions")
        .iter()
        .find(|condition| text(condition, "type") == "Ready");
    let mut status = match ready.map(|condition| text(condition, "status")) {
        Some("True") => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if flag(printed, "spec.unschedulable") {
        status.push_str(",SchedulingDisabled");
    }
    // A role is in the key of one label, or in the value of another.
    let mut roles = BTreeSet::new();
    for (key, value) in object(printed, "metadata.labels").into_iter().flatten() {
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
            list(printed, "status.addresses").iter().find(|address| text(address, "type") == kind);
        found.map_or(NONE, |address| text(address, "address")).to_owned()
    };
    let mut kernel = text_or(printed, "status.nodeInfo.kernelVersion", UNKNOWN).to_owned();
    let architecture = text(printed, "status.nodeInfo.architecture");
    if !architecture.is_empty() {
        kernel = format!("{kernel} ({architecture})");
    }
    vec![
        json!(name(printed)),
        json!(status),
        json!(roles),
        json!(age(printed)),
        json!(text(printed, "status.nodeInfo.kubeletVersion")),
        json!(address("InternalIP")),
        json!(address("ExternalIP")),
        json!(text_or(printed, "status.nodeInfo.osImage", UNKNOWN)),
        json!(kernel),
        json!(text_or(printed, "status.nodeInfo.containerRuntimeVersion", UNKNOWN)),
    ]
}

/// Formats the access modes at `path` in their short forms, in upstream's order.
///
/// Upstream: `GetAccessModesAsString`.
fn access_modes(printed: &Value, path: &str) -> String {
    let modes = list(printed, path);
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

fn phase(printed: &Value) -> &str {
    if get(printed, "metadata.deletionTimestamp").is_some() {
        "Terminating"
    } else {
        text(printed, "status.phase")
    }
}

/// Returns the storage class of a volume or claim, from the beta annotation or else from the field.
///
/// Upstream: `GetPersistentVolumeClass`.
fn storage_class(printed: &Value) -> &str {
    object(printed, "metadata.annotations")
        .and_then(|annotations| annotations.get("volume.beta.kubernetes.io/storage-class"))
        .and_then(Value::as_str)
        .unwrap_or_else(|| text(printed, "spec.storageClassName"))
}

/// Returns the cells of a PersistentVolumeClaim. Capacity and access modes are empty before it is bound.
///
/// Upstream: `printPersistentVolumeClaim`.
fn claim(printed: &PrintedObject<'_>) -> Cells {
    let is_bound = !text(printed, "spec.volumeName").is_empty();
    let (capacity, modes) = if is_bound {
        let capacity = scalar_text(get(printed, "status.capacity.storage"), "0");
        (capacity, access_modes(printed, "status.accessModes"))
    } else {
        (String::new(), String::new())
    };
    vec![
        json!(name(printed)),
        json!(phase(printed)),
        json!(text(printed, "spec.volumeName")),
        json!(capacity),
        json!(modes),
        json!(storage_class(printed)),
        json!(text_or(printed, "spec.volumeAttributesClassName", UNSET)),
        json!(age(printed)),
        json!(text_or(printed, "spec.volumeMode", UNSET)),
    ]
}

/// Returns the cells of a PersistentVolume, with the claim as `NAMESPACE/NAME`.
///
/// Upstream: `printPersistentVolume`.
fn volume(printed: &PrintedObject<'_>) -> Cells {
    let claim = match get(printed, "spec.claimRef") {
        Some(claim) => format!("{}/{}", text(claim, "namespace"), text(claim, "name")),
        None => String::new(),
    };
    vec![
        json!(name(printed)),
        json!(scalar_text(get(printed, "spec.capacity.storage"), "0")),
        json!(access_modes(printed, "spec.accessModes")),
        json!(text(printed, "spec.persistentVolumeReclaimPolicy")),
        json!(phase(printed)),
        json!(claim),
        json!(storage_class(printed)),
        json!(text_or(printed, "spec.volumeAttributesClassName", UNSET)),
        json!(text(printed, "status.reason")),
        json!(age(printed)),
        json!(text_or(printed, "spec.volumeMode", UNSET)),
    ]
}

/// Returns the cells of a PodTemplate: name, containers, images, and the labels of its pods.
///
/// Upstream: `printPodTemplate`.
fn pod_template(printed: &PrintedObject<'_>) -> Cells {
    let [names, images] = containers(get(printed, "template.spec"));
    vec![
        json!(name(printed)),
        json!(names),
        json!(images),
        json!(labels(printed, "template.metadata.labels")),
    ]
}

/// Returns the cells of a ReplicationController. They equal the cells of a ReplicaSet, except for the form of the
/// selector.
///
/// Upstream: `printReplicationController`.
fn replication_controller(printed: &PrintedObject<'_>) -> Cells {
    super::workloads::replicas(printed, &labels(printed, "spec.selector"))
}

/// Returns the cells of a ResourceQuota: used and hard amounts of requests and of limits.
///
/// Upstream: `printResourceQuota`.
fn quota(printed: &PrintedObject<'_>) -> Cells {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for (resource, hard) in object(printed, "status.hard").into_iter().flatten() {
        let used = object(printed, "status.used").and_then(|used| used.get(resource));
        let cell =
            format!("{resource}: {}/{}", scalar_text(used, "0"), scalar_text(Some(hard), "0"));
        if resource.starts_with("limits.") { limits.push(cell) } else { requests.push(cell) }
    }
    vec![
        json!(name(printed)),
        json!(requests.join(", ")),
        json!(limits.join(", ")),
        json!(age(printed)),
    ]
}

/// Returns the sorted addresses of a load balancer, without duplicates.
///
/// Upstream: `loadBalancerStatusStringer`.
pub(super) fn load_balancer(printed: &Value) -> String {
    let addresses: BTreeSet<&str> = list(printed, "status.loadBalancer.ingress")
        .iter()
        .map(|ingress| text_or(ingress, "ip", text(ingress, "hostname")))
        .filter(|address| !address.is_empty())
        .collect();
    addresses.into_iter().collect::<Vec<_>>().join(",")
}

/// Formats the addresses that make a Service reachable from outside the cluster.
///
/// Upstream: `getServiceExternalIP`.
fn external_ip(printed: &Value) -> String {
    let external = join(printed, "spec.externalIPs", ",");
    match text(printed, "spec.type") {
        "ClusterIP" | "NodePort" if external.is_empty() => NONE.to_owned(),
        "ClusterIP" | "NodePort" => external,
        "LoadBalancer" => match (load_balancer(printed), external) {
            (ips, external) if ips.is_empty() && external.is_empty() => "<pending>".to_owned(),
            (ips, external) if external.is_empty() => ips,
            (ips, external) if ips.is_empty() => external,
            (ips, external) => format!("{ips},{external}"),
        },
        "ExternalName" => text(printed, "spec.externalName").to_owned(),
        _ => UNKNOWN.to_owned(),
    }
}

/// Returns the cells of a Service, with its ports as `PORT:NODEPORT/PROTOCOL`.
///
/// Upstream: `printService`.
fn service(printed: &PrintedObject<'_>) -> Cells {
    let ports: Vec<String> = list(printed, "spec.ports")
        .iter()
        .map(|port| {
            let (number, protocol) = (count(port, "port"), text(port, "protocol"));
            match int(port, "nodePort").filter(|port| *port > 0) {
                Some(node) => format!("{number}:{node}/{protocol}"),
                None => format!("{number}/{protocol}"),
            }
        })
        .collect();
    let ip = list(printed, "spec.clusterIPs").first().and_then(Value::as_str).unwrap_or(NONE);
    vec![
        json!(name(printed)),
        json!(text(printed, "spec.type")),
        json!(ip),
        json!(external_ip(printed)),
        json!(if ports.is_empty() { NONE.to_owned() } else { ports.join(",") }),
        json!(age(printed)),
        json!(labels(printed, "spec.selector")),
    ]
}

/// Returns the cells of a ComponentStatus: name, and the state, message and error of the condition `Healthy`.
///
/// Upstream: `printComponentStatus`.
fn component_status(printed: &PrintedObject<'_>) -> Cells {
    let healthy =
        list(printed, "conditions").iter().find(|condition| text(condition, "type") == "Healthy");
    let field = |field: &str| healthy.map_or("", |condition| text(condition, field)).to_owned();
    let status = match field("status").as_str() {
        "True" => "Healthy",
        "False" => "Unhealthy",
        _ => "Unknown",
    };
    vec![json!(name(printed)), json!(status), json!(field("message")), json!(field("error"))]
}
