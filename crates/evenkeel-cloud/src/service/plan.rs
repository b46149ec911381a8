//! Decision about a Service's load balancer.

use super::{changes, hosts::Hosts};
use crate::change::target;
use evenkeel_api::views::{LoadBalancerIngress, LoadBalancerStatus, Service};
use evenkeel_runtime::plan::{EventRecord, OnError, Patch, PatchForm, Plan};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Keeps a service from vanishing before its load balancer does (KEP-980).
pub(super) const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

/// What this process did last for a Service.
#[derive(Debug, Clone)]
pub(super) struct Last {
    /// The service as it was then.
    pub(super) service: Arc<Service>,
    /// Whether its load balancer came about.
    pub(super) ensured: bool,
    /// The nodes that the load balancer was updated with.
    pub(super) hosts: Hosts,
}

/// What the cloud provider must do for a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Decision {
    /// Do nothing: the load balancer is as it should be.
    Nothing,
    /// Delete the load balancer of a Service that was deleted without a clean-up, or replaced by one of another uid.
    Release,
    /// Delete the load balancer, then remove the Service's finalizer.
    CleanUp,
    /// Create or update the load balancer.
    Ensure,
    /// Update the nodes of the load balancer; the rest is as it should be.
    Hosts,
}

/// Whether a change of a service is a reason to look at it. Others are none, or our own writes would cut back-offs short.
pub(super) fn concerns(old: Option<&Service>, new: &Service) -> bool {
    let Some(old) = old else { return wants(new) || needs_cleanup(new) };
    needs_cleanup(new) || wants(old) != wants(new) || (wants(new) && changes::matter(old, new))
}

/// Compares what should be with what was done last.
pub(super) fn decide(service: Option<&Service>, last: Option<&Last>, hosts: &Hosts) -> Decision {
    let wanted_before = last.is_some_and(|last| wants(&last.service));
    let Some(service) = service else {
        return if wanted_before { Decision::Release } else { Decision::Nothing };
    };
    if wanted_before && last.is_some_and(|last| last.service.meta.uid != service.meta.uid) {
        return Decision::Release;
    }
    if needs_cleanup(service) {
        return Decision::CleanUp;
    }
    // One that is on its way out can get no finalizer any more.
    if !wants(service) || service.meta.deleting() {
        return if wanted_before { Decision::CleanUp } else { Decision::Nothing };
    }
    match last {
        Some(last) if !last.ensured || changes::matter(&last.service, service) => Decision::Ensure,
        Some(last) if last.hosts != *hosts => Decision::Hosts,
        Some(_) => Decision::Nothing,
        None => Decision::Ensure,
    }
}

/// Whether the cluster's own cloud is to make a load balancer.
pub(super) fn wants(service: &Service) -> bool {
    &*service.spec.type_ == "LoadBalancer" && service.spec.load_balancer_class.is_empty()
}

fn has_finalizer(service: &Service) -> bool {
    service.meta.finalizers.iter().any(|finalizer| &**finalizer == FINALIZER)
}

fn needs_cleanup(service: &Service) -> bool {
    has_finalizer(service) && (service.meta.deleting() || &*service.spec.type_ != "LoadBalancer")
}

/// Before the cloud is asked for a load balancer: the finalizer, so that from then on it is not forgotten.
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
            ..Patch::new(regarding.clone(), PatchForm::Strategic, body.to_string())
        });
    }
    if hosts == 0 {
        plan.push(no_hosts(service));
    }
    plan
}

fn no_hosts(service: &Service) -> EventRecord {
    let message = "There are no available nodes for LoadBalancer";
    EventRecord::warning(target(service), "UnAvailableLoadBalancer", message)
}

/// After the cloud made or changed the load balancer: its status, where that is another one than before.
pub(super) fn after_ensure(service: &Service, status: &LoadBalancerStatus) -> Plan {
    let mut plan = Plan::nothing();
    plan.push(EventRecord::normal(target(service), "EnsuredLoadBalancer", "Ensured load balancer"));
    if !same(&service.status.load_balancer, status) {
        let ingress = match &*status.ingress {
            [] => Value::Null,
            ingress => ingress.iter().map(written).collect(),
        };
        let body = json!({
            "metadata": {"uid": &*service.meta.uid},
            "status": {"loadBalancer": {"ingress": ingress}},
        });
        plan.push(Patch {
            subresource: "status",
            ..Patch::new(target(service), PatchForm::Merge, body.to_string())
        });
    }
    plan
}

/// Before a load balancer that is there is taken away.
pub(super) fn before_cleanup(service: &Service) -> Plan {
    let mut plan = Plan::nothing();
    plan.push(EventRecord::normal(
        target(service),
        "DeletingLoadBalancer",
        "Deleting load balancer",
    ));
    plan
}

/// After the load balancer is gone. Finalizer and status go by one write: upstream's two leave a stale status for ever where
/// the program ends between them.
pub(super) fn after_cleanup(service: &Service) -> Plan {
    let mut plan = Plan::nothing();
    let (held, has_ingress) =
        (has_finalizer(service), !service.status.load_balancer.ingress.is_empty());
    if held || has_ingress {
        let mut body = json!({"metadata": {"uid": &*service.meta.uid}});
        if held {
            body["metadata"]["$deleteFromPrimitiveList/finalizers"] = json!([FINALIZER]);
        }
        if has_ingress {
            body["status"] = json!({"loadBalancer": {"ingress": null}});
        }
        plan.push(Patch {
            subresource: "status",
            on_error: OnError::Abort,
            ..Patch::new(target(service), PatchForm::Strategic, body.to_string())
        });
    }
    plan.push(deleted(service));
    plan
}

/// After what a service had is gone, where the service itself is gone already.
pub(super) fn released(service: &Service) -> Plan {
    let mut plan = Plan::nothing();
    plan.push(deleted(service));
    plan
}

fn deleted(service: &Service) -> EventRecord {
    EventRecord::normal(target(service), "DeletedLoadBalancer", "Deleted load balancer")
}

/// Returns the events after the load balancer's nodes were updated.
pub(super) fn after_hosts(service: &Service, hosts: &Hosts) -> Plan {
    let mut plan = Plan::nothing();
    plan.push(if hosts.is_empty() {
        no_hosts(service)
    } else {
        let message = "Updated load balancer with new hosts";
        EventRecord::normal(target(service), "UpdatedLoadBalancer", message)
    });
    plan
}

/// After the cloud refused other nodes.
pub(super) fn refused_hosts(service: &Service, hosts: &Hosts, error: &str) -> Plan {
    let message = format!(
        "Error updating load balancer with new hosts {} [node names limited, total number of nodes: {}], error: {error}",
        hosts.names(),
        hosts.len()
    );
    let mut plan = Plan::nothing();
    plan.push(EventRecord::warning(target(service), "UpdateLoadBalancerFailed", message));
    plan
}

/// After anything else went wrong.
pub(super) fn failed(service: &Service, decision: &Decision, error: &str) -> Plan {
    let (reason, message) = match decision {
        Decision::Release => ("DeleteLoadBalancerFailed", "Error deleting load balancer"),
        _ => ("SyncLoadBalancerFailed", "Error syncing load balancer"),
    };
    let mut plan = Plan::nothing();
    plan.push(EventRecord::warning(target(service), reason, format!("{message}: {error}")));
    plan
}

/// Whether two statuses mean the same: the server writes `VIP` where an address has no mode.
fn same(one: &LoadBalancerStatus, other: &LoadBalancerStatus) -> bool {
    fn mode(ingress: &LoadBalancerIngress) -> &str {
        match &*ingress.ip_mode {
            "" if !ingress.ip.is_empty() => "VIP",
            mode => mode,
        }
    }
    one.ingress.len() == other.ingress.len()
        && one.ingress.iter().zip(&other.ingress).all(|(a, b)| {
            (&a.ip, &a.hostname, &a.ports, mode(a)) == (&b.ip, &b.hostname, &b.ports, mode(b))
        })
}

fn written(ingress: &LoadBalancerIngress) -> Value {
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
