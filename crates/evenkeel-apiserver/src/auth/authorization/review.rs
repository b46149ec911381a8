//! The `spec` of the SubjectAccessReview that an authorization webhook gets.

use evenkeel_api::selector::{FieldSelector, FieldTerm, Operator, Requirement, Selector};
use evenkeel_apimachinery::user::User;
use evenkeel_apimachinery::value::text;
use serde_json::{Map, Value, json};

use crate::auth::rule::{Attributes, FieldRequirements, LabelRequirements};

/// Returns the `spec` of a review in `authorization.k8s.io/v1`. Empty fields are absent.
///
/// Upstream: `WebhookAuthorizer.Authorize`, `resourceAttributesFrom`.
pub(crate) fn spec(user: &User, attributes: &Attributes<'_>) -> Value {
    let mut spec = Map::new();
    insert(&mut spec, &[("user", &user.name), ("uid", &user.uid)]);
    if !user.groups.is_empty() {
        spec.insert("groups".to_owned(), json!(user.groups));
    }
    if !user.extra.is_empty() {
        let extra = user.extra.iter().map(|(key, values)| (key.to_string(), json!(values)));
        spec.insert("extra".to_owned(), Value::Object(extra.collect()));
    }
    let mut fields = Map::new();
    if let Some(path) = attributes.path {
        insert(&mut fields, &[("path", path), ("verb", attributes.verb)]);
        spec.insert("nonResourceAttributes".to_owned(), Value::Object(fields));
        return Value::Object(spec);
    }
    let Attributes { verb, group, version, resource, subresource, namespace, name, .. } =
        *attributes;
    insert(
        &mut fields,
        &[
            ("namespace", namespace),
            ("verb", verb),
            ("group", group),
            ("version", version),
            ("resource", resource),
            ("subresource", subresource),
            ("name", name),
        ],
    );
    for (field, requirements) in [
        ("fieldSelector", field_requirements(&attributes.field_selector)),
        ("labelSelector", label_requirements(&attributes.label_selector)),
    ] {
        if !requirements.is_empty() {
            fields.insert(field.to_owned(), json!({"requirements": requirements}));
        }
    }
    spec.insert("resourceAttributes".to_owned(), Value::Object(fields));
    Value::Object(spec)
}

fn insert(fields: &mut Map<String, Value>, texts: &[(&str, &str)]) {
    for (name, text) in texts.iter().filter(|(_, text)| !text.is_empty()) {
        fields.insert((*name).to_owned(), Value::from(*text));
    }
}

/// Returns the requirements of a field selector as JSON. A selector that cannot be parsed has no requirements.
///
/// Upstream: `fieldSelectorToAuthorizationAPI`.
fn field_requirements(selector: &FieldRequirements<'_>) -> Vec<Value> {
    let requirement_json = |term: &FieldTerm| {
        let operator = if term.equal { "In" } else { "NotIn" };
        json!({"key": &*term.field, "operator": operator, "values": [&*term.value]})
    };
    match selector {
        FieldRequirements::Raw("") => Vec::new(),
        FieldRequirements::Raw(text) => FieldSelector::parse(text)
            .map(|selector| selector.terms().iter().map(requirement_json).collect())
            .unwrap_or_default(),
        FieldRequirements::Terms(terms) => terms.iter().map(requirement_json).collect(),
    }
}

/// Returns the requirements that a review can express, by key. Without the other requirements, the review covers more
/// objects, never fewer.
///
/// Upstream: `labelSelectorToAuthorizationAPI`.
fn label_requirements(selector: &LabelRequirements<'_>) -> Vec<Value> {
    let requirement_json = |requirement: &Requirement| {
        let operator = match requirement.operator() {
            Operator::Equals | Operator::DoubleEquals | Operator::In => "In",
            Operator::NotEquals | Operator::NotIn => "NotIn",
            Operator::Exists => "Exists",
            Operator::DoesNotExist => "DoesNotExist",
            Operator::GreaterThan | Operator::LessThan => return None,
        };
        let mut json = json!({"key": requirement.key(), "operator": operator});
        let values: Vec<&str> = requirement.values().iter().map(|value| &**value).collect();
        if !values.is_empty() {
            json["values"] = json!(values);
        }
        Some(json)
    };
    let mut requirements: Vec<Value> = match selector {
        LabelRequirements::Raw("") => return Vec::new(),
        LabelRequirements::Raw(text) => Selector::parse(text)
            .map(|selector| selector.requirements().iter().filter_map(requirement_json).collect())
            .unwrap_or_default(),
        LabelRequirements::Listed(listed) => listed
            .iter()
            .filter(|requirement| {
                matches!(text(requirement, "operator"), "In" | "NotIn" | "Exists" | "DoesNotExist")
            })
            .cloned()
            .collect(),
    };
    requirements.sort_by(|a, b| text(a, "key").cmp(text(b, "key")));
    requirements
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_review_has_what_is_set() {
        let user = User::authenticated("ann", ["dev"]);
        let list = Attributes {
            verb: "list",
            group: "apps",
            version: "v1",
            resource: "deployments",
            namespace: "default",
            field_selector: FieldRequirements::Raw("metadata.name!=a,spec.x=b"),
            label_selector: LabelRequirements::Raw("z in (b,a),!y,x,n>1"),
            ..Attributes::default()
        };
        assert_eq!(
            spec(&user, &list),
            json!({"user": "ann", "groups": ["dev", "system:authenticated"], "resourceAttributes": {
                "verb": "list", "group": "apps", "version": "v1", "resource": "deployments", "namespace": "default",
                "fieldSelector": {"requirements": [
                    {"key": "metadata.name", "operator": "NotIn", "values": ["a"]},
                    {"key": "spec.x", "operator": "In", "values": ["b"]}]},
                "labelSelector": {"requirements": [
                    {"key": "x", "operator": "Exists"}, {"key": "y", "operator": "DoesNotExist"},
                    {"key": "z", "operator": "In", "values": ["a", "b"]}]}}})
        );
        let path = Attributes { verb: "get", path: Some("/healthz"), ..Attributes::default() };
        assert_eq!(
            spec(&User::anonymous(), &path)["nonResourceAttributes"],
            json!({"path": "/healthz", "verb": "get"})
        );
    }
}
