//! Validation of the rules in a definition's schema (`x-kubernetes-validations`): syntax, types and estimated cost.
//!
//! Upstream: `ValidateCustomResourceDefinitionOpenAPISchema`, `pkg/apiserver/schema/cel`.

use serde_json::Value;

use super::declared::{declared, max_cardinality};
use crate::field_path;
use crate::structural::{ListType, Structural};
use evenkeel_apimachinery::go_text::{go_json, go_json_string};
use evenkeel_apimachinery::status::{BadValue, FieldError};
use evenkeel_apimachinery::value::{list, text};
use evenkeel_cel::check::{DeclType, Type, Variable, check};
use evenkeel_cel::{Program, escape};

/// Limit of the estimated cost of one expression. Upstream: `StaticEstimatedCostLimit`.
const STATIC_ESTIMATED_COST_LIMIT: u64 = 10_000_000;
/// Limit of the estimated cost of all expressions of a schema. Upstream: `StaticEstimatedCRDCostLimit`.
const STATIC_ESTIMATED_CRD_COST_LIMIT: u64 = 100_000_000;

/// The root schema or a schema nested in it, with its field path in the definition.
///
/// Upstream: `CELSchemaContext`.
struct SchemaContext<'a> {
    schema: &'a Value,
    structural: &'a Structural,
    field_path: String,
    is_root: bool,
    /// Declaration of the schema's values, if this schema or an enclosing one has rules, and expressions can read the
    /// values.
    declared: Option<DeclType>,
    /// Maximum number of values of this schema in one object; `None` if an enclosing schema sets no bound.
    max_cardinality: Option<u64>,
    /// Field path of the outermost enclosing schema whose old values cannot be correlated with new ones.
    uncorrelatable: Option<String>,
}

impl<'a> SchemaContext<'a> {
    /// Returns the context of a nested schema, which is at `relative_path`. `is_uncorrelatable` is true if the old
    /// values within a value of this schema cannot be correlated with the new ones.
    fn child(
        &self,
        schema: &'a Value,
        structural: &'a Structural,
        relative_path: &str,
        declared: Option<DeclType>,
        is_uncorrelatable: bool,
    ) -> Self {
        let own_path = is_uncorrelatable.then(|| self.field_path.clone());
        Self {
            schema,
            structural,
            field_path: format!("{}.{relative_path}", self.field_path),
            is_root: false,
            declared,
            max_cardinality: self.max_cardinality,
            uncorrelatable: self.uncorrelatable.clone().or(own_path),
        }
    }
}

/// Sum of the estimated costs of all expressions.
///
/// Upstream: `TotalCost`.
#[derive(Default)]
struct TotalCost {
    cost: u64,
    /// Cost and field path of each expression that takes at least 1 % of the limit.
    most_expensive: Vec<(u64, String)>,
}

/// Validates all rules of the schema at `field_path`.
pub(super) fn validate_rules(schema: &Value, field_path: &str, errors: &mut Vec<FieldError>) {
    let structural = Structural::new(schema);
    let mut total = TotalCost::default();
    let root = SchemaContext {
        schema,
        structural: &structural,
        field_path: field_path.to_owned(),
        is_root: true,
        declared: None,
        max_cardinality: Some(1),
        uncorrelatable: None,
    };
    validate_nested_rules(root, &mut total, errors);
    if total.cost <= STATIC_ESTIMATED_CRD_COST_LIMIT {
        return;
    }
    total.most_expensive.sort_by_key(|(cost, _)| std::cmp::Reverse(*cost));
    for (_, field_path) in total.most_expensive.into_iter().take(4) {
        let detail = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
        errors.push(FieldError::forbidden(field_path, detail));
    }
    let name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
    errors.push(FieldError::forbidden(
        field_path,
        cost_error_message(name, total.cost, STATIC_ESTIMATED_CRD_COST_LIMIT),
    ));
}

/// Validates the rules of a schema and of all nested schemas.
fn validate_nested_rules(
    mut context: SchemaContext<'_>,
    total: &mut TotalCost,
    errors: &mut Vec<FieldError>,
) {
    let rules = list(context.schema, "x-kubernetes-validations");
    if !rules.is_empty() && context.declared.is_none() {
        let is_resource = context.is_root || context.structural.embedded_resource;
        context.declared = declared(context.structural, is_resource);
    }
    let errors_before = errors.len();
    for (i, rule) in rules.iter().enumerate() {
        let field_path = format!("{}.x-kubernetes-validations[{i}]", context.field_path);
        validate_fields(rule, &field_path, &context, errors);
    }
    // The expressions are compiled only if the other fields of all rules are valid.
    if errors.len() == errors_before
        && let Some(declared) = &context.declared
    {
        let self_type = declared.kind.named(SELF_TYPE);
        for (i, rule) in rules.iter().enumerate() {
            let field_path = format!("{}.x-kubernetes-validations[{i}]", context.field_path);
            let validator = RuleValidator {
                context: &context,
                declared,
                self_type: &self_type,
                rule,
                field_path,
            };
            validator.validate(total, errors);
        }
    }
    let structural = context.structural;
    let declared = context.declared.as_ref();
    for (name, child) in &structural.properties {
        let path = format!("properties[{name}]");
        let field = escape(name).and_then(|name| declared?.field(&name).cloned());
        let schema = &context.schema["properties"][&**name];
        let nested = context.child(schema, child, &path, field, structural.atomic_map);
        validate_nested_rules(nested, total, errors);
    }
    let element = declared.and_then(DeclType::element);
    let element_cardinality = |max_elements: Option<u64>| {
        let (max_lists, max_elements) = (context.max_cardinality?, max_elements?);
        Some(max_lists.saturating_mul(max_elements))
    };
    if let Some(items) = &structural.items {
        let is_uncorrelatable = structural.list_type != ListType::Map;
        let schema = &context.schema["items"];
        let mut nested = context.child(schema, items, "items", element.cloned(), is_uncorrelatable);
        nested.max_cardinality = element_cardinality(structural.max_items);
        validate_nested_rules(nested, total, errors);
    }
    if let Some(values) = &structural.additional_properties {
        let path = "additionalProperties";
        let schema = &context.schema[path];
        let is_uncorrelatable = structural.atomic_map;
        let mut nested = context.child(schema, values, path, element.cloned(), is_uncorrelatable);
        nested.max_cardinality = element_cardinality(structural.max_properties);
        validate_nested_rules(nested, total, errors);
    }
}

/// Name of the type of `self`, for error messages. Upstream generates a new name each time, so that no expression can
/// depend on it.
const SELF_TYPE: &str = "selfType1";

/// Validates the fields of a rule, except its expressions.
fn validate_fields(
    rule: &Value,
    field_path: &str,
    context: &SchemaContext<'_>,
    errors: &mut Vec<FieldError>,
) {
    let field = |name: &str| format!("{field_path}.{name}");
    let (expression, message) = (text(rule, "rule").trim(), text(rule, "message"));
    let has_line_break = |text: &str| text.contains(['\n', '\r']);
    if expression.is_empty() {
        errors.push(FieldError::required(field("rule"), "rule is not specified"));
    } else if !message.is_empty() && message.trim().is_empty() {
        errors.push(FieldError::invalid(
            field("message"),
            message,
            "must be non-empty if specified",
        ));
    } else if has_line_break(message.trim()) {
        errors.push(FieldError::invalid(field("message"), message, "must not contain line breaks"));
    } else if has_line_break(expression) && message.trim().is_empty() {
        let detail = "message must be specified if rule contains line breaks";
        errors.push(FieldError::required(field("message"), detail));
    }
    let message_expression = text(rule, "messageExpression");
    if !message_expression.is_empty() && message_expression.trim().is_empty() {
        let detail = "messageExpression must be non-empty if specified";
        errors.push(FieldError::required(field("messageExpression"), detail));
    }
    const REASONS: [&str; 4] =
        ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
    let reason = rule.get("reason").and_then(Value::as_str);
    if let Some(reason) = reason
        && !REASONS.contains(&reason)
    {
        errors.push(FieldError::not_supported(field("reason"), reason, &REASONS));
    }
    let path = text(rule, "fieldPath");
    if !path.is_empty() && path.trim().is_empty() {
        let detail = "must be non-empty if specified";
        errors.push(FieldError::invalid(field("fieldPath"), path, detail));
    }
    if has_line_break(path) {
        errors.push(FieldError::invalid(field("fieldPath"), path, "must not contain line breaks"));
    }
    if !path.is_empty() && field_path::resolve(path, context.schema, true).is_err() {
        errors.push(FieldError::invalid(field("fieldPath"), path, "must be a valid path"));
    }
}

/// Returns the JSON of a rule as upstream's errors contain it: its internal type has no JSON names.
fn go_encoded_rule(rule: &Value) -> BadValue {
    let text = |name: &str| go_json_string(text(rule, name));
    let optional = |name: &str| go_json(rule.get(name).unwrap_or(&Value::Null));
    BadValue::Encoded(format!(
        r#"{{"Rule":{},"Message":{},"MessageExpression":{},"Reason":{},"FieldPath":{},"OptionalOldSelf":{}}}"#,
        text("rule"),
        text("message"),
        text("messageExpression"),
        optional("reason"),
        text("fieldPath"),
        optional("optionalOldSelf"),
    ))
}

/// Validator of a rule's expressions.
struct RuleValidator<'c, 'a> {
    context: &'c SchemaContext<'a>,
    /// Declaration of `self`.
    declared: &'c DeclType,
    /// Type of `self`. All object types in it have names.
    self_type: &'c Type,
    rule: &'c Value,
    field_path: String,
}

/// Properties of a valid expression.
struct CompiledExpression {
    uses_old_self: bool,
    /// Estimated maximum cost of one evaluation.
    max_cost: u64,
}

impl RuleValidator<'_, '_> {
    /// Compiles the expressions, checks their result types, and adds their estimated costs to the total.
    fn validate(&self, total: &mut TotalCost, errors: &mut Vec<FieldError>) {
        let field = |name: &str| format!("{}.{name}", self.field_path);
        let optional = self.rule.get("optionalOldSelf").filter(|value| !value.is_null());
        let is_optional = optional == Some(&Value::Bool(true));
        let expression = text(self.rule, "rule");
        let compiled = self.compile(expression, is_optional, &Type::Bool, "");
        match &compiled {
            Err(error) => {
                errors.push(FieldError::invalid(
                    field("rule"),
                    go_encoded_rule(self.rule),
                    error.as_str(),
                ));
            }
            Ok(compiled) => {
                let max_evaluations =
                    self.context.max_cardinality.unwrap_or_else(|| max_cardinality(self.declared));
                let cost = compiled.max_cost.saturating_mul(max_evaluations);
                check_cost("estimated rule cost", cost, field("rule"), errors);
                total.add(cost, field("rule"));
                self.validate_message_expression(is_optional, total, errors);
            }
        }
        if compiled.is_ok_and(|compiled| compiled.uses_old_self) {
            if let Some(path) = &self.context.uncorrelatable {
                let detail = format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within {path}"
                );
                errors.push(FieldError::invalid(field("rule"), expression, detail));
            }
        } else if let Some(optional) = optional {
            let detail = "may not be set if oldSelf is not used in rule";
            errors.push(FieldError::invalid(field("optionalOldSelf"), optional.clone(), detail));
        }
    }

    fn validate_message_expression(
        &self,
        is_optional: bool,
        total: &mut TotalCost,
        errors: &mut Vec<FieldError>,
    ) {
        let expression = text(self.rule, "messageExpression");
        if expression.is_empty() {
            return;
        }
        let field = format!("{}.messageExpression", self.field_path);
        match self.compile(expression, is_optional, &Type::Str, "messageExpression ") {
            Err(detail) => {
                errors.push(FieldError::invalid(field, go_encoded_rule(self.rule), detail));
            }
            Ok(CompiledExpression { max_cost: cost, .. }) => {
                check_cost("estimated messageExpression cost", cost, field.clone(), errors);
                total.add(cost, field);
            }
        }
    }

    /// Compiles an expression that must evaluate to the type `expected`. Error messages begin with `error_prefix`. With
    /// `is_optional`, `oldSelf` is an optional value.
    ///
    /// Upstream: `compileRule`.
    fn compile(
        &self,
        expression: &str,
        is_optional: bool,
        expected: &Type,
        error_prefix: &str,
    ) -> Result<CompiledExpression, String> {
        let with_prefix = |error: String| format!("{error_prefix}{error}");
        let program = Program::parse(expression).map_err(with_prefix)?;
        let self_type = self.self_type.clone();
        let old_self_type =
            if is_optional { Type::optional(self_type.clone()) } else { self_type.clone() };
        let variables = [Variable::new("self", self_type), Variable::new("oldSelf", old_self_type)];
        let checked = check(&program, &variables).map_err(with_prefix)?;
        if checked.kind() != expected {
            return Err(match expected {
                Type::Bool => "cel expression must evaluate to a bool".to_owned(),
                _ => format!("{error_prefix}must evaluate to a string"),
            });
        }
        checked.instantiate().map_err(|error| match expected {
            Type::Bool => error,
            // For a message expression, upstream's error lacks the word "program".
            _ => format!("{error_prefix}{}", error.trim_start_matches("program ")),
        })?;
        let uses_old_self = program.uses("oldSelf");
        Ok(CompiledExpression { uses_old_self, max_cost: checked.max_cost(self.declared) })
    }
}

/// Reports a cost that exceeds the limit of one expression.
fn check_cost(name: &str, cost: u64, field_path: String, errors: &mut Vec<FieldError>) {
    if cost > STATIC_ESTIMATED_COST_LIMIT {
        let detail = cost_error_message(name, cost, STATIC_ESTIMATED_COST_LIMIT);
        errors.push(FieldError::forbidden(field_path, detail));
    }
}

impl TotalCost {
    /// Adds the estimated cost of a rule. Records rules that alone take a hundredth of the limit.
    ///
    /// Upstream: `ObserveExpressionCost`.
    fn add(&mut self, cost: u64, field_path: String) {
        self.cost = self.cost.saturating_add(cost);
        if cost >= STATIC_ESTIMATED_CRD_COST_LIMIT / 100 {
            self.most_expensive.push((cost, field_path));
        }
    }
}

/// Returns the message about a cost that exceeds the limit. The message has the quotient of cost and limit.
///
/// Upstream: `getCostErrorMessage`.
fn cost_error_message(name: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let shown = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{name} exceeds budget by factor of {shown} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns the errors of a schema with this rule for `spec`: the last part of the field path, and the detail.
    fn errors_of(rule: &Value) -> Vec<String> {
        let text = json!({"type": "string", "maxLength": 10});
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-validations": [rule],
            "properties": {"a": text, "n": {"type": "integer"}, "l": {"type": "array", "items": {"type": "array", "items": {"type": "string"}}},
                "s": {"type": "array", "maxItems": 5, "items": text}}}}});
        let mut errors = Vec::new();
        validate_rules(&schema, "", &mut errors);
        errors
            .into_iter()
            .map(|e| format!("{}: {}", e.field.rsplit('.').next().unwrap_or_default(), e.detail))
            .collect()
    }

    #[test]
    fn rules_are_checked_for_syntax_types_and_estimated_cost() {
        for good in [
            "self.n > 3 && self.a.startsWith('x')",
            "self.s.all(x, x != 'a')",
            "has(self.a) || self.n in [1, 2]",
            "self.a.size() < 5 && size(self.s) <= 3",
            "self.s.map(x, x + 'b').exists(y, y.matches('^a'))",
            "self.a == oldSelf.a",
            "quantity('1Gi').isGreaterThan(quantity('1Mi'))",
            "self.s.exists_one(x, x == self.a) ? true : false",
        ] {
            assert_eq!(errors_of(&json!({"rule": good})), Vec::<String>::new(), "{good}");
        }
        for (bad, want) in [
            ("self.n >", "Syntax error"),
            ("self.nope == 1", "undefined field 'nope'"),
            ("foo == 1", "undeclared reference to 'foo'"),
            ("self.n + 'a' == 'b'", "no matching overload"),
            ("self.a", "must evaluate to a bool"),
            ("self.a.foo()", "undeclared reference to 'foo'"),
            ("self.l.all(x, x.all(y, y.matches('a')))", "exceeds budget"),
            ("", "rule is not specified"),
        ] {
            let found = errors_of(&json!({"rule": bad}));
            assert!(found.iter().any(|f| f.contains(want)), "{bad}: {found:?}");
        }
    }
}
