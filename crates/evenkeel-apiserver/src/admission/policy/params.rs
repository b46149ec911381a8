//! Parameter objects of policies, which bindings refer to.

use serde_json::Value;

use super::compiled::Policy;
use crate::admission::attributes::Attributes;
use crate::resource::ResourceType;
use evenkeel_apimachinery::validation::labels::selects;
use evenkeel_apimachinery::value::{get, object, text};
use std::sync::Arc;

/// Returns the parameters of a policy for a binding, or `[null]` if the policy has none. If no parameters are found,
/// this is an error unless the binding has `parameterNotFoundAction: Allow`.
pub(super) fn of(
    request: &Attributes<'_>,
    policy: &Policy,
    binding: &Value,
) -> Result<Vec<Value>, String> {
    let Some(kind) = get(&policy.document, "spec.paramKind") else { return Ok(vec![Value::Null]) };
    let Some(reference) = get(binding, "spec.paramRef") else { return Ok(vec![Value::Null]) };
    let rows = request.cx.api.table.rows();
    let (version, name) = (text(kind, "apiVersion"), text(kind, "kind"));
    let Some(row) = rows.of_kind(version, name).next() else {
        return Err(format!(
            "failed to find resource referenced by paramKind: '{version}, Kind={name}'"
        ));
    };
    let params = find(request, row, reference);
    if !params.is_empty() {
        return Ok(params);
    }
    if text(reference, "parameterNotFoundAction") == "Allow" {
        return Ok(Vec::new());
    }
    Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned())
}

/// Returns the stored objects of a resource that a `paramRef` names or selects.
fn find(request: &Attributes<'_>, row: &Arc<ResourceType>, reference: &Value) -> Vec<Value> {
    let cx = request.cx;
    let namespace = match text(reference, "namespace") {
        _ if !row.namespaced => "",
        "" => cx.namespace,
        namespace => namespace,
    };
    let decode = |entry: &crate::store::Entry| crate::custom::codec::decode_alone(row, entry);
    let name = text(reference, "name");
    if !name.is_empty() {
        let entry =
            cx.api.store.get(&row.resource_prefix, &crate::resource::key(row, namespace, name));
        return entry.and_then(|entry| decode(&entry)).into_iter().collect();
    }
    let entries = if namespace.is_empty() {
        cx.api.store.all(&row.resource_prefix)
    } else {
        cx.api.store.within(&row.resource_prefix, namespace)
    };
    entries
        .iter()
        .filter_map(|entry| decode(entry))
        .filter(|params| selects(get(reference, "selector"), object(params, "metadata.labels")))
        .collect()
}
