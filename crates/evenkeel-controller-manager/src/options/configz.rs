//! Options as `/configz` shows them.

use super::Options;
use evenkeel_component::flags::{Value as Flag, duration};
use serde_json::{Value, json};

/// Recorded `KubeControllerManagerConfiguration` of upstream.
const RECORDED: &str = include_str!("../../data/configz.json");
/// Table of the flags in the configuration: the JSON pointer of the field below the API group's name, and the flag.
const POINTERS: &str = include_str!("../../data/configz.tsv");
/// API group whose name is the key of the configuration.
const GROUP: &str = "kubecontrollermanager.config.k8s.io";

/// Returns the content of `/configz`: the `KubeControllerManagerConfiguration` under its group's name.
pub fn configz(options: &Options) -> Value {
    // The recorded JSON is part of the program, and a test parses it.
    let mut config: Value = serde_json::from_str(RECORDED).unwrap_or_default();
    let mut set = |pointer: &str, value: Value| {
        if let Some(field) = config[GROUP].pointer_mut(pointer) {
            *field = value;
        }
    };
    for (pointer, flag) in POINTERS.lines().skip(1).filter_map(|line| line.split_once('\t')) {
        if let Some(value) = options.parsed_flags.value(flag) {
            set(pointer, encode(value));
        }
    }
    set("/Generic/Controllers", json!(options.choice.items));
    let ranges = options.parsed_flags.text("service-cluster-ip-range").unwrap_or_default();
    let (first, second) = ranges.split_once(',').unwrap_or((&ranges, ""));
    set("/NodeIPAMController/ServiceCIDR", json!(first));
    set("/NodeIPAMController/SecondaryServiceCIDR", json!(second));
    config
}

/// Encodes a flag's value with the configuration's type. A whole number has no fraction.
fn encode(value: Flag) -> Value {
    match value {
        Flag::Bool(value) => json!(value),
        Flag::Int(value) => json!(value),
        Flag::Float(value) if value.fract() == 0.0 && value.abs() < 1e15 => json!(value as i64),
        Flag::Float(value) => json!(value),
        Flag::Duration(value) => json!(duration::print(value)),
        Flag::List(value) => json!(value),
        Flag::Map(pairs) => pairs.into_iter().map(|(key, value)| (key, json!(value))).collect(),
        Flag::Ip(value) => json!(value.to_string()),
        Flag::Text(value) => json!(value),
    }
}
