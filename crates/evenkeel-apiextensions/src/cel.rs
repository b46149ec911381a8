//! Validation rules of custom resources: CEL expressions over an object and its old version (KEP-2876).
//!
//! Upstream: `pkg/apiserver/schema/cel/validation.go`.

use std::sync::OnceLock;

use serde_json::Value;

use super::field_path;
use super::structural::Structural;
use super::validation::{OldElements, child_path};
use evenkeel_apimachinery::status::{FieldError, FieldErrorKind, quote};
use evenkeel_apimachinery::value::{flag, text};
use evenkeel_cel::{Failure, Program, Scope, Val};

/// One rule of `x-kubernetes-validations`. Its expressions are compiled at their first evaluation.
#[derive(Debug)]
pub(crate) struct Rule {
    text: Box<str>,
    /// Message of the error; empty if the rule has none.
    message: Box<str>,
    /// Expression that returns the message; empty if the rule has none.
    message_expression: Box<str>,
    reason: FieldErrorKind,
    /// Path of the field that the error is about, relative to the schema of the rule; empty for the schema itself.
    field_path: Box<str>,
    /// Whether `oldSelf` is an optional value, so that the rule is also evaluated without an old value.
    optional_old_self: bool,
    program: OnceLock<Result<Program, String>>,
    message_program: OnceLock<Result<Program, String>>,
}

impl Rule {
    /// Creates a rule of a schema.
    pub(super) fn new(rule: &Value, schema: &Value) -> Self {
        let path = text(rule, "fieldPath");
        let field = field_path::resolve(path, schema, true);
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
            field_path: field.map_or_else(|_| path.into(), |field| field.path.into()),
            optional_old_self: flag(rule, "optionalOldSelf"),
            program: OnceLock::new(),
            message_program: OnceLock::new(),
        }
    }

    fn program(&self) -> Result<&Program, &str> {
        self.program.get_or_init(|| Program::parse(&self.text)).as_ref().map_err(String::as_str)
    }

    /// Returns the message, or else the expression, which identifies the rule if its evaluation fails.
    ///
    /// Upstream: `ruleErrorString`.
    fn message_or_text(&self) -> &str {
        if self.message.is_empty() { self.text.trim() } else { &self.message }
    }

    /// Returns the rule's message, or one that quotes its expression.
    ///
    /// Upstream: `ruleMessageOrDefault`.
    fn message_or_default(&self) -> String {
        if self.message.is_empty() {
            format!("failed rule: {}", self.text.trim())
        } else {
            self.message.to_string()
        }
    }
}

/// A value within an object, with its schema and field path.
struct ValueContext<'a> {
    schema: &'a Structural,
    value: &'a Value,
    old: Option<&'a Value>,
    path: String,
    /// Whether a rule that does not use `oldSelf` is not evaluated on an unchanged value.
    ratchets: bool,
}

/// Evaluates all rules of `schema` on `value`. `old` is the stored value of an update. Deducts the actual cost from
/// `budget`, and stops once the budget is exceeded.
///
/// Upstream: `Validator`, its `Validate`.
pub fn validate_expressions(
    value: &Value,
    old: Option<&Value>,
    schema: &Structural,
    budget: &mut u64,
    errors: &mut Vec<FieldError>,
) {
    let path = String::new();
    evaluate_rules(&ValueContext { schema, value, old, path, ratchets: true }, budget, errors);
}

/// Evaluates all rules of `schema` on a default, which is at `path`: first as an unchanged value, and then as a new
/// one.
///
/// Upstream: `validate` of `schema/defaulting`.
pub(crate) fn validate_default(
    value: &Value,
    schema: &Structural,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let errors_before = errors.len();
    for old in [Some(value), None] {
        let mut budget = evenkeel_cel::RUNTIME_COST_BUDGET;
        let path = path.to_owned();
        let context = ValueContext { schema, value, old, path, ratchets: false };
        evaluate_rules(&context, &mut budget, errors);
        if errors.len() > errors_before {
            return;
        }
    }
}

/// Evaluates the rules of a value and of all nested values. Returns false once a cost limit is exceeded.
fn evaluate_rules(
    context: &ValueContext<'_>,
    budget: &mut u64,
    errors: &mut Vec<FieldError>,
) -> bool {
    if !context.schema.has_validations {
        return true;
    }
    for rule in &context.schema.validations {
        if !evaluate_rule(rule, context, budget, errors) {
            return false;
        }
    }
    let schema = context.schema;
    match context.value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let Some(child) = schema.child(name) else { continue };
                let old = if schema.atomic_map {
                    None
                } else {
                    context.old.and_then(|old| old.get(name))
                };
                let path = match schema.properties.contains_key(name.as_str()) {
                    true => child_path(&context.path, name),
                    false => format!("{}[{name}]", context.path),
                };
                let child_context = ValueContext { schema: child, value, old, path, ..*context };
                if !evaluate_rules(&child_context, budget, errors) {
                    return false;
                }
            }
        }
        Value::Array(items) => {
            let Some(child) = &schema.items else { return true };
            let old_elements = OldElements::new(schema, context.old);
            for (i, value) in items.iter().enumerate() {
                let old = old_elements.with_key_of(value);
                let path = format!("{}[{i}]", context.path);
                let child_context = ValueContext { schema: child, value, old, path, ..*context };
                if !evaluate_rules(&child_context, budget, errors) {
                    return false;
                }
            }
        }
        _ => {}
    }
    true
}

/// Evaluates one rule. Returns false if no further rule must be evaluated, because a cost limit is exceeded.
///
/// Upstream: `validateExpressions`.
fn evaluate_rule(
    rule: &Rule,
    context: &ValueContext<'_>,
    budget: &mut u64,
    errors: &mut Vec<FieldError>,
) -> bool {
    let program = match rule.program() {
        Ok(program) => program,
        Err(error) => {
            errors.push(FieldError::invalid(
                &*context.path,
                &*context.schema.kind,
                format!("rule compile error: {error}"),
            ));
            return true;
        }
    };
    let is_transition_rule = program.uses("oldSelf");
    if is_transition_rule && context.old.is_none() && !rule.optional_old_self {
        return true;
    }
    if context.ratchets && !is_transition_rule && context.old == Some(context.value) {
        return true;
    }
    let activation = activation(rule, context);
    let rule_name = rule.message_or_text();
    let mut report = |why: String| {
        errors.push(FieldError::invalid(&*context.path, &*context.schema.kind, why));
    };
    match program.run_within(&activation, budget) {
        Some(Ok(Val::Bool(true))) => {}
        Some(Ok(_)) => match error_message(rule, &activation, budget) {
            Ok(why) => errors.push(field_error_for_reason(rule, context, why)),
            Err(why) => {
                let path = rule_path(rule, context);
                errors.push(FieldError::invalid(path, &*context.schema.kind, why));
                return false;
            }
        },
        Some(Err(Failure::Error(error))) if error.starts_with("no such overload") => {
            report(format!(
                "'{error}': call arguments did not match a supported operator, function or macro signature for rule: {rule_name}"
            ));
        }
        Some(Err(Failure::Error(error))) => report(format!("{error} evaluating rule: {rule_name}")),
        Some(Err(failure @ Failure::BudgetExceeded)) => {
            let message = failure.message();
            report(format!(
                "'{message}': no further validation rules will be run due to call cost exceeds limit for rule: {rule_name}"
            ));
            return false;
        }
        None => {
            let why = "validation failed due to running out of cost budget, no further validation rules will be run";
            report(why.to_owned());
            return false;
        }
    }
    true
}

/// Returns the variables of a rule: `self` and `oldSelf`.
///
/// Upstream: `validationActivation`.
fn activation<'a>(rule: &'a Rule, context: &ValueContext<'a>) -> Scope<'a> {
    let schema: Option<&dyn evenkeel_cel::Schema> = Some(context.schema);
    let old = context.old.map(|old| Val::of(old, schema));
    let old = if rule.optional_old_self {
        old.map_or(Val::Optional(None), Val::some)
    } else {
        old.unwrap_or(Val::Null)
    };
    Scope::default().with("self", Val::of(context.value, schema)).with("oldSelf", old)
}

/// Maximum length in bytes of a message that `messageExpression` returns.
///
/// Upstream: `MaxEvaluatedMessageExpressionSizeBytes`.
const MAX_MESSAGE: usize = 5 * 1024;

/// Returns the message of an error: the result of `messageExpression`, or the rule's message if that fails.
///
/// Upstream: `evalMessageExpression`.
///
/// # Errors
/// Fails if the cost of the expression is too high, so that no further rule is evaluated.
fn error_message<'a>(
    rule: &'a Rule,
    activation: &Scope<'a>,
    budget: &mut u64,
) -> Result<String, String> {
    let or_default = || Ok(rule.message_or_default());
    if rule.message_expression.is_empty() {
        return or_default();
    }
    let program = rule.message_program.get_or_init(|| Program::parse(&rule.message_expression));
    let Ok(program) = program else { return or_default() };
    match program.run_within(activation, budget) {
        Some(Ok(Val::Str(message))) => {
            let message = message.trim();
            let is_usable = !message.is_empty()
                && message.len() <= MAX_MESSAGE
                && !message.contains(['\n', '\r']);
            if is_usable { Ok(message.to_owned()) } else { or_default() }
        }
        Some(Err(Failure::BudgetExceeded)) => Err(format!(
            "no further validation rules will be run due to call cost exceeds limit for messageExpression: {}",
            quote(&rule.message_expression)
        )),
        Some(_) => or_default(),
        None => {
            let why = "messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run";
            Err(why.to_owned())
        }
    }
}

/// Returns the value as errors print it: a scalar in full, an object or list only by its type.
fn shown_value(value: &Value) -> Value {
    match value {
        Value::Object(_) => Value::from("object"),
        Value::Array(_) => Value::from("array"),
        scalar => scalar.clone(),
    }
}

/// Returns the path of the field that a rule is about.
fn rule_path(rule: &Rule, context: &ValueContext<'_>) -> String {
    if rule.field_path.is_empty() {
        return context.path.clone();
    }
    child_path(&context.path, &rule.field_path)
}

/// Returns the error of a failed rule, with the reason that the rule names. The error shows only scalar values.
///
/// Upstream: `fieldErrorForReason`.
fn field_error_for_reason(rule: &Rule, context: &ValueContext<'_>, why: String) -> FieldError {
    let path = rule_path(rule, context);
    let mut error = FieldError::invalid(path, shown_value(context.value), why);
    error.kind = rule.reason;
    if rule.reason == FieldErrorKind::Duplicate {
        // Upstream gives such an error no message.
        error.detail = String::new();
        error.value = None;
    }
    if matches!(context.value, Value::Object(_) | Value::Array(_)) || !rule.field_path.is_empty() {
        error.value = None;
    }
    error
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn errors_of(schema: &Value, value: &Value, old: Option<&Value>) -> Vec<String> {
        let mut errors = Vec::new();
        validate_expressions(value, old, &Structural::new(schema), &mut 10_000_000, &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn rules_compare_an_object_with_its_old_version() {
        let schema = json!({"type": "object", "x-kubernetes-validations": [{"rule": "self.low <= self.high", "messageExpression": "'low is ' + string(self.low)", "fieldPath": ".low"}],
            "properties": {"low": {"type": "integer"}, "high": {"type": "integer"},
                "fixed": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "is immutable"}]},
                "l": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object",
                    "properties": {"k": {"type": "string"}, "v": {"type": "integer", "x-kubernetes-validations": [{"rule": "self >= oldSelf"}]}}}}}});
        let old = json!({"low": 1, "high": 2, "fixed": "a", "l": [{"k": "x", "v": 5}, {"k": "y", "v": 1}]});
        let new = json!({"low": 3, "high": 2, "fixed": "b", "l": [{"k": "y", "v": 2}, {"k": "x", "v": 4}, {"k": "z", "v": 0}]});
        assert_eq!(
            errors_of(&schema, &new, Some(&old)),
            [
                "low: Invalid value: low is 3",
                "fixed: Invalid value: \"b\": is immutable",
                "l[1].v: Invalid value: 4: failed rule: self >= oldSelf"
            ]
        );
        assert_eq!(errors_of(&schema, &new, None), ["low: Invalid value: low is 3"]);
        assert!(errors_of(&schema, &old, Some(&old)).is_empty());
    }

    #[test]
    fn invalid_bytes_are_an_error_where_they_are_read() {
        let bytes = json!({"type": "string", "format": "byte"});
        let found = |rule: &str| {
            let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-validations": [{"rule": rule}],
                "properties": {"l": {"type": "array", "items": bytes}, "m": {"type": "object", "additionalProperties": bytes}}}}});
            let spec = json!({"l": ["%%%%", "eA=="], "m": {"k": "%%%%"}});
            errors_of(&schema, &json!({"spec": spec}), None)
        };
        for rule in [
            "self.l[0] == b'x'",
            "self.l[?0] == optional.of(b'x')",
            "self.m['k'] == b'x'",
            "self.m.k == b'x'",
            "self.m.?k == optional.of(b'x')",
        ] {
            let why = "Invalid byte formatted string %%%%: illegal base64 data at input byte 0";
            let want = format!("spec: Invalid value: \"object\": {why} evaluating rule: {rule}");
            assert_eq!(found(rule), [want], "{rule}");
        }
        assert!(found("has(self.m.k) && size(self.l) == 2 && self.l[1] == b'x'").is_empty());
    }

    #[test]
    fn an_evaluation_ends_when_its_cost_exceeds_the_limit() {
        let schema = json!({"type": "object", "properties": {"l": {"type": "array", "items": {"type": "string"},
            "x-kubernetes-validations": [{"rule": "self.all(a, self.all(b, self.all(c, a == b || b == c || true)))"}]}}});
        let many: Vec<String> = (0..200).map(|n| n.to_string()).collect();
        let found = errors_of(&schema, &json!({"l": many}), None);
        assert!(found[0].contains("call cost exceeds limit"), "{found:?}");
    }
}
