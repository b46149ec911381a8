//! Each test compares the fields and messages of an object's errors.

use super::*;
use serde_json::json;

/// Returns each error's field and message, such as `spec.driver: Required value`. Without `old`, `new` is created.
fn errors_of(kind: &str, new: &Value, old: Option<&Value>, subresource: &str) -> Vec<String> {
    let mut errors = Errors::default();
    let group = "resource.k8s.io";
    let target = ValidationTarget { group, request_group: group, kind, subresource };
    match old {
        None => create(kind, new, &mut errors),
        Some(old) => update(target, new, old, &mut errors),
    }
    errors.into_vec().iter().map(ToString::to_string).collect()
}

/// Asserts that creating the object has the expected errors, which `expected` lists by their beginnings.
#[track_caller]
fn check(kind: &str, new: &Value, expected: &[&str]) {
    check_update(kind, "", new, None, expected);
}

/// Asserts that an update has the expected errors, which `expected` lists by their beginnings.
#[track_caller]
fn check_update(kind: &str, path: &str, new: &Value, old: Option<&Value>, expected: &[&str]) {
    let found = errors_of(kind, new, old, path);
    let is_expected = found.len() == expected.len()
        && found.iter().zip(expected).all(|(found, start)| found.starts_with(start));
    assert!(is_expected, "{kind} {new}: {found:#?}, not {expected:#?}");
}

/// Returns `base` with the value at a JSON pointer replaced; null removes it.
fn with(base: &Value, pointer: &str, value: Value) -> Value {
    let mut changed = base.clone();
    let (parent, name) = pointer.rsplit_once('/').expect("a pointer");
    match changed.pointer_mut(parent).expect("a parent") {
        Value::Object(fields) if value.is_null() => {
            fields.remove(name);
        }
        Value::Object(fields) => {
            fields.insert(name.to_owned(), value);
        }
        Value::Array(items) => items[name.parse::<usize>().expect("an index")] = value,
        other => panic!("{other} has no {name}"),
    }
    changed
}

/// Returns a valid claim of a GPU and of one of two alternatives.
fn claim() -> Value {
    json!({"spec": {"devices": {
        "requests": [
            {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com", "allocationMode": "ExactCount", "count": 1,
                "selectors": [{"cel": {"expression": "device.driver == 'a'"}}],
                "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoSchedule"}]}},
            {"name": "alt", "firstAvailable": [
                {"name": "a", "deviceClassName": "a", "allocationMode": "All"},
                {"name": "b", "deviceClassName": "b", "allocationMode": "ExactCount", "count": 2}]},
        ],
        "constraints": [{"requests": ["gpu", "alt/a"], "matchAttribute": "example.com/numa"}],
        "config": [{"requests": ["alt"], "opaque": {"driver": "GPU.example.com", "parameters": {"a": "b"}}}],
    }}})
}

/// Returns a valid slice of one device on node `n1`.
fn slice() -> Value {
    json!({"spec": {
        "driver": "gpu.example.com", "nodeName": "n1",
        "pool": {"name": "a/b", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0", "attributes": {"model": {"string": "a"}, "a.b/ver": {"version": "1.2.3-a.1+b"}},
            "capacity": {"memory": {"value": "1Gi"}}}],
    }})
}

#[test]
fn claims_need_valid_requests_constraints_and_configurations() {
    let gpu = "/spec/devices/requests/0";
    let alternative = "/spec/devices/requests/1/firstAvailable/0";
    let first = "spec.devices.requests[0]";
    let sub = "spec.devices.requests[1].firstAvailable[0]";
    for (pointer, value, expected) in [
        ("/spec/devices/config", json!(null), vec![]),
        (
            "/spec/devices/requests",
            json!([]),
            vec![
                "spec.devices.constraints[0].requests[0]: Invalid value: \"gpu\": must be the name of a request",
                "spec.devices.constraints[0].requests[1]: Invalid value: \"alt/a\"",
                "spec.devices.config[0].requests[0]: Invalid value: \"alt\"",
            ],
        ),
        (
            &format!("{gpu}/exactly"),
            json!(null),
            vec![&format!("{first}: Required value: exactly one of")],
        ),
        (
            &format!("{gpu}/exactly/deviceClassName"),
            json!(""),
            vec![&format!("{first}.exactly.deviceClassName: Required value")],
        ),
        (
            &format!("{gpu}/exactly/allocationMode"),
            json!("All"),
            vec![&format!(
                "{first}.exactly.count: Invalid value: 1: must not be specified when allocationMode is 'All'"
            )],
        ),
        (
            &format!("{gpu}/exactly/allocationMode"),
            json!("Some"),
            vec![&format!(
                r#"{first}.exactly.allocationMode: Unsupported value: "Some": supported values: "All", "ExactCount""#
            )],
        ),
        (
            &format!("{gpu}/exactly/count"),
            json!(-1),
            vec![&format!("{first}.exactly.count: Invalid value: -1: must be greater than zero")],
        ),
        (
            &format!("{gpu}/exactly/tolerations/0/effect"),
            json!("x"),
            vec![&format!(
                r#"{first}.exactly.tolerations[0].effect: Unsupported value: "x": supported values: "NoExecute", "NoSchedule", "None""#
            )],
        ),
        (
            &format!("{gpu}/exactly/tolerations/0/value"),
            json!("x"),
            vec![&format!(
                "{first}.exactly.tolerations[0].value: Invalid value: \"x\": must be empty for operator `Exists`"
            )],
        ),
        (
            &format!("{gpu}/firstAvailable"),
            json!([{"name": "a", "deviceClassName": "", "allocationMode": "All"}]),
            vec![
                &format!("{first}: Invalid value: null: exactly one of"),
                &format!("{first}.firstAvailable[0].deviceClassName: Required value"),
            ],
        ),
        (
            &format!("{alternative}/name"),
            json!("b"),
            vec![
                "spec.devices.constraints[0].requests[1]: Invalid value",
                "spec.devices.requests[1].firstAvailable[1]: Duplicate value",
            ],
        ),
        (
            &format!("{alternative}/deviceClassName"),
            json!("A"),
            vec![&format!("{sub}.deviceClassName: Invalid value")],
        ),
        (
            "/spec/devices/constraints/0/matchAttribute",
            json!("numa"),
            vec![
                "spec.devices.constraints[0].matchAttribute: Invalid value: \"numa\": a fully qualified name",
            ],
        ),
        (
            "/spec/devices/constraints/0/matchAttribute",
            json!(null),
            vec!["spec.devices.constraints[0]: Required value: exactly one of"],
        ),
        (
            "/spec/devices/constraints/0/requests",
            json!(["gpu", "gpu", "a/b/c"]),
            vec![
                "spec.devices.constraints[0].requests[2]: Invalid value: \"a/b/c\"",
                "spec.devices.constraints[0].requests[1]: Duplicate value: \"gpu\"",
            ],
        ),
        (
            "/spec/devices/config/0/opaque",
            json!(null),
            vec!["spec.devices.config[0].opaque: Required value"],
        ),
        (
            "/spec/devices/config/0/opaque/parameters",
            json!([]),
            vec![
                "spec.devices.config[0].opaque.parameters: Invalid value: \"<value omitted>\": must be a valid JSON object",
            ],
        ),
        (
            "/spec/devices/config/0/opaque/driver",
            json!("a".repeat(64)),
            vec![
                "spec.devices.config[0].opaque.driver: Too long: may not be more than 63 characters",
            ],
        ),
        (
            "/spec/devices/requests",
            Value::from(vec![json!({}); 33]),
            vec![
                "spec.devices.constraints[0].requests[0]",
                "spec.devices.constraints[0].requests[1]",
                "spec.devices.config[0].requests[0]",
                "spec.devices.requests: Too many: 33",
            ],
        ),
    ] {
        check("ResourceClaim", &with(&claim(), pointer, value), &expected);
    }
}

#[test]
fn selectors_are_compiled_unless_stored() {
    for (expression, expected) in [
        ("device.driver == 'a' && device.allowMultipleAllocations", vec![]),
        ("device.attributes['a.b'].c", vec![]),
        ("device.capacity['a.b'].c.compareTo(quantity('1Gi')) > 0", vec![]),
        ("", vec!["spec.selectors[0].cel.expression: Invalid value: \"\": compilation failed"]),
        ("a", vec!["spec.selectors[0].cel.expression: Invalid value: \"a\": compilation failed"]),
        ("device.name == 'a'", vec!["spec.selectors[0].cel.expression: Invalid value"]),
        (
            "0",
            vec![
                "spec.selectors[0].cel.expression: Invalid value: \"0\": must evaluate to bool or the unknown type, not int",
            ],
        ),
        (
            "device.attributes.all(a, device.attributes.all(b, device.attributes.all(c, device.attributes.all(d, device.driver.matches(a + b + c + d)))))",
            vec!["spec.selectors[0].cel.expression: Forbidden: too complex, exceeds cost limit"],
        ),
    ] {
        let class = json!({"spec": {"selectors": [{"cel": {"expression": expression}}]}});
        check("DeviceClass", &class, &expected);
        check_update("DeviceClass", "", &class, Some(&class), &[]);
    }
    check(
        "DeviceClass",
        &json!({"spec": {"selectors": [{}]}}),
        &["spec.selectors[0].cel: Required value"],
    );
}

#[test]
fn extended_resource_names_have_a_domain_outside_kubernetes_io() {
    for (name, expected) in [
        ("example.com/gpu", vec![]),
        (
            "gpu",
            vec![
                "spec.extendedResourceName: Invalid value: \"gpu\": a name must be a domain-prefixed path",
            ],
        ),
        (
            "kubernetes.io/a",
            vec!["spec.extendedResourceName: Invalid value: \"kubernetes.io/a\": must not have"],
        ),
        (
            "requests.a/b",
            vec!["spec.extendedResourceName: Invalid value: \"requests.a/b\": must not have"],
        ),
        ("a.b/_", vec!["spec.extendedResourceName: Invalid value: \"a.b/_\": name part"]),
    ] {
        check("DeviceClass", &json!({"spec": {"extendedResourceName": name}}), &expected);
    }
}

#[test]
fn specs_of_claims_and_templates_are_immutable() {
    let changed = with(&claim(), "/spec/devices/config", json!(null));
    let immutable = ["spec: Invalid value: null: field is immutable"];
    check_update("ResourceClaim", "", &changed, Some(&claim()), &immutable);
    check_update("ResourceClaim", "", &claim(), Some(&claim()), &[]);
    let template = json!({"spec": {"metadata": {"labels": {"a": "b"}}, "spec": claim()["spec"]}});
    check("ResourceClaimTemplate", &template, &[]);
    let changed = with(&template, "/spec/metadata/name", json!("x"));
    check("ResourceClaimTemplate", &changed, &["spec.metadata.name: Forbidden: cannot be set"]);
    check_update(
        "ResourceClaimTemplate",
        "",
        &changed,
        Some(&template),
        &["spec.metadata.name: Forbidden: cannot be set", "spec: Invalid value: {"],
    );
}

#[test]
fn slices_need_one_node_selection_and_valid_devices() {
    let device = "/spec/devices/0";
    let first = "spec.devices[0]";
    let policy =
        |value: &str, policy: Value| json!({"memory": {"value": value, "requestPolicy": policy}});
    for (pointer, value, expected) in [
        ("/spec/nodeName", json!(null), vec!["spec: Required value: exactly one of `nodeName`"]),
        (
            "/spec/allNodes",
            json!(true),
            vec!["spec: Invalid value: \"{`nodeName`, `allNodes`}\": exactly one of `nodeName`"],
        ),
        (
            "/spec/allNodes",
            json!(false),
            vec!["spec.allNodes: Invalid value: false: must be either unset"],
        ),
        ("/spec/driver", json!(""), vec!["spec.driver: Required value"]),
        ("/spec/pool/name", json!("a//b"), vec!["spec.pool.name: Invalid value: \"\""]),
        (
            "/spec/pool/resourceSliceCount",
            json!(0),
            vec!["spec.pool.resourceSliceCount: Invalid value: 0"],
        ),
        ("/spec/pool/generation", json!(-1), vec!["spec.pool.generation: Invalid value: -1"]),
        ("/spec/sharedCounters", json!([]), vec!["spec: Invalid value: \"\": only one of"]),
        (
            &format!("{device}/name"),
            json!("a.b"),
            vec![&format!("{first}.name: Invalid value: \"a.b\"")],
        ),
        (
            "/spec/devices",
            json!([{"name": "a"}, {"name": "a"}]),
            vec!["spec.devices[1]: Duplicate value: \"a\""],
        ),
        (
            &format!("{device}/attributes/model"),
            json!({}),
            vec![&format!(
                "{first}.attributes[model]: Invalid value: \"\": must specify one of: `int`"
            )],
        ),
        (
            &format!("{device}/attributes/model/int"),
            json!(1),
            vec![&format!(
                "{first}.attributes[model]: Invalid value: \"{{int, string}}\": must specify exactly one of: `int`"
            )],
        ),
        (
            &format!("{device}/attributes/model/string"),
            json!("a".repeat(65)),
            vec![&format!(
                "{first}.attributes[model].string: Too long: may not be more than 64 bytes"
            )],
        ),
        (
            &format!("{device}/attributes"),
            json!({"v": {"version": "1.02.3"}, "a-b": {"bool": true}}),
            vec![
                &format!("{first}.attributes: Invalid value: \"a-b\": a valid C identifier"),
                &format!(
                    "{first}.attributes[v].version: Invalid value: \"1.02.3\": must be a string compatible"
                ),
            ],
        ),
        (
            &format!("{device}/taints"),
            json!([{"key": "", "value": "a b", "effect": "x"}]),
            vec![
                &format!("{first}.taints[0].key: Invalid value: \"\": name part must be non-empty"),
                &format!("{first}.taints[0].key: Invalid value: \"\": name part must consist"),
                &format!("{first}.taints[0].value: Invalid value: \"a b\""),
                &format!("{first}.taints[0].effect: Unsupported value: \"x\""),
            ],
        ),
        (
            &format!("{device}/consumesCounters"),
            json!([{"counterSet": "", "counters": {}}]),
            vec![
                &format!("{first}.consumesCounters[0].counterSet: Required value"),
                &format!("{first}.consumesCounters[0].counters: Required value"),
            ],
        ),
        (
            &format!("{device}/allNodes"),
            json!(true),
            vec![&format!("{first}: Invalid value: null: `nodeName`")],
        ),
        (
            &format!("{device}/bindingConditions"),
            json!(["a"]),
            vec![&format!(
                "{first}.bindingFailureConditions: Invalid value: null: bindingFailureConditions are required"
            )],
        ),
        (
            &format!("{device}/capacity"),
            policy("1Gi", json!({})),
            vec![&format!(
                "{first}.capacity[memory].requestPolicy: Forbidden: allowMultipleAllocations must be true"
            )],
        ),
    ] {
        check("ResourceSlice", &with(&slice(), pointer, value), &expected);
    }
    let renamed = with(&slice(), "/spec/nodeName", json!("n2"));
    let immutable = ["spec.nodeName: Invalid value: \"n2\": field is immutable"];
    check_update("ResourceSlice", "", &renamed, Some(&slice()), &immutable);
}

#[test]
fn request_policies_need_a_default_that_they_allow() {
    let path = "spec.devices[0].capacity[memory].requestPolicy";
    for (policy, expected) in [
        (json!({"default": "1", "validValues": ["1", "2"]}), vec![]),
        (json!({"default": "2", "validRange": {"min": "1", "max": "9", "step": "1"}}), vec![]),
        (json!({"validValues": ["1"]}), vec!["default: Required value: required when validValues"]),
        (
            json!({"validRange": {"min": "1"}}),
            vec!["default: Required value: required when validRange"],
        ),
        (
            json!({"default": "3", "validValues": ["2", "1", "11", "1"]}),
            vec![
                "validValues[1]: Invalid value: \"1\": values must be sorted",
                "validValues[3]: Invalid value: \"1\": values must be sorted",
                "validValues[2]: Invalid value: \"11\": option is larger than capacity value: 10",
                "validValues[3]: Duplicate value: \"1\"",
                "validValues: Invalid value: \"3\": default value is not valid",
            ],
        ),
        (json!({"default": "1", "validRange": {}}), vec!["validRange.min: Required value"]),
        (
            json!({"default": "5", "validRange": {"min": "6", "max": "11", "step": "5"}}),
            vec![
                "validRange.default: Invalid value: \"5\": default is less than min: 6",
                "validRange.max: Invalid value: \"11\": max is larger than capacity value: 10",
                "validRange.step: Invalid value: \"5\": one step 11 is larger",
                "validRange.step: Invalid value: \"5\": value is not a multiple",
            ],
        ),
        (
            json!({"default": "1", "validRange": {"min": "1", "step": "0"}}),
            vec!["validRange.step: Invalid value: \"0\": must be greater than zero"],
        ),
    ] {
        let device = json!([{"name": "d", "allowMultipleAllocations": true,
            "capacity": {"memory": {"value": "10", "requestPolicy": policy}}}]);
        let expected: Vec<String> = expected.iter().map(|end| format!("{path}.{end}")).collect();
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        check("ResourceSlice", &with(&slice(), "/spec/devices", device), &expected);
    }
}

#[test]
fn claim_statuses_match_the_requests_and_the_allocation() {
    let result = json!({"request": "gpu", "driver": "d", "pool": "p", "device": "a"});
    let allocated = with(
        &claim(),
        "/status",
        json!({"allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
            "devices": [{"driver": "d", "pool": "p", "device": "a", "networkData": {"ips": ["10.0.0.1/8"]}}]}),
    );
    check_update("ResourceClaim", "status", &allocated, Some(&claim()), &[]);
    for (pointer, value, expected) in [
        (
            "/status/allocation",
            json!(null),
            vec![
                "status.devices[0]: Invalid value",
                "status.reservedFor: Forbidden: may not be specified when `allocated` is not set",
            ],
        ),
        (
            "/status/allocation/devices/results/0/request",
            json!("x"),
            vec![
                "status.allocation.devices.results[0].request: Invalid value: \"x\": must be the name of a request",
            ],
        ),
        ("/status/reservedFor/0/uid", json!(""), vec!["status.reservedFor[0].uid: Required value"]),
        (
            "/status/devices/0/networkData/ips",
            json!(["10.0.0.1", "::ffff:10.0.0.1/120"]),
            vec![
                "status.devices[0].networkData.ips[0]: Invalid value: \"10.0.0.1\": must be a valid address",
                "status.devices[0].networkData.ips[1]: Invalid value: \"::ffff:10.0.0.1/120\": must be in canonical form (\"10.0.0.1/24\")",
            ],
        ),
        (
            "/status/devices/0/shareID",
            json!("x"),
            vec![
                "status.devices[0]: Invalid value",
                "status.devices[0].shareID: Invalid value: \"x\": must be a lowercase UUID",
            ],
        ),
        (
            "/status/allocation/devices/config",
            json!([{"source": "x", "opaque": {"driver": "d", "parameters": {}}}]),
            vec![
                r#"status.allocation.devices.config[0].source: Unsupported value: "x": supported values: "FromClaim", "FromClass""#,
            ],
        ),
    ] {
        let changed = with(&allocated, pointer, value);
        check_update("ResourceClaim", "status", &changed, Some(&claim()), &expected);
    }
    let moved =
        with(&allocated, "/status/allocation/allocationTimestamp", json!("2024-01-01T00:00:00Z"));
    let modified = ["status.allocation: Invalid value: null: field cannot be modified once set"];
    check_update("ResourceClaim", "status", &moved, Some(&allocated), &modified);
    let mut deleted =
        with(&allocated, "/metadata", json!({"deletionTimestamp": "2024-01-01T00:00:00Z"}));
    check_update("ResourceClaim", "status", &deleted, Some(&allocated), &[]);
    deleted = with(
        &deleted,
        "/status/reservedFor",
        json!([{"resource": "pods", "name": "q", "uid": "v"}]),
    );
    let added = ["status.reservedFor: Forbidden: new entries may not be added"];
    check_update("ResourceClaim", "status", &deleted, Some(&allocated), &added);
}

#[test]
fn taint_rules_need_a_valid_selector_taint_and_conditions() {
    let rule = json!({"spec": {"deviceSelector": {"driver": "d", "pool": "p", "device": "a"},
        "taint": {"key": "a", "value": "b", "effect": "NoExecute"}}});
    check("DeviceTaintRule", &rule, &[]);
    check(
        "DeviceTaintRule",
        &json!({"spec": {"deviceSelector": {"driver": "", "device": "A"}, "taint": {"key": "a"}}}),
        &[
            "spec.deviceSelector.driver: Required value",
            "spec.deviceSelector.device: Invalid value: \"A\"",
            "spec.taint.effect: Required value",
        ],
    );
    let status = with(
        &rule,
        "/status",
        json!({"conditions": [{"type": "", "status": "True", "reason": "A", "lastTransitionTime": "t"}]}),
    );
    let required = ["status.conditions[0].type: Required value: is required"];
    check_update("DeviceTaintRule", "status", &status, Some(&rule), &required);
}
