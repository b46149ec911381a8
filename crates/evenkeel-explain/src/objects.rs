//! Reads an explained object, its owners and dependents, and their warnings, with the permissions of a client.

use crate::{choose::chosen, tree::Explained};
use bytes::Bytes;
use evenkeel_api::Kind;
use evenkeel_runtime::{
    client::{ApiError, Client},
    discovery::{Resource, ServerResources},
    introspect::Subject,
};
use futures::{StreamExt as _, stream};
use http::Request;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use std::collections::BTreeSet;

/// Maximum number of objects that are read concurrently.
const CONCURRENT_READS: usize = 8;

/// Maximum number of warnings that are read.
const MAX_EVENTS: usize = 500;

/// Maximum number of pods that wait for their kubelets whose nodes are read.
const MAX_NODES: usize = 10;

/// Maximum number of pods of a Service that are read.
const MAX_SELECTED: usize = 500;

/// Maximum number of owners above an object.
const MAX_OWNERS: usize = 6;

/// Characters that are not escaped in a segment of a path.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Objects of an explanation, as read from the API server.
#[derive(Debug, Default)]
pub struct Objects {
    /// The objects that could be read, the explained one first.
    pub objects: Vec<(Subject, Value)>,
    /// Their events of type Warning.
    pub events: Vec<Value>,
    /// Nodes of pods that wait for their kubelets to start or to end them. Nodes that could not be read are left out. A node
    /// that does not exist has only a name.
    pub nodes: Vec<Value>,
    /// Pods that the explained object selects, if it is a Service with a selector. At most 500.
    pub selected: Option<Vec<Value>>,
    /// Names of the profiles of all schedulers that the reporting process runs; `None` if no process reported.
    pub schedulers: Option<Vec<String>>,
}

impl Objects {
    /// Returns the object of a subject, if it could be read.
    pub fn of(&self, subject: &Subject) -> Option<&Value> {
        self.objects.iter().find(|(known, _)| known == subject).map(|(_, object)| object)
    }
}

/// Owner of an object, or an owner's owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Kind of the owner in the API.
    pub kind: Kind,
    /// The owner as a subject of reports.
    pub subject: Subject,
}

/// Reads an object. `None` if the response is not a JSON object: an aggregated API server may return anything.
async fn get(
    client: &Client,
    kind: &Kind,
    namespace: &str,
    name: &str,
) -> Result<Option<Value>, ApiError> {
    let escape = |text: &str| utf8_percent_encode(text, UNRESERVED).to_string();
    let mut request = Request::new(Bytes::new());
    let target = format!("{}/{}", kind.path(&escape(namespace)), escape(name));
    // The path is valid, because all characters that a URI cannot have are escaped.
    if let Ok(target) = target.parse() {
        *request.uri_mut() = target;
    }
    let answer = client.raw(request).await?;
    Ok(serde_json::from_slice(answer.body()).ok().filter(Value::is_object))
}

/// Reads at most `limit` objects of an explanation; those that need attention are preferred. Leaves out objects that no longer
/// exist or that the user may not read.
///
/// # Errors
/// Fails if the server reports that the explained object does not exist, and no controller has it either.
pub async fn read(
    client: &Client,
    resources: &ServerResources,
    explained: &Explained,
    limit: usize,
) -> Result<Objects, NoSuchObject> {
    let of_subject = |subject: &Subject| {
        let is_its = |resource: &&Resource| {
            resource.kind.kind == *subject.kind && resource.kind.group == *subject.group
        };
        Some(resources.preferred().find(is_its)?.kind.clone())
    };
    let wanted: Vec<(Subject, Kind)> = chosen(explained, limit)
        .into_iter()
        .filter_map(|subject| Some((subject.clone(), of_subject(subject)?)))
        .collect();
    let reads = wanted.into_iter().map(|(subject, kind)| async move {
        let object = get(client, &kind, &subject.namespace, &subject.name).await;
        (subject, kind, object)
    });
    let mut reads = stream::iter(reads).buffered(CONCURRENT_READS);
    let mut found = Objects::default();
    while let Some((subject, kind, object)) = reads.next().await {
        match object {
            Ok(Some(object)) => found.objects.push((subject, object)),

            Err(error) if error.code() == 404 && subject == explained.object => {
                if !explained.reports.iter().any(|report| report.exists) {
                    return Err(NoSuchObject::new(&subject, &kind.plural));
                }
            }
            Ok(None) | Err(_) => {}
        }
    }
    if let Some(kind) = of_subject(&Subject::new("", "Node", "", "")) {
        for name in awaited_nodes(&found.objects) {
            match get(client, &kind, "", &name).await {
                Err(error) if error.is_not_found() => found.nodes.push(name.into()),
                node => found.nodes.extend(node.ok().flatten()),
            }
        }
    }
    if let Some(service) = found.of(&explained.object).filter(|_| is_service(&explained.object)) {
        found.selected = selected(client, &explained.object.namespace, service).await;
    }
    found.events = warnings(client, &explained.object).await.unwrap_or_default();
    Ok(found)
}

/// Returns the owner of an object, the owner's owner, and so on, until one cannot be read. An owner that does not exist is the
/// last one.
pub async fn owners(client: &Client, resources: &ServerResources, object: &Value) -> Vec<Owner> {
    let mut owners = Vec::new();
    let mut metadata = object["metadata"].clone();
    while owners.len() < MAX_OWNERS {
        let Some(owner) = owner_of(resources, &metadata) else { break };
        let Subject { namespace, name, .. } = &owner.subject;
        let next = get(client, &owner.kind, namespace, name).await;
        owners.push(owner);
        let Some(next) = next.ok().flatten().as_mut().and_then(metadata_of) else { break };
        metadata = next;
    }
    owners
}

fn is_service(subject: &Subject) -> bool {
    subject.kind == "Service" && subject.group.is_empty()
}

/// Returns the pods that a Service selects. `None` without a selector, or if they cannot be read.
async fn selected(client: &Client, namespace: &str, service: &Value) -> Option<Vec<Value>> {
    let selector = service["spec"]["selector"].as_object().filter(|labels| !labels.is_empty())?;
    let terms = selector.iter().map(|(key, value)| {
        let term = format!("{key}={}", value.as_str().unwrap_or_default());
        utf8_percent_encode(&term, UNRESERVED).to_string()
    });
    let terms = terms.collect::<Vec<_>>().join("%2C");
    let path =
        format!("/api/v1/namespaces/{namespace}/pods?labelSelector={terms}&limit={MAX_SELECTED}");
    let request = Request::get(path).body(Bytes::new()).ok()?;
    items_of(client.raw(request).await.ok()?.body())
}

/// Returns whether a pod has a node whose kubelet has not started it yet.
pub(crate) fn is_bound_and_not_started(pod: &Value) -> bool {
    let status = &pod["status"];
    pod["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty())
        && matches!(status["phase"].as_str(), None | Some("Pending"))
        && status["startTime"].is_null()
        && status["containerStatuses"].is_null()
}

/// Returns the names of the nodes of pods that wait for their kubelets: they are being deleted, or not started.
fn awaited_nodes(objects: &[(Subject, Value)]) -> BTreeSet<String> {
    let is_awaited = |pod: &Value| {
        pod["metadata"]["deletionTimestamp"].is_string() || is_bound_and_not_started(pod)
    };
    let pods = objects.iter().filter(|(subject, pod)| {
        subject.kind == "Pod" && subject.group.is_empty() && is_awaited(pod)
    });
    let names = pods.filter_map(|(_, pod)| pod["spec"]["nodeName"].as_str());
    names.filter(|name| !name.is_empty()).take(MAX_NODES).map(str::to_owned).collect()
}

/// Removes the metadata from an object, and returns them.
fn metadata_of(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata").map(Value::take)
}

/// Returns the owner that an object's metadata names: the controller, or else the first one.
fn owner_of(resources: &ServerResources, metadata: &Value) -> Option<Owner> {
    let references = metadata["ownerReferences"].as_array()?;
    let controller = references.iter().find(|owner| owner["controller"] == true);
    let owner = controller.or(references.first())?;
    let text = |field: &str| owner[field].as_str().unwrap_or_default();
    let kind = resources.of_kind(text("apiVersion"), text("kind"))?.kind.clone();
    let namespace = metadata["namespace"].as_str().filter(|_| kind.namespaced).unwrap_or_default();
    let subject = Subject::new(&kind.group, &kind.kind, namespace, text("name"));
    Some(Owner { kind, subject })
}

/// Error: the explained object does not exist.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NoSuchObject(String);

impl NoSuchObject {
    fn new(subject: &Subject, plural: &str) -> Self {
        let Subject { kind, namespace, name, .. } = subject;
        Self(match &**namespace {
            "" => {
                format!("there is no {kind} {name}; `kubectl get {plural}` lists those that exist")
            }
            namespace => format!(
                "there is no {kind} {name} in the namespace {namespace}; `kubectl get {plural} -n {namespace}` lists those \
                 that exist, and -n NAMESPACE explains one of another namespace"
            ),
        })
    }
}

/// Returns the warnings in the namespace of a subject. Events of objects without a namespace are in `default`.
async fn warnings(client: &Client, subject: &Subject) -> Option<Vec<Value>> {
    let namespace = match &*subject.namespace {
        "" => "default",
        namespace => namespace,
    };
    let path = format!(
        "/api/v1/namespaces/{namespace}/events?fieldSelector=type%3DWarning&limit={MAX_EVENTS}"
    );
    let request = Request::get(path).body(Bytes::new()).ok()?;
    let answer = client.raw(request).await.ok()?;
    items_of(answer.body())
}

/// Returns the items of a list. `None` if the response is not a list.
fn items_of(answer: &[u8]) -> Option<Vec<Value>> {
    let mut list: Value = serde_json::from_slice(answer).ok()?;
    match list.get_mut("items")?.take() {
        Value::Array(events) => Some(events),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_object_that_is_missing_is_named_with_the_next_step() {
        let job = Subject::new("batch", "Job", "shop", "x");
        let text = NoSuchObject::new(&job, "jobs").to_string();
        assert!(
            text.starts_with("there is no Job x in the namespace shop; `kubectl get jobs -n shop`"),
            "{text}"
        );
        let node = Subject::new("", "Node", "", "n");
        let text = NoSuchObject::new(&node, "nodes").to_string();
        assert!(text.starts_with("there is no Node n; `kubectl get nodes`"), "{text}");
    }

    #[test]
    fn the_controller_is_the_owner() {
        let set = Kind::new("apps", "v1", "ReplicaSet", "replicasets", true);
        let node = Kind::new("", "v1", "Node", "nodes", false);
        let resource = |kind| Resource {
            kind,
            singular: "".into(),
            verbs: Box::default(),
            short_names: Box::default(),
            categories: Box::default(),
            subresources: Box::default(),
            preferred: true,
        };
        let resources =
            ServerResources { resources: vec![resource(set), resource(node)], failed: Vec::new() };
        let reference = |version: &str, kind: &str, controller: bool| json!({"apiVersion": version, "kind": kind, "name": "n", "controller": controller});
        let (set, node) =
            (reference("apps/v1", "ReplicaSet", true), reference("v1", "Node", false));
        for (references, want) in [
            (json!([node, set]), Some("ReplicaSet a/n")),
            (json!([node]), Some("Node n")),
            (json!([reference("x/v1", "Unknown", true)]), None),
            (json!([]), None),
            (Value::Null, None),
        ] {
            let metadata = json!({"namespace": "a", "ownerReferences": references});
            let owner = owner_of(&resources, &metadata).map(|owner| owner.subject.to_string());
            assert_eq!(owner.as_deref(), want, "{metadata}");
        }
    }

    #[test]
    fn answers_that_are_no_objects_have_nothing() {
        for answer in ["[]", "3", "\"text\"", "null", "true", "{}", "{\"items\": 3}", "no JSON"] {
            assert_eq!(items_of(answer.as_bytes()), None, "{answer}");
            let mut value: Value = serde_json::from_str(answer).unwrap_or_default();
            assert_eq!(metadata_of(&mut value), None, "{answer}");
        }
        assert_eq!(items_of(b"{\"items\": [1]}"), Some(vec![json!(1)]));
    }
}
