//! Servers of simulated containers and kubelets. They have no network address: a client gets one end of an in-process
//! byte stream.

use bytes::Bytes;
use futures::{FutureExt as _, future::BoxFuture};
use http::{HeaderValue, Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use std::{convert::Infallible, sync::Arc};
use tokio::{io::DuplexStream, sync::mpsc};

use crate::{
    exec::{Chunk, ExecRequest, Streams},
    kubelet_pages::{self, Page},
    kubelets::{Kubelets, interpret_blocking},
    logs::ContainerRef,
    network::{self, Listener, RequestHead},
};

/// Buffer size in bytes of each direction of a connection, and of a server's reads.
const BUFFER_SIZE: usize = 16 * 1024;

/// Connection to a simulated server.
pub struct Connection {
    /// Client's end. The server closes it when it ends.
    pub stream: DuplexStream,
    /// Future that runs the server. The client must poll it while it uses the stream.
    pub server: BoxFuture<'static, ()>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

impl Kubelets {
    /// Connects to a TCP port of a pod; `None` if no container listens there.
    pub fn connect(&self, namespace: &str, pod: &str, port: u16) -> Option<Connection> {
        let pod = self.workers()?.cached_pod(namespace, pod)?;
        let (kubelets, listener) = (self.clone(), Arc::new(network::listener(&pod, port)?));
        Some(serve(move |request| {
            container_response(kubelets.clone(), Arc::clone(&listener), request)
        }))
    }

    /// Connects to the server of a node's kubelet; `None` if the node is not simulated.
    pub fn connect_node(&self, node: &str) -> Option<Connection> {
        if !self.workers()?.has_node(node) {
            return None;
        }
        let (kubelets, node) = (self.clone(), node.to_owned());
        Some(serve(move |request| kubelet_response(kubelets.clone(), node.clone(), request)))
    }
}

/// Serves HTTP on a new connection.
fn serve<F>(respond: impl Fn(Request<Incoming>) -> F + Send + 'static) -> Connection
where
    F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    let (stream, server) = tokio::io::duplex(BUFFER_SIZE);
    let service = service_fn(move |request| respond(request).map(Ok::<_, Infallible>));
    let server = async move {
        let mut builder = http1::Builder::new();
        // A client may close its direction before it receives the response.
        builder.half_close(true).max_buf_size(BUFFER_SIZE);
        if let Err(error) = builder.serve_connection(TokioIo::new(server), service).await {
            tracing::debug!(%error, "a simulated server's connection ended");
        }
    };
    Connection { stream, server: server.boxed() }
}

/// Returns the response of a container: the requested file, or else a page that describes the container.
async fn container_response(
    kubelets: Kubelets,
    listener: Arc<Listener>,
    request: Request<Incoming>,
) -> Response<Full<Bytes>> {
    if !listener.is_ready() {
        let page = "the container is not ready\n";
        return respond(StatusCode::SERVICE_UNAVAILABLE, "text/plain; charset=utf-8", page);
    }
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    if let Some(path) = listener.file(request.uri().path()).filter(|_| is_read)
        && let Some(content) = read_file(&kubelets, &listener, &path).await
    {
        return respond(StatusCode::OK, network::media_type(&path), content);
    }
    let headers = request.headers().iter().map(|(name, value)| {
        (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    });
    let head = RequestHead {
        method: request.method().to_string(),
        target: request.uri().to_string(),
        headers: headers.collect(),
    };
    respond(StatusCode::OK, "text/plain; charset=utf-8", listener.page(&head))
}

/// Reads a file of a container by the command `cat`; `None` if the command fails.
async fn read_file(kubelets: &Kubelets, listener: &Listener, path: &str) -> Option<Bytes> {
    let container = ContainerRef {
        namespace: listener.namespace.clone(),
        pod: listener.pod.clone(),
        name: listener.container.clone(),
        previous: false,
    };
    let (output, mut output_receiver) = mpsc::channel(1);
    let command = vec!["cat".to_owned(), path.to_owned()];
    let streams = Streams { stdin: None, output };
    let execution = kubelets.exec(ExecRequest { container, command, tty: false, streams });
    let collect = async {
        let mut content = Vec::new();
        while let Some(Chunk { to_stderr, bytes }) = output_receiver.recv().await {
            if !to_stderr {
                content.extend_from_slice(&bytes);
            }
        }
        content
    };
    let (code, content) = futures::join!(execution, collect);
    (code == Ok(0)).then(|| content.into())
}

async fn kubelet_response(
    kubelets: Kubelets,
    node: String,
    request: Request<Incoming>,
) -> Response<Full<Bytes>> {
    const JSON: &str = "application/json";
    const TEXT: &str = "text/plain; charset=utf-8";
    let not_found = || respond(StatusCode::NOT_FOUND, TEXT, "404 page not found\n");
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return respond(StatusCode::METHOD_NOT_ALLOWED, TEXT, "405: Method Not Allowed");
    }
    let Some(workers) = kubelets.workers() else { return not_found() };
    match kubelet_pages::page_at(request.uri().path()) {
        Some(Page::Health) => respond(StatusCode::OK, TEXT, "ok"),
        Some(Page::Pods) => match workers.pod_list(&node).await {
            Ok(list) => respond(StatusCode::OK, JSON, list),
            Err(error) => respond(StatusCode::INTERNAL_SERVER_ERROR, TEXT, error),
        },
        Some(Page::Summary) => {
            respond(StatusCode::OK, JSON, workers.usage_of(&node).summary().to_string())
        }
        Some(Page::ResourceMetrics) => {
            respond(StatusCode::OK, TEXT, workers.usage_of(&node).resource_metrics())
        }
        Some(Page::Metrics) => {
            respond(StatusCode::OK, TEXT, workers.usage_of(&node).kubelet_metrics())
        }
        Some(Page::Configuration) => {
            let page = kubelet_pages::configuration(workers.options());
            respond(StatusCode::OK, JSON, page.to_string())
        }
        // A simulated node has no log files.
        Some(Page::Logs) => respond(StatusCode::OK, "text/html; charset=utf-8", "<pre>\n</pre>\n"),
        Some(Page::ContainerLog { namespace, pod, container }) => {
            let [namespace, pod, name] = [namespace, pod, container].map(str::to_owned);
            let container = ContainerRef { namespace, pod, name, previous: false };
            match interpret_blocking(move || kubelets.log(&container)).await.flatten() {
                Some(lines) => {
                    let text: String = lines.into_iter().map(|line| line.text).collect();
                    respond(StatusCode::OK, TEXT, evenkeel_shell::encoding::bytes(&text))
                }
                None => not_found(),
            }
        }
        None => not_found(),
    }
}

fn respond(
    status: StatusCode,
    media_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}
