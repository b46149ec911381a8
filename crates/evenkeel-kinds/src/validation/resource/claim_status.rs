//! Validation of a claim's status: allocation, consumers and device statuses.

use super::super::affinity::validate_node_selector;
use super::super::conditions::conditions;
use super::claim::{MAX_REQUESTS, RequestNames};
use super::class::{MAX_CONFIGS, device_configuration, raw_extension};
use super::slice::binding_conditions;
use super::taint::device_toleration;
use super::{ErrorLists, item_text, items, names, set};
use evenkeel_api::forms::parse_cidr;
use evenkeel_apimachinery::go_text::go_json_string;
use evenkeel_apimachinery::status::BadValue;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{get, list, text};
use serde_json::Value;
use std::collections::BTreeSet;

/// Maximum number of consumers in `status.reservedFor`.
const MAX_CONSUMERS: usize = 256;
/// Maximum number of conditions of a device.
const MAX_CONDITIONS: usize = 8;
/// Maximum number of addresses of a network interface.
const MAX_IPS: usize = 16;
/// Maximum length of a network interface's name in bytes.
const MAX_INTERFACE_NAME: usize = 256;
/// Maximum length of a network interface's hardware address in bytes.
const MAX_HARDWARE_ADDRESS: usize = 128;

/// Identity of a device: driver, pool, name, and the share ID if the device is shared.
pub type DeviceId<'v> = (&'v str, &'v str, &'v str, Option<&'v str>);

/// Returns the identity of a device in an allocation or in `status.devices`.
///
/// Upstream: `MakeSharedDeviceID`.
pub fn device_id(device: &Value) -> DeviceId<'_> {
    let share = get(device, "shareID").and_then(Value::as_str);
    (text(device, "driver"), text(device, "pool"), text(device, "device"), share)
}

/// Validates an update of a claim's status: a new allocation, its consumers and its devices.
///
/// Upstream: `ValidateResourceClaimStatusUpdate`.
pub(super) fn update(new: &Value, old: &Value, lists: &mut ErrorLists) {
    let path = Path::new("status");
    let spec = new.get("spec").unwrap_or(&Value::Null);
    let request_names = RequestNames::of(spec);
    let consumers = list(new, "status.reservedFor");
    let consumers_path = path.field("reservedFor");
    let (allocation, old_allocation) =
        (get(new, "status.allocation"), get(old, "status.allocation"));
    // Declarative validation reports the errors of the allocation first, handwritten validation last.
    let mut allocated = ErrorLists::default();
    match (allocation, old_allocation) {
        (Some(allocation), Some(old)) if allocation != old => {
            let detail = "field cannot be modified once set";
            allocated.declarative.invalid(&path.field("allocation"), Value::Null, detail);
        }
        (Some(allocation), None) => {
            allocation_result(
                allocation,
                &request_names,
                &path.field("allocation"),
                &mut allocated,
            );
        }
        _ => {}
    }
    lists.declarative.extend(std::mem::take(&mut allocated.declarative));
    let uid = |consumer| text(consumer, "uid");
    set(consumers, MAX_CONSUMERS, uid, &consumers_path, lists, |consumer, path, lists| {
        for field in ["resource", "name", "uid"] {
            if text(consumer, field).is_empty() {
                lists.handwritten.required(&path.field(field), "");
            }
        }
    });
    let results = list(new, "status.allocation.devices.results");
    let allocated_devices: BTreeSet<DeviceId<'_>> = results.iter().map(device_id).collect();
    let devices = list(new, "status.devices");
    set(devices, usize::MAX, device_id, &path.field("devices"), lists, |device, path, lists| {
        device_status(device, allocated_devices.contains(&device_id(device)), path, lists);
    });
    if !consumers.is_empty() {
        consumers_of_allocation(new, old, &consumers_path, &mut lists.handwritten);
    }
    lists.handwritten.extend(allocated.handwritten);
}

/// Rejects consumers of a claim that is not allocated, and new consumers of a claim that is being deleted.
fn consumers_of_allocation(new: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    if get(new, "status.allocation").is_none() {
        return errors.forbidden(path, "may not be specified when `allocated` is not set");
    }
    let known = list(old, "status.reservedFor");
    let adds = list(new, "status.reservedFor").iter().any(|consumer| !known.contains(consumer));
    if adds && get(new, "metadata.deletionTimestamp").is_some() {
        let detail = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
        errors.forbidden(path, detail);
    }
}

/// Validates an allocation: its devices, their configuration, and the node selector.
///
/// Upstream: `validateAllocationResult`, `validateDeviceAllocationResult`.
fn allocation_result(
    allocation: &Value,
    request_names: &RequestNames<'_>,
    path: &Path<'_>,
    lists: &mut ErrorLists,
) {
    let devices = path.field("devices");
    let results = list(allocation, "devices.results");
    items(results, MAX_REQUESTS, &devices.field("results"), lists, |result, path, lists| {
        device_result(result, request_names, path, lists);
    });
    let configs = list(allocation, "devices.config");
    items(configs, 2 * MAX_CONFIGS, &devices.field("config"), lists, |config, path, lists| {
        let source_path = path.field("source");
        match text(config, "source") {
            "" => lists.declarative.required(&source_path, ""),
            source => lists.declarative.one_of(&source_path, source, &["FromClaim", "FromClass"]),
        }
        request_names.validate_requests(config, path, lists);
        device_configuration(config, false, path, lists);
    });
    if let Some(selector) = get(allocation, "nodeSelector") {
        let path = path.field("nodeSelector");
        validate_node_selector(selector, false, &path, &mut lists.handwritten);
    }
}

/// Validates one allocated device: the request that it satisfies, and its driver, pool and name.
///
/// Upstream: `validateDeviceRequestAllocationResult`.
fn device_result(
    result: &Value,
    request_names: &RequestNames<'_>,
    path: &Path<'_>,
    lists: &mut ErrorLists,
) {
    let (handwritten, declarative) = (&mut lists.handwritten, &mut lists.declarative);
    let request = text(result, "request");
    request_names.validate_reference(request, &path.field("request"), handwritten);
    names::declared_driver(text(result, "driver"), &path.field("driver"), declarative);
    names::declared_pool(text(result, "pool"), &path.field("pool"), declarative);
    names::label(text(result, "device"), &path.field("device"), handwritten);
    binding_conditions(result, path, lists);
    let tolerations = path.field("tolerations");
    for (index, toleration) in list(result, "tolerations").iter().enumerate() {
        device_toleration(toleration, &tolerations.index(index), lists);
    }
    share_id(result, path, lists);
}

/// Validates `shareID`, which is optional.
fn share_id(device: &Value, path: &Path<'_>, lists: &mut ErrorLists) {
    if let Some(share) = get(device, "shareID").and_then(Value::as_str) {
        names::declared_uuid(share, &path.field("shareID"), &mut lists.declarative);
    }
}

/// Validates the status of one device. The device must be allocated to the claim.
///
/// Upstream: `validateDeviceStatus`.
fn device_status(device: &Value, is_allocated: bool, path: &Path<'_>, lists: &mut ErrorLists) {
    let errors = &mut lists.handwritten;
    names::driver(text(device, "driver"), &path.field("driver"), errors);
    names::pool(text(device, "pool"), &path.field("pool"), errors);
    names::label(text(device, "device"), &path.field("device"), errors);
    if !is_allocated {
        let (driver, pool, name, share) = device_id(device);
        let [driver, pool, name, share] =
            [driver, pool, name, share.unwrap_or_default()].map(go_json_string);
        let id =
            format!(r#"{{"Driver":{driver},"Pool":{pool},"Device":{name},"ShareID":{share}}}"#);
        errors.invalid(path, BadValue::Encoded(id), "must be an allocated device in the claim");
    }
    let found = list(device, "conditions");
    let conditions_path = path.field("conditions");
    if found.len() > MAX_CONDITIONS {
        errors.too_many(&conditions_path, found.len(), MAX_CONDITIONS);
    }
    conditions(found, &conditions_path, errors);
    if let Some(data) = get(device, "data") {
        raw_extension(Some(data), false, &path.field("data"), errors);
    }
    share_id(device, path, lists);
    if let Some(network) = get(device, "networkData") {
        network_device_data(network, &path.field("networkData"), lists);
    }
}

/// Validates interface name, IP addresses and hardware address of a network device.
///
/// Upstream: `validateNetworkDeviceData`.
fn network_device_data(network: &Value, path: &Path<'_>, lists: &mut ErrorLists) {
    let max_bytes = |field: &str, limit: usize, lists: &mut ErrorLists| {
        if text(network, field).len() > limit {
            lists.declarative.too_long(&path.field(field), limit);
        }
    };
    max_bytes("interfaceName", MAX_INTERFACE_NAME, lists);
    let ips = list(network, "ips");
    set(ips, MAX_IPS, item_text, &path.field("ips"), lists, |ip, path, lists| {
        interface_address(item_text(ip), path, &mut lists.handwritten);
    });
    max_bytes("hardwareAddress", MAX_HARDWARE_ADDRESS, lists);
}

/// Validates an address with a prefix length, in canonical form.
///
/// Upstream: `IsValidInterfaceAddress`.
fn interface_address(address: &str, path: &Path<'_>, errors: &mut Errors) {
    let Some((ip, bits)) = parse_cidr(address) else {
        let detail = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)";
        return errors.invalid(path, address, detail);
    };
    let mapped = matches!(ip, core::net::IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some());
    let bits = if mapped && bits > 32 { bits.saturating_sub(96) } else { bits };
    let canonical = format!("{}/{bits}", ip.to_canonical());
    if address != canonical {
        errors.invalid(path, address, &format!("must be in canonical form ({canonical:?})"));
    }
}
