//! Connection between components in their own time and an API server in the system's time. The server's deadlines, watches
//! and webhooks follow the time of its runtime for all clients.

use evenkeel_apiserver::{Body, BodyError, Service};
use futures::{FutureExt as _, future::BoxFuture};
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use std::{
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};
use tokio::runtime::Handle;
use tokio_util::context::TokioContext;

/// Number of requests that wait for the head of their response.
#[derive(Debug, Clone, Default)]
pub(super) struct InFlight(Arc<AtomicUsize>);

impl InFlight {
    pub(super) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn begin(&self) -> RequestGuard {
        self.0.fetch_add(1, Ordering::Relaxed);
        RequestGuard(self.clone())
    }
}

/// One request in flight, until it is dropped.
struct RequestGuard(InFlight);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Service of the API server, polled within the server's runtime.
#[derive(Clone)]
pub(super) struct Wire {
    server: Service,
    /// Runtime of the server.
    runtime: Handle,
    in_flight: InFlight,
}

impl Wire {
    pub(super) fn new(server: Service, runtime: Handle, in_flight: InFlight) -> Self {
        Self { server, runtime, in_flight }
    }
}

impl tower::Service<Request<kube::client::Body>> for Wire {
    type Response = Response<WireBody>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<WireBody>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let answer = {
            let _context = self.runtime.enter();
            tower::Service::call(&mut self.server, request)
        };
        let answer = TokioContext::new(answer, self.runtime.clone());
        let (runtime, in_flight) = (self.runtime.clone(), self.in_flight.begin());
        async move {
            let answer = answer.await?;
            drop(in_flight);
            Ok(answer.map(|body| WireBody { body, runtime }))
        }
        .boxed()
    }
}

/// Body of a response, polled within the server's runtime.
pub(super) struct WireBody {
    body: Body,
    runtime: Handle,
}

impl http_body::Body for WireBody {
    type Data = <Body as http_body::Body>::Data;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, BodyError>>> {
        let this = self.get_mut();
        let _context = this.runtime.enter();
        Pin::new(&mut this.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
