//! Where objects come from that are not stored.

use serde_json::Value;

/// Makes the objects of an API.
pub trait Source: Send + Sync + 'static {
    /// All objects of a resource in a namespace (in all, where that is empty), with their metadata.
    fn list(&self, resource: &str, namespace: &str) -> Vec<Value>;

    /// One of them.
    fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let named = |object: &Value| object["metadata"]["name"] == name;
        self.list(resource, namespace).into_iter().find(named)
    }
}
