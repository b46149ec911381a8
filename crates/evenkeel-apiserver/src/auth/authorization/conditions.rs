//! Match conditions of authorization webhooks: CEL expressions over the `spec` of a SubjectAccessReview.

use std::sync::LazyLock;

use evenkeel_cel::check::{self, DeclType, Type, Variable};
use evenkeel_cel::{PER_CALL_LIMIT, Program, Scope, Val};
use serde_json::{Value, json};

/// Compiled condition, with its source.
#[derive(Debug)]
pub(super) struct Condition {
    text: String,
    program: Program,
}

/// Result of a webhook's conditions for one request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Matched {
    /// All conditions are true.
    Yes,
    /// A condition is false.
    No,
    /// No condition is false, and some fail with these errors.
    Failed(Vec<String>),
}

impl Condition {
    /// Compiles an expression, which must evaluate to a bool.
    ///
    /// Upstream: `compiler.CompileCELExpression`.
    pub(super) fn compile(text: &str) -> Result<Self, String> {
        let program = Program::parse(text)?;
        let request = Variable::new("request", SPEC.clone());
        let checked = check::check(&program, &[request])?;
        match checked.kind() {
            Type::Bool => Ok(Self { text: text.to_owned(), program }),
            other => Err(format!("must evaluate to bool but got {}", other.declared_name())),
        }
    }
}

/// Evaluates conditions over a review's `spec`. All strings of the `spec` must be set.
///
/// Upstream: `CELMatcher.Eval`.
pub(super) fn matches(conditions: &[Condition], spec: &Value) -> Matched {
    let mut errors = Vec::new();
    for Condition { text, program } in conditions {
        let scope = Scope::default().with("request", Val::of(spec, None));
        // Each evaluation has a cost budget of its own.
        match program.run(&scope, &mut { PER_CALL_LIMIT }) {
            Ok(Val::Bool(true)) => {}
            Ok(Val::Bool(false)) => return Matched::No,
            Ok(_) => errors.push(format!(
                "cel evaluation error: expression '{text}' eval result type should be bool"
            )),
            Err(failure) => errors.push(format!(
                "cel evaluation error: expression '{text}' resulted in error: {}",
                failure.message()
            )),
        }
    }
    if errors.is_empty() { Matched::Yes } else { Matched::Failed(errors) }
}

/// Returns a review's `spec` with every string, list and map that conditions read, including empty ones, which JSON
/// omits.
///
/// Upstream: `convertObjectToUnstructured`.
pub(super) fn with_empty_fields(spec: &Value) -> Value {
    let mut full = json!({"user": "", "groups": [], "uid": "", "extra": {}});
    let overlay = |full: &mut Value, part: &Value| {
        for (name, value) in part.as_object().into_iter().flatten() {
            full[name] = value.clone();
        }
    };
    overlay(&mut full, spec);
    if let Some(attributes) = spec.get("resourceAttributes") {
        let mut resource = json!({"namespace": "", "verb": "", "group": "", "version": "", "resource": "",
            "subresource": "", "name": ""});
        overlay(&mut resource, attributes);
        full["resourceAttributes"] = resource;
    }
    if let Some(attributes) = spec.get("nonResourceAttributes") {
        let mut path = json!({"verb": "", "path": ""});
        overlay(&mut path, attributes);
        full["nonResourceAttributes"] = path;
    }
    full
}

/// Type of `request`.
///
/// Upstream: `buildRequestType`.
static SPEC: LazyLock<Type> = LazyLock::new(|| {
    let string = || DeclType::of(Type::Str);
    let strings = || DeclType::of(Type::list(Type::Str));
    let requirement = DeclType::object(
        Some("kubernetes.SelectorRequirement"),
        [("key", string()), ("operator", string()), ("values", strings())],
    );
    let selector = |name| {
        let requirements = DeclType::of(Type::list(requirement.kind.clone()));
        DeclType::object(Some(name), [("rawSelector", string()), ("requirements", requirements)])
    };
    let texts = ["namespace", "verb", "group", "version", "resource", "subresource", "name"];
    let selectors = [
        ("fieldSelector", selector("kubernetes.FieldSelectorAttributes")),
        ("labelSelector", selector("kubernetes.LabelSelectorAttributes")),
    ];
    let fields = texts.map(|name| (name, string())).into_iter().chain(selectors);
    let resource = DeclType::object(Some("kubernetes.ResourceAttributes"), fields);
    let path = DeclType::object(
        Some("kubernetes.NonResourceAttributes"),
        [("path", string()), ("verb", string())],
    );
    let extra = DeclType::of(Type::map(Type::Str, Type::list(Type::Str)));
    let fields = [
        ("resourceAttributes", resource),
        ("nonResourceAttributes", path),
        ("user", string()),
        ("groups", strings()),
        ("extra", extra),
        ("uid", string()),
    ];
    DeclType::object(Some("kubernetes.SubjectAccessReviewSpec"), fields).kind
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_read_the_review() {
        let spec = json!({"user": "ann", "groups": ["dev"], "resourceAttributes": {"verb": "get", "resource": "pods"}});
        let spec = with_empty_fields(&spec);
        for (expressions, expected) in [
            (&["request.user == 'ann'", "'dev' in request.groups"][..], Matched::Yes),
            (&["has(request.resourceAttributes) && request.resourceAttributes.name == ''"], Matched::Yes),
            (&["has(request.nonResourceAttributes)"], Matched::No),
            (&["request.extra['a'][0] == ''", "request.uid != ''"], Matched::No),
            (
                &["request.nonResourceAttributes.path == '/'"],
                Matched::Failed(vec![
                    "cel evaluation error: expression 'request.nonResourceAttributes.path == '/'' resulted in error: no such key: nonResourceAttributes".to_owned(),
                ]),
            ),
        ] {
            let conditions: Vec<Condition> =
                expressions.iter().map(|text| Condition::compile(text).expect(text)).collect();
            assert_eq!(matches(&conditions, &spec), expected, "{expressions:?}");
        }
    }

    #[test]
    fn a_condition_evaluates_to_a_bool() {
        for (text, why) in [
            ("request.user", "must evaluate to bool but got string"),
            ("request.name", "compilation failed: ERROR: <input>:1:8: undefined field 'name'"),
            ("request.user ==", "compilation failed: ERROR"),
        ] {
            let error = Condition::compile(text).expect_err(text);
            assert!(error.starts_with(why), "{text}: {error}");
        }
    }
}
