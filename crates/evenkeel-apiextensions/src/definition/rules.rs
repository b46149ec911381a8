//! What is wrong with the validation rules of a schema: they are read, their types are checked, and what they may cost is
//! estimated before any object is (upstream: `ValidateCustomResourceDefinitionOpenAPISchema`, `schema/cel`).

use serde_json::Value;

use super::check::field_schema;
use crate::node::{ListKind, Node};
use evenkeel_apimachinery::status::FieldError;
use evenkeel_apimachinery::value::{list, text};
use evenkeel_cel::Program;
use evenkeel_cel::check::Type;
use evenkeel_cel::check::{Known, check as checked, most};

/// What one rule may cost by its estimate.
const RULE: u64 = 10_000_000;
/// What all rules of a schema may.
const ALL: u64 = 100_000_000;

/// A schema within a schema.
struct At<'a> {
    schema: &'a Value,
    node: &'a Node,
    place: String,
    root: bool,
    /// How many of these there are at most in an object.
    times: u64,
    /// The schema above from which on nothing can be told of how it was.
    unrelated: Option<String>,
}

/// What rules were estimated to cost together.
#[derive(Default)]
struct Total {
    cost: u64,
    most: Vec<(u64, String)>,
}

/// Checks all rules of a schema at `place`.
pub(super) fn check(schema: &Value, place: &str, errors: &mut Vec<FieldError>) {
    let node = Node::new(schema);
    let mut total = Total::default();
    let root =
        At { schema, node: &node, place: place.to_owned(), root: true, times: 1, unrelated: None };
    visit(&root, &mut total, errors);
    if total.cost <= ALL {
        return;
    }
    total.most.sort_by_key(|(cost, _)| std::cmp::Reverse(*cost));
    for (_, place) in total.most.into_iter().take(4) {
        let why = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
        errors.push(FieldError::forbidden(place, why));
    }
    let name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
    errors.push(FieldError::forbidden(place, exceeds(name, total.cost, ALL)));
}

fn visit(at: &At<'_>, total: &mut Total, errors: &mut Vec<FieldError>) {
    for (i, rule) in list(at.schema, "x-kubernetes-validations").iter().enumerate() {
        let place = format!("{}.x-kubernetes-validations[{i}]", at.place);
        let before = errors.len();
        words(rule, &place, at, errors);
        if errors.len() == before {
            self::rule(rule, &place, at, total, errors);
        }
    }
    let node = at.node;
    let unrelated = |here: bool| at.unrelated.clone().or_else(|| here.then(|| at.place.clone()));
    for (name, child) in &node.properties {
        let below = At {
            schema: &at.schema["properties"][&**name],
            node: child,
            place: format!("{}.properties[{name}]", at.place),
            root: false,
            times: at.times,
            unrelated: unrelated(node.atomic_map),
        };
        visit(&below, total, errors);
    }
    let many = at.times.saturating_mul(most(node));
    if let Some(items) = &node.items {
        let below = At {
            schema: &at.schema["items"],
            node: items,
            place: format!("{}.items", at.place),
            root: false,
            times: many,
            unrelated: unrelated(node.list != ListKind::Map),
        };
        visit(&below, total, errors);
    }
    if let Some(more) = &node.additional {
        let below = At {
            schema: &at.schema["additionalProperties"],
            node: more,
            place: format!("{}.additionalProperties", at.place),
            root: false,
            times: many,
            unrelated: unrelated(node.atomic_map),
        };
        visit(&below, total, errors);
    }
}

/// The words of a rule, its expressions apart.
fn words(rule: &Value, place: &str, at: &At<'_>, errors: &mut Vec<FieldError>) {
    let field = |name: &str| format!("{place}.{name}");
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
        let why = "message must be specified if rule contains line breaks";
        errors.push(FieldError::required(field("message"), why));
    }
    let spoken = text(rule, "messageExpression");
    if !spoken.is_empty() && spoken.trim().is_empty() {
        let why = "messageExpression must be non-empty if specified";
        errors.push(FieldError::required(field("messageExpression"), why));
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
    if !path.is_empty() && simple && field_schema(at.schema, path).is_err() {
        errors.push(FieldError::invalid(field("fieldPath"), path, "must be a valid path"));
    }
}

/// A rule's expressions: what they are, and what they cost.
fn rule(rule: &Value, place: &str, at: &At<'_>, total: &mut Total, errors: &mut Vec<FieldError>) {
    let field = |name: &str| format!("{place}.{name}");
    let program = match Program::parse(text(rule, "rule")) {
        Ok(program) => program,
        Err(error) => {
            errors.push(FieldError::invalid(field("rule"), rule.clone(), error));
            return;
        }
    };
    let optional = rule.get("optionalOldSelf");
    let old = optional == Some(&Value::Bool(true));
    match typed(&program, at, old) {
        Err(error) => errors.push(FieldError::invalid(field("rule"), rule.clone(), error)),
        Ok((kind, _)) if !matches!(kind, Type::Bool | Type::Dyn) => {
            let why = "cel expression must evaluate to a bool";
            errors.push(FieldError::invalid(field("rule"), rule.clone(), why));
        }
        Ok((_, cost)) => pay("estimated rule cost", cost, field("rule"), at, total, errors),
    }
    if program.uses("oldSelf") {
        if let Some(above) = &at.unrelated {
            let why = format!(
                "oldSelf cannot be used on the uncorrelatable portion of the schema within {above}"
            );
            errors.push(FieldError::invalid(field("rule"), text(rule, "rule"), why));
        }
    } else if let Some(optional) = optional {
        let why = "may not be set if oldSelf is not used in rule";
        errors.push(FieldError::invalid(field("optionalOldSelf"), optional.clone(), why));
    }
    let spoken = text(rule, "messageExpression");
    if spoken.is_empty() {
        return;
    }
    let told = Program::parse(spoken).and_then(|program| {
        typed(&program, at, old).map(|(kind, cost)| (matches!(kind, Type::Str | Type::Dyn), cost))
    });
    let field = field("messageExpression");
    match told {
        Err(error) => {
            let why = format!("messageExpression compilation failed: {error}");
            errors.push(FieldError::invalid(field, rule.clone(), why));
        }
        Ok((false, _)) => {
            let why = "messageExpression must evaluate to a string";
            errors.push(FieldError::invalid(field, rule.clone(), why));
        }
        Ok((true, cost)) => pay("estimated messageExpression cost", cost, field, at, total, errors),
    }
}

/// Type and cost of an expression about values of the schema.
fn typed<'a>(program: &'a Program, at: &At<'a>, optional: bool) -> Result<(Type<'a>, u64), String> {
    let known = Known::schema(at.node, at.root).ok_or_else(|| {
        "compilation failed: ERROR: the schema has no type that expressions know".to_owned()
    })?;
    let old = if optional {
        Known::of(Type::Optional(Box::new(known.kind.clone())))
    } else {
        known.clone()
    };
    let found = checked(program, vec![("self", known), ("oldSelf", old)])?;
    Ok((found.known.kind, found.cost))
}

fn pay(
    name: &str,
    cost: u64,
    place: String,
    at: &At<'_>,
    total: &mut Total,
    errors: &mut Vec<FieldError>,
) {
    let cost = cost.saturating_mul(at.times);
    if cost > RULE {
        errors.push(FieldError::forbidden(place.clone(), exceeds(name, cost, RULE)));
    }
    total.cost = total.cost.saturating_add(cost);
    total.most.push((cost, place));
}

fn exceeds(name: &str, cost: u64, limit: u64) -> String {
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

    fn wrong(rule: &Value) -> Vec<String> {
        let text = json!({"type": "string", "maxLength": 10});
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-validations": [rule],
            "properties": {"a": text, "n": {"type": "integer"}, "l": {"type": "array", "items": {"type": "array", "items": {"type": "string"}}},
                "s": {"type": "array", "maxItems": 5, "items": text}}}}});
        let mut errors = Vec::new();
        check(&schema, "", &mut errors);
        errors
            .into_iter()
            .map(|e| format!("{}: {}", e.field.rsplit('.').next().unwrap_or_default(), e.detail))
            .collect()
    }

    #[test]
    fn rules_are_checked_before_they_are_asked() {
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
            assert_eq!(wrong(&json!({"rule": good})), Vec::<String>::new(), "{good}");
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
            let found = wrong(&json!({"rule": bad}));
            assert!(found.iter().any(|f| f.contains(want)), "{bad}: {found:?}");
        }
    }
}
