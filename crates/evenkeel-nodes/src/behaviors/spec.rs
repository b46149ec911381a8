//! Parses the spec of a Behavior: its selectors, and the values that it sets for the selected pods and nodes.

use evenkeel_api::{
    Text,
    quantity::Quantity,
    selector::{Operator, Requirement, Selector},
    time::Timestamp,
};
use serde_json::Value;
use std::time::Duration;

use super::{
    draw::{self, Curve, MILLION, Unit},
    outages::NodeFault,
};
use crate::{
    Delays,
    annotations::{self, Annotation, CPU, CPU_LOAD, MEMORY},
    behaviour::{defaults, duration},
    faults::FAULTS,
};

/// Minimum of a fault's mean time to repair, and of the mean time between failures. Simulated kubelets have no finer
/// resolution.
const MIN_MEAN_TIME: Duration = Duration::from_secs(1);

/// Fields that contain a curve of a pod's usage, each with the annotation that sets a constant usage.
pub(crate) const CURVES: [(&str, &str); 3] =
    [("cpuCurve", CPU), ("cpuLoadCurve", CPU_LOAD), ("memoryCurve", MEMORY)];

/// A valid Behavior.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Behavior {
    pub(crate) name: String,
    /// A Behavior with a larger weight takes precedence.
    pub(crate) weight: i64,
    /// Seed of the Behavior's random draws.
    pub(crate) seed: u64,
    /// Selector of the pods' labels.
    pub(super) pods: Selector,
    /// Namespaces of the pods; empty for all.
    pub(super) namespaces: Vec<String>,
    /// Selector of the labels of the pods' namespaces.
    pub(super) namespace_selector: Selector,
    /// Selector of the labels of the pods' nodes.
    pub(super) nodes: Selector,
    /// Names of the containers; empty for all.
    pub(super) containers: Vec<String>,
    /// Images of the containers. An image that ends with `*` is a prefix. Empty for all.
    pub(super) images: Vec<String>,
    /// Values for annotations of pods, by the annotation's name. A value may be a range such as `1s..5s`.
    pub(super) values: Vec<(&'static str, String)>,
    /// Share of the containers' runs that fail, in millionths; `None` if the spec sets none.
    pub(super) failure_rate: Option<u32>,
    /// Curves of a pod's usage over time, by the name of the annotation that sets a constant usage.
    pub(super) curves: Vec<(&'static str, Curve)>,
    /// Faults of the nodes, at most one of each kind.
    pub(super) node_faults: Vec<NodeFault>,
    /// Creation time of the Behavior. The times of the nodes' faults are relative to it.
    pub(crate) created: Timestamp,
}

impl Behavior {
    /// Returns whether the Behavior causes faults of nodes.
    pub(crate) fn fails_nodes(&self) -> bool {
        !self.node_faults.is_empty()
    }

    /// Returns the fault of nodes that has the same effect as this annotation of nodes.
    pub(crate) fn node_fault(&self, annotation: &str) -> Option<&NodeFault> {
        self.node_faults.iter().find(|fault| fault.annotation == annotation)
    }
}

/// Returns the name of the field of a Behavior's spec that sets an annotation of pods: `startDelay` for `start-delay`.
pub(crate) fn field(annotation: &str) -> String {
    let mut words = annotation.split('-');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |field, word| {
        let (head, tail) = word.split_at(word.len().min(1));
        field + &head.to_ascii_uppercase() + tail
    })
}

/// Parses the spec of a Behavior.
///
/// # Errors
/// Returns a sentence for each invalid field. The caller ignores an invalid Behavior.
pub(crate) fn parse(name: &str, spec: &Value) -> Result<Behavior, Vec<String>> {
    let mut errors = Vec::new();
    let mut selector = |path: &str| match selector(spec.pointer(path)) {
        Ok(selector) => selector,
        Err(why) => {
            errors.push(format!("spec{}: {why}", path.replace('/', ".")));
            Selector::nothing()
        }
    };
    let (pods, nodes) = (selector("/pods/selector"), selector("/nodes/selector"));
    let namespace_selector = selector("/pods/namespaceSelector");
    let mut behavior = Behavior {
        name: name.to_owned(),
        weight: spec["weight"].as_i64().unwrap_or_default(),
        seed: spec["seed"].as_i64().unwrap_or_default().cast_unsigned(),
        pods,
        namespaces: strings(&spec["pods"]["namespaces"]),
        namespace_selector,
        nodes,
        containers: strings(&spec["containers"]),
        images: strings(&spec["images"]),
        values: Vec::new(),
        failure_rate: None,
        curves: Vec::new(),
        node_faults: Vec::new(),
        created: Timestamp::UNIX_EPOCH,
    };
    for annotation in annotations::of_pods() {
        let field = field(annotation.name);
        match value(annotation, &spec[&*field]) {
            Ok(Some(value)) => behavior.values.push((annotation.name, value)),
            Ok(None) => {}
            Err(why) => errors.push(format!("spec.{field}: {why}")),
        }
    }
    for (field, annotation) in CURVES {
        match curve(&spec[field]) {
            Ok(Some(curve)) => behavior.curves.push((annotation, curve)),
            Ok(None) => {}
            Err(why) => errors.push(format!("spec.{field}: {why}")),
        }
    }
    match node_faults(&spec["nodeFaults"]) {
        Ok(faults) => behavior.node_faults = faults,
        Err(why) => errors.extend(why),
    }
    match rate(&spec["failureRate"]) {
        Ok(rate) => behavior.failure_rate = rate,
        Err(why) => errors.push(format!("spec.failureRate: {why}")),
    }
    if spec["suspend"] == true {
        // Such a Behavior selects no nodes, and therefore no pods.
        behavior.nodes = Selector::nothing();
    }
    if errors.is_empty() { Ok(behavior) } else { Err(errors) }
}

/// Returns the strings in a JSON array; none if the value is not an array. Skips items that are not strings.
fn strings(value: &Value) -> Vec<String> {
    let items = value.as_array().into_iter().flatten();
    items.filter_map(|item| item.as_str().map(str::to_owned)).collect()
}

/// Parses a label selector. An absent selector selects everything.
fn selector(value: Option<&Value>) -> Result<Selector, String> {
    let Some(value) = value else { return Ok(Selector::everything()) };
    let labels = value["matchLabels"].as_object().into_iter().flatten().map(|(key, value)| {
        let value = value.as_str().unwrap_or_default();
        Requirement::new(key, Operator::Equals, Box::new([value.into()]))
    });
    let expressions = value["matchExpressions"].as_array().into_iter().flatten();
    let expressions = expressions.map(|expression| {
        let operator = match expression["operator"].as_str().unwrap_or_default() {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            other => return Err(format!("{other:?} is not a valid label selector operator")),
        };
        let values = strings(&expression["values"]).into_iter().map(Text::from).collect();
        let key = expression["key"].as_str().unwrap_or_default();
        Requirement::new(key, operator, values).map_err(|error| error.to_string())
    });
    let labels = labels.map(|label| label.map_err(|error| error.to_string()));
    Ok(Selector::all(labels.chain(expressions).collect::<Result<Vec<_>, String>>()?))
}

/// Validates the field for an annotation of pods, and returns its value as a string; `None` if the field is absent. The
/// value may be a range such as `1s..5s`.
fn value(annotation: &Annotation, value: &Value) -> Result<Option<String>, String> {
    let value = match value {
        Value::Null => return Ok(None),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    // Both ends of a range must be valid.
    let ends = match draw::range(&value) {
        Some((low, high)) => {
            draw::resolve(&value, Unit::of(annotation), 0)
                .map_err(|why| format!("{value:?} {why}"))?;
            vec![low, high]
        }
        None => vec![&*value],
    };
    for end in ends {
        let mut unused_script = defaults(&Delays::default(), None);
        let applied = (annotation.apply)(&mut unused_script, end);
        applied.map_err(|why| format!("{end:?} {why}"))?;
    }
    Ok(Some(value))
}

/// Parses a rate such as `5%` or `0.5%`. Returns it in millionths; `None` if the field is absent.
fn rate(value: &Value) -> Result<Option<u32>, String> {
    let text = match value {
        Value::Null => return Ok(None),
        Value::String(text) => text,
        other => return Err(format!("{other} is not a rate such as 5%")),
    };
    let percent = text.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
    let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
    let percent = percent.ok_or_else(|| format!("{text:?} is not a rate such as 5%"))?;
    Ok(Some((percent / 100.0 * f64::from(MILLION)).round() as u32))
}

/// Parses `spec.nodeFaults`. Each error begins with the path of the invalid field.
fn node_faults(value: &Value) -> Result<Vec<NodeFault>, Vec<String>> {
    let (mut faults, mut errors): (Vec<NodeFault>, Vec<String>) = Default::default();
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        let field = |name: &str| format!("spec.nodeFaults[{index}].{name}");
        let annotation = fault_of_kind(&item["kind"]);
        let [between_failures, to_repair] = ["meanTimeBetweenFailures", "meanTimeToRepair"]
            .map(|name| mean_time(&item[name]).map_err(|why| format!("{}: {why}", field(name))));
        let read = match (annotation, between_failures, to_repair) {
            (Ok(annotation), Ok(between_failures), Ok(to_repair)) => {
                NodeFault { annotation, between_failures, to_repair }
            }
            (annotation, between_failures, to_repair) => {
                errors.extend(annotation.err().map(|why| format!("{}: {why}", field("kind"))));
                errors.extend([between_failures.err(), to_repair.err()].into_iter().flatten());
                continue;
            }
        };
        match faults.iter().position(|known| known.annotation == read.annotation) {
            Some(first) => errors.push(format!(
                "{}: {} is that of spec.nodeFaults[{first}], too",
                field("kind"),
                item["kind"]
            )),
            None => faults.push(read),
        }
    }
    if errors.is_empty() { Ok(faults) } else { Err(errors) }
}

/// Returns the full name of the annotation of nodes that causes this kind of fault.
fn fault_of_kind(kind: &Value) -> Result<&'static str, String> {
    let found = node_fault_kinds().find(|(name, _)| kind.as_str() == Some(name));
    found.map(|(_, annotation)| annotation).ok_or_else(|| {
        let known: Vec<&str> = node_fault_kinds().map(|(name, _)| name).collect();
        format!("{kind} is not a fault of nodes; the faults are {}", known.join(", "))
    })
}

/// Iterates over the kinds of node faults, each with the full name of the annotation that causes it.
pub(crate) fn node_fault_kinds() -> impl Iterator<Item = (&'static str, &'static str)> {
    FAULTS.into_iter().map(|name| (name.strip_prefix(annotations::PREFIX).unwrap_or(name), name))
}

/// Parses a mean time of at least [`MIN_MEAN_TIME`]. Returns it in milliseconds.
fn mean_time(value: &Value) -> Result<u64, String> {
    let text = match value {
        Value::Null => return Err("a duration such as 10m is needed".to_owned()),
        Value::String(text) => text,
        other => return Err(format!("{other} is not a duration such as 10m")),
    };
    let time = duration(text).map_err(|why| format!("{text:?} {why}"))?;
    if time < MIN_MEAN_TIME {
        return Err(format!("{text:?} is less than {}s", MIN_MEAN_TIME.as_secs()));
    }
    Ok(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// Parses a curve: points with a time and an amount, in ascending order of time. Returns `None` if the field is absent or
/// has no points.
fn curve(value: &Value) -> Result<Option<Curve>, String> {
    let Some(items) = value.as_array().filter(|items| !items.is_empty()) else { return Ok(None) };
    let (mut points, mut are_daily) = (Vec::new(), Vec::new());
    for item in items {
        let at = item["at"].as_str().unwrap_or_default();
        let (daily, time) = draw::curve_time(at).map_err(|why| format!("{at:?} {why}"))?;
        let value = match &item["value"] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let amount = Quantity::parse(&value).ok().filter(|amount| amount.sign() >= 0);
        let amount = amount.ok_or_else(|| format!("{value:?} is not an amount such as 250m"))?;
        points.push((time, amount.milli_value()));
        are_daily.push(daily);
    }
    if are_daily.iter().any(|daily| *daily != are_daily[0]) {
        return Err("times of day and times since the start are mixed".to_owned());
    }
    if !points.is_sorted_by(|earlier, later| earlier.0 < later.0) {
        return Err("the times do not ascend".to_owned());
    }
    Ok(Some(Curve { daily: are_daily[0], points }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_stand_for_annotations() {
        let fields = ["cpu", "start-delay", "a-b-c"].map(field);
        assert_eq!(fields, ["cpu", "startDelay", "aBC"]);
        let names: Vec<String> =
            annotations::of_pods().map(|annotation| field(annotation.name)).collect();
        for taken in [
            "weight",
            "seed",
            "pods",
            "nodes",
            "containers",
            "images",
            "failureRate",
            "nodeFaults",
            "suspend",
        ] {
            assert!(!names.iter().any(|name| name == taken), "{taken}");
        }
    }

    #[test]
    fn a_suspended_behavior_selects_no_node() {
        let labels = evenkeel_api::StrMap::default();
        for (suspend, selects) in [(json!(null), true), (json!(false), true), (json!(true), false)]
        {
            let behavior = parse("b", &json!({"exitCode": 3, "suspend": suspend})).expect("valid");
            assert_eq!(behavior.nodes.matches(&labels), selects, "{suspend}");
        }
    }

    #[test]
    fn a_whole_behavior_is_read() {
        let spec = json!({
            "weight": 3, "seed": -1,
            "pods": {
                "selector": {"matchLabels": {"app": "web"}}, "namespaces": ["shop"],
                "namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "Exists"}]},
            },
            "nodes": {"selector": {"matchLabels": {"pool": "slow"}}},
            "containers": ["app"],
            "startDelay": "1s..5s", "exitCode": 3, "cpu": "100m..200m", "failureRate": "0.5%",
            "memoryCurve": [{"at": "0", "value": "64Mi"}, {"at": "1h", "value": "128Mi"}],
            "nodeFaults": [
                {"kind": "silent", "meanTimeBetweenFailures": "12h", "meanTimeToRepair": "90s"},
                {"kind": "pid-pressure", "meanTimeBetweenFailures": "1s", "meanTimeToRepair": "1.5s"},
            ],
        });
        let behavior = parse("b", &spec).expect("valid");
        assert_eq!((behavior.weight, behavior.seed), (3, u64::MAX));
        assert_eq!(
            behavior.values,
            [("exit-code", "3"), ("start-delay", "1s..5s"), ("cpu", "100m..200m")]
                .map(|(name, value)| (name, value.to_owned()))
        );
        assert_eq!(behavior.failure_rate, Some(5000));
        assert_eq!(behavior.curves[0].1.points[1].0, Duration::from_secs(3600));
        let faults = behavior.node_faults.iter();
        let faults: Vec<_> = faults
            .map(|fault| (fault.annotation, fault.between_failures, fault.to_repair))
            .collect();
        assert_eq!(
            faults,
            [
                (annotations::SILENT, 12 * 3_600_000, 90_000),
                (annotations::PID_PRESSURE, 1000, 1500)
            ]
        );
        assert_eq!(parse("b", &json!({})).map(|all| all.values), Ok(Vec::new()));
    }

    fn faults(all: &[(&str, &str, &str)]) -> Value {
        let fault = |(kind, between, repair): &(&str, &str, &str)| json!({"kind": kind, "meanTimeBetweenFailures": between, "meanTimeToRepair": repair});
        json!({"nodeFaults": all.iter().map(fault).collect::<Vec<_>>()})
    }

    #[test]
    fn errors_name_the_field_and_the_value() {
        for (spec, want) in [
            (json!({"startDelay": "soon"}), "spec.startDelay: \"soon\" is not a duration"),
            (json!({"startDelay": "5s..1s"}), "spec.startDelay: \"5s..1s\" is not a range"),
            (json!({"startDelay": "1..5"}), "spec.startDelay: \"1..5\" is not a range"),
            (json!({"imagePull": "ok..fail"}), "spec.imagePull: \"ok..fail\" is a range, but"),
            (json!({"exitCode": 300}), "spec.exitCode: \"300\" is not an exit code"),
            (json!({"readiness": "no"}), "spec.readiness: \"no\" is neither"),
            (json!({"failureRate": "120%"}), "spec.failureRate: \"120%\" is not a rate"),
            (json!({"failureRate": 5}), "spec.failureRate: 5 is not a rate"),
            (
                json!({"pods": {"selector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}}),
                "spec.pods.selector: \"Is\" is not a valid",
            ),
            (json!({"cpuCurve": [{"at": "8", "value": "1"}]}), "spec.cpuCurve: \"8\" is neither"),
            (
                faults(&[("gone", "1h", "1m")]),
                "spec.nodeFaults[0].kind: \"gone\" is not a fault of nodes; the faults are silent, not-ready, memory-pressure",
            ),
            (
                faults(&[("silent", "1h", "1m"), ("silent", "2h", "1m")]),
                "spec.nodeFaults[1].kind: \"silent\" is that of spec.nodeFaults[0], too",
            ),
            (
                faults(&[("silent", "often", "1m")]),
                "spec.nodeFaults[0].meanTimeBetweenFailures: \"often\" is not a duration",
            ),
            (
                faults(&[("silent", "1h", "999ms")]),
                "spec.nodeFaults[0].meanTimeToRepair: \"999ms\" is less than 1s",
            ),
            (
                json!({"nodeFaults": [{"kind": "silent", "meanTimeToRepair": "1m"}]}),
                "spec.nodeFaults[0].meanTimeBetweenFailures: a duration such as 10m is needed",
            ),
            (
                json!({"cpuCurve": [{"at": "08:00", "value": "1"}, {"at": "5m", "value": "1"}]}),
                "spec.cpuCurve: times of day and",
            ),
            (
                json!({"cpuCurve": [{"at": "2m", "value": 1}, {"at": "1m", "value": 1}]}),
                "spec.cpuCurve: the times do not ascend",
            ),
        ] {
            let errors = parse("b", &spec).expect_err("invalid");
            assert!(errors.len() == 1 && errors[0].starts_with(want), "{errors:?}, not {want}");
        }
    }
}
