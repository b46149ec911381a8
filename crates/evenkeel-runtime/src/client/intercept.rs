//! Interceptors: functions that see each request of a client before it is sent, and may respond to it or fail it.
//!
//! Upstream: `interceptor.Funcs` of controller-runtime, and `rest.Config.WrapTransport`.

use super::{Client, Status, dry_run::RequestInfo, negotiation::JSON, transport::ResponseBody};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Either};
use kube::client::Body;
use serde_json::{Value, json};
use std::{
    sync::Arc,
    task::{Context, Poll},
};
use tower::{BoxError, Service};

/// Request for a resource, as an [`Interceptor`] sees it.
#[derive(Debug, Clone, Copy)]
pub struct ApiCall<'a> {
    /// Verb of RBAC: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`.
    pub verb: &'static str,
    /// Group of the resource. Empty for the core group.
    pub group: &'a str,
    /// Version of the group.
    pub version: &'a str,
    /// Plural of the resource, such as `deployments`.
    pub resource: &'a str,
    /// Namespace. Empty for cluster-scoped objects and requests over all namespaces.
    pub namespace: &'a str,
    /// Name of the object. Empty for lists, and for most creations: the body has it then.
    pub name: &'a str,
    /// Sub-resource, such as `status`. Empty for the object itself.
    pub subresource: &'a str,
    /// Body of the request: an object, a patch, or options of a deletion.
    pub body: &'a Bytes,
}

/// Decision of an [`Interceptor`].
#[derive(Debug, Clone, PartialEq)]
pub enum Intercepted {
    /// The request is sent.
    Pass,
    /// The request is not sent. Its response is success with this object.
    Answer(Value),
    /// The request is not sent. Its response is this failure.
    Fail(Status),
    /// The request is not sent. It fails as without a connection, for this reason.
    Disconnect(String),
}

/// Function that each request of a client for a resource passes. It runs after the leader fence and for each retry.
///
/// Functions over an [`ApiCall`] are interceptors:
///
/// ```
/// use evenkeel_runtime::client::{ApiCall, Intercepted, Interceptor};
///
/// fn is_interceptor(_: impl Interceptor) {}
/// is_interceptor(|call: &ApiCall<'_>| {
///     tracing::debug!(verb = call.verb, resource = call.resource, name = call.name, "request");
///     Intercepted::Pass
/// });
/// ```
#[doc(alias("interceptor.Funcs", "WrapTransport"))]
pub trait Interceptor: Send + Sync + 'static {
    /// Decides about a request.
    fn intercept(&self, call: &ApiCall<'_>) -> Intercepted;
}

impl<F: Fn(&ApiCall<'_>) -> Intercepted + Send + Sync + 'static> Interceptor for F {
    fn intercept(&self, call: &ApiCall<'_>) -> Intercepted {
        self(call)
    }
}

/// Returns a kube client whose requests pass the interceptor first. For the requests of a manager, see
/// [`ManagerBuilder::interceptor`](crate::manager::ManagerBuilder::interceptor). Call it inside a tokio runtime.
pub fn intercept(kube: kube::Client, interceptor: impl Interceptor) -> kube::Client {
    let namespace = kube.default_namespace().to_owned();
    let service = InterceptedKube { inner: kube, interceptor: Arc::new(interceptor) };
    kube::Client::new(service, namespace)
}

#[derive(Clone)]
struct InterceptedKube {
    inner: kube::Client,
    interceptor: Arc<dyn Interceptor>,
}

impl Service<Request<Body>> for InterceptedKube {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            match decide(&*this.interceptor, request).await? {
                Decided::Send(request) => Ok(this.inner.send(request).await?),
                Decided::Answered(response) => Ok(response),
            }
        })
    }
}

impl Client {
    /// Sends one request, unless the interceptor responds to it.
    pub(super) async fn transmit(
        &self,
        request: Request<Body>,
    ) -> Result<Response<ResponseBody>, BoxError> {
        let Some(interceptor) = &self.interceptor else {
            return self.shared.transport.send(request).await;
        };
        match decide(&**interceptor, request).await? {
            Decided::Send(request) => self.shared.transport.send(request).await,
            Decided::Answered(response) => Ok(response.map(Either::Right)),
        }
    }
}

/// Request that is to be sent, or its response.
enum Decided {
    Send(Request<Body>),
    Answered(Response<Body>),
}

/// Calls an interceptor with a request, if it is for a resource.
async fn decide(
    interceptor: &dyn Interceptor,
    request: Request<Body>,
) -> Result<Decided, BoxError> {
    let (parts, body) = request.into_parts();
    let Some(info) = RequestInfo::parse(parts.uri.path()) else {
        return Ok(Decided::Send(Request::from_parts(parts, body)));
    };
    let body = body.collect().await.map_err(BoxError::from)?.to_bytes();
    let call = ApiCall {
        verb: verb(&parts.method, parts.uri.query(), info.name),
        group: info.group,
        version: info.version,
        resource: info.plural,
        namespace: info.namespace,
        name: info.name,
        subresource: info.subresource,
        body: &body,
    };
    let (code, answer) = match interceptor.intercept(&call) {
        Intercepted::Pass => {
            return Ok(Decided::Send(Request::from_parts(parts, Body::from(body))));
        }
        Intercepted::Disconnect(reason) => return Err(reason.into()),
        Intercepted::Answer(object) => (StatusCode::OK, object),
        Intercepted::Fail(status) => {
            let code = StatusCode::from_u16(status.code);
            (code.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), failure(&status))
        }
    };
    let mut response = Response::new(Body::from(answer.to_string().into_bytes()));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
    Ok(Decided::Answered(response))
}

/// Returns the verb of a request for a resource.
///
/// Upstream: `RequestInfoFactory.NewRequestInfo`.
fn verb(method: &Method, query: Option<&str>, name: &str) -> &'static str {
    let watches = || {
        let mut parameters = query.unwrap_or_default().split('&');
        parameters.any(|parameter| matches!(parameter, "watch=true" | "watch=1"))
    };
    match (method.as_str(), name.is_empty()) {
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", true) => "deletecollection",
        ("DELETE", false) => "delete",
        _ if watches() => "watch",
        (_, true) => "list",
        (_, false) => "get",
    }
}

/// Returns a `metav1.Status` of failure.
fn failure(status: &Status) -> Value {
    let causes: Vec<Value> = status
        .causes
        .iter()
        .map(|cause| json!({"reason": *cause.reason, "message": *cause.message, "field": *cause.field}))
        .collect();
    let mut details = json!({"causes": causes});
    if let Some(after) = status.retry_after {
        details["retryAfterSeconds"] = after.as_secs().into();
    }
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "code": status.code, "reason": *status.reason, "message": *status.message, "details": details,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_failure_has_the_status_of_the_interceptor() {
        let status = Status {
            code: 409,
            reason: "Conflict".into(),
            message: "a later version".into(),
            ..Status::default()
        };
        let failed = status.clone();
        let no_server = tower::service_fn(async |_: Request<Body>| {
            Err::<Response<Body>, BoxError>("there is no server".into())
        });
        let kube =
            intercept(
                kube::Client::new(no_server, "default"),
                move |call: &ApiCall<'_>| match call.resource {
                    "pods" => Intercepted::Fail(failed.clone()),
                    "nodes" => Intercepted::Answer(json!({"metadata": {"name": call.name}})),
                    other => Intercepted::Disconnect(format!("no {other}")),
                },
            );
        let client = Client::new(kube, crate::clock::Clock::system());
        let get = |plural: &'static str| {
            let kind = evenkeel_api::Kind::new("", "v1", "", plural, false);
            let client = client.clone();
            async move { client.get_metadata(&kind, "", "a").await }
        };
        assert_eq!(get("pods").await.unwrap_err().status(), Some(&status));
        assert_eq!(&*get("nodes").await.unwrap().meta.name, "a");
        let error = get("secrets").await.unwrap_err();
        assert!(crate::client::full_text(&error).contains("no secrets"), "{error:?}");
    }

    #[test]
    fn verbs_are_those_of_rbac() {
        let table = [
            (Method::GET, None, "", "list"),
            (Method::GET, None, "a", "get"),
            (Method::GET, Some("limit=5&watch=true"), "", "watch"),
            (Method::GET, Some("watch=1"), "a", "watch"),
            (Method::POST, None, "", "create"),
            (Method::PUT, None, "a", "update"),
            (Method::PATCH, Some("force=true"), "a", "patch"),
            (Method::DELETE, None, "a", "delete"),
            (Method::DELETE, None, "", "deletecollection"),
        ];
        for (method, query, name, expected) in table {
            assert_eq!(verb(&method, query, name), expected, "{method} {query:?} {name}");
        }
    }
}
