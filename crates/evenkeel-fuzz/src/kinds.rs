//! Fuzz target for built-in kinds: defaults, validation, preparation, warnings and columns of a decoded object.

use evenkeel_apimachinery::reset::spec_differs;
use evenkeel_apimachinery::user::User;
use evenkeel_apimachinery::validation::{Errors, metadata};
use evenkeel_kinds::printers::{self, cells::PrintedObject};
use evenkeel_kinds::registry::STRATEGIES;
use evenkeel_kinds::strategy::{self, Context};
use evenkeel_kinds::validation::{self, ValidationTarget};
use evenkeel_kinds::{defaults, scale, warnings};
use jiff::Timestamp;
use serde_json::Value;

use crate::input;

/// Creates the object in the first part of the input, and replaces it with the object in the second part. Checks that
/// defaulting is idempotent.
pub(crate) fn kinds(data: &[u8]) {
    let (kind, rest) = input::kind(data);
    let (group, version, name) = (&*kind.gvk.group, &*kind.gvk.version, &*kind.gvk.kind);
    let mut parts = input::parts(rest);
    let Some(mut object) = parts.next().and_then(|body| kind.decode(body)) else { return };
    let Some((_, rules)) = STRATEGIES.iter().find(|(_, s)| s.group == group && s.kind == name)
    else {
        return;
    };
    let default = |object: &mut Value| {
        defaults::apply(group, version, name, object);
        let once = object.clone();
        defaults::apply(group, version, name, object);
        assert_eq!(*object, once, "defaulting is idempotent");
        input::assert_depth(object);
    };
    default(&mut object);
    let user = User::default();
    let cx = |subresource| Context {
        now: "2026-01-02T03:04:05Z".to_owned(),
        user: &user,
        request_group: group,
        subresource,
        has_status: true,
        has_template_labels: false,
    };
    let target =
        |subresource| ValidationTarget { group, request_group: group, kind: name, subresource };
    let _ = metadata::validate(&object);
    validation::create(target(""), &object, &mut Errors::default());
    warnings::warnings(group, name, &object, None);
    if let Some(printer) = printers::printer(group, name) {
        printer(&PrintedObject { object: &object, now: Timestamp::UNIX_EPOCH });
    }
    scale::scale_of(rules, &object);
    let mut created = object.clone();
    strategy::prepare_create(rules, &cx(""), &mut created);
    let Some(mut new) = parts.next().and_then(|body| kind.decode(body)) else { return };
    default(&mut new);
    for subresource in ["", "status", "approval", "finalize", "ephemeralcontainers", "resize"] {
        let mut new = new.clone();
        strategy::prepare_update(rules, &cx(subresource), &mut new, &created);
        validation::update(target(subresource), &new, &created, &mut Errors::default());
        warnings::warnings(group, name, &new, Some(&created));
        spec_differs(&new, &created);
    }
}
