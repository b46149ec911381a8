//! Reads of an explained object, of those that depend on it, and of their warnings.

use super::tree::Explained;
use anyhow::Result;
use bytes::Bytes;
use evenkeel_runtime::{
    client::Client,
    discovery::{Resource, ServerResources},
    introspect::Subject,
};
use http::Request;
use serde_json::Value;

/// Maximum number of objects that are read for one answer.
const MAX_OBJECTS: usize = 40;

/// Maximum number of warnings that are read.
const MAX_EVENTS: usize = 500;

/// What the API server has of an explanation's objects.
#[derive(Debug, Default)]
pub(super) struct Objects {
    /// The objects that could be read, the explained one first.
    pub(super) objects: Vec<(Subject, Value)>,
    /// Their events of type Warning.
    pub(super) events: Vec<Value>,
}

impl Objects {
    /// Returns the explained object, if it could be read.
    pub(super) fn root(&self, subject: &Subject) -> Option<&Value> {
        self.objects.iter().find(|(known, _)| known == subject).map(|(_, object)| object)
    }
}

/// Returns the subjects of an explanation in the order in which they are printed.
fn subjects(explained: &Explained) -> Vec<&Subject> {
    let children = explained.children.iter().flat_map(subjects);
    std::iter::once(&explained.object).chain(children).collect()
}

/// Reads the objects of an explanation. What cannot be read, because it is gone or the user may not, is left out.
///
/// # Errors
/// When the server answers that the explained object does not exist, and no controller has it either.
pub(super) async fn read(
    client: &Client,
    resources: &ServerResources,
    explained: &Explained,
) -> Result<Objects> {
    let mut found = Objects::default();
    for subject in subjects(explained).into_iter().take(MAX_OBJECTS) {
        let of_subject = |resource: &&Resource| {
            resource.kind.kind == *subject.kind && resource.kind.group == *subject.group
        };
        let Some(resource) = resources.preferred().find(of_subject) else { continue };
        let path = format!("{}/{}", resource.kind.path(&subject.namespace), subject.name);
        let Ok(request) = Request::get(path).body(Bytes::new()) else { continue };
        match client.raw(request).await {
            Ok(answer) => {
                if let Ok(object) = serde_json::from_slice(answer.body()) {
                    found.objects.push((subject.clone(), object));
                }
            }
            Err(error) if error.code() == 404 && *subject == explained.object => {
                if !explained.reports.iter().any(|report| report.exists) {
                    return Err(NoSuchObject::new(subject, &resource.kind.plural).into());
                }
            }
            Err(_) => {}
        }
    }
    if let Some(events) = warnings(client, &explained.object).await {
        found.events = events;
    }
    Ok(found)
}

/// Error of an explained object that does not exist.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct NoSuchObject(String);

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
    let mut list: Value = serde_json::from_slice(answer.body()).ok()?;
    match list["items"].take() {
        Value::Array(events) => Some(events),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn subjects_are_read_in_the_order_of_the_text() {
        let leaf = |name: &str, children: Vec<Explained>| Explained {
            object: Subject::new("", "Pod", "", name),
            asked: String::new(),
            reports: Vec::new(),
            children,
            more: 0,
        };
        let tree = leaf("a", vec![leaf("b", vec![leaf("c", Vec::new())]), leaf("d", Vec::new())]);
        let names: Vec<_> = subjects(&tree).iter().map(|subject| &*subject.name).collect();
        assert_eq!(names, ["a", "b", "c", "d"]);
    }
}
