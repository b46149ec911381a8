//! The custom resource of the operators under comparison, and the data of its child.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Number of objects that each operator reconciles concurrently.
pub const CONCURRENCY: u16 = 16;

/// Desired state of a gadget.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "bench.example.com",
    version = "v1",
    kind = "Gadget",
    namespaced,
    status = "GadgetStatus"
)]
pub struct GadgetSpec {
    /// Text of the child.
    pub message: String,
    /// Size of the gadget.
    pub size: i32,
    /// Further data of the child.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
}

/// Observed state of a gadget.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GadgetStatus {
    /// Generation that the child shows.
    pub observed_generation: i64,
    /// Name of the child.
    pub child: String,
}

impl Gadget {
    /// Returns the data of the child.
    pub fn data(&self) -> BTreeMap<String, String> {
        let mut data = self.spec.options.clone();
        data.insert("message".to_owned(), self.spec.message.clone());
        data.insert("size".to_owned(), self.spec.size.to_string());
        data
    }
}
