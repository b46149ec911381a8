//! Objects that requests write, read from the paths of requests.

use crate::simulation::{Outcome, Requests, Write};
use evenkeel_runtime::client::full_text;
use http::{Method, Request};
use serde_json::Value;
use std::{collections::BTreeSet, fmt};

/// Resource of objects, such as `/apis/apps/v1` and `deployments`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Collection {
    /// Path of the group's version.
    prefix: String,
    pub(super) plural: String,
}

impl Collection {
    /// Returns the path of the collection in all namespaces.
    pub(super) fn path(&self) -> String {
        format!("{}/{}", self.prefix, self.plural)
    }
}

impl fmt::Display for Collection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.plural)?;
        let group = self.prefix.strip_prefix("/apis/").and_then(|rest| rest.split('/').next());
        group.map_or(Ok(()), |group| write!(f, ".{group}"))
    }
}

/// Object or collection that a request writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) collection: Collection,
    namespace: Option<String>,
    name: Option<String>,
    pub(super) subresource: bool,
}

impl Target {
    /// Reads the path of a request for a resource. Returns `None` for any other path.
    pub(super) fn of_path(path: &str) -> Option<Self> {
        let mut parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let rest = match parts.first().copied() {
            Some("api") if parts.len() > 2 => parts.split_off(2),
            Some("apis") if parts.len() > 3 => parts.split_off(3),
            _ => return None,
        };
        let prefix = format!("/{}", parts.join("/"));
        let of_namespace = match &rest[..] {
            ["namespaces", _, "finalize" | "status"] => false,
            ["namespaces", _, _, ..] => true,
            _ => false,
        };
        let (namespace, rest) =
            if of_namespace { (Some(rest[1]), &rest[2..]) } else { (None, &rest[..]) };
        let plural = (*rest.first()?).to_owned();
        Some(Self {
            collection: Collection { prefix, plural },
            namespace: namespace.map(str::to_owned),
            name: rest.get(1).map(|name| (*name).to_owned()),
            subresource: rest.len() > 2,
        })
    }

    /// Returns the path of an object of this name in the target's namespace.
    fn path_of(&self, name: &str) -> String {
        let Collection { prefix, plural } = &self.collection;
        match &self.namespace {
            Some(namespace) => format!("{prefix}/namespaces/{namespace}/{plural}/{name}"),
            None => format!("{prefix}/{plural}/{name}"),
        }
    }
}

/// Returns the objects of a list, with their kind.
fn items(mut list: Value) -> Vec<Value> {
    let kind = list["kind"].as_str().map(|kind| kind.trim_end_matches("List").to_owned());
    let Value::Array(mut items) = list["items"].take() else { return Vec::new() };
    for item in &mut items {
        if let (Value::Object(fields), Some(kind)) = (item, &kind) {
            fields.insert("kind".to_owned(), kind.as_str().into());
        }
    }
    items
}

/// Returns all objects of a resource, with their kind. A resource that cannot be listed has none.
pub(super) async fn list(
    requests: &Requests,
    collection: &Collection,
) -> Result<Vec<Value>, String> {
    let path = collection.path();
    let answer = match requests.send(Method::GET, &path, "", &Value::Null).await {
        Ok(answer) => answer,
        Err(error) if matches!(error.code(), 404 | 405) => return Ok(Vec::new()),
        Err(error) => return Err(format!("GET {path}: {}", full_text(&error))),
    };
    Ok(items(answer))
}

/// Returns the objects of all resources that the server serves, in each version, without events.
pub(super) async fn all_objects(client: &kube::Client) -> Result<Vec<Value>, String> {
    let groups = get(client, "/apis").await?;
    let versions = of_list(&groups["groups"]).flat_map(|group| of_list(&group["versions"]));
    let versions = versions.filter_map(|version| version["groupVersion"].as_str());
    let prefixes = versions.map(|version| format!("/apis/{version}"));
    let mut objects = Vec::new();
    for prefix in std::iter::once("/api/v1".to_owned()).chain(prefixes) {
        for resource in of_list(&get(client, &prefix).await?["resources"]) {
            let Some(plural) = resource["name"].as_str() else { continue };
            let is_listed = of_list(&resource["verbs"]).any(|verb| verb == "list");
            if is_listed && plural != "events" {
                objects.extend(items(get(client, &format!("{prefix}/{plural}")).await?));
            }
        }
    }
    Ok(objects)
}

async fn get(client: &kube::Client, path: &str) -> Result<Value, String> {
    let request = Request::get(path).body(Vec::new()).map_err(|error| full_text(&error))?;
    let answer = client.request::<Value>(request).await;
    answer.map_err(|error| format!("GET {path}: {}", full_text(&error)))
}

fn of_list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Returns the resources that these writes changed, without events.
pub(super) fn collections(writes: &[Write]) -> BTreeSet<Collection> {
    let changes = writes.iter().filter(|write| write.is_executed() && !write.is_event());
    changes.filter_map(|write| Some(Target::of_path(write.path())?.collection)).collect()
}

/// Returns the resource in which a write created an object. The response to such a write has code 201.
pub(super) fn created(write: &Write) -> Option<Target> {
    let is_created = matches!(write.outcome, Outcome::Answered(201) | Outcome::Unheard(201));
    let target = Target::of_path(write.path())?;
    (is_created && !write.is_event() && !target.subresource).then_some(target)
}

/// Returns the resource of a single object that a write deleted, or marked for deletion.
pub(super) fn deleted(write: &Write) -> Option<Target> {
    let is_deleted = write.method == Method::DELETE && write.is_executed();
    // A collection is deleted as often as it takes.
    Target::of_path(write.path()).filter(|target| is_deleted && target.name.is_some())
}

/// Returns the path of the object that a write created.
pub(super) fn created_path(write: &Write) -> Option<String> {
    let target = created(write)?;
    let of_body = || {
        let body: Value = serde_json::from_slice(&write.body).ok()?;
        body.pointer("/metadata/name").and_then(Value::as_str).map(str::to_owned)
    };
    let name = target.name.clone().or_else(|| write.name.as_deref().map(str::to_owned));
    Some(target.path_of(&name.or_else(of_body)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_from_paths() {
        let table = [
            ("/api/v1/namespaces/a/pods", Some(("pods", Some("a"), None, false))),
            ("/api/v1/namespaces/a/pods/b/status", Some(("pods", Some("a"), Some("b"), true))),
            ("/api/v1/namespaces", Some(("namespaces", None, None, false))),
            ("/api/v1/namespaces/a", Some(("namespaces", None, Some("a"), false))),
            ("/api/v1/namespaces/a/finalize", Some(("namespaces", None, Some("a"), true))),
            ("/apis/apps/v1/deployments", Some(("deployments", None, None, false))),
            ("/apis/apps/v1", None),
            ("/healthz", None),
        ];
        for (path, wanted) in table {
            let found = Target::of_path(path);
            let found = found.as_ref().map(|target| {
                let Target { collection, namespace, name, subresource } = target;
                (&*collection.plural, namespace.as_deref(), name.as_deref(), *subresource)
            });
            assert_eq!(found, wanted, "{path}");
        }
        let apps = Target::of_path("/apis/apps/v1/namespaces/a/deployments/b").unwrap();
        assert_eq!(apps.collection.to_string(), "deployments.apps");
        assert_eq!(apps.collection.path(), "/apis/apps/v1/deployments");
        assert_eq!(apps.path_of("c"), "/apis/apps/v1/namespaces/a/deployments/c");
    }
}
