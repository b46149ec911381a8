//! Types of a valid Stage, and the function that reads one from its `spec`.

use serde_json::Value;

use super::expressions::{Expression, ValueFrom};
use crate::template::Template;

/// Resource of a Stage (`spec.resourceRef`). The values index arrays that have an entry for each. Upstream: KWOK's
/// `StageResourceRef`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ResourceRef {
    Pod = 0,
    Node = 1,
}

/// A valid Stage.
#[derive(Debug, Clone)]
pub(crate) struct Stage {
    pub(crate) name: String,
    pub(crate) resource: ResourceRef,
    /// `None` selects nothing.
    pub(crate) selector: Option<Selector>,
    pub(crate) weight: ValueFrom,
    pub(crate) delay: Option<Delay>,
    pub(crate) steps: Vec<Step>,
}

/// Requirements on an object. It must meet all of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selector {
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) annotations: Vec<(String, String)>,
    pub(crate) expressions: Vec<Requirement>,
}

/// A requirement on the value of an expression.
#[derive(Debug, Clone)]
pub(crate) struct Requirement {
    pub(crate) expression: Expression,
    pub(crate) operator: Operator,
    pub(crate) values: Vec<String>,
}

/// Condition on the outputs of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

/// Delay between the choice of a Stage and its steps, in nanoseconds.
#[derive(Debug, Clone)]
pub(crate) struct Delay {
    pub(crate) duration: ValueFrom,
    /// Upper end of the range of the random delay. `duration` is the lower end.
    pub(crate) jitter: Option<ValueFrom>,
}

/// Step of a Stage. Its fields are performed in their order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Step {
    pub(crate) event: Option<Event>,
    pub(crate) finalizers: Option<Finalizers>,
    pub(crate) delete: bool,
    pub(crate) patch: Option<Patch>,
}

/// An event on the object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) warning: bool,
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// Changes of the finalizers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Finalizers {
    pub(crate) add: Vec<String>,
    pub(crate) remove: Vec<String>,
    pub(crate) empty: bool,
}

/// Patch of the object, which a template generates.
#[derive(Debug, Clone)]
pub(crate) struct Patch {
    pub(crate) subresource: String,
    /// Field of the object that the template's output replaces; empty for the whole object.
    pub(crate) root: String,
    pub(crate) template: Template,
    pub(crate) form: Form,
}

/// Format of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Json,
    Merge,
    Strategic,
}

/// Errors of a Stage, one sentence each.
type Errors = Vec<String>;

/// Reads a Stage.
///
/// # Errors
/// Returns a sentence for each error, with the field. An invalid Stage has no effect.
pub(crate) fn parse(name: &str, spec: &Value) -> Result<Stage, Errors> {
    let mut errors = Errors::new();
    let resource_ref = &spec["resourceRef"];
    let group = resource_ref["apiGroup"].as_str().unwrap_or("v1");
    let resource = match (group, resource_ref["kind"].as_str().unwrap_or_default()) {
        ("v1" | "", "Node") => ResourceRef::Node,
        ("v1" | "", "Pod") => ResourceRef::Pod,
        (group, kind) => {
            let what = format!("{kind} of {group}");
            errors.push(format!(
                "spec.resourceRef: {what}: only pods and nodes of simulated nodes follow Stages"
            ));
            ResourceRef::Pod
        }
    };
    let selector = match &spec["selector"] {
        Value::Null => None,
        value => Some(selector(value, &mut errors)),
    };
    let weight_default = spec["weight"].as_i64().unwrap_or_default();
    let weight = ValueFrom {
        default: Some(weight_default),
        expression: expression("spec.weightFrom", &spec["weightFrom"], &mut errors),
    };
    let delay = match &spec["delay"] {
        Value::Null => None,
        value => Some(delay(value, &mut errors)),
    };
    let steps = match spec["steps"].as_array().filter(|steps| !steps.is_empty()) {
        Some(steps) => {
            let steps = steps.iter().enumerate();
            let read = |(n, value)| step(&format!("spec.steps[{n}]"), resource, value, &mut errors);
            steps.map(read).collect()
        }
        None => next(resource, &spec["next"], &mut errors),
    };
    if !errors.is_empty() {
        return Err(errors);
    }
    Ok(Stage { name: name.to_owned(), resource, selector, weight, delay, steps })
}

/// Reads a selector.
fn selector(value: &Value, errors: &mut Errors) -> Selector {
    let pairs = |value: &Value| {
        let pairs = value.as_object().into_iter().flatten();
        pairs.map(|(key, value)| (key.clone(), text(value))).collect()
    };
    let mut selector = Selector {
        labels: pairs(&value["matchLabels"]),
        annotations: pairs(&value["matchAnnotations"]),
        expressions: Vec::new(),
    };
    let expressions = value["matchExpressions"].as_array().into_iter().flatten();
    for (n, value) in expressions.enumerate() {
        match requirement(value) {
            Ok(requirement) => selector.expressions.push(requirement),
            Err(why) => errors.push(format!("spec.selector.matchExpressions[{n}]: {why}")),
        }
    }
    selector
}

/// Reads a requirement of a selector.
fn requirement(value: &Value) -> Result<Requirement, String> {
    if let Some(source) = value["cel"]["expression"].as_str() {
        let expression = Expression::cel(source)?;
        return Ok(Requirement { expression, operator: Operator::Exists, values: Vec::new() });
    }
    let jq = if value["jq"].is_object() { &value["jq"] } else { value };
    let values = texts(&jq["values"]);
    let operator = match jq["operator"].as_str().unwrap_or_default() {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        other => return Err(format!("operator {other:?} is not supported")),
    };
    match operator {
        Operator::In | Operator::NotIn if values.is_empty() => {
            return Err("In and NotIn need values".to_owned());
        }
        Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
            return Err("Exists and DoesNotExist take no values".to_owned());
        }
        _ => {}
    }
    let expression = Expression::jq(&text(&jq["key"]))?;
    Ok(Requirement { expression, operator, values })
}

/// Parses an expression that returns a value (`…From`). Returns `None` if it is absent or invalid.
fn expression(field: &str, value: &Value, errors: &mut Errors) -> Option<Expression> {
    let jq = value["jq"]["expression"].as_str().or_else(|| value["expressionFrom"].as_str());
    let parsed = match (value["cel"]["expression"].as_str(), jq) {
        (Some(source), _) => Expression::cel(source),
        (None, Some("") | None) => return None,
        (None, Some(source)) => Expression::jq(source),
    };
    parsed.map_err(|why| errors.push(format!("{field}: {why}"))).ok()
}

/// Reads a delay.
fn delay(value: &Value, errors: &mut Errors) -> Delay {
    let milliseconds = |field: &str| {
        value[field].as_i64().map(|milliseconds| milliseconds.saturating_mul(1_000_000))
    };
    let duration = ValueFrom {
        default: Some(milliseconds("durationMilliseconds").unwrap_or_default()),
        expression: expression("spec.delay.durationFrom", &value["durationFrom"], errors),
    };
    let jitter = ValueFrom {
        default: milliseconds("jitterDurationMilliseconds"),
        expression: expression(
            "spec.delay.jitterDurationFrom",
            &value["jitterDurationFrom"],
            errors,
        ),
    };
    let has_jitter = jitter.default.is_some() || jitter.expression.is_some();
    Delay { duration, jitter: has_jitter.then_some(jitter) }
}

/// Reads the deprecated form of the steps.
fn next(resource: ResourceRef, value: &Value, errors: &mut Errors) -> Vec<Step> {
    let mut steps = Vec::new();
    if value["event"].is_object() {
        steps.push(Step { event: Some(event(&value["event"])), ..Step::default() });
    }
    if value["finalizers"].is_object() {
        let finalizers = Some(finalizers(&value["finalizers"]));
        steps.push(Step { finalizers, ..Step::default() });
    }
    let patches = value["patches"].as_array().filter(|patches| !patches.is_empty());
    if let Some(patches) = patches {
        for (n, value) in patches.iter().enumerate() {
            let patch = patch(&format!("spec.next.patches[{n}]"), resource, value, errors);
            steps.push(Step { patch, ..Step::default() });
        }
    } else if let Some(source) = value["statusTemplate"].as_str().filter(|text| !text.is_empty()) {
        if value["statusPatchAs"].is_object() {
            errors.push("spec.next.statusPatchAs: impersonation is not supported".to_owned());
        }
        let subresource = value["statusSubresource"].as_str().unwrap_or("status");
        check_subresource("spec.next.statusSubresource", resource, subresource, errors);
        match Template::parse(source) {
            Ok(template) => {
                let patch = Patch {
                    subresource: subresource.to_owned(),
                    root: "status".to_owned(),
                    template,
                    form: Form::Strategic,
                };
                steps.push(Step { patch: Some(patch), ..Step::default() });
            }
            Err(why) => errors.push(format!("spec.next.statusTemplate: {why}")),
        }
    }
    if value["delete"] == true {
        steps.push(Step { delete: true, ..Step::default() });
    }
    steps
}

/// Reads a step.
fn step(field: &str, resource: ResourceRef, value: &Value, errors: &mut Errors) -> Step {
    if value["apply"].is_object() {
        errors.push(format!("{field}.apply: steps that apply other objects are not supported"));
    }
    let has = |part: &str| value[part].is_object();
    Step {
        event: has("event").then(|| event(&value["event"])),
        finalizers: has("finalizers").then(|| finalizers(&value["finalizers"])),
        delete: value["delete"] == true,
        patch: has("patch")
            .then(|| patch(&format!("{field}.patch"), resource, &value["patch"], errors))
            .flatten(),
    }
}

fn event(value: &Value) -> Event {
    Event {
        warning: value["type"] == "Warning",
        reason: text(&value["reason"]),
        message: text(&value["message"]),
    }
}

fn finalizers(value: &Value) -> Finalizers {
    let names = |value: &Value| {
        let items = value.as_array().into_iter().flatten();
        items.map(|item| text(&item["value"])).collect()
    };
    Finalizers {
        add: names(&value["add"]),
        remove: names(&value["remove"]),
        empty: value["empty"] == true,
    }
}

/// Reads a patch.
fn patch(field: &str, resource: ResourceRef, value: &Value, errors: &mut Errors) -> Option<Patch> {
    if value["impersonation"].is_object() {
        errors.push(format!("{field}.impersonation: impersonation is not supported"));
    }
    let form = match value["type"].as_str() {
        Some("json") => Form::Json,
        Some("merge") => Form::Merge,
        None | Some("strategic" | "") => Form::Strategic,
        Some(other) => {
            errors.push(format!("{field}.type: {other:?} is not json, merge or strategic"));
            return None;
        }
    };
    let template = Template::parse(value["template"].as_str().unwrap_or_default());
    let template = template.map_err(|why| errors.push(format!("{field}.template: {why}"))).ok()?;
    let (subresource, root) = (text(&value["subresource"]), text(&value["root"]));
    check_subresource(&format!("{field}.subresource"), resource, &subresource, errors);
    Some(Patch { subresource, root, template, form })
}

/// Checks that Stages can patch a subresource. The empty name stands for the object itself.
fn check_subresource(field: &str, resource: ResourceRef, subresource: &str, errors: &mut Errors) {
    let patchable: &[&str] = match resource {
        ResourceRef::Pod => &["status", "ephemeralcontainers", "resize"],
        ResourceRef::Node => &["status"],
    };
    if !subresource.is_empty() && !patchable.contains(&subresource) {
        let patchable = patchable.join(", ");
        errors
            .push(format!("{field}: {subresource:?} is not a subresource to patch ({patchable})"));
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(text).collect()
}
