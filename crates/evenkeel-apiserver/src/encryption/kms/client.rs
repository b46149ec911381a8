//! Calls of a KMS plugin over a Unix socket, each over a new connection.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Uri;
use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::net::UnixStream;
use tonic::client::Grpc;
use tonic::transport::Endpoint;
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

/// Calls a method of the plugin at a socket.
pub(super) async fn call<Q, A>(
    socket: &Path,
    timeout: Duration,
    method: &'static str,
    request: Q,
) -> Result<A, String>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    let path: PathBuf = socket.to_owned();
    let call = async move {
        let connector = tower::service_fn(move |_: Uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        });
        let unavailable =
            |error: tonic::transport::Error| Status::unavailable(with_sources(&error));
        // The authority has no meaning over a socket.
        let endpoint = Endpoint::from_static("http://localhost");
        let channel = endpoint.connect_with_connector(connector).await.map_err(unavailable)?;
        let mut grpc = Grpc::new(channel);
        grpc.ready().await.map_err(unavailable)?;
        let path = PathAndQuery::from_static(method);
        let response = grpc.unary(Request::new(request), path, ProstCodec::default()).await?;
        Ok(response.into_inner())
    };
    let result = tokio::time::timeout(timeout, call).await;
    let result =
        result.unwrap_or_else(|_| Err(Status::deadline_exceeded("context deadline exceeded")));
    result.map_err(|status: Status| {
        format!("rpc error: code = {:?} desc = {}", status.code(), status.message())
    })
}

/// Formats an error with the errors that caused it.
fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}

/// Calls a method like [`call`], and blocks this thread until the plugin responds. The call runs on a thread and a
/// runtime of its own, because this thread may be one of a runtime.
pub(super) fn call_blocking<Q, A>(
    socket: &Path,
    timeout: Duration,
    method: &'static str,
    request: Q,
) -> Result<A, String>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime
                .map_err(|error| error.to_string())?
                .block_on(call(socket, timeout, method, request))
        });
        thread.join().unwrap_or_else(|_| Err("the call of the plugin panicked".to_owned()))
    })
}
