//! Claim templates of StatefulSets and of pods' ephemeral volumes, kept in JSON.

use serde_json::{Value, json};

use super::kept_as_json;
use crate::decode::{Field, FromJson, Reader, Shape, Slot, Wire, WireError};
use crate::text::Text;
use crate::{OwnerReference, StrMap};

/// Protobuf message type of a claim template of a StatefulSet.
const CLAIM_MESSAGE: &str = "k8s.io.api.core.v1.PersistentVolumeClaim";

/// A claim template of a StatefulSet. Only the name is decoded. The controller creates the claims from the JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClaimTemplate {
    /// `metadata.name`, which is also the name of the pod's volume.
    pub name: Text,
    /// The object in JSON.
    object: Text,
}

impl ClaimTemplate {
    fn of(object: &Value) -> Self {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().into();
        Self { name, object: object.to_string().into() }
    }

    /// Converts JSON through protobuf, so that both encodings yield the same JSON. Servers reject objects that protobuf
    /// cannot represent.
    fn from_json_value(object: &Value) -> Self {
        let normalized = crate::protobuf::from_json(CLAIM_MESSAGE, object)
            .and_then(|bytes| crate::protobuf::to_json(CLAIM_MESSAGE, &bytes));
        Self::of(normalized.as_ref().unwrap_or(object))
    }

    /// Returns the body of a claim created from the template. `labels` are added to the template's labels.
    pub fn claim_json(&self, name: &str, namespace: &str, labels: &StrMap) -> String {
        let mut object: Value = serde_json::from_str(&self.object).unwrap_or_else(|_| json!({}));
        object["apiVersion"] = "v1".into();
        object["kind"] = "PersistentVolumeClaim".into();
        let meta = &mut object["metadata"];
        meta["name"] = name.into();
        meta["namespace"] = namespace.into();
        for (key, value) in labels.iter() {
            meta["labels"][key] = value.into();
        }
        object.to_string()
    }
}

kept_as_json!(ClaimTemplate, CLAIM_MESSAGE, ClaimTemplate::of);

/// Protobuf message type of the claim template of an ephemeral volume.
const TEMPLATE_MESSAGE: &str = "k8s.io.api.core.v1.PersistentVolumeClaimTemplate";

/// The claim template of a pod's ephemeral volume. The controller creates the claim from its JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EphemeralClaimTemplate {
    /// Metadata and spec in JSON.
    template: Text,
}

impl EphemeralClaimTemplate {
    fn of(template: &Value) -> Self {
        Self { template: template.to_string().into() }
    }

    /// Converts JSON through protobuf, so that both encodings yield the same JSON.
    fn from_json_value(template: &Value) -> Self {
        let normalized = crate::protobuf::from_json(TEMPLATE_MESSAGE, template)
            .and_then(|bytes| crate::protobuf::to_json(TEMPLATE_MESSAGE, &bytes));
        Self::of(normalized.as_ref().unwrap_or(template))
    }

    /// Returns the body of the claim with this name and owner. The claim has the labels and annotations of the
    /// template's metadata.
    pub fn claim_json(&self, name: &str, namespace: &str, owner: &OwnerReference) -> String {
        let template: Value = serde_json::from_str(&self.template).unwrap_or_else(|_| json!({}));
        let mut meta = json!({"name": name, "namespace": namespace});
        for key in ["labels", "annotations"] {
            if let Some(map) = template["metadata"].get(key) {
                meta[key] = map.clone();
            }
        }
        if let Ok(owner) = serde_json::from_str::<Value>(&owner.to_json()) {
            meta["ownerReferences"] = json!([owner]);
        }
        json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": meta,
            "spec": template["spec"],
        })
        .to_string()
    }
}

kept_as_json!(EphemeralClaimTemplate, TEMPLATE_MESSAGE, EphemeralClaimTemplate::of);
