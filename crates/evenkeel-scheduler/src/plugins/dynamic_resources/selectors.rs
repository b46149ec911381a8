//! CEL selectors of devices. All functions are pure: the plugin owns the cache and keeps it between attempts.
//!
//! Upstream: `k8s.io/dynamic-resource-allocation/cel`.

use evenkeel_api::views::{Device, DeviceAttribute};
use evenkeel_cel::{Extensions, Failure, PER_CALL_LIMIT, Program, Scope, Val};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// Maximum number of compiled selectors in the cache.
const MAX_ENTRIES: usize = 256;

/// Function that compiles a selector or returns it from the cache.
pub(super) type Compile<'a> = dyn Fn(&str) -> Arc<Selector> + 'a;

/// Cache of compiled selectors.
#[derive(Default)]
pub(super) struct SelectorCache {
    compiled: HashMap<Box<str>, Arc<Selector>>,
}

/// A compiled selector, or its compile error.
pub(super) struct Selector {
    text: Box<str>,
    program: Result<Program, String>,
}

/// Reason why a selector has no result for a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EvaluationError {
    /// The expression does not compile.
    Compile(String),
    /// The evaluation fails for this device.
    Run(String),
}

impl SelectorCache {
    /// Returns the compiled selector.
    ///
    /// Upstream: `GetOrCompile`.
    pub(super) fn get_or_compile(&mut self, text: &str) -> Arc<Selector> {
        if let Some(selector) = self.compiled.get(text) {
            return Arc::clone(selector);
        }
        let extensions = Extensions { bindings: true, includes: true, ..Extensions::default() };
        let program = Program::parse_with(text, extensions);
        let selector = Arc::new(Selector { text: text.into(), program });
        // A full cache is cleared, which is simpler than a record of the least recently used entries.
        if self.compiled.len() >= MAX_ENTRIES {
            self.compiled.clear();
        }
        self.compiled.insert(text.into(), Arc::clone(&selector));
        selector
    }
}

impl Selector {
    /// Returns the expression.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Returns whether the selector matches the device.
    pub(super) fn selects(&self, driver: &str, device: &Device) -> Result<bool, EvaluationError> {
        let program =
            self.program.as_ref().map_err(|error| EvaluationError::Compile(error.clone()))?;
        let device_value = device_value(driver, device).map_err(EvaluationError::Run)?;
        let mut budget = PER_CALL_LIMIT;
        match program.run(&Scope::default().with("device", device_value), &mut budget) {
            Ok(Val::Bool(selected)) => Ok(selected),
            Ok(other) => Err(EvaluationError::Run(format!(
                "CEL result of type {} could not be converted to bool",
                other.type_name()
            ))),
            Err(Failure::Error(error)) if error.contains("no such key:") => {
                Err(EvaluationError::Run(format!(
                    "{error}. consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() for optional fields"
                )))
            }
            Err(failure) => Err(EvaluationError::Run(failure.message())),
        }
    }
}

/// Returns the value of the CEL variable `device`. A domain without attributes is an empty map.
fn device_value<'a>(driver: &'a str, device: &'a Device) -> Result<Val<'a>, String> {
    let mut attributes: BTreeMap<&str, Vec<(Val<'a>, Val<'a>)>> = BTreeMap::new();
    for (name, attribute) in device.attributes.iter() {
        let (domain, id) = name.split_once('/').unwrap_or((driver, name));
        let value =
            attribute_value(attribute).map_err(|error| format!("attribute {name}: {error}"))?;
        attributes.entry(domain).or_default().push((text(id), value));
    }
    let mut capacity: BTreeMap<&str, Vec<(Val<'a>, Val<'a>)>> = BTreeMap::new();
    for (name, amount) in device.capacity.iter() {
        let (domain, id) = name.split_once('/').unwrap_or((driver, name));
        capacity.entry(domain).or_default().push((text(id), Val::Quantity(amount.value)));
    }
    Ok(Val::Map(
        vec![
            (text("driver"), text(driver)),
            (text("allowMultipleAllocations"), Val::Bool(device.allow_multiple_allocations)),
            (text("attributes"), by_domain(attributes)),
            (text("capacity"), by_domain(capacity)),
        ]
        .into(),
    ))
}

/// Returns a CEL string.
fn text(text: &str) -> Val<'_> {
    Val::borrowed(text)
}

/// Returns the CEL map of values by domain. An unknown domain has an empty map.
fn by_domain<'a>(domains: BTreeMap<&'a str, Vec<(Val<'a>, Val<'a>)>>) -> Val<'a> {
    let domains =
        domains.into_iter().map(|(domain, values)| (text(domain), Val::Map(values.into())));
    Val::MapWithDefault(domains.collect::<Vec<_>>().into(), Val::Map(Vec::new().into()).into())
}

/// Returns the CEL value of a device attribute.
fn attribute_value(attribute: &DeviceAttribute) -> Result<Val<'_>, String> {
    let DeviceAttribute { int, bool, string, version } = attribute;
    match (int, bool, string, version) {
        (Some(int), ..) => Ok(Val::Int(*int)),
        (_, Some(bool), ..) => Ok(Val::Bool(*bool)),
        (_, _, Some(string), _) => Ok(text(string)),
        (.., Some(version)) => {
            Val::semver(version).ok_or_else(|| format!("parse semantic version: {version}"))
        }
        _ => Err("unsupported attribute value".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_api::{Encoding, View, views::ResourceSlice};
    use serde_json::json;

    #[test]
    fn selectors_read_attributes_and_capacity() {
        let slice = json!({"spec": {"devices": [{"name": "d", "allowMultipleAllocations": true,
            "attributes": {"model": {"string": "a100"}, "cores": {"int": 8}, "ready": {"bool": true},
                "driver": {"version": "1.2.3"}, "other.example/x": {"string": "y"}},
            "capacity": {"memory": {"value": "40Gi"}}}]}});
        let slice = ResourceSlice::decode(slice.to_string().as_bytes(), Encoding::Json).unwrap();
        let evaluate = |text: &str| {
            let selector = SelectorCache::default().get_or_compile(text);
            selector.selects("gpu.example", &slice.spec.devices[0])
        };
        for (text, expected) in [
            ("device.driver == 'gpu.example'", true),
            ("device.attributes['gpu.example'].model == 'a100'", true),
            ("device.attributes['gpu.example'].cores > 8", false),
            ("device.attributes['gpu.example'].ready", true),
            ("device.attributes['other.example'].x == 'y'", true),
            ("has(device.attributes['none.example'].x)", false),
            ("device.attributes['gpu.example'].driver.isGreaterThan(semver('1.2.0'))", true),
            ("device.attributes['gpu.example'].?none.orValue(3) == 3", true),
            ("device.capacity['gpu.example'].memory.compareTo(quantity('40Gi')) >= 0", true),
            ("device.allowMultipleAllocations", true),
            ("cel.bind(a, device.attributes['gpu.example'], a.cores == 8 && a.ready)", true),
        ] {
            assert_eq!(evaluate(text), Ok(expected), "{text}");
        }
        assert!(matches!(evaluate("device."), Err(EvaluationError::Compile(_))));
        let failed = evaluate("device.attributes['gpu.example'].none == 1");
        assert!(
            matches!(failed, Err(EvaluationError::Run(error)) if error.starts_with("no such key: none. consider"))
        );
        let failed = evaluate("device.attributes['gpu.example'].cores");
        assert!(
            matches!(failed, Err(EvaluationError::Run(error)) if error.contains("could not be converted to bool"))
        );
    }
}
