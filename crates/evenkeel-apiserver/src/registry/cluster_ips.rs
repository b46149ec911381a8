//! Allocation of cluster IPs from the stored ServiceCIDRs, each recorded as an IPAddress (KEP-1880).

use crate::api::Api;
use crate::loopback;
use crate::resource::ResourceType;
use crate::resource::key;
use crate::store::{Expect, Transaction};
use evenkeel_api::cidr::{Cidr, from_number, number};
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::time::seconds;
use evenkeel_apimachinery::value::{get, list, text};
use evenkeel_kinds::service::IpFamily;
use rand::Rng as _;
use serde_json::{Value, json};
use std::net::IpAddr;
use std::sync::Arc;

const NETWORKING: &str = "networking.k8s.io/v1";
/// Minimum and maximum number of addresses at the start of a range that are reserved for Services that request a
/// specific address: a 16th of the range. Other Services get them only when the rest of the range is full (KEP-3070).
const RESERVED: std::ops::RangeInclusive<u128> = 16..=256;

/// Range of a ServiceCIDR.
pub(super) struct Range {
    cidr: Cidr,
    /// Whether new Services may get addresses: the ServiceCIDR has no deletion timestamp, and no condition `Ready`
    /// with a status other than true.
    ready: bool,
}

impl Range {
    /// Returns the first and the last address of the range that may be allocated.
    fn allocatable(&self) -> (u128, u128) {
        let (first, last) = (number(self.cidr.first()), number(self.cidr.last()));
        // Exclude the network address, and the broadcast address of IPv4.
        let last = if self.cidr.first().is_ipv4() { last.saturating_sub(1) } else { last };
        (first + 1, last)
    }

    /// Returns whether the address may be allocated from the range.
    fn contains(&self, ip: IpAddr) -> bool {
        let (first, last) = self.allocatable();
        self.cidr.contains(ip) && (first..=last).contains(&number(ip))
    }
}

/// Returns the ranges of all ServiceCIDRs, older ones first.
pub(super) fn ranges(api: &Api) -> Vec<Range> {
    let mut service_cidrs = loopback::list(api, NETWORKING, "servicecidrs", "");
    service_cidrs.sort_by_key(|cidr| {
        (
            text(cidr, "metadata.creationTimestamp").to_owned(),
            text(cidr, "metadata.name").to_owned(),
        )
    });
    let ranges_of = |object: &Value| {
        let unready = list(object, "status.conditions").iter().any(|condition| {
            text(condition, "type") == "Ready" && text(condition, "status") != "True"
        });
        let ready = get(object, "metadata.deletionTimestamp").is_none() && !unready;
        let ranges: Vec<Range> = list(object, "spec.cidrs")
            .iter()
            .filter_map(|cidr| Some(Range { cidr: Cidr::parse(cidr.as_str()?)?, ready }))
            .collect();
        ranges
    };
    service_cidrs.iter().flat_map(ranges_of).collect()
}

/// Returns the reason why an address cannot be allocated, or `None` if it can. `has_service` returns whether a Service
/// uses an address. A dry run may have an address that is in use.
///
/// Upstream: `allocateService`.
pub(super) fn refusal(
    api: &Api,
    ranges: &[Range],
    ip: IpAddr,
    dry_run: bool,
    has_service: impl Fn(IpAddr) -> bool,
) -> Option<&'static str> {
    if !ranges.iter().any(|range| range.ready && range.contains(ip)) {
        return Some("the provided network does not match the current range");
    }
    (!dry_run && (has_service(ip) || has_ip_address(api, ip)))
        .then_some("provided IP is already allocated")
}

/// Returns a free address of the family, or `None` if all its ranges are full. `is_unused` returns whether no Service
/// uses an address.
pub(super) fn find_free(
    api: &Api,
    ranges: &[Range],
    family: IpFamily,
    is_unused: impl Fn(IpAddr) -> bool,
) -> Option<IpAddr> {
    let usable =
        ranges.iter().filter(|range| range.ready && IpFamily::of(range.cidr.first()) == family);
    usable.filter_map(|range| find_free_in(api, range, &is_unused)).next()
}

/// Searches a range from a random address on, and its reserved start last.
fn find_free_in(api: &Api, range: &Range, is_unused: &impl Fn(IpAddr) -> bool) -> Option<IpAddr> {
    let (first, last) = range.allocatable();
    let size = last.checked_sub(first)? + 1;
    let reserved = (size / 16).clamp(*RESERVED.start(), *RESERVED.end());
    let unreserved_start = if size > reserved { first + reserved } else { first };
    let start = api.random(|rng| rng.random_range(unreserved_start..=last));
    (start..=last)
        .chain(unreserved_start..start)
        .chain(first..unreserved_start)
        .map(|number| from_number(number, range.cidr.is_ipv4()))
        .find(|ip| is_unused(*ip) && !has_ip_address(api, *ip))
}

/// Returns whether an address is allocated: an IPAddress with its name exists.
fn has_ip_address(api: &Api, ip: IpAddr) -> bool {
    let Some(resource) = ip_address_resource(api) else { return false };
    api.store.latest(&resource.resource_prefix, &key(&resource, "", &ip.to_string())).is_some()
}

fn ip_address_resource(api: &Api) -> Option<Arc<ResourceType>> {
    api.table.get(NETWORKING, "ipaddresses")
}

/// Returns the IPAddress of a Service's cluster IP.
fn ip_address(ip: IpAddr, service: &Value) -> Value {
    let (namespace, name) = (text(service, "metadata.namespace"), text(service, "metadata.name"));
    json!({
        "metadata": {
            "name": ip.to_string(),
            "labels": {
                "ipaddress.kubernetes.io/ip-family": IpFamily::of(ip).name(),
                "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
            },
        },
        "spec": {"parentRef": {"resource": "services", "namespace": namespace, "name": name}},
    })
}

/// Adds the creation of the IPAddress of a Service's cluster IP to a transaction, unless the Service has it. If it belongs
/// to another object, the address is taken.
pub(super) fn create(api: &Api, ip: IpAddr, service: &Value, transaction: &mut Transaction) {
    let Some(resource) = ip_address_resource(api) else { return };
    let key = key(&resource, "", &ip.to_string());
    let stored = api.store.latest(&resource.resource_prefix, &key);
    if stored.is_some_and(|entry| entry.decode().is_ok_and(|object| is_of(&object, service))) {
        return;
    }
    let now = seconds(api.clock.now());
    loopback::create(api, &resource, ip_address(ip, service), &now, transaction);
    transaction.reserves(ip.to_string());
}

/// Returns whether an IPAddress belongs to a Service.
fn is_of(ip_address: &Value, service: &Value) -> bool {
    text(ip_address, "spec.parentRef.resource") == "services"
        && ["namespace", "name"].iter().all(|field| {
            text(ip_address, &format!("spec.parentRef.{field}"))
                == text(service, &format!("metadata.{field}"))
        })
}

/// Adds the deletion of the IPAddress of a Service's cluster IP to a transaction, unless it belongs to another Service.
pub(super) fn delete(api: &Api, ip: IpAddr, service: &Value, transaction: &mut Transaction) {
    let Some(resource) = ip_address_resource(api) else { return };
    let key = key(&resource, "", &ip.to_string());
    let Some(entry) = api.store.latest(&resource.resource_prefix, &key) else { return };
    if entry.decode().is_ok_and(|object| is_of(&object, service)) {
        transaction.delete(&resource.resource_prefix, &key, Expect::At(entry.revision));
    }
}

/// Creates the missing IPAddresses of Services. Older server versions did not create any.
pub(crate) async fn create_missing_ip_addresses(api: &Arc<Api>) -> Result<(), StatusError> {
    let Some(resource) = ip_address_resource(api) else { return Ok(()) };
    let now = seconds(api.clock.now());
    let add = |transaction: &mut Transaction| {
        for service in loopback::list(api, "v1", "services", "") {
            let ips = list(&service, "spec.clusterIPs").iter();
            for ip in ips.filter_map(|ip| ip.as_str()?.parse().ok()) {
                let ip_address = ip_address(ip, &service);
                loopback::create_if_absent(api, &resource, ip_address, &now, transaction);
            }
        }
        Ok(())
    };
    loopback::commit_missing(api, add).await
}
