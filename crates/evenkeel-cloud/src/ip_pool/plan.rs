//! Allocation of addresses to a service.

use super::{
    POOL_ANNOTATION,
    pool::{Pool, Range},
};
use evenkeel_api::{Text, views::Service};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

/// Reason why a service gets no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum AllocationError {
    #[error("spec.loadBalancerIP: {0:?} is no IP address")]
    Unreadable(Text),
    #[error("spec.loadBalancerIP: {0} is in none of the pools {1}")]
    Outside(IpAddr, String),
    #[error("spec.loadBalancerIP: {0} is of a family that the service does not have")]
    OtherFamily(IpAddr),
    #[error("spec.loadBalancerIP: {0} is taken by service {1}")]
    Taken(IpAddr, String),
    #[error("annotation {POOL_ANNOTATION}: there is no pool {0:?}")]
    NoPool(Text),
    #[error("no pool has {0} addresses (pools: {1})")]
    NoFamily(&'static str, String),
    #[error("no free {0} address is left (pools: {1})")]
    Exhausted(&'static str, String),
}

impl AllocationError {
    /// Returns whether a retry can succeed, once another service releases an address.
    pub(super) fn is_transient(&self) -> bool {
        matches!(self, Self::Exhausted(..) | Self::Taken(..))
    }
}

/// Addresses reserved for services by uid, until the services' statuses show them.
#[derive(Debug, Default)]
pub(super) struct Reserved(BTreeMap<Text, Vec<IpAddr>>);

impl Reserved {
    /// Drops the reservations of services that no longer exist. Keeps the one of `service`, which may be newer than
    /// the list.
    pub(super) fn drop_deleted(&mut self, services: &[Arc<Service>], service: &Service) {
        let existing: BTreeSet<&str> = services.iter().map(|other| &*other.meta.uid).collect();
        self.0.retain(|uid, _| existing.contains(&**uid) || *uid == service.meta.uid);
    }

    pub(super) fn reserve(&mut self, uid: &str, addresses: Vec<IpAddr>) {
        self.0.insert(uid.into(), addresses);
    }

    pub(super) fn release(&mut self, uid: &str) {
        self.0.remove(uid);
    }

    /// Returns the reserved addresses of a service.
    pub(super) fn of(&self, uid: &str) -> Option<&[IpAddr]> {
        self.0.get(uid).map(Vec::as_slice)
    }
}

/// Addresses of other Services.
struct OtherAddresses<'a> {
    /// Addresses that are allocated to other Services, with their owners.
    allocated: BTreeMap<IpAddr, &'a Service>,
    /// Addresses in the other Services' `spec.externalIPs`. A Service gets one of them only if it requests it or
    /// already has it.
    claimed: BTreeSet<IpAddr>,
}

/// Allocates addresses to `service`: the requested one, otherwise its current ones, otherwise the first free ones of the pools.
/// The result has one address of the service's first family, and one of its second family if a pool has a free one. A service
/// that requires both families gets both or none.
pub(super) fn allocate(
    pools: &[Pool],
    services: &[Arc<Service>],
    reserved: &Reserved,
    service: &Service,
) -> Result<Vec<IpAddr>, AllocationError> {
    let pools = selected_pools(pools, service)?;
    let current = current_addresses(service, reserved);
    let others = other_addresses(services, reserved, service, &current);
    let requested = requested_address(&pools, service)?;
    let families = families(&pools, service, requested);
    if let Some(requested) = requested.filter(|requested| !families.contains(&requested.is_ipv4()))
    {
        return Err(AllocationError::OtherFamily(requested));
    }
    let requires_both = &*service.spec.ip_family_policy == "RequireDualStack";
    let mut addresses = Vec::new();
    for (index, is_v4) in families.into_iter().enumerate() {
        match allocate_family(&pools, &others, requested, &current, is_v4) {
            Ok(address) => addresses.push(address),
            // The second family is optional, unless the service requests an address of it.
            Err(_)
                if index > 0
                    && !requires_both
                    && requested.is_none_or(|requested| requested.is_ipv4() != is_v4) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(addresses)
}

/// Allocates one address of a family.
fn allocate_family(
    pools: &[&Pool],
    others: &OtherAddresses<'_>,
    requested: Option<IpAddr>,
    current: &[IpAddr],
    is_v4: bool,
) -> Result<IpAddr, AllocationError> {
    if let Some(requested) = requested.filter(|requested| requested.is_ipv4() == is_v4) {
        return match others.allocated.get(&requested) {
            Some(owner) => {
                let owner = format!("{}/{}", owner.meta.namespace, owner.meta.name);
                Err(AllocationError::Taken(requested, owner))
            }
            None => Ok(requested),
        };
    }
    let in_pools = |address: &IpAddr| pools.iter().any(|pool| pool.contains(*address));
    let kept = current.iter().find(|address| {
        address.is_ipv4() == is_v4 && in_pools(address) && !others.allocated.contains_key(*address)
    });
    if let Some(kept) = kept {
        return Ok(*kept);
    }
    let mut free = pools.iter().flat_map(|pool| pool.addresses(is_v4)).filter(|address| {
        !others.allocated.contains_key(address) && !others.claimed.contains(address)
    });
    free.next().ok_or_else(|| {
        let family = if is_v4 { "IPv4" } else { "IPv6" };
        if pools.iter().any(|pool| pool.has_family(is_v4)) {
            AllocationError::Exhausted(family, names(pools))
        } else {
            AllocationError::NoFamily(family, names(pools))
        }
    })
}

/// Returns the pools from which a service may get addresses.
fn selected_pools<'a>(
    pools: &'a [Pool],
    service: &Service,
) -> Result<Vec<&'a Pool>, AllocationError> {
    let Some(name) = service.meta.annotations.get(POOL_ANNOTATION) else {
        return Ok(pools.iter().collect());
    };
    let pool = pools.iter().find(|pool| pool.name == name);
    pool.map(|pool| vec![pool]).ok_or_else(|| AllocationError::NoPool(name.into()))
}

/// Returns the address that a service requests.
fn requested_address(
    pools: &[&Pool],
    service: &Service,
) -> Result<Option<IpAddr>, AllocationError> {
    let text = &service.spec.load_balancer_ip;
    if text.is_empty() {
        return Ok(None);
    }
    let requested: IpAddr = text.parse().map_err(|_| AllocationError::Unreadable(text.clone()))?;
    if !pools.iter().any(|pool| pool.contains(requested)) {
        return Err(AllocationError::Outside(requested, names(pools)));
    }
    Ok(Some(requested))
}

/// Returns the families of a service, the required one first: true means IPv4.
fn families(pools: &[&Pool], service: &Service, requested: Option<IpAddr>) -> Vec<bool> {
    let families: Vec<bool> =
        service.spec.ip_families.iter().map(|family| &**family == "IPv4").collect();
    if !families.is_empty() {
        return families;
    }
    let first_pool_is_v4 =
        pools.iter().flat_map(|pool| &pool.ranges).next().is_none_or(Range::is_ipv4);
    vec![requested.map_or(first_pool_is_v4, |requested| requested.is_ipv4())]
}

/// Returns the current addresses of a service.
fn current_addresses(service: &Service, reserved: &Reserved) -> Vec<IpAddr> {
    match reserved.of(&service.meta.uid) {
        Some(reserved_addresses) => reserved_addresses.to_vec(),
        None => status_ips(service).collect(),
    }
}

fn status_ips(service: &Service) -> impl Iterator<Item = IpAddr> + '_ {
    service.status.load_balancer.ingress.iter().filter_map(|ingress| ingress.ip.parse().ok())
}

/// Returns the addresses of other Services. An address in the status of two Services belongs to the older one.
fn other_addresses<'a>(
    services: &'a [Arc<Service>],
    reserved: &Reserved,
    service: &Service,
    current: &[IpAddr],
) -> OtherAddresses<'a> {
    let mut others = OtherAddresses { allocated: BTreeMap::new(), claimed: BTreeSet::new() };
    for other in services.iter().filter(|other| other.meta.uid != service.meta.uid) {
        let reserved_addresses = reserved.of(&other.meta.uid);
        let is_younger = age(other) > age(service);
        let allocated =
            status_ips(other).filter(|address| !(is_younger && current.contains(address)));
        for address in reserved_addresses.into_iter().flatten().copied().chain(allocated) {
            others.allocated.insert(address, other);
        }
        others
            .claimed
            .extend(other.spec.external_ips.iter().filter_map(|ip| ip.parse::<IpAddr>().ok()));
    }
    others
}

/// Returns the sort key that orders services by age.
fn age(service: &Service) -> (Option<evenkeel_api::time::Timestamp>, &str, &str) {
    (service.meta.creation, &service.meta.namespace, &service.meta.name)
}

/// Returns the names and ranges of pools for error messages.
fn names(pools: &[&Pool]) -> String {
    let describe = |pool: &&Pool| {
        let ranges: Vec<String> = pool.ranges.iter().map(ToString::to_string).collect();
        format!("{} [{}]", pool.name, ranges.join(", "))
    };
    pools.iter().map(describe).collect::<Vec<_>>().join(", ")
}
