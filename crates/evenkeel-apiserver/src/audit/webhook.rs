//! Audit webhook: sends events in batches to a server that a kubeconfig file names.
//!
//! Upstream: `plugin/pkg/audit/webhook`, `plugin/pkg/audit/buffered`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Mutex, mpsc};

use super::options::AuditWebhookOptions;
use crate::https::Target;

/// Maximum number of attempts to send a batch.
const MAX_ATTEMPTS: u32 = 5;
/// Factor by which the delay between two attempts grows.
const BACKOFF_FACTOR: f64 = 1.5;
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of a response in bytes.
const MAX_RESPONSE_SIZE: usize = 1024 * 1024;

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
        let target = Target::parse(&options.kubeconfig, None)?;
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
            match self.send(body.clone()).await {
                Ok(()) => return Ok(()),
                Err(error) => tracing::debug!(error, "audit events are sent again"),
            }
            tokio::time::sleep(backoff).await;
            backoff = backoff.mul_f64(BACKOFF_FACTOR);
        }
        self.send(body).await
    }

    /// Makes one attempt to send a list of events.
    async fn send(&self, body: Bytes) -> Result<(), String> {
        let response = self.target.post(body, "", MAX_RESPONSE_SIZE);
        match tokio::time::timeout(ATTEMPT_TIMEOUT, response).await {
            Ok(Ok(response)) if response.status().is_success() => Ok(()),
            Ok(Ok(response)) => {
                Err(format!("the server responded with the status code {}", response.status()))
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err("context deadline exceeded".to_owned()),
        }
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
    use serde_json::{Value, json};

    use super::*;

    fn kubeconfig(server: &str) -> String {
        json!({"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {"server": server}}], "users": [{"name": "u", "user": {}}]})
        .to_string()
    }

    fn webhook(buffer_size: usize) -> Webhook {
        let options = AuditWebhookOptions {
            buffer_size,
            max_batch_size: 3,
            ..AuditWebhookOptions::of(kubeconfig("https://127.0.0.1:1"))
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

    /// An unreachable server loses the events of a batch, and the queue stays bounded.
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
