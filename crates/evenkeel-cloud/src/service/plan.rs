//! Decision about a Service's load balancer.

use super::{changes, hosts::Hosts};
use crate::change::target;
use evenkeel_api::views::{LoadBalancerIngress, LoadBalancerStatus, Service};
use evenkeel_runtime::plan::{EventRecord, OnError, Patch, PatchType, Plan};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Finalizer that keeps a service until its load balancer is deleted (KEP-980).
pub(super) const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

/// Last state that this process applied for a Service.
#[derive(Debug, Clone)]
pub(super) struct LastApplied {
    /// Service at that time.
    pub(super) service: Arc<Service>,
    /// Whether its load balancer was ensured successfully.
    pub(super) ensured: bool,
    /// Nodes of the load balancer.
    pub(super) hosts: Hosts,
}

/// Action that a Service's load balancer needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Decision {
    /// No action, because the load balancer is up to date.
    Nothing,
    /// Delete the load balancer of a Service that was deleted without a clean-up, or replaced by one with
    /// another uid.
    Release,
    /// Delete the load balancer, then remove the Service's finalizer.
    CleanUp,
    /// Create or update the load balancer.
    Ensure,
    /// Update only the nodes of the load balancer.
    Hosts,
}

/// Returns whether a change of a service enqueues it. The controller's own writes must not, because they would shorten the
/// service's backoff.
pub(super) fn needs_sync(old: Option<&Service>, new: &Service) -> bool {
    let Some(old) = old else { return wants_load_balancer(new) || needs_cleanup(new) };
    needs_cleanup(new)
        || wants_load_balancer(old) != wants_load_balancer(new)
        || (wants_load_balancer(new) && changes::needs_update(old, new))
}

/// Compares the desired state with the last applied one.
pub(super) fn decide(
    service: Option<&Service>,
    last: Option<&LastApplied>,
    hosts: &Hosts,
) -> Decision {
    let has_load_balancer = last.is_some_and(|last| wants_load_balancer(&last.service));
    let Some(service) = service else {
        return if has_load_balancer { Decision::Release } else { Decision::Nothing };
    };
    if has_load_balancer && last.is_some_and(|last| last.service.meta.uid != service.meta.uid) {
        return Decision::Release;
    }
    if needs_cleanup(service) {
        return Decision::CleanUp;
    }
    // A service that is being deleted cannot get a finalizer.
    if !wants_load_balancer(service) || service.meta.deleting() {
        return if has_load_balancer { Decision::CleanUp } else { Decision::Nothing };
    }
    match last {
        Some(last) if !last.ensured || changes::needs_update(&last.service, service) => {
            Decision::Ensure
        }
        Some(last) if last.hosts != *hosts => Decision::Hosts,
        Some(_) => Decision::Nothing,
        None => Decision::Ensure,
    }
}

/// Returns whether this cloud must provide a load balancer for the service.
pub(super) fn wants_load_balancer(service: &Service) -> bool {
    &*service.spec.type_ == "LoadBalancer" && service.spec.load_balancer_class.is_empty()
}

fn has_finalizer(service: &Service) -> bool {
    service.meta.finalizers.iter().any(|finalizer| &**finalizer == FINALIZER)
}

fn needs_cleanup(service: &Service) -> bool {
    has_finalizer(service) && (service.meta.deleting() || &*service.spec.type_ != "LoadBalancer")
}

/// Plans the writes before the cloud is called: the finalizer, which keeps the service until its load balancer
/// is deleted.
pub(super) fn before_ensure(service: &Service, hosts: usize) -> Plan {
    let regarding = target(service);
    let mut plan = Plan::nothing();
    plan.push(EventRecord::normal(
        regarding.clone(),
        "EnsuringLoadBalancer",
        "Ensuring load balancer",
    ));
    if !has_finalizer(service) {
        let body = json!({"metadata": {"uid": &*service.meta.uid, "finalizers": [FINALIZER]}});
        plan.push(Patch {
            subresource: "status",
            if_live: Some(regarding.clone()),
            on_error: OnError::Abort,
            ..Patch::new(regarding.clone(), PatchType::Strategic, body.to_string())
        });
    }
    if hosts == 0 {
        plan.push(no_hosts_event(service));
    }
    plan
}

fn no_hosts_event(service: &Service) -> EventRecord {
    let message = "There are no available nodes for LoadBalancer";
    EventRecord::warning(target(service), "UnAvailableLoadBalancer", message)
}

/// Plans the writes after the cloud has created or updated the load balancer: its status, if that differs.
pub(super) fn after_ensure(service: &Service, status: &LoadBalancerStatus) -> Plan {
    let mut plan = Plan::nothing();
    plan.push(EventRecord::normal(target(service), "EnsuredLoadBalancer", "Ensured load balancer"));
    if !same_status(&service.status.load_balancer, status) {
        let ingress = match &*status.ingress {
            [] => Value::Null,
            ingress => ingress.iter().map(ingress_json).collect(),
        };
        let body = json!({
            "metadata": {"uid": &*service.meta.uid},
            "status": {"loadBalancer": {"ingress": ingress}},
        });
        plan.push(Patch {
            subresource: "status",
            ..Patch::new(target(service), PatchType::Merge, body.to_string())
        });
    }
    plan
}

/// Returns the event before an existing load balancer is deleted.
pub(super) fn before_cleanup(service: &Service) -> Plan {
    let mut plan = Plan::nothing();
    plan.push(EventRecord::normal(
        target(service),
        "DeletingLoadBalancer",
        "Deleting load balancer",
    ));
    plan
}

/// Plans the writes after the load balancer is deleted. One patch removes finalizer and status. Upstream needs
/// two writes, and leaves a stale status forever if the program ends between them.
pub(super) fn after_cleanup(service: &Service) -> Plan {
    let mut plan = Plan::nothing();
    let (has_finalizer, has_ingress) =
        (has_finalizer(service), !service.status.load_balancer.ingress.is_empty());
    if has_finalizer || has_ingress {
        let mut body = json!({"metadata": {"uid": &*service.meta.uid}});
        if has_finalizer {
            body["metadata"]["$deleteFromPrimitiveList/finalizers"] = json!([FINALIZER]);
        }
        if has_ingress {
            body["status"] = json!({"loadBalancer": {"ingress": null}});
        }
        plan.push(Patch {
            subresource: "status",
            on_error: OnError::Abort,
            ..Patch::new(target(service), PatchType::Strategic, body.to_string())
        });
    }
    plan.push(deleted_event(service));
    plan
}

/// Returns the event after the load balancer of a deleted service was deleted.
pub(super) fn released_event(service: &Service) -> Plan {
    let mut plan = Plan::nothing();
    plan.push(deleted_event(service));
    plan
}

fn deleted_event(service: &Service) -> EventRecord {
    EventRecord::normal(target(service), "DeletedLoadBalancer", "Deleted load balancer")
}

/// Returns the events after the load balancer's nodes were updated.
pub(super) fn updated_hosts_event(service: &Service, hosts: &Hosts) -> Plan {
    let mut plan = Plan::nothing();
    plan.push(if hosts.is_empty() {
        no_hosts_event(service)
    } else {
        let message = "Updated load balancer with new hosts";
        EventRecord::normal(target(service), "UpdatedLoadBalancer", message)
    });
    plan
}

/// Returns the event after the cloud rejected an update of the nodes.
pub(super) fn refused_hosts_event(service: &Service, hosts: &Hosts, error: &str) -> Plan {
    let message = format!(
        "Error updating load balancer with new hosts {} [node names limited, total number of nodes: {}], error: {error}",
        hosts.names(),
        hosts.len()
    );
    let mut plan = Plan::nothing();
    plan.push(EventRecord::warning(target(service), "UpdateLoadBalancerFailed", message));
    plan
}

/// Returns the event about a failure of any other step.
pub(super) fn failure_event(service: &Service, decision: &Decision, error: &str) -> Plan {
    let (reason, message) = match decision {
        Decision::Release => ("DeleteLoadBalancerFailed", "Error deleting load balancer"),
        _ => ("SyncLoadBalancerFailed", "Error syncing load balancer"),
    };
    let mut plan = Plan::nothing();
    plan.push(EventRecord::warning(target(service), reason, format!("{message}: {error}")));
    plan
}

/// Returns whether two statuses are equal. The server defaults an address's mode to `VIP`.
fn same_status(left: &LoadBalancerStatus, right: &LoadBalancerStatus) -> bool {
    fn mode(ingress: &LoadBalancerIngress) -> &str {
        match &*ingress.ip_mode {
            "" if !ingress.ip.is_empty() => "VIP",
            mode => mode,
        }
    }
    left.ingress.len() == right.ingress.len()
        && left.ingress.iter().zip(&right.ingress).all(|(a, b)| {
            (&a.ip, &a.hostname, &a.ports, mode(a)) == (&b.ip, &b.hostname, &b.ports, mode(b))
        })
}

/// Returns the JSON of an ingress without its empty fields.
fn ingress_json(ingress: &LoadBalancerIngress) -> Value {
    let mut object = Map::new();
    let texts =
        [("ip", &ingress.ip), ("hostname", &ingress.hostname), ("ipMode", &ingress.ip_mode)];
    for (name, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
        object.insert(name.to_owned(), json!(&**text));
    }
    let ports = ingress.ports.iter().map(|port| {
        let mut object = json!({"port": port.port, "protocol": &*port.protocol});
        if !port.error.is_empty() {
            object["error"] = json!(&*port.error);
        }
        object
    });
    if !ingress.ports.is_empty() {
        object.insert("ports".to_owned(), ports.collect());
    }
    Value::Object(object)
}
