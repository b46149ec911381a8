//! Extender for tests: a real server that gives scripted responses and records the requests.

use evenkeel_runtime::tasks::Tasks;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
    service::TowerToHyperService,
};
use rustls::ServerConfig;
use serde_json::Value;
use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Mutex},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsAcceptor;

/// Scripted response of an extender.
pub(super) enum Reply {
    /// This status code and body.
    Json(u16, Value),
    /// Status 200 with this body.
    Text(&'static str),
    /// No response at all.
    Never,
}

impl From<Value> for Reply {
    fn from(value: Value) -> Self {
        Self::Json(200, value)
    }
}

/// A request that an extender received.
#[derive(Debug, Clone)]
pub(super) struct SentRequest {
    pub(super) path: String,
    pub(super) body: Value,
    /// Whether the scheduler sent a client certificate.
    pub(super) has_client_certificate: bool,
}

/// An extender. After its last scripted response it closes the connection.
pub(super) struct Server {
    /// Host and port.
    pub(super) address: String,
    sent: Arc<Mutex<Vec<SentRequest>>>,
    tasks: Tasks,
}

/// Prepared responses of the server, and the requests that it received.
#[derive(Clone)]
struct Script {
    replies: Arc<Mutex<VecDeque<Reply>>>,
    sent: Arc<Mutex<Vec<SentRequest>>>,
}

impl Server {
    /// Starts a server that sends these responses in order, over TLS if it has TLS settings.
    pub(super) async fn start(
        tls: Option<ServerConfig>,
        replies: impl IntoIterator<Item = Reply>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (tasks, sent) = (Tasks::new(), Arc::default());
        let replies = Arc::new(Mutex::new(replies.into_iter().collect()));
        let script = Script { replies, sent: Arc::clone(&sent) };
        let acceptor = tls.map(|tls| TlsAcceptor::from(Arc::new(tls)));
        let connections = tasks.clone();
        tasks.spawn_until_cancelled("extender", async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (script, acceptor) = (script.clone(), acceptor.clone());
                connections.spawn_until_cancelled("connection", async move {
                    script.accept(stream, acceptor).await;
                });
            }
        });
        Self { address, sent, tasks }
    }

    /// Takes the requests received since the last call.
    pub(super) fn take_sent(&self) -> Vec<SentRequest> {
        std::mem::take(&mut self.sent.lock().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.tasks.token().cancel();
    }
}

impl Script {
    /// Serves a connection, after a TLS handshake if there is an acceptor.
    async fn accept(self, stream: TcpStream, acceptor: Option<TlsAcceptor>) {
        let Some(acceptor) = acceptor else { return self.serve(stream, false).await };
        // A client that does not trust the server aborts the handshake.
        if let Ok(stream) = acceptor.accept(stream).await {
            let has_client_certificate = stream.get_ref().1.peer_certificates().is_some();
            self.serve(stream, has_client_certificate).await;
        }
    }

    /// Serves one connection.
    async fn serve(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        has_client_certificate: bool,
    ) {
        let service = tower::service_fn(move |request| {
            let script = self.clone();
            async move { script.answer(request, has_client_certificate).await }
        });
        let builder = Builder::new(TokioExecutor::new());
        // The scheduler reports a broken connection itself.
        drop(
            builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service)).await,
        );
    }

    /// Records a request, and returns the next response.
    async fn answer(
        &self,
        request: Request<Incoming>,
        has_client_certificate: bool,
    ) -> io::Result<Response<Full<Bytes>>> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        assert_eq!(head.method, http::Method::POST);
        assert_eq!(head.headers["content-type"], "application/json");
        let (path, body) = (head.uri.path().to_owned(), serde_json::from_slice(&body)?);
        self.sent.lock().unwrap().push(SentRequest { path, body, has_client_certificate });
        let reply = self.replies.lock().unwrap().pop_front();
        let (status, text) = match reply.ok_or(io::ErrorKind::ConnectionAborted)? {
            Reply::Json(status, value) => (status, value.to_string()),
            Reply::Text(text) => (200, text.to_owned()),
            Reply::Never => std::future::pending().await,
        };
        Ok(Response::builder().status(status).body(Full::from(text)).unwrap())
    }
}
