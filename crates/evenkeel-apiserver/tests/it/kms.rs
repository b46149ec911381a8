//! Encryption at rest with a KMS plugin. This test serves the plugin on a separate thread, because plugins are other
//! processes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use evenkeel_apiserver::{BuildError, Server};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use serde_json::{Value, json};

use crate::Client;

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(string, tag = "1")]
    version: String,
    #[prost(string, tag = "2")]
    healthz: String,
    #[prost(string, tag = "3")]
    key_id: String,
}

#[derive(Clone, PartialEq, Message)]
struct Plaintext {
    #[prost(bytes = "vec", tag = "1")]
    plaintext: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Ciphertext {
    #[prost(bytes = "vec", tag = "1")]
    ciphertext: Vec<u8>,
    #[prost(string, tag = "2")]
    key_id: String,
    #[prost(btree_map = "string, bytes", tag = "3")]
    annotations: BTreeMap<String, Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct ToDecrypt {
    #[prost(bytes = "vec", tag = "1")]
    ciphertext: Vec<u8>,
    #[prost(string, tag = "3")]
    key_id: String,
    #[prost(btree_map = "string, bytes", tag = "4")]
    annotations: BTreeMap<String, Vec<u8>>,
}

/// Behavior of the plugin, and the calls that it received.
#[derive(Debug)]
struct State {
    /// ID of its key; empty if it is not healthy.
    key_id: String,
    n_encrypted: usize,
    n_decrypted: usize,
}

/// A plugin that "encrypts" by adding its key's ID.
struct Plugin {
    socket: PathBuf,
    state: Arc<Mutex<State>>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Plugin {
    fn start(socket: &Path, key_id: &str) -> Self {
        let _ = std::fs::remove_file(socket);
        let state = State { key_id: key_id.to_owned(), n_encrypted: 0, n_decrypted: 0 };
        let state = Arc::new(Mutex::new(state));
        let listener = std::os::unix::net::UnixListener::bind(socket).expect("a socket");
        listener.set_nonblocking(true).expect("not blocking");
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let served = state.clone();
        #[expect(clippy::disallowed_methods, reason = "joined when the plugin is dropped")]
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                tokio::select! {
                    () = serve(listener, served) => {}
                    _ = stopped => {}
                }
            });
        });
        Self { socket: socket.to_owned(), state, stop: Some(stop), thread: Some(thread) }
    }

    fn set_key(&self, key_id: &str) {
        self.state.lock().expect("no panic before").key_id = key_id.to_owned();
    }

    /// Numbers of seeds that it encrypted and decrypted.
    fn counts(&self) -> (usize, usize) {
        let state = self.state.lock().expect("no panic before");
        (state.n_encrypted, state.n_decrypted)
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        drop(self.stop.take());
        let joined = self.thread.take().map(std::thread::JoinHandle::join);
        assert!(!matches!(joined, Some(Err(_))), "the plugin panicked");
        let _ = std::fs::remove_file(&self.socket);
    }
}

async fn serve(listener: std::os::unix::net::UnixListener, state: Arc<Mutex<State>>) {
    let listener = tokio::net::UnixListener::from_std(listener).expect("a listener");
    let mut connections = Vec::new();
    while let Ok((stream, _)) = listener.accept().await {
        let state = state.clone();
        let service = hyper::service::service_fn(move |request| {
            let state = state.clone();
            async move { answer(request, &state).await }
        });
        #[expect(clippy::disallowed_methods, reason = "it ends with the plugin's runtime")]
        connections.push(tokio::spawn(async move {
            let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let _ = connection.serve_connection(TokioIo::new(stream), service).await;
        }));
    }
}

type Frames = StreamBody<
    futures::stream::Iter<std::array::IntoIter<Result<Frame<Bytes>, std::convert::Infallible>, 2>>,
>;

/// Sends the response to a gRPC call: a message with a header of five bytes, then the status in trailers.
async fn answer(
    request: Request<Incoming>,
    state: &Mutex<State>,
) -> Result<Response<Frames>, hyper::Error> {
    let method = request.uri().path().to_owned();
    let body = request.into_body().collect().await?.to_bytes();
    let message = body.slice(5..);
    let (answer, code) = {
        let mut state = state.lock().expect("no panic before");
        let key_id = state.key_id.clone();
        match &*method {
            "/v2.KeyManagementService/Status" => {
                let healthz = if key_id.is_empty() { "broken" } else { "ok" };
                let status = Status { version: "v2".into(), healthz: healthz.into(), key_id };
                (status.encode_to_vec(), "0")
            }
            "/v2.KeyManagementService/Encrypt" => {
                state.n_encrypted += 1;
                let Plaintext { plaintext } = Plaintext::decode(message).expect("a request");
                let ciphertext = [key_id.as_bytes(), b":", &plaintext].concat();
                let annotations = BTreeMap::from([("kms.example.com".to_owned(), vec![1, 2])]);
                (Ciphertext { ciphertext, key_id, annotations }.encode_to_vec(), "0")
            }
            _ => {
                state.n_decrypted += 1;
                let asked = ToDecrypt::decode(message).expect("a request");
                assert_eq!(asked.annotations.len(), 1);
                let head = [asked.key_id.as_bytes(), b":"].concat();
                match asked.ciphertext.strip_prefix(&*head) {
                    Some(plaintext) => {
                        (Plaintext { plaintext: plaintext.to_vec() }.encode_to_vec(), "0")
                    }
                    None => (Vec::new(), "3"),
                }
            }
        }
    };
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(answer.len().try_into().expect("short"));
    framed.put_slice(&answer);
    let trailers = HeaderMap::from_iter([(
        http::HeaderName::from_static("grpc-status"),
        HeaderValue::from_static(code),
    )]);
    let frames = [Ok(Frame::data(framed.freeze())), Ok(Frame::trailers(trailers))];
    let mut response = Response::new(StreamBody::new(futures::stream::iter(frames)));
    let media = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(http::header::CONTENT_TYPE, media);
    Ok(response)
}

fn config(socket: &Path) -> String {
    let kms = json!({"apiVersion": "v2", "name": "vault", "endpoint": format!("unix://{}", socket.display()), "timeout": "1s"});
    json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration",
        "resources": [{"resources": ["secrets"], "providers": [{"kms": kms}, {"identity": {}}]}]})
    .to_string()
}

async fn start(folder: &Path, socket: &Path) -> Result<Server, BuildError> {
    let builder = Server::builder().data_dir(Some(folder.join("data")));
    builder.encryption_provider_config(config(socket)).build().await
}

fn secret(name: &str) -> Value {
    json!({"metadata": {"name": name}, "stringData": {"password": format!("password-of-{name}")}})
}

/// Returns how often a string occurs in the store's file.
fn found(folder: &Path, text: &str) -> usize {
    let bytes = std::fs::read(folder.join("data/evenkeel.redb")).expect("the file is there");
    bytes.windows(text.len()).filter(|part| *part == text.as_bytes()).count()
}

async fn health(server: &Server) -> StatusCode {
    let client = Client(server.service());
    client.send("GET", "/healthz/kms-providers", &[], Bytes::new()).await.status()
}

#[tokio::test]
async fn a_plugin_encrypts_the_keys_of_values() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("kms.sock");
    let plugin = Plugin::start(&socket, "one");
    let server = start(folder.path(), &socket).await.expect("it starts");
    let client = Client(server.service());
    client.make(SECRETS, secret("a")).await;
    client.make(SECRETS, secret("b")).await;
    assert_eq!(plugin.counts(), (1, 0), "one seed encrypts all values");
    assert_eq!(health(&server).await, StatusCode::OK);
    drop((client, server));
    assert_eq!(found(folder.path(), "cGFzc3dvcmQt"), 0);
    assert!(found(folder.path(), "k8s:enc:kms:v2:vault:") >= 2);

    // After a restart, the server has another seed. The plugin decrypts the old one, once.
    let server = start(folder.path(), &socket).await.expect("it starts");
    let client = Client(server.service());
    assert_eq!(client.get(SECRETS).await["items"].as_array().map(Vec::len), Some(2));
    assert_eq!(plugin.counts(), (2, 1));
    // Its values are not stale, since the key is the same.
    let path = format!("{SECRETS}/a");
    let before = client.get(&path).await;
    assert_eq!(client.ask("PUT", &path, before.clone()).await.1, before);
    drop((client, server));

    // With another key, the next write of a value encrypts it again.
    plugin.set_key("two");
    let server = start(folder.path(), &socket).await.expect("it starts");
    let client = Client(server.service());
    let (code, after) = client.ask("PUT", &path, before.clone()).await;
    assert_eq!(code, StatusCode::OK);
    assert_ne!(after["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"]);
    assert_eq!(client.ask("PUT", &path, after.clone()).await.1, after, "once");
}

#[tokio::test]
async fn a_plugin_that_is_away_costs_writes_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("kms.sock");
    // The server starts without its plugin, and refuses writes that it cannot encrypt.
    let server = start(folder.path(), &socket).await.expect("it starts");
    let client = Client(server.service());
    let (code, refused) = client.ask("POST", SECRETS, secret("a")).await;
    assert_eq!(code, StatusCode::INSUFFICIENT_STORAGE, "{refused}");
    let text = refused["message"].as_str().unwrap_or_default();
    assert!(text.contains("the KMS plugin \"vault\" has encrypted no key yet"), "{text}");
    assert_eq!(health(&server).await, StatusCode::INTERNAL_SERVER_ERROR);
    // Refused Secrets refuse no other object of the same commits.
    let configmaps = "/api/v1/namespaces/default/configmaps";
    let writes = (0..40).map(|i| {
        let (client, name) = (&client, format!("m{i}"));
        async move {
            match i % 2 {
                0 => client.ask("POST", SECRETS, secret(&name)).await.0,
                _ => client.ask("POST", configmaps, json!({"metadata": {"name": name}})).await.0,
            }
        }
    });
    let codes = futures::future::join_all(writes).await;
    let expected = [StatusCode::INSUFFICIENT_STORAGE, StatusCode::CREATED].repeat(20);
    assert_eq!(codes, expected);
    drop((client, server));

    let plugin = Plugin::start(&socket, "one");
    let server = start(folder.path(), &socket).await.expect("it starts");
    let client = Client(server.service());
    client.make(SECRETS, secret("a")).await;
    drop((client, server, plugin));

    // The server refuses to start if it has values that only the plugin can decrypt, and names the reason.
    let error = start(folder.path(), &socket).await.err().map(|error| error.to_string());
    let error = error.unwrap_or_default();
    assert!(error.contains("default/a") && error.contains("failed to decrypt DEK"), "{error}");
}

#[tokio::test]
async fn the_status_of_a_plugin_is_polled() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("kms.sock");
    let plugin = Plugin::start(&socket, "one");
    let server = start(folder.path(), &socket).await.expect("it starts");
    plugin.set_key("");
    poll(&server, StatusCode::INTERNAL_SERVER_ERROR).await;
    // The seed of a healthy time continues to encrypt.
    let client = Client(server.service());
    client.make(SECRETS, secret("a")).await;
    plugin.set_key("two");
    poll(&server, StatusCode::OK).await;
    assert_eq!(plugin.counts().0, 2, "the new key has a seed of its own");
}

/// Lets the server poll the plugin, and waits until the health check has this status.
async fn poll(server: &Server, expected: StatusCode) {
    // The task begins to wait.
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    // The call of the plugin takes real time.
    tokio::time::resume();
    for _ in 0..1_000_000 {
        if health(server).await == expected {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("it is never {expected}");
}
