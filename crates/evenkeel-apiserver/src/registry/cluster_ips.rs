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
/// Minimum and maximum number of addresses at the start of a range for Services that request a specific address. Other
/// Services get them only when the rest of the range is full.
const RESERVED: std::ops::RangeInclusive<u128> = 16..=256;

/// Range of a ServiceCIDR.
pub(super) struct Range {
    cidr: Cidr,
    /// Whether Services may get addresses: the ServiceCIDR has no deletion timestamp and is not marked unready.
    ready: bool,
}

impl Range {
    /// Returns the first and the last address of the range that may be allocated.
    fn bounds(&self) -> (u128, u128) {
        let (first, last) = (number(self.cidr.first()), number(self.cidr.last()));
        // Exclude the network address, and the broadcast address of IPv4.
        (first + 1, if self.cidr.first().is_ipv4() { last.saturating_sub(1) } else { last })
    }

    /// Returns whether the address is one that Services may get.
    fn has(&self, ip: IpAddr) -> bool {
        let (first, last) = self.bounds();
        self.cidr.contains(ip) && (first..=last).contains(&number(ip))
    }
}

/// Returns the ranges of all ServiceCIDRs, older ones first.
pub(super) fn ranges(api: &Api) -> Vec<Range> {
    let mut all = loopback::all(api, NETWORKING, "servicecidrs", "");
    all.sort_by_key(|cidr| {
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
        let cidrs: Vec<Range> = list(object, "spec.cidrs")
            .iter()
            .filter_map(|cidr| Some(Range { cidr: Cidr::parse(cidr.as_str()?)?, ready }))
            .collect();
        cidrs
    };
    all.iter().flat_map(ranges_of).collect()
}

/// Returns the reason why an address cannot be allocated. `has_service` tells whether a Service has it.
pub(super) fn refusal(
    api: &Api,
    ranges: &[Range],
    ip: IpAddr,
    has_service: impl Fn(IpAddr) -> bool,
) -> Option<&'static str> {
    if !ranges.iter().any(|range| range.ready && range.has(ip)) {
        return Some("the provided network does not match the current range");
    }
    (has_service(ip) || is_taken(api, ip)).then_some("provided IP is already allocated")
}

/// Returns a free address of the family, or `None` if all its ranges are full. `is_free` tells whether no Service has an
/// address.
pub(super) fn free(
    api: &Api,
    ranges: &[Range],
    family: IpFamily,
    is_free: impl Fn(IpAddr) -> bool,
) -> Option<IpAddr> {
    let usable =
        ranges.iter().filter(|range| range.ready && IpFamily::of(range.cidr.first()) == family);
    usable.filter_map(|range| free_in(api, range, &is_free)).next()
}

fn free_in(api: &Api, range: &Range, is_free: &impl Fn(IpAddr) -> bool) -> Option<IpAddr> {
    let (first, last) = range.bounds();
    let size = last.checked_sub(first)? + 1;
    let reserved = (size / 16).clamp(*RESERVED.start(), *RESERVED.end());
    let rest = if size > reserved { first + reserved } else { first };
    let from = api.random(|rng| rng.random_range(rest..=last));
    (from..=last)
        .chain(rest..from)
        .chain(first..rest)
        .map(|number| from_number(number, range.cidr.is_ipv4()))
        .find(|ip| is_free(*ip) && !is_taken(api, *ip))
}

fn is_taken(api: &Api, ip: IpAddr) -> bool {
    let Some(resource) = addresses(api) else { return false };
    api.store.latest(&resource.resource_prefix, &key(&resource, "", &ip.to_string())).is_some()
}

fn addresses(api: &Api) -> Option<Arc<ResourceType>> {
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
        "spec": {"parentRef": {"group": "", "resource": "services", "namespace": namespace, "name": name}},
    })
}

/// Adds the creation of the IPAddress of a Service's cluster IP to a transaction, unless it exists.
pub(super) fn create(api: &Api, ip: IpAddr, service: &Value, transaction: &mut Transaction) {
    let Some(resource) = addresses(api) else { return };
    if !is_taken(api, ip) {
        let now = seconds(api.clock.now());
        loopback::create(api, &resource, ip_address(ip, service), &now, transaction);
    }
}

/// Adds the deletion of the IPAddress of a Service's cluster IP to a transaction, unless it belongs to another Service.
pub(super) fn delete(api: &Api, ip: IpAddr, service: &Value, transaction: &mut Transaction) {
    let Some(resource) = addresses(api) else { return };
    let key = key(&resource, "", &ip.to_string());
    let Some(entry) = api.store.latest(&resource.resource_prefix, &key) else { return };
    let belongs_to_service = entry.decode().is_ok_and(|object: Value| {
        text(&object, "spec.parentRef.resource") == "services"
            && ["namespace", "name"].iter().all(|field| {
                text(&object, &format!("spec.parentRef.{field}"))
                    == text(service, &format!("metadata.{field}"))
            })
    });
    if belongs_to_service {
        transaction.delete(&resource.resource_prefix, &key, Expect::At(entry.revision));
    }
}

/// Creates the missing IPAddresses of Services. Older server versions did not create any.
pub(crate) async fn show_all(api: &Arc<Api>) -> Result<(), StatusError> {
    let Some(resource) = addresses(api) else { return Ok(()) };
    let now = seconds(api.clock.now());
    let mut transaction = Transaction::default();
    for service in loopback::all(api, "v1", "services", "") {
        let ips = list(&service, "spec.clusterIPs").iter();
        for ip in ips.filter_map(|ip| ip.as_str()?.parse().ok()) {
            loopback::put(api, &resource, ip_address(ip, &service), &now, &mut transaction);
        }
    }
    api.store.commit(transaction).await?;
    Ok(())
}
