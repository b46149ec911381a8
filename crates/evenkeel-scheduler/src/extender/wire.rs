//! Wire types of extenders (`k8s.io/kube-scheduler/extender/v1`). Upstream's types have no JSON tags, so fields are
//! written with Go's names and read in any case.

use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};
use serde_json::{Value, value::RawValue};
use std::{collections::BTreeMap, sync::Arc};

/// A full object as the API server returned it.
pub(super) type Raw = Arc<RawValue>;

/// Request body of the verbs filter and prioritize.
///
/// Upstream: `ExtenderArgs`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Arguments<'a> {
    pub(super) pod: &'a RawValue,
    pub(super) nodes: Option<NodeList>,
    pub(super) node_names: Option<&'a [Arc<str>]>,
}

/// NodeList with the nodes as JSON.
#[derive(Serialize)]
pub(super) struct NodeList {
    pub(super) metadata: BTreeMap<String, String>,
    pub(super) items: Vec<Raw>,
}

/// Response body of the verb filter.
///
/// Upstream: `ExtenderFilterResult`.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct FilterResult {
    #[serde(deserialize_with = "null_as_default")]
    nodes: Option<FeasibleNodes>,
    nodenames: Option<Vec<String>>,
    #[serde(deserialize_with = "null_as_default")]
    pub(super) failednodes: BTreeMap<String, String>,
    #[serde(deserialize_with = "null_as_default")]
    pub(super) failedandunresolvablenodes: BTreeMap<String, String>,
    #[serde(deserialize_with = "null_as_default")]
    pub(super) error: String,
}

impl FilterResult {
    /// Takes the names of the feasible nodes from the response of an extender that caches nodes: `nodeNames`, or the
    /// names in `nodes` if `nodeNames` is absent.
    pub(super) fn take_node_names(&mut self) -> Vec<String> {
        self.nodenames.take().unwrap_or_else(|| self.take_names_in_nodes())
    }

    /// Takes the names of the feasible nodes from the response of an extender that receives full nodes. `nodeNames` is
    /// ignored.
    pub(super) fn take_names_in_nodes(&mut self) -> Vec<String> {
        let nodes = self.nodes.take().map(|list| list.items).unwrap_or_default();
        nodes.into_iter().map(|node| node.metadata.name).collect()
    }
}

/// NodeList in a response. Only the names of the nodes are read.
#[derive(Deserialize)]
struct FeasibleNodes {
    #[serde(default, deserialize_with = "null_as_default")]
    items: Vec<Node>,
}

/// A node in a response. Like in Go, an absent name is empty.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Node {
    #[serde(deserialize_with = "null_as_default")]
    metadata: Name,
}

/// Metadata of a node in a response.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Name {
    #[serde(deserialize_with = "null_as_default")]
    name: String,
}

/// Score of one node in the response of the verb prioritize.
///
/// Upstream: `HostPriority`.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Priority {
    #[serde(deserialize_with = "null_as_default")]
    pub(super) host: String,
    #[serde(deserialize_with = "null_as_default")]
    pub(super) score: i64,
}

/// Request body of the verb bind.
///
/// Upstream: `ExtenderBindingArgs`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Binding<'a> {
    pub(super) pod_name: &'a str,
    pub(super) pod_namespace: &'a str,
    #[serde(rename = "PodUID")]
    pub(super) pod_uid: &'a str,
    pub(super) node: &'a str,
}

/// Response body of the verb bind.
///
/// Upstream: `ExtenderBindingResult`.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct BindingResult {
    #[serde(deserialize_with = "null_as_default")]
    pub(super) error: String,
}

/// Request body of the verb preempt.
///
/// Upstream: `ExtenderPreemptionArgs`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Preemption<'a> {
    pub(super) pod: &'a RawValue,
    pub(super) node_name_to_victims: Option<BTreeMap<&'a str, Victims>>,
    pub(super) node_name_to_meta_victims: Option<BTreeMap<&'a str, MetaVictims>>,
}

/// Victims on one node as full pods.
///
/// Upstream: `Victims`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Victims {
    pub(super) pods: Vec<Box<RawValue>>,
    #[serde(rename = "NumPDBViolations")]
    pub(super) num_pdb_violations: i64,
}

/// Victims on one node by uid.
///
/// Upstream: `MetaVictims`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct MetaVictims {
    pub(super) pods: Vec<MetaPod>,
    #[serde(rename = "NumPDBViolations")]
    pub(super) num_pdb_violations: i64,
}

/// A victim in a request.
///
/// Upstream: `MetaPod`.
#[derive(Serialize)]
pub(super) struct MetaPod {
    #[serde(rename = "UID")]
    pub(super) uid: String,
}

/// Response body of the verb preempt.
///
/// Upstream: `ExtenderPreemptionResult`.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct PreemptionResult {
    #[serde(deserialize_with = "null_as_default")]
    pub(super) nodenametometavictims: BTreeMap<String, AcceptedVictims>,
}

/// Victims on one node that the extender accepts.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct AcceptedVictims {
    #[serde(deserialize_with = "null_as_default")]
    pub(super) pods: Vec<AcceptedVictim>,
    #[serde(deserialize_with = "null_as_default")]
    pub(super) numpdbviolations: i64,
}

/// A victim in a response.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct AcceptedVictim {
    #[serde(deserialize_with = "null_as_default")]
    pub(super) uid: String,
}

/// Deserializes null as the default value.
fn null_as_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Parses a response as Go does: ignores the case of field names, and all bytes after the first value.
pub(super) fn decode_like_go<T: DeserializeOwned>(body: &[u8]) -> serde_json::Result<T> {
    let value = Value::deserialize(&mut serde_json::Deserializer::from_slice(body))?;
    serde_json::from_value(lowercase_fields(value))
}

/// Fields whose values are maps with node names as keys.
const FIELDS_BY_NODE: [&str; 3] =
    ["failednodes", "failedandunresolvablenodes", "nodenametometavictims"];

/// Lowercases the names of all fields, but not the keys of maps.
fn lowercase_fields(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .map(|(field, value)| {
                let field = field.to_ascii_lowercase();
                let value = match value {
                    Value::Object(map) if FIELDS_BY_NODE.contains(&&*field) => {
                        let entries = map.into_iter();
                        entries.map(|(node, value)| (node, lowercase_fields(value))).collect()
                    }
                    value => lowercase_fields(value),
                };
                (field, value)
            })
            .collect(),
        Value::Array(items) => items.into_iter().map(lowercase_fields).collect(),
        scalar => scalar,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_names_of_nodes_are_empty() {
        let body = br#"{"Nodes": {"items": [
            {"metadata": {"name": "a"}}, {"metadata": {}}, {"metadata": null}, {"metadata": {"name": null}}, {}
        ]}}"#;
        let mut result: FilterResult = decode_like_go(body).unwrap();
        assert_eq!(result.take_names_in_nodes(), ["a", "", "", "", ""]);
    }

    #[test]
    fn field_names_have_any_case_and_node_names_keep_theirs() {
        let body = br#"{"FAILEDNODES": {"N-1": "full"}, "failedAndUnresolvableNodes": {"Error": "gone"}, "eRRor": "e"}"#;
        let result: FilterResult = decode_like_go(body).unwrap();
        let reason =
            |node: &str, reason: &str| BTreeMap::from([(node.to_owned(), reason.to_owned())]);
        assert_eq!(result.failednodes, reason("N-1", "full"));
        assert_eq!(result.failedandunresolvablenodes, reason("Error", "gone"));
        assert_eq!(result.error, "e");
        let body = br#"{"NodeNameToMetaVictims": {"N-1": {"PODS": [{"uid": "U"}], "NumPDBViolations": 2}}}"#;
        let result: PreemptionResult = decode_like_go(body).unwrap();
        let victims = &result.nodenametometavictims["N-1"];
        assert_eq!((&*victims.pods[0].uid, victims.numpdbviolations), ("U", 2));
    }
}
