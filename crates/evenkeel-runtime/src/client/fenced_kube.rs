//! kube client over a [`Client`], with its leader fence, rate limit and user agent.

use super::{Client, transport::ResponseBody};
use futures::future::BoxFuture;
use http::{Request, Response, header};
use kube::client::Body;
use std::task::{Context, Poll};
use tower::{BoxError, Service};

impl Client {
    /// Returns a kube client for requests that this client has no method for, such as kube's `Api`, logs or exec. It
    /// writes only while the fence is open, waits for the rate limit, and has this client's user agent. Call it inside a
    /// tokio runtime, and keep the result: each call spawns a task.
    pub fn kube(&self) -> kube::Client {
        let namespace = self.shared.transport.kube().default_namespace().to_owned();
        kube::Client::new(FencedKube(self.clone()), namespace)
    }

    /// Returns the kube client that this client was built on. It has no fence: it also writes while this process does not
    /// lead.
    pub fn unfenced_kube(&self) -> &kube::Client {
        self.shared.transport.kube()
    }

    async fn send_raw(
        &self,
        mut request: Request<Body>,
    ) -> Result<Response<ResponseBody>, BoxError> {
        request.headers_mut().insert(header::USER_AGENT, self.user_agent.clone());
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        if let Some(limiter) = self.limiter.as_ref().filter(|_| !is_watch) {
            limiter.wait().await;
        }
        self.send_fenced(request).await?
    }
}

/// Service that sends requests through a client.
struct FencedKube(Client);

impl Service<Request<Body>> for FencedKube {
    type Response = Response<ResponseBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let client = self.0.clone();
        Box::pin(async move { client.send_raw(request).await })
    }
}
