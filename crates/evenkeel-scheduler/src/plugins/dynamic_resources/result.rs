//! Allocation of a claim in the form of the claim's status.

use evenkeel_api::{
    Text,
    views::{
        AllocationResult, DeviceAllocationResult, DeviceConfiguration, DeviceRequest,
        DeviceRequestAllocationResult, DeviceToleration, NodeSelector, NodeSelectorRequirement,
        NodeSelectorTerm, ResourceClaim,
    },
};
use serde_json::{Map, Value, json};
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use super::{
    allocate::{Allocated, Picked},
    requests::ClaimRequests,
};

/// An allocation, decoded and as JSON.
#[derive(Debug, Clone)]
pub(super) struct Allocation {
    /// The decoded allocation, as the plugin reads it.
    pub(super) result: Arc<AllocationResult>,
    /// The JSON to write to the claim's status.
    pub(super) written: Arc<Value>,
    /// Score of the selected subrequests. It is higher for subrequests of higher preference.
    pub(super) rank: i64,
}

/// Maximum number of subrequests of a request.
///
/// Upstream: `FirstAvailableDeviceRequestMaxSize`.
const MAX_SUBREQUESTS: i64 = 8;

/// Scores the selected subrequests of a claim. Subrequests that the claim lists first score higher.
pub(super) fn rank(claim: &ResourceClaim, is_taken: impl Fn(&str) -> bool) -> i64 {
    let of_request = |request: &DeviceRequest| -> i64 {
        let choices = request.first_available.iter().zip(0..);
        let taken =
            choices.filter(|(choice, _)| is_taken(&format!("{}/{}", request.name, choice.name)));
        taken.map(|(_, index)| MAX_SUBREQUESTS - index).sum()
    };
    claim.spec.devices.requests.iter().map(of_request).sum()
}

/// Builds the allocation of a claim from the selected devices.
///
/// # Errors
/// If a node selector has several terms, which an allocation cannot combine.
pub(super) fn result(
    node: &str,
    claim_requests: &ClaimRequests,
    allocated: &Allocated<'_>,
) -> Result<Allocation, String> {
    let selector = selector(node, &allocated.devices).map_err(|why| {
        format!("create NodeSelector for claim {}: {why}", claim_requests.claim.meta.name)
    })?;
    let mut result: Vec<DeviceRequestAllocationResult> = Vec::new();
    let mut written = Vec::new();
    for (index, picked) in allocated.devices.iter().enumerate() {
        let (decoded, json) = device(claim_requests, picked, index);
        result.push(decoded);
        written.push(json);
    }
    let mut devices = json!({ "results": written });
    let config = config(claim_requests, allocated);
    if !config.is_empty() {
        devices["config"] = Value::Array(config);
    }
    let mut written = json!({ "devices": devices });
    if let Some(selector) = &selector {
        written["nodeSelector"] = selector_json(selector);
    }
    let rank =
        rank(&claim_requests.claim, |name| result.iter().any(|device| *device.request == *name));
    let result = AllocationResult {
        devices: DeviceAllocationResult { results: result.into() },
        node_selector: selector.map(Box::new),
        allocation_timestamp: None,
    };
    Ok(Allocation { result: Arc::new(result), written: Arc::new(written), rank })
}

/// Returns the result for one device, decoded and as JSON. `index` is its index among the claim's devices.
fn device(
    claim_requests: &ClaimRequests,
    picked: &Picked<'_>,
    index: usize,
) -> (DeviceRequestAllocationResult, Value) {
    let choice = &claim_requests.requests[picked.request][picked.choice];
    let share = picked.share.as_ref();
    let share_id =
        share.map(|_| share_id(&claim_requests.claim.meta.uid, &picked.device.name, index));
    let consumed = share.into_iter().flatten().map(|(name, amount)| (name.clone(), *amount));
    let result = DeviceRequestAllocationResult {
        request: choice.full_name().into(),
        driver: picked.offer.driver().into(),
        pool: picked.offer.pool().into(),
        device: picked.device.name.clone(),
        admin_access: choice.admin.then_some(true),
        binding_conditions: picked.device.binding_conditions.clone(),
        binding_failure_conditions: picked.device.binding_failure_conditions.clone(),
        share_id: share_id.map(Into::into),
        consumed_capacity: consumed.collect(),
    };
    let mut written = json!({
        "request": result.request, "driver": result.driver, "pool": result.pool, "device": result.device,
    });
    if choice.admin {
        written["adminAccess"] = json!(true);
    }
    if !choice.tolerations.is_empty() {
        written["tolerations"] = choice.tolerations.iter().map(toleration).collect();
    }
    for (name, conditions) in [
        ("bindingConditions", &result.binding_conditions),
        ("bindingFailureConditions", &result.binding_failure_conditions),
    ] {
        if !conditions.is_empty() {
            written[name] = json!(conditions);
        }
    }
    if let Some(id) = &result.share_id {
        written["shareID"] = json!(id);
    }
    if !result.consumed_capacity.is_empty() {
        let amounts = result.consumed_capacity.iter();
        let amounts: Map<String, Value> =
            amounts.map(|(name, amount)| (name.to_owned(), json!(amount.to_string()))).collect();
        written["consumedCapacity"] = Value::Object(amounts);
    }
    (result, written)
}

/// Returns a share id in the form of a UUID. It is unique for the claim, the device and the index.
fn share_id(claim: &str, device: &str, index: usize) -> String {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, claim, device, index).hash(&mut hasher);
        hasher.finish()
    };
    let (high, low) = (half(0), half(1));
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xfff,
        0x8000 | ((low >> 48) & 0x3fff),
        low & 0xffff_ffff_ffff
    )
}

fn toleration(toleration: &DeviceToleration) -> Value {
    let DeviceToleration { key, operator, value, effect, toleration_seconds } = toleration;
    let mut written = Map::new();
    for (name, text) in [("key", key), ("operator", operator), ("value", value), ("effect", effect)]
    {
        if !text.is_empty() {
            written.insert(name.to_owned(), json!(text));
        }
    }
    if let Some(seconds) = toleration_seconds {
        written.insert("tolerationSeconds".to_owned(), json!(seconds));
    }
    Value::Object(written)
}

/// Returns the configuration for drivers: first that of each class with the requests for the class, then that of the
/// claim. An empty list of requests means all requests.
fn config(claim_requests: &ClaimRequests, allocated: &Allocated<'_>) -> Vec<Value> {
    let taken: Vec<_> = allocated
        .choices
        .iter()
        .zip(&claim_requests.requests)
        .filter_map(|(index, choices)| choices.get(*index))
        .collect();
    let mut classes: Vec<(&str, Vec<String>)> = Vec::new();
    for choice in &taken {
        let class = &*choice.class.meta.name;
        match classes.iter_mut().find(|(known, _)| *known == class) {
            Some((_, requests)) => requests.push(choice.full_name()),
            None => classes.push((class, vec![choice.full_name()])),
        }
    }
    let mut config = Vec::new();
    let entry = |source: &str, requests: &[String], configuration: &DeviceConfiguration| {
        let mut entry = json!({ "source": source });
        if !requests.is_empty() {
            entry["requests"] = json!(requests);
        }
        if let Some(opaque) = configuration.opaque.as_deref() {
            let parameters = serde_json::from_str(&opaque.parameters.0).unwrap_or(Value::Null);
            entry["opaque"] = json!({ "driver": opaque.driver, "parameters": parameters });
        }
        entry
    };
    for (class, requests) in &classes {
        let class_choice = taken.iter().find(|choice| *choice.class.meta.name == **class);
        for source in class_choice.iter().flat_map(|choice| &*choice.class.spec.config) {
            config.push(entry("FromClass", requests, &source.configuration));
        }
    }
    for source in &claim_requests.claim.spec.devices.config {
        let requests: Vec<String> = source.requests.iter().map(ToString::to_string).collect();
        let applies = requests.is_empty()
            || taken.iter().any(|choice| {
                requests.iter().any(|name| **name == *choice.request || *name == choice.full_name())
            });
        if applies {
            config.push(entry("FromClaim", &requests, &source.configuration));
        }
    }
    config
}

/// Returns the selector of the nodes that can access the devices, or `None` if all nodes can.
fn selector(node: &str, devices: &[Picked<'_>]) -> Result<Option<NodeSelector>, String> {
    let mut term = NodeSelectorTerm::default();
    let (mut fields, mut labels) = (Vec::new(), Vec::new());
    for picked in devices {
        let (device, slice) = (picked.device, &picked.offer.slice.spec);
        let per_device_selection = slice.per_device_node_selection;
        let name = if per_device_selection { &device.node_name } else { &slice.node_name };
        if !name.is_empty() || device.binds_to_node {
            let only = NodeSelectorRequirement {
                key: "metadata.name".into(),
                operator: "In".into(),
                values: [node.into()].into(),
            };
            term.match_fields = [only].into();
            return Ok(Some(NodeSelector { node_selector_terms: [term].into() }));
        }
        let selector =
            if per_device_selection { &device.node_selector } else { &slice.node_selector };
        match selector.as_deref().map_or(&[][..], |selector| &selector.node_selector_terms) {
            [] => {}
            [term] => {
                join(&mut fields, &term.match_fields);
                join(&mut labels, &term.match_expressions);
            }
            terms => {
                let count = terms.len();
                return Err(format!("unsupported ResourceSlice.NodeSelector with {count} terms"));
            }
        }
    }
    if fields.is_empty() && labels.is_empty() {
        return Ok(None);
    }
    (term.match_fields, term.match_expressions) = (fields.into(), labels.into());
    Ok(Some(NodeSelector { node_selector_terms: [term].into() }))
}

/// Adds the requirements that the list does not contain yet.
fn join(all: &mut Vec<NodeSelectorRequirement>, more: &[NodeSelectorRequirement]) {
    for requirement in more {
        let same = |known: &NodeSelectorRequirement| {
            let covers = |a: &[Text], b: &[Text]| a.iter().all(|value| b.contains(value));
            known.key == requirement.key
                && known.operator == requirement.operator
                && covers(&known.values, &requirement.values)
                && covers(&requirement.values, &known.values)
        };
        if !all.iter().any(same) {
            all.push(requirement.clone());
        }
    }
}

fn selector_json(selector: &NodeSelector) -> Value {
    let to_json = |requirements: &[NodeSelectorRequirement]| -> Vec<Value> {
        let requirement_json = |requirement: &NodeSelectorRequirement| {
            let mut written = json!({ "key": requirement.key, "operator": requirement.operator });
            if !requirement.values.is_empty() {
                written["values"] = json!(requirement.values);
            }
            written
        };
        requirements.iter().map(requirement_json).collect()
    };
    let term = |term: &NodeSelectorTerm| {
        let mut written = json!({});
        for (name, requirements) in
            [("matchExpressions", &term.match_expressions), ("matchFields", &term.match_fields)]
        {
            if !requirements.is_empty() {
                written[name] = Value::Array(to_json(requirements));
            }
        }
        written
    };
    let terms: Vec<Value> = selector.node_selector_terms.iter().map(term).collect();
    json!({ "nodeSelectorTerms": terms })
}
