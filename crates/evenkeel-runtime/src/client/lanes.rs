//! Connections to one server, as many as its limit of streams asks for.
//!
//! An HTTP/2 server allows so many streams at a time on one connection (kube-apiserver 100, what RFC 9113 recommends as
//! the least), and what is beyond that waits. Watches hold a stream for minutes, so a program with more watches than that
//! would wait for ever with its writes. Requests take the first connection with room, and a new one is opened when there is
//! none: most programs have one, and one that watches hundreds of kinds has a few.

use futures::future::BoxFuture;
use http::{Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use hyper_util::client::legacy::{self, connect::Connect};
use kube::client::Body;
use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};
use tower::Service;

/// So many streams are used of a connection: some fewer than the least that servers allow, since one that ended here may
/// not have ended there.
const STREAMS: usize = 90;

/// Sends each request over the first connection with room for it.
pub(super) struct Lanes<C>(Arc<Shared<C>>);

struct Shared<C> {
    make: Box<dyn Fn() -> legacy::Client<C, Body> + Send + Sync>,
    lanes: Mutex<Vec<Lane<C>>>,
}

/// One connection, made when it is first used and again when it broke. (With HTTP/1.1 it is a pool of them, and no limit
/// applies.)
struct Lane<C> {
    client: legacy::Client<C, Body>,
    /// Held by each stream.
    open: Arc<()>,
}

impl<C> Lanes<C> {
    pub(super) fn new(make: impl Fn() -> legacy::Client<C, Body> + Send + Sync + 'static) -> Self {
        Self(Arc::new(Shared { make: Box::new(make), lanes: Mutex::default() }))
    }

    /// The connection for the next request, and its place there.
    fn next(&self) -> (legacy::Client<C, Body>, Arc<()>)
    where
        C: Clone,
    {
        let mut lanes = self.0.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let free = lanes.iter().position(|lane| Arc::strong_count(&lane.open) <= STREAMS);
        let at = free.unwrap_or_else(|| {
            lanes.push(Lane { client: (self.0.make)(), open: Arc::default() });
            lanes.len() - 1
        });
        (lanes[at].client.clone(), lanes[at].open.clone())
    }
}

impl<C> Clone for Lanes<C> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<C: Connect + Clone + Send + Sync + 'static> Service<Request<Body>> for Lanes<C> {
    type Response = Response<Held>;
    type Error = legacy::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (client, open) = self.next();
        Box::pin(async move {
            let response = client.request(request).await?;
            Ok(response.map(|body| Held { body, _open: open }))
        })
    }
}

/// The body of an answer, which holds its stream until it is dropped.
pub(crate) struct Held {
    body: Incoming,
    _open: Arc<()>,
}

impl HttpBody for Held {
    type Data = <Incoming as HttpBody>::Data;
    type Error = <Incoming as HttpBody>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::Tasks;
    use bytes::Bytes;
    use futures::{FutureExt as _, StreamExt as _};
    use http_body_util::{BodyExt as _, Either, Full, StreamBody};
    use hyper::service::service_fn;
    use hyper_util::{
        client::legacy::connect::HttpConnector,
        rt::{TokioExecutor, TokioIo},
    };
    use std::{
        convert::Infallible,
        net::SocketAddr,
        sync::atomic::{AtomicUsize, Ordering},
    };
    use tokio::net::TcpListener;

    /// A server as strict as kube-apiserver. `/watch` never ends; everything else is answered. Counts its connections.
    async fn server(tasks: &Tasks) -> (SocketAddr, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = connections.clone();
        let serving = tasks.clone();
        tasks.spawn("server", async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                let service = service_fn(|request: Request<Incoming>| async move {
                    let first = Bytes::from_static(b"here");
                    let body = if request.uri().path() == "/watch" {
                        let event =
                            futures::stream::iter([Ok::<_, Infallible>(Frame::data(first))]);
                        Either::Left(StreamBody::new(event.chain(futures::stream::pending())))
                    } else {
                        Either::Right(Full::new(first))
                    };
                    Ok::<_, Infallible>(Response::new(body))
                });
                let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                builder.max_concurrent_streams(100);
                let connection = builder.serve_connection(TokioIo::new(stream), service);
                serving.spawn("connection", connection.map(drop));
            }
        });
        (address, connections)
    }

    fn lanes() -> Lanes<HttpConnector> {
        Lanes::new(|| {
            let mut builder = legacy::Client::builder(TokioExecutor::new());
            builder.http2_only(true).build(HttpConnector::new())
        })
    }

    async fn get(lanes: &Lanes<HttpConnector>, address: SocketAddr, path: &str) -> Response<Held> {
        let request = Request::get(format!("http://{address}/{path}")).body(Body::empty()).unwrap();
        lanes.clone().call(request).await.unwrap()
    }

    #[tokio::test]
    async fn more_watches_than_a_connection_may_have_leave_room_for_writes() {
        let tasks = Tasks::new();
        let (address, connections) = server(&tasks).await;
        let lanes = lanes();
        let mut watches = Vec::new();
        for _ in 0..STREAMS * 2 + 1 {
            let mut watch = get(&lanes, address, "watch").await;
            assert_eq!(watch.frame().await.unwrap().unwrap().into_data().unwrap(), "here");
            watches.push(watch);
        }
        let answer = get(&lanes, address, "pods").await.into_body();
        assert_eq!(answer.collect().await.unwrap().to_bytes(), "here");
        assert_eq!(connections.load(Ordering::SeqCst), 3);
        // What ended leaves its room.
        watches.drain(..STREAMS);
        for _ in 0..STREAMS {
            watches.push(get(&lanes, address, "watch").await);
        }
        assert_eq!(connections.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn many_at_once_spread_and_all_are_answered() {
        let tasks = Tasks::new();
        let (address, connections) = server(&tasks).await;
        let lanes = lanes();
        let all = (0..STREAMS * 5).map(|_| async {
            get(&lanes, address, "pods").await.into_body().collect().await.unwrap().to_bytes()
        });
        let all = futures::future::join_all(all).await;
        assert!(all.iter().all(|answer| answer == "here"));
        assert_eq!(connections.load(Ordering::SeqCst), 5);
    }
}
