//! Checks of node groups: refuses values that the API server would refuse at the registration of a node.

use super::types::{Nodes, Quantity};
use evenkeel_api::{forms, quantity};
use std::collections::BTreeMap;

/// Checks capacities, labels, zones and taints.
///
/// # Errors
/// Fails if a value is invalid. The error starts with its path.
pub(crate) fn check(groups: &[Nodes]) -> Result<(), String> {
    for (position, group) in groups.iter().enumerate() {
        check_group(group).map_err(|why| format!("nodes[{position}].{why}"))?;
    }
    Ok(())
}

fn check_group(group: &Nodes) -> Result<(), String> {
    // The name of a node is also the value of a label.
    let longest = format!("{}-{}", group.name, group.count.saturating_sub(1));
    valid("name", &longest, forms::label_value)?;
    for resource in group.capacity.keys() {
        valid(&format!("capacity.{resource}"), resource, forms::qualified_name)?;
    }
    amounts("capacity", &group.capacity)?;
    for (key, value) in &group.labels {
        let path = format!("labels.{key}");
        valid(&path, key, forms::qualified_name)?;
        valid(&path, value, forms::label_value)?;
    }
    for (index, zone) in group.zones.iter().enumerate() {
        valid(&format!("zones[{index}]"), zone, forms::label_value)?;
    }
    for (index, taint) in group.taints.iter().enumerate() {
        valid(&format!("taints[{index}].key"), &taint.key, forms::qualified_name)?;
        valid(&format!("taints[{index}].value"), &taint.value, forms::label_value)?;
    }
    for (index, devices) in group.devices.iter().enumerate() {
        amounts(&format!("devices[{index}].capacity"), &devices.capacity)?;
    }
    Ok(())
}

/// Checks that a value matches a pattern.
fn valid(path: &str, text: &str, form: fn(&str) -> forms::Messages) -> Result<(), String> {
    match form(text).first() {
        None => Ok(()),
        Some(message) => Err(format!("{path}: {text:?}: {message}")),
    }
}

/// Checks that amounts are quantities, and not negative.
fn amounts(path: &str, amounts: &BTreeMap<String, Quantity>) -> Result<(), String> {
    for (name, amount) in amounts {
        let text = amount.text();
        let parsed = quantity::Quantity::parse(&text).ok();
        if parsed.is_none_or(|amount| amount.sign() < 0) {
            return Err(format!(
                "{path}.{name}: {text:?} is not an amount such as 8, 500m or 64Gi"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::up::config::read;

    #[test]
    fn values_that_no_node_can_have_are_refused_with_their_path() {
        let read = |group: &str| {
            let head = "apiVersion: evenkeel.dev/v1alpha1\nkind: Cluster\n";
            read("c", &format!("{head}nodes: [{{name: a}}, {{name: b, {group}}}]\n"))
        };
        for (group, want) in [
            ("capacity: {cpu: x}", "nodes[1].capacity.cpu: \"x\" is not an amount"),
            ("capacity: {memory: -1}", "nodes[1].capacity.memory: \"-1\" is not an amount"),
            ("capacity: {'a b': 1}", "nodes[1].capacity.a b: \"a b\": name part must consist"),
            ("labels: {'a b': c}", "nodes[1].labels.a b: \"a b\": name part must consist"),
            ("labels: {a: 'b c'}", "nodes[1].labels.a: \"b c\": a valid label must"),
            ("zones: [a, 'b c']", "nodes[1].zones[1]: \"b c\": a valid label must"),
            ("taints: [{key: '', effect: NoExecute}]", "nodes[1].taints[0].key: \"\": name part"),
            (
                "taints: [{key: a, value: 'b c', effect: NoExecute}]",
                "nodes[1].taints[0].value: \"b c\"",
            ),
            (
                "devices: [{driver: d, capacity: {memory: much}}]",
                "nodes[1].devices[0].capacity.memory: \"much\" is not an amount",
            ),
        ] {
            let error = read(group).expect_err(group).to_string();
            assert!(error.starts_with(&format!("c: {want}")), "{error}");
        }
        let error = read(&format!("zones: []}}, {{name: {}", "n".repeat(62))).expect_err("long");
        assert!(error.to_string().starts_with("c: nodes[2].name: \"nnn"), "{error}");
        let valid = "capacity: {cpu: 0.5, memory: 1Ti, example.com/gpu: 8}, labels: {example.com/a: ''}, zones: [z], \
            taints: [{key: gpu, effect: NoSchedule}], devices: [{driver: d, capacity: {memory: 80Gi}}]";
        read(valid).expect("valid");
    }
}
