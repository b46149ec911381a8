//! Validation of the rules in a definition's schema (`x-kubernetes-validations`): syntax, types and estimated cost.
//!
//! Upstream: `ValidateCustomResourceDefinitionOpenAPISchema`, `pkg/apiserver/schema/cel`.

use serde_json::Value;

use super::validation::field_schema;
use crate::structural::{ListType, Structural};
use evenkeel_apimachinery::go_text::{go_json, go_json_string};
use evenkeel_apimachinery::status::{BadValue, FieldError};
use evenkeel_apimachinery::value::{list, text};
use evenkeel_cel::Program;

use evenkeel_cel::check::{Declared, Type, check, most};

/// Limit of the estimated cost of one expression. Upstream: `StaticEstimatedCostLimit`.
const STATIC_ESTIMATED_COST_LIMIT: u64 = 10_000_000;
/// Limit of the estimated cost of all expressions of a schema. Upstream: `StaticEstimatedCRDCostLimit`.
const STATIC_ESTIMATED_CRD_COST_LIMIT: u64 = 100_000_000;

/// A schema at or below the root, with its field path in the definition.
///
/// Upstream: `CELSchemaContext`.
struct SchemaContext<'a> {
    schema: &'a Value,
    structural: &'a Structural,
    field_path: String,
    root: bool,
    /// Maximum number of values of this schema in one object.
    max_cardinality: u64,
    /// Field path of the outermost schema above whose old values cannot be correlated with new ones.
    uncorrelatable: Option<String>,
}

/// Sum of the estimated costs of all expressions, and the cost and field path of each.
///
/// Upstream: `TotalCost`.
#[derive(Default)]
struct TotalCost {
    cost: u64,
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
        root: true,
        max_cardinality: 1,
        uncorrelatable: None,
    };
    visit(&root, &mut total, errors);
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

fn visit(context: &SchemaContext<'_>, total: &mut TotalCost, errors: &mut Vec<FieldError>) {
    for (i, rule) in list(context.schema, "x-kubernetes-validations").iter().enumerate() {
        let field_path = format!("{}.x-kubernetes-validations[{i}]", context.field_path);
        let before = errors.len();
        validate_fields(rule, &field_path, context, errors);
        if errors.len() == before {
            compile_rule(rule, &field_path, context, total, errors);
        }
    }
    let structural = context.structural;
    let uncorrelatable = |here: bool| {
        context.uncorrelatable.clone().or_else(|| here.then(|| context.field_path.clone()))
    };
    for (name, child) in &structural.properties {
        let below = SchemaContext {
            schema: &context.schema["properties"][&**name],
            structural: child,
            field_path: format!("{}.properties[{name}]", context.field_path),
            root: false,
            max_cardinality: context.max_cardinality,
            uncorrelatable: uncorrelatable(structural.atomic_map),
        };
        visit(&below, total, errors);
    }
    let cardinality = context.max_cardinality.saturating_mul(most(structural));
    if let Some(items) = &structural.items {
        let below = SchemaContext {
            schema: &context.schema["items"],
            structural: items,
            field_path: format!("{}.items", context.field_path),
            root: false,
            max_cardinality: cardinality,
            uncorrelatable: uncorrelatable(structural.list_type != ListType::Map),
        };
        visit(&below, total, errors);
    }
    if let Some(additional) = &structural.additional_properties {
        let below = SchemaContext {
            schema: &context.schema["additionalProperties"],
            structural: additional,
            field_path: format!("{}.additionalProperties", context.field_path),
            root: false,
            max_cardinality: cardinality,
            uncorrelatable: uncorrelatable(structural.atomic_map),
        };
        visit(&below, total, errors);
    }
}

/// Validates the fields of a rule, except its expressions.
fn validate_fields(
    rule: &Value,
    field_path: &str,
    context: &SchemaContext<'_>,
    errors: &mut Vec<FieldError>,
) {
    let field = |name: &str| format!("{field_path}.{name}");
    let (expression, message) = (text(rule, "rule").trim(), text(rule, "message"));
    let breaks = |text: &str| text.contains(['\n', '\r']);
    if expression.is_empty() {
        errors.push(FieldError::required(field("rule"), "rule is not specified"));
    } else if !message.is_empty() && message.trim().is_empty() {
        errors.push(FieldError::invalid(
            field("message"),
            message,
            "must be non-empty if specified",
        ));
    } else if breaks(message.trim()) {
        errors.push(FieldError::invalid(field("message"), message, "must not contain line breaks"));
    } else if breaks(expression) && message.trim().is_empty() {
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
    let reason = text(rule, "reason");
    if !reason.is_empty() && !REASONS.contains(&reason) {
        errors.push(FieldError::not_supported(field("reason"), reason, &REASONS));
    }
    let path = text(rule, "fieldPath");
    let simple = !path.contains('[');
    if breaks(path) {
        errors.push(FieldError::invalid(field("fieldPath"), path, "must not contain line breaks"));
    }
    if !path.is_empty() && simple && field_schema(context.schema, path).is_err() {
        errors.push(FieldError::invalid(field("fieldPath"), path, "must be a valid path"));
    }
}

/// Returns the rule as upstream's internal type encodes it.
fn quoted(rule: &Value) -> BadValue {
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

/// Compiles the expressions of a rule, checks their result types, and adds their estimated costs to the total.
fn compile_rule(
    rule: &Value,
    field_path: &str,
    context: &SchemaContext<'_>,
    total: &mut TotalCost,
    errors: &mut Vec<FieldError>,
) {
    let field = |name: &str| format!("{field_path}.{name}");
    let program = match Program::parse(text(rule, "rule")) {
        Ok(program) => program,
        Err(error) => {
            errors.push(FieldError::invalid(field("rule"), quoted(rule), error));
            return;
        }
    };
    let optional = rule.get("optionalOldSelf");
    let old = optional == Some(&Value::Bool(true));
    match compile(&program, context, old) {
        Err(error) => errors.push(FieldError::invalid(field("rule"), quoted(rule), error)),
        Ok((kind, _)) if !matches!(kind, Type::Bool | Type::Dyn) => {
            let detail = "cel expression must evaluate to a bool";
            errors.push(FieldError::invalid(field("rule"), quoted(rule), detail));
        }
        Ok((_, cost)) => {
            add_cost("estimated rule cost", cost, field("rule"), context, total, errors);
        }
    }
    if program.uses("oldSelf") {
        if let Some(above) = &context.uncorrelatable {
            let detail = format!(
                "oldSelf cannot be used on the uncorrelatable portion of the schema within {above}"
            );
            errors.push(FieldError::invalid(field("rule"), text(rule, "rule"), detail));
        }
    } else if let Some(optional) = optional {
        let detail = "may not be set if oldSelf is not used in rule";
        errors.push(FieldError::invalid(field("optionalOldSelf"), optional.clone(), detail));
    }
    let message_expression = text(rule, "messageExpression");
    if message_expression.is_empty() {
        return;
    }
    let message = Program::parse(message_expression).and_then(|program| {
        compile(&program, context, old)
            .map(|(kind, cost)| (matches!(kind, Type::Str | Type::Dyn), cost))
    });
    let field = field("messageExpression");
    match message {
        Err(error) => {
            let detail = format!("messageExpression compilation failed: {error}");
            errors.push(FieldError::invalid(field, quoted(rule), detail));
        }
        Ok((false, _)) => {
            let detail = "messageExpression must evaluate to a string";
            errors.push(FieldError::invalid(field, quoted(rule), detail));
        }
        Ok((true, cost)) => {
            add_cost("estimated messageExpression cost", cost, field, context, total, errors);
        }
    }
}

/// Returns the result type and estimated cost of an expression over values of the schema.
///
/// Upstream: `compileRule`.
fn compile<'a>(
    program: &'a Program,
    context: &SchemaContext<'a>,
    optional: bool,
) -> Result<(Type<'a>, u64), String> {
    let known = Declared::schema(context.structural, context.root).ok_or_else(|| {
        "compilation failed: ERROR: the schema has no type that expressions know".to_owned()
    })?;
    let old = if optional {
        Declared::of(Type::Optional(Box::new(known.kind.clone())))
    } else {
        known.clone()
    };
    let found = check(program, vec![("self", known), ("oldSelf", old)])?;
    Ok((found.known.kind, found.cost))
}

/// Multiplies a cost by the schema's cardinality and adds it to the total.
///
/// Upstream: `getExpressionCost`.
fn add_cost(
    name: &str,
    cost: u64,
    field_path: String,
    context: &SchemaContext<'_>,
    total: &mut TotalCost,
    errors: &mut Vec<FieldError>,
) {
    let cost = cost.saturating_mul(context.max_cardinality);
    if cost > STATIC_ESTIMATED_COST_LIMIT {
        errors.push(FieldError::forbidden(
            field_path.clone(),
            cost_error_message(name, cost, STATIC_ESTIMATED_COST_LIMIT),
        ));
    }
    total.cost = total.cost.saturating_add(cost);
    total.most_expensive.push((cost, field_path));
}

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
