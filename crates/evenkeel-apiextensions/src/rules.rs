//! Validation rules of custom resources: expressions about an object and what it was before (KEP-2876).

use std::sync::OnceLock;

use serde_json::Value;

use super::node::Node;
use super::validate::{below, element_before};
use evenkeel_apimachinery::status::{FieldError, FieldErrorKind, quote};
use evenkeel_apimachinery::value::{flag, text};
use evenkeel_cel::{Failure, PER_CALL, Program, Scope, Val};

/// One rule of `x-kubernetes-validations`.
#[derive(Debug)]
pub(crate) struct Rule {
    text: Box<str>,
    message: Box<str>,
    message_expression: Box<str>,
    reason: FieldErrorKind,
    field_path: Box<str>,
    optional_old: bool,
    program: OnceLock<Result<Program, String>>,
    message_program: OnceLock<Result<Program, String>>,
}

impl Rule {
    pub(super) fn new(rule: &Value) -> Self {
        Self {
            text: text(rule, "rule").into(),
            message: text(rule, "message").trim().into(),
            message_expression: text(rule, "messageExpression").into(),
            reason: match text(rule, "reason") {
                "FieldValueRequired" => FieldErrorKind::Required,
                "FieldValueForbidden" => FieldErrorKind::Forbidden,
                "FieldValueDuplicate" => FieldErrorKind::Duplicate,
                _ => FieldErrorKind::Invalid,
            },
            field_path: text(rule, "fieldPath").into(),
            optional_old: flag(rule, "optionalOldSelf"),
            program: OnceLock::new(),
            message_program: OnceLock::new(),
        }
    }

    fn program(&self) -> Result<&Program, &str> {
        self.program.get_or_init(|| Program::parse(&self.text)).as_ref().map_err(String::as_str)
    }

    /// The rule's own words, or its text.
    fn shown(&self) -> String {
        if self.message.is_empty() {
            format!("failed rule: {}", self.text.trim())
        } else {
            self.message.to_string()
        }
    }
}

/// A place in an object under way through its rules.
struct At<'a> {
    node: &'a Node,
    value: &'a Value,
    old: Option<&'a Value>,
    path: String,
}

/// Asks all rules about `value`; `old` is what it was. What they cost is taken from `budget`.
pub fn check(
    value: &Value,
    old: Option<&Value>,
    node: &Node,
    budget: &mut u64,
    errors: &mut Vec<FieldError>,
) {
    visit(&At { node, value, old, path: String::new() }, budget, errors);
}

/// False when the budget is used up: nothing more is asked.
fn visit(at: &At<'_>, budget: &mut u64, errors: &mut Vec<FieldError>) -> bool {
    if !at.node.ruled {
        return true;
    }
    for rule in &at.node.rules {
        if !ask(rule, at, budget, errors) {
            return false;
        }
    }
    let node = at.node;
    match at.value {
        Value::Object(fields) => fields.iter().all(|(name, value)| {
            let Some(child) = node.child(name) else { return true };
            let old = if node.atomic_map { None } else { at.old.and_then(|old| old.get(name)) };
            let path = match node.properties.contains_key(name.as_str()) {
                true => below(&at.path, name),
                false => format!("{}[{name}]", at.path),
            };
            visit(&At { node: child, value, old, path }, budget, errors)
        }),
        Value::Array(items) => items.iter().enumerate().all(|(i, value)| {
            let Some(child) = &node.items else { return true };
            let old = element_before(node, value, at.old);
            visit(
                &At { node: child, value, old, path: format!("{}[{i}]", at.path) },
                budget,
                errors,
            )
        }),
        _ => true,
    }
}

fn ask(rule: &Rule, at: &At<'_>, budget: &mut u64, errors: &mut Vec<FieldError>) -> bool {
    let program = match rule.program() {
        Ok(program) => program,
        Err(error) => {
            errors.push(FieldError::invalid(
                &*at.path,
                shown(at.value),
                format!("rule compile error: {error}"),
            ));
            return true;
        }
    };
    let transition = program.uses("oldSelf");
    if transition && at.old.is_none() && !rule.optional_old {
        return true;
    }
    // What did not change is not asked about again, unless the rule is about changes.
    if !transition && at.old == Some(at.value) {
        return true;
    }
    let scope = scope(rule, at);
    let before = (*budget).min(PER_CALL);
    let mut left = before;
    let result = program.run(&scope, &mut left);
    *budget -= before - left;
    let quoted = quote(rule.text.trim());
    let why = match result {
        Ok(Val::Bool(true)) => return true,
        Ok(_) => message(rule, &scope, budget),
        Err(Failure::Cost) if before < PER_CALL => {
            let why = "validation failed due to running out of cost budget, no further validation rules will be run";
            errors.push(FieldError::invalid(&*at.path, shown(at.value), why));
            return false;
        }
        Err(failure @ Failure::Cost) => {
            let why = format!(
                "'{}': no further validation rules will be run due to call cost exceeds limit for rule: {quoted}",
                failure.words()
            );
            errors.push(FieldError::invalid(&*at.path, shown(at.value), why));
            return false;
        }
        Err(Failure::Error(error)) if error.starts_with("no such overload") => format!(
            "'{error}': call arguments did not match a supported operator, function or macro signature for rule: {quoted}"
        ),
        Err(Failure::Error(error)) => format!("{error} evaluating rule: {quoted}"),
    };
    errors.push(error(rule, at, why));
    true
}

fn scope<'a>(rule: &'a Rule, at: &At<'a>) -> Scope<'a> {
    let node: Option<&dyn evenkeel_cel::Schema> = Some(at.node);
    let old = at.old.map(|old| Val::of(old, node));
    let old = if rule.optional_old {
        old.map_or(Val::Optional(None), Val::some)
    } else {
        old.unwrap_or(Val::Null)
    };
    Scope::default().with("self", Val::of(at.value, node)).with("oldSelf", old)
}

/// What the rule says when it is broken: its expression's words where they come to any.
fn message(rule: &Rule, scope: &Scope<'_>, budget: &mut u64) -> String {
    if rule.message_expression.is_empty() {
        return rule.shown();
    }
    let program = rule.message_program.get_or_init(|| Program::parse(&rule.message_expression));
    let Ok(program) = program else { return rule.shown() };
    let before = (*budget).min(PER_CALL);
    let mut left = before;
    let result = program.run(scope, &mut left);
    *budget -= before - left;
    match result {
        Ok(Val::Str(words)) => {
            let words = words.trim();
            if words.is_empty() || words.contains('\n') { rule.shown() } else { words.to_owned() }
        }
        _ => rule.shown(),
    }
}

/// Objects and lists are not shown.
fn shown(value: &Value) -> Value {
    match value {
        Value::Object(_) => Value::from("object"),
        Value::Array(_) => Value::from("array"),
        scalar => scalar.clone(),
    }
}

fn error(rule: &Rule, at: &At<'_>, why: String) -> FieldError {
    let path = format!("{}{}", at.path, rule.field_path);
    let path = path.trim_start_matches('.').to_owned();
    let mut error = FieldError::invalid(path, shown(at.value), why);
    error.kind = rule.reason;
    if matches!(at.value, Value::Object(_) | Value::Array(_)) || !rule.field_path.is_empty() {
        error.value = None;
    }
    error
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wrong(schema: &Value, value: &Value, old: Option<&Value>) -> Vec<String> {
        let mut errors = Vec::new();
        check(value, old, &Node::new(schema), &mut 10_000_000, &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn rules_see_an_object_and_what_it_was() {
        let schema = json!({"type": "object", "x-kubernetes-validations": [{"rule": "self.low <= self.high", "messageExpression": "'low is ' + string(self.low)", "fieldPath": ".low"}],
            "properties": {"low": {"type": "integer"}, "high": {"type": "integer"},
                "fixed": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "is immutable"}]},
                "l": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object",
                    "properties": {"k": {"type": "string"}, "v": {"type": "integer", "x-kubernetes-validations": [{"rule": "self >= oldSelf"}]}}}}}});
        let old = json!({"low": 1, "high": 2, "fixed": "a", "l": [{"k": "x", "v": 5}, {"k": "y", "v": 1}]});
        let new = json!({"low": 3, "high": 2, "fixed": "b", "l": [{"k": "y", "v": 2}, {"k": "x", "v": 4}, {"k": "z", "v": 0}]});
        assert_eq!(
            wrong(&schema, &new, Some(&old)),
            [
                "low: Invalid value: low is 3",
                "fixed: Invalid value: \"b\": is immutable",
                "l[1].v: Invalid value: 4: failed rule: self >= oldSelf"
            ]
        );
        assert_eq!(wrong(&schema, &new, None), ["low: Invalid value: low is 3"]);
        assert!(wrong(&schema, &old, Some(&old)).is_empty());
    }

    #[test]
    fn what_costs_too_much_ends() {
        let schema = json!({"type": "object", "properties": {"l": {"type": "array", "items": {"type": "string"},
            "x-kubernetes-validations": [{"rule": "self.all(a, self.all(b, self.all(c, a == b || b == c || true)))"}]}}});
        let many: Vec<String> = (0..200).map(|n| n.to_string()).collect();
        let found = wrong(&schema, &json!({"l": many}), None);
        assert!(found[0].contains("call cost exceeds limit"), "{found:?}");
    }
}
