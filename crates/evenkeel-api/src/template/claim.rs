//! What a StatefulSet makes the claims of its pods from, kept as text.

use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::kept_as_json;
use crate::StrMap;
use crate::decode::{Field, Reader, Shape, Wire, WireError};

const MESSAGE: &str = "k8s.io.api.core.v1.PersistentVolumeClaim";

/// A PersistentVolumeClaim of which nobody reads more than its name before it is written again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClaimTemplate {
    /// `metadata.name`: also the name of the pod's volume.
    pub name: Box<str>,
    /// The object, JSON.
    object: Box<str>,
}

impl ClaimTemplate {
    fn of(object: &Value) -> Self {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().into();
        Self { name, object: object.to_string().into() }
    }

    /// Through the wire's form, so that both encodings give one text. What that cannot hold no server lets in.
    fn from_json_value(object: &Value) -> Self {
        let as_go = crate::protobuf::from_json(MESSAGE, object)
            .and_then(|bytes| crate::protobuf::to_json(MESSAGE, &bytes));
        Self::of(as_go.as_ref().unwrap_or(object))
    }

    /// Body of a claim made from it, with these labels over its own.
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

kept_as_json!(ClaimTemplate, MESSAGE, ClaimTemplate::of);
