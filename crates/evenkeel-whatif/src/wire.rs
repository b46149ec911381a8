//! The wire between components and the API server, which counts writes.

use crate::{observe::Recorder, recording::Write};
use evenkeel_apiserver::{Body, Service};
use futures::{FutureExt as _, future::BoxFuture};
use http::{Method, Request, Response, header::USER_AGENT};
use std::{
    convert::Infallible,
    task::{Context, Poll},
};

/// Service of the API server that reports executed writes to a recorder.
#[derive(Clone)]
pub(crate) struct Wire {
    server: Service,
    recorder: Recorder,
}

impl Wire {
    /// Returns a client of the server whose writes the recorder counts.
    pub(crate) fn client(server: Service, recorder: Recorder) -> kube::Client {
        kube::Client::new(Self { server, recorder }, "default")
    }
}

impl tower::Service<Request<kube::client::Body>> for Wire {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let agent = request.headers().get(USER_AGENT).and_then(|agent| agent.to_str().ok());
        let write = write(agent.unwrap_or_default(), request.method(), request.uri().path());
        let answer = tower::Service::call(&mut self.server, request);
        let Some(write) = write else { return answer };
        let recorder = self.recorder.clone();
        async move {
            let answer = answer.await?;
            if answer.status().is_success() {
                recorder.count(write);
            }
            Ok(answer)
        }
        .boxed()
    }
}

/// Returns the kind of a write, or `None` for other requests. Leases do not count: in a simulation, they are renewed at
/// longer intervals.
fn write(agent: &str, method: &Method, path: &str) -> Option<Write> {
    let verb = match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => return None,
    };
    let mut segments = path.trim_start_matches('/').split('/');
    // The core group is `/api/v1`, all others `/apis/GROUP/VERSION`.
    let before_resource = if segments.next()? == "api" { 1 } else { 2 };
    let segments: Vec<&str> = segments.skip(before_resource).collect();
    let segments = match &*segments {
        ["namespaces", _, rest @ ..] if rest.first().is_some_and(|next| !is_of_namespace(next)) => {
            rest
        }
        all => all,
    };
    let resource = match segments {
        ["leases", ..] => return None,
        [resource] | [resource, _] => (*resource).to_owned(),
        [resource, _, subresource @ ..] => format!("{resource}/{}", subresource.join("/")),
        [] => return None,
    };
    Some(Write { component: component(agent), verb, resource })
}

/// Reports whether a segment after a namespace's name is a subresource of the namespace.
fn is_of_namespace(segment: &str) -> bool {
    matches!(segment, "status" | "finalize")
}

/// Returns the component of a user agent: its program, and the controller if there is one.
fn component(agent: &str) -> String {
    let program = agent.split(['/', ' ']).next().unwrap_or_default();
    // Unlike a version or a platform, a component has only these characters.
    let is_of_name = |c: char| c.is_ascii_lowercase() || c == '-';
    match agent.rsplit_once('/') {
        Some((_, part)) if !part.is_empty() && part.chars().all(is_of_name) => {
            format!("{program}/{part}")
        }
        _ => program.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_named_by_component_verb_and_resource() {
        for (agent, method, path, expected) in [
            (
                "kube-controller-manager/replicaset-controller",
                Method::POST,
                "/api/v1/namespaces/shop/pods",
                "kube-controller-manager/replicaset-controller create pods",
            ),
            (
                "kube-scheduler/v1.37.1 (linux/amd64)",
                Method::POST,
                "/api/v1/namespaces/shop/pods/web/binding",
                "kube-scheduler create pods/binding",
            ),
            ("kubelet", Method::PATCH, "/api/v1/nodes/a/status", "kubelet patch nodes/status"),
            ("x", Method::PUT, "/api/v1/namespaces/shop/finalize", "x update namespaces/finalize"),
            ("x", Method::DELETE, "/api/v1/namespaces/shop", "x delete namespaces"),
            (
                "x",
                Method::PATCH,
                "/apis/apps/v1/namespaces/shop/deployments/web/status",
                "x patch deployments/status",
            ),
            ("x", Method::GET, "/api/v1/pods", ""),
            ("kubelet", Method::PATCH, "/apis/coordination.k8s.io/v1/namespaces/n/leases/a", ""),
        ] {
            let found = write(agent, &method, path);
            let found = found.map(|Write { component, verb, resource }| {
                format!("{component} {verb} {resource}")
            });
            assert_eq!(found.unwrap_or_default(), expected, "{method} {path}");
        }
    }
}
