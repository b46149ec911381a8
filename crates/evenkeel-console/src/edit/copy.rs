//! A copy of the objects that planners read, with one object replaced.
//!
//! The copy sends the first read of a path to the API server, with the token of the user. Later reads are served from
//! memory. Watches stay silent: the copy does not change.

use bytes::Bytes;
use evenkeel_api::{Kind, StrMap, selector::Selector};
use futures::{future::BoxFuture, stream};
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use kube::client::Body;
use serde_json::Value;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};
use tower::{BoxError, Service};

use crate::route::parameter;

/// Maximum total size of the responses in bytes.
const MAX_BYTES: usize = 128 * 1024 * 1024;

const JSON: &str = "application/json";

/// Body of a response of the copy.
type ViewBody = UnsyncBoxBody<Bytes, BoxError>;

fn whole(body: Bytes) -> ViewBody {
    Full::new(body).map_err(|never| match never {}).boxed_unsync()
}

/// Responses of the API server by target and requested media type.
#[derive(Clone)]
pub(super) struct Copy {
    kube: kube::Client,
    answers: Arc<Mutex<Answers>>,
}

/// Responses that the copy has read so far.
#[derive(Default)]
struct Answers {
    known: HashMap<(String, String), Answer>,
    bytes: usize,
}

/// Response of the API server to a read.
#[derive(Debug, Clone)]
struct Answer {
    status: StatusCode,
    content_type: Option<HeaderValue>,
    body: Bytes,
}

/// An object that replaces the API server's one.
#[derive(Debug, Clone)]
pub(super) struct Edit {
    /// Path of the object's collection in its namespace.
    collection: String,
    /// Path of the collection in all namespaces.
    everywhere: String,
    namespace: String,
    name: String,
    object: Value,
}

impl Edit {
    /// Shows `object` in place of the object with this name.
    pub(super) fn new(kind: &Kind, namespace: &str, name: &str, object: Value) -> Self {
        Self {
            collection: kind.path(namespace),
            everywhere: kind.path(""),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            object,
        }
    }

    /// Replaces the object in the response to a read of `path` with this query. Returns `None` if the response stays unchanged.
    fn apply(&self, path: &str, query: &str, body: &Bytes) -> Option<Bytes> {
        let is_list = path == self.collection || path == self.everywhere;
        let is_object = path.strip_prefix(&self.collection).and_then(|rest| rest.strip_prefix('/'))
            == Some(&*self.name);
        if !is_list && !is_object {
            return None;
        }
        let mut answer: Value = serde_json::from_slice(body).ok()?;
        let kind = answer["kind"].as_str().unwrap_or_default();
        let only_metadata = kind.starts_with("PartialObjectMetadata");
        match is_object {
            true => self.replace(&mut answer, only_metadata),
            false => self.edit_list(&mut answer, query, only_metadata)?,
        }
        Some(answer.to_string().into())
    }

    fn replace(&self, object: &mut Value, only_metadata: bool) {
        match object.get_mut("metadata") {
            Some(metadata) if only_metadata => *metadata = self.object["metadata"].clone(),
            _ => *object = self.object.clone(),
        }
    }

    /// Replaces the object in a list, or adds or removes it according to the list's label selector.
    fn edit_list(&self, list: &mut Value, query: &str, only_metadata: bool) -> Option<()> {
        let items = list.get_mut("items")?.as_array_mut()?;
        let text = |item: &Value, field: &str| {
            item["metadata"][field].as_str().unwrap_or_default().to_owned()
        };
        let place = items.iter().position(|item| {
            text(item, "name") == self.name && text(item, "namespace") == self.namespace
        });
        let labels = parameter(query, "labelSelector").unwrap_or_default();
        let is_selected = Selector::parse(&labels).is_ok_and(|it| it.matches(&self.labels()));
        match (place, is_selected) {
            (Some(place), true) => self.replace(&mut items[place], only_metadata),
            (Some(place), false) => drop(items.remove(place)),
            (None, true) if !labels.is_empty() => items.push(self.object.clone()),
            // The object is on another page of the list, or a field selector leaves it out.
            (None, _) => return None,
        }
        Some(())
    }

    fn labels(&self) -> StrMap {
        let labels = self.object["metadata"]["labels"].as_object().into_iter().flatten();
        labels.filter_map(|(name, value)| Some((&**name, value.as_str()?))).collect()
    }
}

impl Copy {
    /// Creates a copy without responses. `kube` sends only reads.
    pub(super) fn of(kube: kube::Client) -> Self {
        Self { kube, answers: Arc::default() }
    }

    /// Returns a client that sees the copy with this object.
    pub(super) fn client(&self, edit: Edit) -> kube::Client {
        let namespace = self.kube.default_namespace().to_owned();
        kube::Client::new(View { copy: self.clone(), edit: Arc::new(edit) }, namespace)
    }

    fn lock(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a target, or returns the response to an earlier read.
    async fn read(&self, request: Request<Body>) -> Result<Answer, BoxError> {
        let target = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
        let accept = request.headers().get(header::ACCEPT).and_then(|it| it.to_str().ok());
        let key = (target, accept.unwrap_or_default().to_owned());
        if let Some(answer) = self.lock().known.get(&key) {
            return Ok(answer.clone());
        }
        let (parts, body) = self.kube.send(request).await?.into_parts();
        let answer = Answer {
            status: parts.status,
            content_type: parts.headers.get(header::CONTENT_TYPE).cloned(),
            body: body.collect().await.map_err(BoxError::from)?.to_bytes(),
        };
        // A refusal may be temporary, so it is not stored.
        if answer.status.is_success() {
            let mut answers = self.lock();
            answers.bytes += answer.body.len();
            if answers.bytes > MAX_BYTES {
                return Err(
                    "the objects that the controllers read are too large for a preview".into()
                );
            }
            answers.known.insert(key, answer.clone());
        }
        Ok(answer)
    }
}

/// Service behind a client of the copy.
#[derive(Clone)]
struct View {
    copy: Copy,
    edit: Arc<Edit>,
}

impl Service<Request<Body>> for View {
    type Response = Response<ViewBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<ViewBody>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            if request.method() != Method::GET {
                // Access reviews: a dry run sends no other writes.
                let answer = this.copy.kube.send(request).await?;
                return Ok(answer.map(|body| body.map_err(BoxError::from).boxed_unsync()));
            }
            let (path, query) = (request.uri().path().to_owned(), request.uri().query());
            let query = query.unwrap_or_default().to_owned();
            if parameter(&query, "watch").is_some() {
                return Ok(watch(&query));
            }
            if let Some(accept) = request.headers_mut().get_mut(header::ACCEPT) {
                *accept = json_form(accept);
            }
            let answer = this.copy.read(request).await?;
            let body = match answer.status.is_success() {
                true => this.edit.apply(&path, &query, &answer.body).unwrap_or(answer.body),
                false => answer.body,
            };
            let mut response = Response::new(whole(body));
            *response.status_mut() = answer.status;
            if let Some(content_type) = answer.content_type {
                response.headers_mut().insert(header::CONTENT_TYPE, content_type);
            }
            Ok(response)
        })
    }
}

/// Responds to a watch. A watch with initial events is refused, so that the client lists instead. Other watches stay silent.
fn watch(query: &str) -> Response<ViewBody> {
    if parameter(query, "sendInitialEvents").is_some_and(|value| !value.is_empty()) {
        let mut response =
            Response::new(Empty::new().map_err(|never| match never {}).boxed_unsync());
        *response.status_mut() = StatusCode::UNPROCESSABLE_ENTITY;
        return response;
    }
    let silent = StreamBody::new(stream::pending::<Result<Frame<Bytes>, BoxError>>());
    let mut response = Response::new(silent.boxed_unsync());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
    response
}

/// Returns an `Accept` header without its protobuf parts: the copy edits JSON.
fn json_form(accept: &HeaderValue) -> HeaderValue {
    let accept = accept.to_str().unwrap_or_default();
    let parts = accept.split(',').map(str::trim);
    let kept: Vec<&str> =
        parts.filter(|part| !part.starts_with("application/vnd.kubernetes.protobuf")).collect();
    HeaderValue::from_str(&kept.join(", ")).unwrap_or(HeaderValue::from_static(JSON))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const PODS: Kind = Kind::new("", "v1", "Pod", "pods", true);

    fn pod(name: &str, app: &str) -> Value {
        json!({"metadata": {"name": name, "namespace": "shop", "labels": {"app": app}}, "spec": {"a": app}})
    }

    fn apply(edit: &Edit, target: &str, answer: &Value) -> Option<Value> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let edited = edit.apply(path, query, &answer.to_string().into())?;
        Some(serde_json::from_slice(&edited).expect("JSON"))
    }

    #[test]
    fn the_object_is_replaced_in_lists_and_reads() {
        let edit = Edit::new(&PODS, "shop", "a", pod("a", "new"));
        let list = json!({"kind": "PodList", "items": [pod("b", "old"), pod("a", "old")]});
        let want = json!({"kind": "PodList", "items": [pod("b", "old"), pod("a", "new")]});
        for path in ["/api/v1/pods?limit=500", "/api/v1/namespaces/shop/pods"] {
            assert_eq!(apply(&edit, path, &list), Some(want.clone()), "{path}");
        }
        let read = apply(&edit, "/api/v1/namespaces/shop/pods/a", &pod("a", "old"));
        assert_eq!(read, Some(pod("a", "new")));
        for other in [
            "/api/v1/namespaces/shop/pods/ab",
            "/api/v1/namespaces/other/pods/a",
            "/api/v1/namespaces/shop/pods/a/log",
            "/api/v1/namespaces/shop/podtemplates",
        ] {
            assert_eq!(apply(&edit, other, &list), None, "{other}");
        }
        let elsewhere = json!({"items": [{"metadata": {"name": "a", "namespace": "other"}}]});
        assert_eq!(apply(&edit, "/api/v1/pods", &elsewhere), None);
    }

    #[test]
    fn it_comes_and_goes_by_the_labels_of_a_list() {
        let edit = Edit::new(&PODS, "shop", "a", pod("a", "new"));
        let of = |labels: &str, list: &Value| {
            let edited = apply(&edit, &format!("/api/v1/pods?labelSelector={labels}"), list)?;
            Some(edited["items"].as_array().map_or(0, Vec::len))
        };
        let with = json!({"items": [pod("a", "old")]});
        assert_eq!(of("app%3Dold", &with), Some(0));
        assert_eq!(of("app%3Dnew", &json!({"items": []})), Some(1));
        assert_eq!(of("app%3Dold", &json!({"items": []})), None);
        assert_eq!(of("", &json!({"items": []})), None, "it is on another page");
    }

    #[test]
    fn a_list_of_metadata_stays_one() {
        let edit = Edit::new(&PODS, "shop", "a", pod("a", "new"));
        let mut item = pod("a", "old");
        item.as_object_mut().map(|item| item.remove("spec"));
        let list = json!({"kind": "PartialObjectMetadataList", "items": [item]});
        let edited = apply(&edit, "/api/v1/pods", &list).expect("edited");
        assert_eq!(edited["items"][0]["metadata"]["labels"]["app"], "new");
        assert!(edited["items"][0]["spec"].is_null(), "{edited}");
    }

    #[test]
    fn protobuf_is_not_asked_for() {
        for (accept, want) in [
            (
                "application/vnd.kubernetes.protobuf, application/json;q=0.9",
                "application/json;q=0.9",
            ),
            (
                "application/vnd.kubernetes.protobuf;as=Table, application/json;as=Table;v=v1, application/json",
                "application/json;as=Table;v=v1, application/json",
            ),
            ("application/json", "application/json"),
        ] {
            assert_eq!(json_form(&HeaderValue::from_static(accept)), want);
        }
    }

    #[test]
    fn watches_are_silent_and_never_begin_with_objects() {
        let refused = watch("watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
        assert_eq!(refused.status(), StatusCode::UNPROCESSABLE_ENTITY);
        assert_eq!(watch("watch=true&resourceVersion=7").status(), StatusCode::OK);
    }
}
