//! Replacement of etcd for tools that start etcd beside kube-apiserver and wait until it is healthy. It stores nothing.

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use evenkeel_apiserver::STAND_IN_MESSAGE;
use evenkeel_component::{
    command_line,
    logging::{self},
    options::LoggingOptions,
    secure_serving,
    worker::Worker,
};
use evenkeel_runtime::{manager::shutdown_signal, tasks::Tasks};
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use std::{convert::Infallible, net::SocketAddr, process::ExitCode, time::Duration};
use tokio::net::{TcpListener, lookup_host};

/// Name of the program that this module replaces.
pub(crate) const NAME: &str = "etcd";

/// Default of `--listen-client-urls`.
const DEFAULT_URL: &str = "http://localhost:2379";

const HELP: &str = "\
etcd's place beside `evenkeel apiserver`, which keeps its state itself: answers /health, and stores nothing.

Usage:
  etcd [flags]

  --listen-client-urls 'http://localhost:2379'
        URLs to answer at, with commas between. All other flags of etcd are accepted, without effect.
";

/// Maximum time for open requests to complete when the server stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// Delay after a connection that could not be accepted.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Runs the program with these arguments, and returns its exit code.
pub(crate) fn main(arguments: &[String]) -> ExitCode {
    if arguments.iter().any(|argument| matches!(&**argument, "-h" | "--help" | "-help")) {
        #[expect(clippy::print_stdout, reason = "requested output belongs on standard output")]
        {
            print!("{HELP}");
        }
        return ExitCode::SUCCESS;
    }
    let log = logging::start(&LoggingOptions::default());
    command_line::run(&log, Worker::Eager, async {
        run(&client_urls(arguments)).await.map(|()| ExitCode::SUCCESS)
    })
}

/// Returns the URLs to serve: the flag's last value.
fn client_urls(arguments: &[String]) -> Vec<String> {
    let mut urls = DEFAULT_URL;
    let mut arguments = arguments.iter().peekable();
    while let Some(argument) = arguments.next() {
        let flag = argument.trim_start_matches('-');
        if flag == "listen-client-urls" {
            urls = arguments.next().map_or(urls, |value| value);
        } else if let Some(value) = flag.strip_prefix("listen-client-urls=") {
            urls = value;
        }
    }
    urls.split(',').map(|url| url.trim().to_owned()).collect()
}

/// Returns the host and port of a URL without TLS.
fn host_and_port(url: &str) -> Result<&str> {
    let Some(rest) = url.strip_prefix("http://") else {
        bail!("--listen-client-urls: {url:?} is not an http URL, and only http is served here");
    };
    Ok(rest.trim_end_matches('/'))
}

async fn run(urls: &[String]) -> Result<()> {
    let shutdown = shutdown_signal();
    let serving = Tasks::new();
    for url in urls {
        let addresses = lookup_host(host_and_port(url)?).await;
        let addresses: Vec<SocketAddr> = addresses
            .with_context(|| format!("--listen-client-urls: {url:?} is unknown"))?
            .collect();
        let listener = TcpListener::bind(&*addresses).await;
        let listener = listener.with_context(|| format!("cannot listen at {url}"))?;
        let connections = serving.clone();
        serving.spawn("listener", accept(listener, connections));
    }
    tracing::warn!("evenkeel in etcd's place: it answers /health, and stores nothing");
    let ended = tokio::select! {
        () = shutdown => Ok(()),
        failure = serving.supervisor().failed() => Err(failure.into()),
    };
    serving.shut_down(SHUTDOWN_TIMEOUT).await;
    ended
}

async fn accept(listener: TcpListener, tasks: Tasks) {
    let stop = tasks.token();
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        let Ok((stream, _)) = accepted.inspect_err(|error| tracing::warn!(%error, "no connection"))
        else {
            // Without free file descriptors, the next attempt would fail immediately.
            stop.run_until_cancelled(tokio::time::sleep(ACCEPT_BACKOFF)).await;
            continue;
        };
        let stop = tasks.token();
        tasks.spawn_finite("connection", async move {
            let service =
                service_fn(|request| async move { Ok::<_, Infallible>(answer(&request)) });
            let server = auto::Builder::new(TokioExecutor::new());
            // An error usually means that the client disconnected.
            drop(
                stop.run_until_cancelled(server.serve_connection(TokioIo::new(stream), service))
                    .await,
            );
        });
    }
}

/// Returns the response to a request: `/health` is always true, other paths do not exist.
///
/// Upstream: etcd's `HandleHealth`.
fn answer(request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let response = match (request.method(), request.uri().path()) {
        (&Method::GET, "/health") => {
            let healthy = r#"{"health":"true","reason":""}"#;
            secure_serving::answer(StatusCode::OK, "application/json", healthy.to_owned())
        }
        // A call of etcd's API fails with an error that `evenkeel apiserver` recognizes.
        (&Method::POST, path) if path.starts_with("/etcdserverpb.") => {
            return refused_call();
        }
        _ => secure_serving::plain(StatusCode::NOT_FOUND, "404 page not found"),
    };
    response.map(Full::new)
}

/// Returns the response to a gRPC call: status 12, `UNIMPLEMENTED`.
fn refused_call() -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert("grpc-status", HeaderValue::from_static("12"));
    headers.insert("grpc-message", HeaderValue::from_static(STAND_IN_MESSAGE));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_last_value_determines_the_client_urls() {
        for (arguments, urls) in [
            (&[] as &[&str], &["http://localhost:2379"] as &[_]),
            (&["--unsafe-no-fsync", "--listen-client-urls=http://a:1"], &["http://a:1"]),
            (&["--listen-client-urls", "http://a:1, http://b:2"], &["http://a:1", "http://b:2"]),
            (&["-listen-client-urls=http://a:1", "--name", "x"], &["http://a:1"]),
        ] {
            let arguments: Vec<String> = arguments.iter().map(|&a| a.to_owned()).collect();
            assert_eq!(client_urls(&arguments), urls, "{arguments:?}");
        }
        assert_eq!(host_and_port("http://127.0.0.1:1/").expect("http"), "127.0.0.1:1");
        assert!(host_and_port("https://a:1").is_err());
    }
}
