//! APIs whose objects are not stored but made when somebody asks, by another part of the process: this server's
//! aggregation layer. Discovery, authorization, selectors and the forms of answers are the server's own.

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use crate::kinds::KindHooks;
use crate::output::{ListMeta, Purpose};
use crate::request::RequestContext;
use crate::resource::ResourceType;
use crate::resource::key;
use crate::response::Body;
use crate::response::answer;
use crate::selector::Selectors;
use crate::store::{Change, Encoded, Entry, SelectionAttributes};
use crate::verbs::answer_value;
use evenkeel_apimachinery::status::StatusError;

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

/// An API to be served beside the server's own.
pub struct ComputedApi {
    /// Its group.
    pub group: &'static str,
    /// Its version.
    pub version: &'static str,
    /// Its resources.
    pub resources: &'static [ComputedResource],
    /// Who makes its objects.
    pub source: Arc<dyn Source>,
}

/// A resource that can be read, one by one and in lists.
#[derive(Debug, Clone, Copy)]
pub struct ComputedResource {
    /// Plural name.
    pub plural: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Titles of the columns that kubectl shows.
    pub columns: &'static [&'static str],
}

/// The rules of such a resource: none but where its objects come from.
struct Hooks(Arc<dyn Source>);

impl KindHooks for Hooks {
    fn computed(&self) -> Option<&dyn Source> {
        Some(&*self.0)
    }
}

/// The rows of the resource table for an API.
pub(crate) fn rows(api: &ComputedApi) -> Vec<Arc<ResourceType>> {
    let row = |resource: &ComputedResource| {
        let column = |title: &&str| match *title {
            "Name" => json!(["Name", "string", "name", 0]),
            title => json!([title, "string", "", 0]),
        };
        let columns: Vec<Value> = resource.columns.iter().map(column).collect();
        let row = json!({
            "group": api.group, "version": api.version, "resource": resource.plural,
            "kind": resource.kind, "singular": "", "shortNames": [], "categories": [],
            "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
            "verbs": ["get", "list"], "subresources": [], "columns": columns,
        });
        ResourceType::described(row, Arc::new(Hooks(api.source.clone())))
    };
    api.resources.iter().filter_map(row).map(Arc::new).collect()
}

/// The APIService that tells of an API served in this process.
pub(crate) fn service(api: &ComputedApi, now: &str) -> Value {
    json!({
        "metadata": {
            "name": format!("{}.{}", api.version, api.group),
            "labels": {"kube-aggregator.kubernetes.io/automanaged": "onstart"},
        },
        "spec": {
            "group": api.group, "version": api.version,
            "groupPriorityMinimum": 100, "versionPriority": 100,
        },
        "status": {"conditions": [{
            "type": "Available", "status": "True", "reason": "Local",
            "message": "Local APIServices are always available", "lastTransitionTime": now,
        }]},
    })
}

/// The object as an answer has it.
fn whole(resource: &ResourceType, mut object: Value) -> Value {
    object["apiVersion"] = Value::from(&*resource.api_version);
    object["kind"] = Value::from(resource.kind());
    object
}

/// Serves GET of one object.
pub(crate) fn get(
    request: &RequestContext<'_>,
    source: &dyn Source,
) -> Result<Response<Body>, StatusError> {
    let (resource, target) = (request.resource(), &request.target);
    let found = source.get(resource.plural(), target.namespace, target.name);
    let object = found.ok_or_else(|| StatusError::not_found(&resource.name, target.name))?;
    answer_value(request, StatusCode::OK, &whole(resource, object))
}

/// Serves GET of a collection, all of it at once.
pub(crate) fn list(
    request: &RequestContext<'_>,
    source: &dyn Source,
) -> Result<Response<Body>, StatusError> {
    let resource = request.resource();
    let format = request.format(Purpose::List)?;
    let (labels, fields) = (request.query.get("labelSelector"), request.query.get("fieldSelector"));
    let selectors = Selectors::parse(resource, labels, fields)?;
    let mut items: Vec<(Arc<str>, Bytes)> = source
        .list(resource.plural(), request.target.namespace)
        .into_iter()
        .map(|object| (entry(resource, object.clone()), object))
        .filter(|(entry, _)| selectors.matches(entry))
        .map(|(entry, object)| (entry.key, object.to_string().into()))
        .collect();
    items.sort();
    // What was made just now has no version, and neither has the list.
    let mut items = items.into_iter().map(|(_, item)| item);
    let bytes = format.list(resource, &mut items, &ListMeta::default(), request.now)?;
    Ok(answer(StatusCode::OK, format.content_type(Purpose::List), Body::whole(bytes)))
}

/// The object as if it were stored, so that it is selected as such.
fn entry(resource: &ResourceType, object: Value) -> Entry {
    let object = whole(resource, object);
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    let key = key(resource, text("namespace"), text("name"));
    let encoded = Encoded::new(&object, SelectionAttributes::new(&object, |_| {}));
    encoded.into_entry(key.into(), 0, Change::Added)
}
