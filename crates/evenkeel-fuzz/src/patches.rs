//! Fuzz targets for patches: the first part is the object, the second the patch.

use evenkeel_api::json;
use evenkeel_apimachinery::decode::FieldValidation;
use evenkeel_apimachinery::patch::{PatchType, patch};
use serde_json::Value;

use crate::input::{self, Kind};

/// Maximum size in bytes of a body, and of the values that the `copy` operations of a JSON patch may add.
const BODY: usize = 3 * 1024 * 1024;

/// Checks that a JSON patch has the same result as the crate `json_patch`.
pub(crate) fn json_patch(data: &[u8]) {
    let Some((kind, current, body)) = read(data) else { return };
    let patched = apply(kind, PatchType::Json, &current, body);
    if let Ok(operations) = serde_json::from_slice::<json_patch::Patch>(body)
        && kind.schema.is_none()
    {
        let mut want = current.clone();
        if json_patch::patch(&mut want, &operations).is_ok()
            && want.is_object()
            && let Some(patched) = patched
        {
            assert_eq!(without_kind(patched), without_kind(want), "the result follows RFC 6902");
        }
    }
}

/// Removes the fields that the server sets from the path of the request.
fn without_kind(mut object: Value) -> Value {
    if let Value::Object(fields) = &mut object {
        fields.remove("apiVersion");
        fields.remove("kind");
        fields.entry("metadata").or_insert_with(|| Value::Object(Default::default()));
    }
    object
}

/// Checks that a merge patch has the same result as the crate `json_patch`, and that a second application changes
/// nothing.
pub(crate) fn merge_patch(data: &[u8]) {
    let Some((kind, current, body)) = read(data) else { return };
    let Some(once) = apply(kind, PatchType::Merge, &current, body) else { return };
    // Upstream also removes nulls in lists.
    if let Ok(patch @ Value::Object(_)) = json::from_slice(body)
        && kind.schema.is_none()
        && !body.contains(&b'[')
    {
        let mut want = current.clone();
        json_patch::merge(&mut want, &patch);
        assert_eq!(without_kind(once.clone()), without_kind(want), "the result follows RFC 7386");
    }
    let twice = apply(kind, PatchType::Merge, &once, body);
    assert_eq!(twice, Some(once), "the second application changes nothing");
}

/// Applies a strategic merge patch twice. The second application may fail, but must not panic.
pub(crate) fn strategic_patch(data: &[u8]) {
    let Some((kind, current, body)) = read(data) else { return };
    let Some(once) = apply(kind, PatchType::Strategic, &current, body) else { return };
    let _ = apply(kind, PatchType::Strategic, &once, body);
}

fn read(data: &[u8]) -> Option<(&'static Kind, Value, &[u8])> {
    let (kind, rest) = input::kind(data);
    let mut parts = input::parts(rest);
    let (object, patch) = (parts.next()?, parts.next()?);
    Some((kind, kind.decode(object)?, patch))
}

/// Applies a patch. Asserts that the result is not too deep, that it decodes to itself, and that the sizes of
/// object and patch bound its size.
fn apply(kind: &Kind, form: PatchType, current: &Value, body: &[u8]) -> Option<Value> {
    let patched =
        patch(&kind.gvk, kind.schema.as_ref(), form, current, body, FieldValidation::Warn).ok()?;
    kind.assert_decodes_again(&patched.object);
    // An escaped character takes six bytes, and a number may become longer in another notation.
    let most = 2 * current.to_string().len() + 8 * body.len() + BODY + 4096;
    assert!(
        patched.object.to_string().len() <= most,
        "the result is larger than object and patch allow"
    );
    Some(patched.object)
}
