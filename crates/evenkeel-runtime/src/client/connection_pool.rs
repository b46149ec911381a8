//! Connection pool of one server, sized by the server's limit on concurrent HTTP/2 streams.
//!
//! An HTTP/2 server limits the concurrent streams of a connection, and further requests wait. kube-apiserver
//! allows 100, the minimum that RFC 9113 recommends. A watch holds its stream for minutes, so a program with
//! more watches than streams could never write. Therefore a request takes the first connection with a free
//! stream. If no stream is free, the pool opens another connection.

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

/// Maximum number of streams that the pool uses per connection. Servers allow 100, but may close a stream later than
/// the client.
const MAX_STREAMS_PER_CONNECTION: usize = 90;

/// Pool that sends each request over the first connection with a free stream.
pub(super) struct ConnectionPool<C>(Arc<Shared<C>>);

struct Shared<C> {
    /// Creates a client that has no connection yet.
    new_client: Box<dyn Fn() -> legacy::Client<C, Body> + Send + Sync>,
    connections: Mutex<Vec<PooledConnection<C>>>,
}

/// One HTTP/2 connection, which hyper opens with the first request and reopens when it breaks. With HTTP/1.1 it
/// is hyper's own pool of connections, without a limit.
struct PooledConnection<C> {
    client: legacy::Client<C, Body>,
    /// Each open stream holds a clone, so the strong count minus one is the number of streams.
    open_streams: Arc<()>,
}

impl<C> ConnectionPool<C> {
    pub(super) fn new(
        new_client: impl Fn() -> legacy::Client<C, Body> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Shared { new_client: Box::new(new_client), connections: Mutex::default() }))
    }

    /// Returns the connection for the next request, and the guard that counts its stream.
    fn connection(&self) -> (legacy::Client<C, Body>, Arc<()>)
    where
        C: Clone,
    {
        let mut connections = self.0.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let free = connections.iter().position(|connection| {
            Arc::strong_count(&connection.open_streams) <= MAX_STREAMS_PER_CONNECTION
        });
        let index = free.unwrap_or_else(|| {
            connections.push(PooledConnection {
                client: (self.0.new_client)(),
                open_streams: Arc::default(),
            });
            connections.len() - 1
        });
        (connections[index].client.clone(), connections[index].open_streams.clone())
    }
}

impl<C> Clone for ConnectionPool<C> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<C: Connect + Clone + Send + Sync + 'static> Service<Request<Body>> for ConnectionPool<C> {
    type Response = Response<PooledBody>;
    type Error = legacy::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (client, stream_guard) = self.connection();
        Box::pin(async move {
            let response = client.request(request).await?;
            Ok(response.map(|body| PooledBody { body, _stream_guard: stream_guard }))
        })
    }
}

/// Response body that counts as an open stream until it is dropped.
pub(crate) struct PooledBody {
    body: Incoming,
    _stream_guard: Arc<()>,
}

impl HttpBody for PooledBody {
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

    /// Starts a server with kube-apiserver's limit on streams. Returns the counter of its connections. Responses for
    /// `/watch` never end.
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
                serving.spawn_finite("connection", connection.map(drop));
            }
        });
        (address, connections)
    }

    fn pool() -> ConnectionPool<HttpConnector> {
        ConnectionPool::new(|| {
            let mut builder = legacy::Client::builder(TokioExecutor::new());
            builder.http2_only(true).build(HttpConnector::new())
        })
    }

    async fn get(
        pool: &ConnectionPool<HttpConnector>,
        address: SocketAddr,
        path: &str,
    ) -> Response<PooledBody> {
        let request = Request::get(format!("http://{address}/{path}")).body(Body::empty()).unwrap();
        pool.clone().call(request).await.unwrap()
    }

    #[tokio::test]
    async fn watches_beyond_the_stream_limit_do_not_block_other_requests() {
        let tasks = Tasks::new();
        let (address, connections) = server(&tasks).await;
        let pool = pool();
        let mut watches = Vec::new();
        for _ in 0..MAX_STREAMS_PER_CONNECTION * 2 + 1 {
            let mut watch = get(&pool, address, "watch").await;
            assert_eq!(watch.frame().await.unwrap().unwrap().into_data().unwrap(), "here");
            watches.push(watch);
        }
        let answer = get(&pool, address, "pods").await.into_body();
        assert_eq!(answer.collect().await.unwrap().to_bytes(), "here");
        assert_eq!(connections.load(Ordering::SeqCst), 3);
        // The pool reuses streams that have ended.
        watches.drain(..MAX_STREAMS_PER_CONNECTION);
        for _ in 0..MAX_STREAMS_PER_CONNECTION {
            watches.push(get(&pool, address, "watch").await);
        }
        assert_eq!(connections.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn concurrent_requests_use_as_many_connections_as_needed() {
        let tasks = Tasks::new();
        let (address, connections) = server(&tasks).await;
        let pool = pool();
        let all = (0..MAX_STREAMS_PER_CONNECTION * 5).map(|_| async {
            get(&pool, address, "pods").await.into_body().collect().await.unwrap().to_bytes()
        });
        let all = futures::future::join_all(all).await;
        assert!(all.iter().all(|answer| answer == "here"));
        assert_eq!(connections.load(Ordering::SeqCst), 5);
    }
}
