//! Sources of objects that are computed rather than stored.

use serde_json::Value;

/// Source of the objects of an API.
pub trait Source: Send + Sync + 'static {
    /// Returns all objects of a resource with their metadata, in a namespace or in all namespaces if it is empty.
    fn list(&self, resource: &str, namespace: &str) -> Vec<Value>;

    /// Returns one object by its name.
    fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let named = |object: &Value| object["metadata"]["name"] == name;
        self.list(resource, namespace).into_iter().find(named)
    }
}
