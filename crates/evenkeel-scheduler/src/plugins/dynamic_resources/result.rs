//! Builds the allocation that a claim's status contains.

use evenkeel_api::{
    Text,
    views::{
        AllocationResult, DeviceAllocationResult, DeviceConfiguration, DeviceRequest,
        DeviceRequestAllocationResult, DeviceSubRequest, DeviceToleration, NodeSelector,
        NodeSelectorRequirement, NodeSelectorTerm, ResourceClaim,
    },
};
use serde_json::{Map, Value, json};
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use super::{
    allocate::{AllocatedDevices, SelectedDevice},
    requests::{Choice, ClaimRequests},
};

/// An allocation, both decoded and as JSON.
#[derive(Debug, Clone)]
pub(super) struct Allocation {
    /// The decoded allocation, as the plugin reads it.
    pub(super) result: Arc<AllocationResult>,
    /// The JSON to write to the claim's status.
    pub(super) json: Arc<Value>,
    /// Score of the selected subrequests. It is higher for subrequests of higher preference.
    pub(super) rank: i64,
}

/// Maximum number of subrequests of a request.
///
/// Upstream: `FirstAvailableDeviceRequestMaxSize`.
const MAX_SUBREQUESTS: i64 = 8;

/// Scores the selected subrequests of a claim. Subrequests that the claim lists earlier score higher. The argument of
/// `is_selected` has the form `request/subrequest`.
pub(super) fn rank(claim: &ResourceClaim, is_selected: impl Fn(&str) -> bool) -> i64 {
    let score_request = |request: &DeviceRequest| -> i64 {
        let full_name =
            |subrequest: &DeviceSubRequest| format!("{}/{}", request.name, subrequest.name);
        let subrequests = request.first_available.iter().zip(0..);
        let selected = subrequests.filter(|(subrequest, _)| is_selected(&full_name(subrequest)));
        selected.map(|(_, index)| MAX_SUBREQUESTS - index).sum()
    };
    claim.spec.devices.requests.iter().map(score_request).sum()
}

/// Builds the allocation of a claim from the selected devices.
///
/// # Errors
/// Fails if a node selector has several terms, because an allocation cannot combine their alternatives.
pub(super) fn allocation(
    node: &str,
    claim_requests: &ClaimRequests,
    allocated: &AllocatedDevices<'_>,
) -> Result<Allocation, String> {
    let selector = node_selector(node, &allocated.devices).map_err(|error| {
        format!("create NodeSelector for claim {}: {error}", claim_requests.claim.meta.name)
    })?;
    let mut results: Vec<DeviceRequestAllocationResult> = Vec::new();
    let mut results_json = Vec::new();
    for (index, selected) in allocated.devices.iter().enumerate() {
        let result = device_result(claim_requests, selected, index);
        results_json.push(device_result_json(&result, choice_of(claim_requests, selected)));
        results.push(result);
    }
    let mut devices_json = json!({ "results": results_json });
    let config = config(claim_requests, allocated);
    if !config.is_empty() {
        devices_json["config"] = Value::Array(config);
    }
    let mut json = json!({ "devices": devices_json });
    if let Some(selector) = &selector {
        json["nodeSelector"] = selector_json(selector);
    }
    let is_selected = |name: &str| results.iter().any(|result| *result.request == *name);
    let rank = rank(&claim_requests.claim, is_selected);
    let result = AllocationResult {
        devices: DeviceAllocationResult { results: results.into() },
        node_selector: selector.map(Box::new),
        allocation_timestamp: None,
    };
    Ok(Allocation { result: Arc::new(result), json: Arc::new(json), rank })
}

/// Returns the choice for which the device was selected.
fn choice_of<'a>(claim_requests: &'a ClaimRequests, selected: &SelectedDevice<'_>) -> &'a Choice {
    &claim_requests.requests[selected.request_index][selected.choice_index]
}

/// Returns the result for one device. `index` is its position among the claim's selected devices.
fn device_result(
    claim_requests: &ClaimRequests,
    selected: &SelectedDevice<'_>,
    index: usize,
) -> DeviceRequestAllocationResult {
    let choice = choice_of(claim_requests, selected);
    let claim_uid = &claim_requests.claim.meta.uid;
    let device = selected.device;
    let consumed = selected.consumed.as_ref();
    DeviceRequestAllocationResult {
        request: choice.full_name().into(),
        driver: selected.offer.driver().into(),
        pool: selected.offer.pool().into(),
        device: device.name.clone(),
        admin_access: choice.admin_access.then_some(true),
        binding_conditions: device.binding_conditions.clone(),
        binding_failure_conditions: device.binding_failure_conditions.clone(),
        share_id: consumed.map(|_| share_id(claim_uid, &device.name, index).into()),
        consumed_capacity: consumed
            .into_iter()
            .flatten()
            .map(|(name, amount)| (name.clone(), *amount))
            .collect(),
    }
}

/// Returns the JSON of the result for one device, with the tolerations of its choice.
fn device_result_json(result: &DeviceRequestAllocationResult, choice: &Choice) -> Value {
    let mut json = json!({
        "request": result.request, "driver": result.driver, "pool": result.pool, "device": result.device,
    });
    if choice.admin_access {
        json["adminAccess"] = json!(true);
    }
    if !choice.tolerations.is_empty() {
        json["tolerations"] = choice.tolerations.iter().map(toleration_json).collect();
    }
    for (name, conditions) in [
        ("bindingConditions", &result.binding_conditions),
        ("bindingFailureConditions", &result.binding_failure_conditions),
    ] {
        if !conditions.is_empty() {
            json[name] = json!(conditions);
        }
    }
    if let Some(id) = &result.share_id {
        json["shareID"] = json!(id);
    }
    if !result.consumed_capacity.is_empty() {
        let amounts = result.consumed_capacity.iter();
        let amounts: Map<String, Value> =
            amounts.map(|(name, amount)| (name.to_owned(), json!(amount.to_string()))).collect();
        json["consumedCapacity"] = Value::Object(amounts);
    }
    json
}

/// Returns a share id in the form of a UUID. It is unique for the claim, the device and the index.
fn share_id(claim: &str, device: &str, index: usize) -> String {
    // Two hashes with different salts give the 128 bits of the UUID.
    let hash = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, claim, device, index).hash(&mut hasher);
        hasher.finish()
    };
    let high = hash(0);
    let low = hash(1);
    // The digit 4 is the UUID version, and the bits 0x8000 are the variant.
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xfff,
        0x8000 | ((low >> 48) & 0x3fff),
        low & 0xffff_ffff_ffff
    )
}

/// Encodes a toleration without its empty fields.
fn toleration_json(toleration: &DeviceToleration) -> Value {
    let DeviceToleration { key, operator, value, effect, toleration_seconds } = toleration;
    let mut json = Map::new();
    for (name, text) in [("key", key), ("operator", operator), ("value", value), ("effect", effect)]
    {
        if !text.is_empty() {
            json.insert(name.to_owned(), json!(text));
        }
    }
    if let Some(seconds) = toleration_seconds {
        json.insert("tolerationSeconds".to_owned(), json!(seconds));
    }
    Value::Object(json)
}

/// Returns the configuration for drivers. The entries of each selected class come first, with the requests for the
/// class. The entries of the claim follow. An empty list of requests means all requests.
fn config(claim_requests: &ClaimRequests, allocated: &AllocatedDevices<'_>) -> Vec<Value> {
    let selected_choices: Vec<&Choice> = allocated
        .choices
        .iter()
        .zip(&claim_requests.requests)
        .filter_map(|(index, choices)| choices.get(*index))
        .collect();
    // Names of the selected requests by class, in the order of the requests.
    let mut classes: Vec<(&str, Vec<String>)> = Vec::new();
    for choice in &selected_choices {
        let class = &*choice.class.meta.name;
        match classes.iter_mut().find(|(name, _)| *name == class) {
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
        let class_choice =
            selected_choices.iter().find(|choice| *choice.class.meta.name == **class);
        for source in class_choice.iter().flat_map(|choice| &*choice.class.spec.config) {
            config.push(entry("FromClass", requests, &source.configuration));
        }
    }
    for source in &claim_requests.claim.spec.devices.config {
        let requests: Vec<String> = source.requests.iter().map(ToString::to_string).collect();
        // A name selects a request with all of its subrequests, or a single subrequest.
        let is_named = |choice: &&Choice| {
            let mut names = requests.iter();
            names.any(|name| **name == *choice.request_name || *name == choice.full_name())
        };
        let applies = requests.is_empty() || selected_choices.iter().any(is_named);
        if applies {
            config.push(entry("FromClaim", &requests, &source.configuration));
        }
    }
    config
}

/// Returns the selector of the nodes that can access the devices, or `None` if all nodes can.
fn node_selector(
    node: &str,
    devices: &[SelectedDevice<'_>],
) -> Result<Option<NodeSelector>, String> {
    let mut term = NodeSelectorTerm::default();
    // A node must meet the requirements of all devices.
    let mut fields = Vec::new();
    let mut labels = Vec::new();
    for selected in devices {
        let device = selected.device;
        let slice = &selected.offer.slice.spec;
        let per_device_selection = slice.per_device_node_selection;
        let name = if per_device_selection { &device.node_name } else { &slice.node_name };
        if !name.is_empty() || device.binds_to_node {
            let is_node = NodeSelectorRequirement {
                key: "metadata.name".into(),
                operator: "In".into(),
                values: [node.into()].into(),
            };
            term.match_fields = [is_node].into();
            return Ok(Some(NodeSelector { node_selector_terms: [term].into() }));
        }
        let selector =
            if per_device_selection { &device.node_selector } else { &slice.node_selector };
        match selector.as_deref().map_or(&[][..], |selector| &selector.node_selector_terms) {
            [] => {}
            [term] => {
                add_missing(&mut fields, &term.match_fields);
                add_missing(&mut labels, &term.match_expressions);
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
    term.match_fields = fields.into();
    term.match_expressions = labels.into();
    Ok(Some(NodeSelector { node_selector_terms: [term].into() }))
}

/// Adds the requirements that the list does not contain yet.
fn add_missing(requirements: &mut Vec<NodeSelectorRequirement>, added: &[NodeSelectorRequirement]) {
    let is_subset = |a: &[Text], b: &[Text]| a.iter().all(|value| b.contains(value));
    for requirement in added {
        let is_equal = |other: &NodeSelectorRequirement| {
            other.key == requirement.key
                && other.operator == requirement.operator
                && is_subset(&other.values, &requirement.values)
                && is_subset(&requirement.values, &other.values)
        };
        if !requirements.iter().any(is_equal) {
            requirements.push(requirement.clone());
        }
    }
}

/// Encodes a node selector without its empty lists.
fn selector_json(selector: &NodeSelector) -> Value {
    let requirements_json = |requirements: &[NodeSelectorRequirement]| -> Vec<Value> {
        let requirement_json = |requirement: &NodeSelectorRequirement| {
            let mut json = json!({ "key": requirement.key, "operator": requirement.operator });
            if !requirement.values.is_empty() {
                json["values"] = json!(requirement.values);
            }
            json
        };
        requirements.iter().map(requirement_json).collect()
    };
    let term_json = |term: &NodeSelectorTerm| {
        let mut json = json!({});
        for (name, requirements) in
            [("matchExpressions", &term.match_expressions), ("matchFields", &term.match_fields)]
        {
            if !requirements.is_empty() {
                json[name] = Value::Array(requirements_json(requirements));
            }
        }
        json
    };
    let terms: Vec<Value> = selector.node_selector_terms.iter().map(term_json).collect();
    json!({ "nodeSelectorTerms": terms })
}
