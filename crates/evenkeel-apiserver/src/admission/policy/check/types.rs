//! Types of the CEL variables that admission expressions may use.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use evenkeel_cel::check::{Declared, Type};

fn string() -> Declared {
    Declared::of(Type::Str)
}

fn strings() -> Declared {
    Declared::of(Type::list(Type::Str))
}

/// Returns an object type named `kubernetes.NAME` with these fields.
fn object<'n>(name: &str, fields: impl IntoIterator<Item = (&'n str, Declared)>) -> Declared {
    Declared::object(Some(&format!("kubernetes.{name}")), fields)
}

/// Type of `request`. It has no objects, because these are the variables `object` and `oldObject`.
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
    let extra = Declared::of(Type::map(Type::Str, Type::list(Type::Str)));
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
        ("dryRun", Declared::of(Type::Bool)),
        ("options", Declared::of(Type::Dyn)),
    ];
    object("AdmissionRequest", fields).kind
});

/// Type of `namespaceObject`.
///
/// Upstream: `BuildNamespaceType`.
static NAMESPACE: LazyLock<Type> = LazyLock::new(|| {
    let time = || Declared::of(Type::Time);
    let number = || Declared::of(Type::Int);
    let map = || Declared::of(Type::map(Type::Str, Type::Str));
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
    let conditions = Declared::of(Type::list(condition.kind));
    let status = object("NamespaceStatus", [("conditions", conditions), ("phase", string())]);
    let spec = object("NamespaceSpec", [("finalizers", strings())]);
    object("Namespace", [("metadata", metadata), ("spec", spec), ("status", status)]).kind
});

pub(super) fn request() -> Type {
    REQUEST.clone()
}

pub(super) fn namespace() -> Type {
    NAMESPACE.clone()
}

/// Types of the variables that a policy declares, by name.
#[derive(Default)]
pub(super) struct Variables(Arc<BTreeMap<Box<str>, Declared>>);

impl Variables {
    /// Declares a variable. Copies the earlier declarations only if a type that [`Self::kind`] returned is still in
    /// use.
    pub(super) fn declare(&mut self, name: &str, kind: Type) {
        Arc::make_mut(&mut self.0).insert(name.into(), Declared::of(kind));
    }

    /// Returns the type of the object `variables` with the declarations so far.
    pub(super) fn kind(&self) -> Type {
        Type::object(Some("kubernetes.variables"), Arc::clone(&self.0))
    }
}
