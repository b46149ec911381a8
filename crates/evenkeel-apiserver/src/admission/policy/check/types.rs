//! Types of the CEL variables of admission.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use evenkeel_cel::check::{Declared, Type};

fn text() -> Declared {
    Declared::of(Type::Str)
}

fn texts() -> Declared {
    Declared::of(Type::list(Type::Str))
}

fn object<'n>(name: &str, fields: impl IntoIterator<Item = (&'n str, Declared)>) -> Declared {
    Declared::object(Some(&format!("kubernetes.{name}")), fields)
}

/// Type of `request`, without the objects, which are separate variables.
///
/// Upstream: `BuildRequestType`.
static REQUEST: LazyLock<Type> = LazyLock::new(|| {
    let kind = || {
        let fields = [("group", text()), ("version", text()), ("kind", text())];
        object("GroupVersionKind", fields)
    };
    let resource = || {
        let fields = [("group", text()), ("version", text()), ("resource", text())];
        object("GroupVersionResource", fields)
    };
    let extra = Declared::of(Type::map(Type::Str, Type::list(Type::Str)));
    let user = [("username", text()), ("uid", text()), ("groups", texts()), ("extra", extra)];
    let fields = [
        ("kind", kind()),
        ("resource", resource()),
        ("subResource", text()),
        ("requestKind", kind()),
        ("requestResource", resource()),
        ("requestSubResource", text()),
        ("name", text()),
        ("namespace", text()),
        ("operation", text()),
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
            ("status", text()),
            ("type", text()),
            ("lastTransitionTime", time()),
            ("message", text()),
            ("reason", text()),
        ],
    );
    let metadata = object(
        "NamespaceMetadata",
        [
            ("name", text()),
            ("generateName", text()),
            ("namespace", text()),
            ("labels", map()),
            ("annotations", map()),
            ("UID", text()),
            ("creationTimestamp", time()),
            ("deletionGracePeriodSeconds", number()),
            ("deletionTimestamp", time()),
            ("generation", number()),
            ("resourceVersion", text()),
            ("finalizers", texts()),
        ],
    );
    let conditions = Declared::of(Type::list(condition.kind));
    let status = object("NamespaceStatus", [("conditions", conditions), ("phase", text())]);
    let spec = object("NamespaceSpec", [("finalizers", texts())]);
    object("Namespace", [("metadata", metadata), ("spec", spec), ("status", status)]).kind
});

pub(super) fn request() -> Type {
    REQUEST.clone()
}

pub(super) fn namespace() -> Type {
    NAMESPACE.clone()
}

/// Types of a policy's variables, by name.
#[derive(Default)]
pub(super) struct Variables(Arc<BTreeMap<Box<str>, Declared>>);

impl Variables {
    /// Declares a variable. Copies the declarations before it only if a type that [`Self::kind`] returned is still in
    /// use.
    pub(super) fn declare(&mut self, name: &str, kind: Type) {
        Arc::make_mut(&mut self.0).insert(name.into(), Declared::of(kind));
    }

    /// Returns the type of `variables` with the declarations so far.
    pub(super) fn kind(&self) -> Type {
        Type::object(Some("kubernetes.variables"), Arc::clone(&self.0))
    }
}
