//! Audit webhook: sends events in batches to a server that a kubeconfig file names.
//!
//! Upstream: `plugin/pkg/audit/webhook`, `plugin/pkg/audit/buffered`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use evenkeel_apimachinery::value::{list, text};
use evenkeel_x509::CertPool;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Request, Uri};
use http_body_util::Full;
use serde_json::Value;
use tokio::sync::{Mutex, mpsc};

use super::options::AuditWebhookOptions;
use crate::https::{self, Address};

/// Maximum number of attempts to send a batch.
const MAX_ATTEMPTS: u32 = 5;
/// Factor by which the delay between two attempts grows.
const BACKOFF_FACTOR: f64 = 1.5;
/// Timeout of one attempt.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of a response in bytes.
const MAX_RESPONSE_SIZE: usize = 1024 * 1024;

/// Server that receives events.
#[derive(Debug)]
struct Target {
    uri: Uri,
    roots: CertPool,
    /// The header `Authorization`, if the kubeconfig file has a token.
    authorization: Option<HeaderValue>,
}

impl Target {
    /// Reads the current context of a kubeconfig file.
    fn parse(kubeconfig: &str) -> Result<Self, String> {
        let config = evenkeel_apimachinery::decode::file(kubeconfig.as_bytes())?;
        // The lists `contexts`, `clusters` and `users` have items with a name and a field for the item itself.
        let find = |list_field: &str, item_field: &str, name: &str| {
            let item = list(&config, list_field).iter().find(|item| text(item, "name") == name);
            item.map(|item| item[item_field].clone()).unwrap_or_default()
        };
        let context = find("contexts", "context", text(&config, "current-context"));
        let cluster = find("clusters", "cluster", text(&context, "cluster"));
        let user = find("users", "user", text(&context, "user"));
        let server = text(&cluster, "server");
        let uri: Uri = server.parse().map_err(|error| format!("server {server:?}: {error}"))?;
        if uri.scheme_str() != Some("https") || uri.authority().is_none() {
            return Err(format!("server {server:?} must be an https URL"));
        }
        let unsupported = [
            (&cluster, "insecure-skip-tls-verify"),
            (&cluster, "proxy-url"),
            (&user, "client-certificate"),
            (&user, "client-certificate-data"),
            (&user, "exec"),
            (&user, "auth-provider"),
            (&user, "username"),
        ];
        let is_set = |object: &Value, field: &str| {
            object.get(field).is_some_and(|value| *value != Value::Bool(false))
        };
        if let Some((_, field)) = unsupported.iter().find(|(object, field)| is_set(object, field)) {
            return Err(format!("{field} is not in this server: a token is"));
        }
        Ok(Self { uri, roots: roots(&cluster)?, authorization: authorization(&user)? })
    }

    /// Makes one attempt to send a list of events.
    async fn send(&self, body: Bytes) -> Result<(), String> {
        let authority = self.uri.authority().ok_or("the URL names no host")?;
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let mut request = Request::post(path)
            .header(HOST, authority.as_str())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let request = request.body(Full::new(body)).map_err(|error| error.to_string())?;
        let address = Address::from_authority(authority);
        let response = https::send(&address, &self.roots, request, MAX_RESPONSE_SIZE);
        match tokio::time::timeout(ATTEMPT_TIMEOUT, response).await {
            Ok(Ok((code, _))) if code.is_success() => Ok(()),
            Ok(Ok((code, _))) => Err(format!("the server responded with the status code {code}")),
            Ok(Err(error)) => Err(error),
            Err(_) => Err("context deadline exceeded".to_owned()),
        }
    }
}

/// Returns the certificate authorities of a cluster in a kubeconfig file; those of the system if it names none.
fn roots(cluster: &Value) -> Result<CertPool, String> {
    let failed = |error: String| format!("certificate-authority: {error}");
    let pem =
        match (text(cluster, "certificate-authority-data"), text(cluster, "certificate-authority"))
        {
            ("", "") => return Ok(CertPool::system()),
            ("", path) => std::fs::read(path).map_err(|error| failed(error.to_string()))?,
            (data, _) => BASE64_STANDARD.decode(data).map_err(|error| failed(error.to_string()))?,
        };
    CertPool::from_pem(&pem).map_err(|error| failed(error.to_string()))
}

/// Returns the header `Authorization` with the token of a user in a kubeconfig file; `None` if it has no token.
fn authorization(user: &Value) -> Result<Option<HeaderValue>, String> {
    let token = match (text(user, "token"), text(user, "tokenFile")) {
        ("", "") => return Ok(None),
        ("", path) => {
            std::fs::read_to_string(path).map_err(|error| format!("tokenFile: {error}"))?
        }
        (token, _) => token.to_owned(),
    };
    let mut value = HeaderValue::try_from(format!("Bearer {}", token.trim()))
        .map_err(|_| "the token is no value of a header".to_owned())?;
    value.set_sensitive(true);
    Ok(Some(value))
}

/// Webhook with its queue of encoded events.
pub(super) struct Webhook {
    queue: mpsc::Sender<Vec<u8>>,
    sender: Arc<Sender>,
}

/// Sends the queued events to the webhook.
pub(crate) struct Sender {
    events: Mutex<mpsc::Receiver<Vec<u8>>>,
    target: Target,
    options: AuditWebhookOptions,
    /// Number of events that were dropped or could not be sent.
    failed: AtomicU64,
}

impl Webhook {
    pub(super) fn new(options: AuditWebhookOptions) -> Result<Self, String> {
        let target = Target::parse(&options.kubeconfig)?;
        let (queue, events) = mpsc::channel(options.buffer_size.max(1));
        let (events, failed) = (Mutex::new(events), AtomicU64::new(0));
        let sender = Arc::new(Sender { events, target, options, failed });
        Ok(Self { queue, sender })
    }

    /// Queues an event; drops it if the queue is full.
    pub(super) fn enqueue(&self, event: Vec<u8>) {
        if self.queue.try_send(event).is_err() {
            self.sender.failed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of events that were not sent.
    pub(super) fn n_failed(&self) -> u64 {
        self.sender.failed.load(Ordering::Relaxed)
    }

    pub(super) fn sender(&self) -> Arc<Sender> {
        self.sender.clone()
    }
}

impl Sender {
    /// Sends batches until the queue is closed.
    pub(crate) async fn run(&self) {
        let mut events = self.events.lock().await;
        while let Some(first) = events.recv().await {
            let batch = self.collect(first, &mut events).await;
            let n_events = batch.len() as u64;
            if let Err(error) = self.send_with_retries(event_list(&batch)).await {
                self.failed.fetch_add(n_events, Ordering::Relaxed);
                tracing::error!(error, n_events, "audit events cannot be sent to the webhook");
            }
        }
    }

    /// Collects a batch that begins with `first`. Waits until the batch is full, or for the maximum time.
    async fn collect(&self, first: Vec<u8>, events: &mut mpsc::Receiver<Vec<u8>>) -> Vec<Vec<u8>> {
        let mut batch = vec![first];
        let fill = async {
            while batch.len() < self.options.max_batch_size {
                match events.recv().await {
                    Some(event) => batch.push(event),
                    None => break,
                }
            }
        };
        // After the timeout, the batch has the events so far.
        let _ = tokio::time::timeout(self.options.max_batch_wait, fill).await;
        batch
    }

    /// Sends a list of events, and retries with a growing delay.
    async fn send_with_retries(&self, body: Bytes) -> Result<(), String> {
        let mut backoff = self.options.initial_backoff;
        for _ in 1..MAX_ATTEMPTS {
            match self.target.send(body.clone()).await {
                Ok(()) => return Ok(()),
                Err(error) => tracing::debug!(error, "audit events are sent again"),
            }
            tokio::time::sleep(backoff).await;
            backoff = backoff.mul_f64(BACKOFF_FACTOR);
        }
        self.target.send(body).await
    }
}

/// Returns an `EventList` of encoded events.
fn event_list(batch: &[Vec<u8>]) -> Bytes {
    let head = br#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":["#;
    let size = batch.iter().map(|event| event.len() + 1).sum::<usize>();
    let mut list = Vec::with_capacity(head.len() + size + 2);
    list.extend_from_slice(head);
    for (index, event) in batch.iter().enumerate() {
        if index > 0 {
            list.push(b',');
        }
        list.extend_from_slice(event);
    }
    list.extend_from_slice(b"]}");
    list.into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kubeconfig(server: &str, user: &Value) -> String {
        json!({"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {"server": server}}], "users": [{"name": "u", "user": user}]})
        .to_string()
    }

    #[test]
    fn a_kubeconfig_file_names_the_server() {
        let target =
            Target::parse(&kubeconfig("https://audit:8443/k?x=y", &json!({"token": "t "})));
        let target = target.expect("a server");
        assert_eq!(target.uri.to_string(), "https://audit:8443/k?x=y");
        assert_eq!(target.authorization, Some(HeaderValue::from_static("Bearer t")));
        for (server, user, why) in [
            ("http://audit", json!({}), "must be an https URL"),
            ("", json!({}), "server \"\""),
            ("https://audit", json!({"exec": {}}), "exec is not in this server"),
            (
                "https://audit",
                json!({"client-certificate-data": "x"}),
                "client-certificate-data is not",
            ),
            ("https://audit", json!({"token": "a\nb"}), "no value of a header"),
        ] {
            let error = Target::parse(&kubeconfig(server, &user)).expect_err(why);
            assert!(error.contains(why), "{error}");
        }
    }

    fn webhook(buffer_size: usize) -> Webhook {
        let options = AuditWebhookOptions {
            buffer_size,
            max_batch_size: 3,
            ..AuditWebhookOptions::of(kubeconfig("https://127.0.0.1:1", &json!({})))
        };
        Webhook::new(options).expect("a webhook")
    }

    #[tokio::test(start_paused = true)]
    async fn events_are_sent_in_batches() {
        let webhook = webhook(10);
        for at in 0..4 {
            webhook.enqueue(format!("{{\"n\":{at}}}").into_bytes());
        }
        let sender = webhook.sender();
        let mut events = sender.events.lock().await;
        let first = events.recv().await.expect("an event");
        let batch = sender.collect(first, &mut events).await;
        let sent: Value = serde_json::from_slice(&event_list(&batch)).expect("JSON");
        assert_eq!(sent["items"], json!([{"n": 0}, {"n": 1}, {"n": 2}]));
        // The last one waits for others in vain.
        let first = events.recv().await.expect("an event");
        assert_eq!(sender.collect(first, &mut events).await.len(), 1);
    }

    /// A server that is not there costs the events of a batch, and the queue stays bounded.
    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_sent_is_counted() {
        let webhook = webhook(2);
        for _ in 0..5 {
            webhook.enqueue(b"{}".to_vec());
        }
        assert_eq!(webhook.n_failed(), 3);
        let sender = webhook.sender();
        drop(webhook.queue);
        sender.run().await;
        assert_eq!(sender.failed.load(Ordering::Relaxed), 5);
    }
}
