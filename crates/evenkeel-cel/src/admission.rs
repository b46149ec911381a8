//! Types of the variables that the expressions of admission policies and webhooks may use.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use crate::check::{DeclType, Type};

fn string() -> DeclType {
    DeclType::of(Type::Str)
}

fn strings() -> DeclType {
    DeclType::of(Type::list(Type::Str))
}

/// Returns an object type named `kubernetes.NAME` with these fields.
fn object<'n>(name: &str, fields: impl IntoIterator<Item = (&'n str, DeclType)>) -> DeclType {
    DeclType::object(Some(&format!("kubernetes.{name}")), fields)
}

/// Type of `request`. It does not contain the objects, which are the variables `object` and `oldObject`.
///
/// Upstream: `BuildRequestType`.
static REQUEST: LazyLock<Type> = LazyLock::new(|| {
    let kind = || {
        let fields = [("group", string()), ("version", string()), ("kind", string())];
        object("GroupVersionKind", fields)
    };
    let resource = || {
        let fields = [("group", string()), ("version", string()), ("resource", string())];
        object("GroupVersionResource", fields)
    };
    let extra = DeclType::of(Type::map(Type::Str, Type::list(Type::Str)));
    let user = [("username", string()), ("uid", string()), ("groups", strings()), ("extra", extra)];
    let fields = [
        ("kind", kind()),
        ("resource", resource()),
        ("subResource", string()),
        ("requestKind", kind()),
        ("requestResource", resource()),
        ("requestSubResource", string()),
        ("name", string()),
        ("namespace", string()),
        ("operation", string()),
        ("userInfo", object("UserInfo", user)),
        ("dryRun", DeclType::of(Type::Bool)),
        ("options", DeclType::of(Type::Dyn)),
    ];
    object("AdmissionRequest", fields).kind
});

/// Type of `namespaceObject`.
///
/// Upstream: `BuildNamespaceType`.
static NAMESPACE: LazyLock<Type> = LazyLock::new(|| {
    let time = || DeclType::of(Type::Time);
    let number = || DeclType::of(Type::Int);
    let map = || DeclType::of(Type::map(Type::Str, Type::Str));
    let condition = object(
        "NamespaceCondition",
        [
            ("status", string()),
            ("type", string()),
            ("lastTransitionTime", time()),
            ("message", string()),
            ("reason", string()),
        ],
    );
    let metadata = object(
        "NamespaceMetadata",
        [
            ("name", string()),
            ("generateName", string()),
            ("namespace", string()),
            ("labels", map()),
            ("annotations", map()),
            ("UID", string()),
            ("creationTimestamp", time()),
            ("deletionGracePeriodSeconds", number()),
            ("deletionTimestamp", time()),
            ("generation", number()),
            ("resourceVersion", string()),
            ("finalizers", strings()),
        ],
    );
    let conditions = DeclType::of(Type::list(condition.kind));
    let status = object("NamespaceStatus", [("conditions", conditions), ("phase", string())]);
    let spec = object("NamespaceSpec", [("finalizers", strings())]);
    object("Namespace", [("metadata", metadata), ("spec", spec), ("status", status)]).kind
});

/// Returns the type of `request`.
pub fn request() -> Type {
    REQUEST.clone()
}

/// Returns the type of `namespaceObject`.
pub fn namespace() -> Type {
    NAMESPACE.clone()
}

/// Types of the variables that a policy declares, by name.
#[derive(Debug, Default)]
pub struct Variables(Arc<BTreeMap<Box<str>, DeclType>>);

impl Variables {
    /// Declares a variable. An object has the type `dyn`, even as an element of a list or map. Copies the earlier
    /// declarations only if a type that [`Self::kind`] returned is still in use.
    pub fn declare(&mut self, name: &str, kind: &Type) {
        Arc::make_mut(&mut self.0).insert(name.into(), DeclType::of(declared_type(kind)));
    }

    /// Returns the type of the object `variables` with the declarations so far.
    pub fn kind(&self) -> Type {
        Type::object(Some("kubernetes.variables"), Arc::clone(&self.0))
    }
}

/// Returns the type that a variable gets from its expression. Upstream: `convertCelTypeToDeclType`.
fn declared_type(kind: &Type) -> Type {
    match kind {
        Type::Any
        | Type::Null
        | Type::Bool
        | Type::Int
        | Type::Uint
        | Type::Double
        | Type::Str
        | Type::Bytes
        | Type::Time
        | Type::Duration => kind.clone(),
        Type::List(_) | Type::Map(..) => kind.map_parameters(declared_type),
        _ => Type::Dyn,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_objects_are_dynamic() {
        for (kind, want) in [
            (Type::Int, Type::Int),
            (request(), Type::Dyn),
            (Type::optional(Type::Int), Type::Dyn),
            (Type::list(Type::list(request())), Type::list(Type::list(Type::Dyn))),
            (Type::map(Type::Str, namespace()), Type::map(Type::Str, Type::Dyn)),
            (Type::map(Type::Str, Type::Time), Type::map(Type::Str, Type::Time)),
        ] {
            let mut variables = Variables::default();
            variables.declare("v", &kind);
            let all = DeclType::of(variables.kind());
            assert_eq!(all.field("v").unwrap().kind, want);
        }
    }
}
