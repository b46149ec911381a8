//! ServiceCIDR controller: sets the condition `Ready`, and keeps a deleted ServiceCIDR while IPAddresses depend on it
//! (KEP-1880). Upstream: `pkg/controller/servicecidrs`.

mod plan;
#[cfg(test)]
mod tests;

use crate::wiring::descriptor::{ControllerContext, Descriptor, StartError, Started};
use evenkeel_api::{
    Kind,
    cidr::Cidr,
    time::Timestamp,
    views::{Metadata, ServiceCidr},
};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    introspect::Description,
    plan::{Key, Plan, Planner},
};
use plan::Observed;
use std::{net::IpAddr, sync::Arc};

/// The ServiceCIDR controller. Upstream: `newServiceCIDRsControllerDescriptor`.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "service-cidr-controller",
    queue: "ipaddresses",
    client: "service-cidrs-controller",
    gates: &["MultiCIDRServiceAllocator"],
    start,
    ..Descriptor::DEFAULTS
};

/// Number of workers. No flag changes it.
const WORKERS: usize = 5;
/// Maximum number of retries of a failing ServiceCIDR until its next event. Upstream: `maxRetries`.
const MAX_RETRIES: u32 = 15;
/// Kind of IPAddresses. The controller caches only their metadata.
const IP_ADDRESS: Kind = Kind::new("networking.k8s.io", "v1", "IPAddress", "ipaddresses", false);

fn start(context: &ControllerContext) -> Result<Started, StartError> {
    let caches = &context.env.caches;
    let cidrs = caches.of::<ServiceCidr>();
    let addresses = caches.metadata(IP_ADDRESS);
    let other_cidrs = cidrs.clone();
    let address_cidrs = cidrs.clone();
    let builder = context
        .builder_watching(&DESCRIPTOR, &cidrs, move |event, enqueue| {
            let cidr = event.object();
            enqueue.add(Key::of(&cidr.meta));
            // A new ServiceCIDR may contain the addresses that prevent the deletion of a terminating ServiceCIDR.
            if let CacheEvent::Added { initial: false, .. } = event {
                for other in other_cidrs.list().iter().filter(|other| plan::overlap(cidr, other)) {
                    enqueue.add(Key::of(&other.meta));
                }
            }
        })
        .event_source("service-cidr-controller")
        .workers(WORKERS)
        .max_retries(MAX_RETRIES)
        .watches(&addresses, move |event, enqueue| {
            if matches!(event, CacheEvent::Updated { .. } | CacheEvent::Added { initial: true, .. })
            {
                return;
            }
            // The allocated addresses only matter to a terminating ServiceCIDR.
            let Some(ip) = plan::allocated_ip(event.object()) else { return };
            for cidr in address_cidrs.list().iter().filter(|cidr| cidr.meta.deleting()) {
                if plan::contains(cidr, ip) {
                    enqueue.add(Key::of(&cidr.meta));
                }
            }
        });
    context.run(builder.planned(ServiceCidrs { cidrs, addresses }));
    Ok(Started::Yes)
}

/// Decides the condition `Ready` and the finalizer of a ServiceCIDR.
struct ServiceCidrs {
    cidrs: Cache<ServiceCidr>,
    addresses: Cache<Metadata>,
}

impl ServiceCidrs {
    /// Returns an allocated address of a terminating ServiceCIDR that no other ServiceCIDR contains. Upstream:
    /// `canDeleteCIDR`.
    fn find_orphan(&self, cidr: &ServiceCidr, others: &[Arc<ServiceCidr>]) -> Option<IpAddr> {
        if !cidr.meta.deleting() || plan::is_covered(cidr, others) {
            return None;
        }
        let is_in_other = |ip: IpAddr| others.iter().any(|other| plan::contains(other, ip));
        let addresses = self.addresses.list();
        let mut ips = addresses.iter().filter_map(|address| plan::allocated_ip(address));
        ips.find(|ip| plan::contains(cidr, *ip) && !is_in_other(*ip))
    }
}

impl Planner for ServiceCidrs {
    type Observed = Observed;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<Observed> {
        let cidr = self.cidrs.get("", &key.name)?;
        let mut others = self.cidrs.list();
        others.retain(|other| other.meta.name != cidr.meta.name);
        let orphan = self.find_orphan(&cidr, &others);
        Some(Observed { cidr, orphan })
    }

    fn plan(&self, observed: &Observed, (): &(), now: Timestamp) -> (Plan, ()) {
        (plan::plan(observed, now), ())
    }

    fn describe(&self, observed: &Observed, _: Timestamp) -> Description {
        let mut description = Description::new();
        description.fact("ranges", observed.cidr.spec.cidrs.join(", "));
        if let Some(ip) = observed.orphan {
            description.waits(format!("{ip} is in use, and in no other ServiceCIDR"));
        }
        description
    }
}

/// Returns the CIDRs of a ServiceCIDR. Ignores invalid CIDRs.
fn ranges(cidr: &ServiceCidr) -> impl Iterator<Item = Cidr> {
    cidr.spec.cidrs.iter().filter_map(|range| Cidr::parse(range))
}
