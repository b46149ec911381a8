//! Options of auditing, as the API server's flags set them.

use std::path::PathBuf;
use std::time::Duration;

/// Options of auditing: the policy, and the destinations of events.
#[derive(Debug, Clone)]
pub struct AuditOptions {
    /// Contents of the policy (`--audit-policy-file`), YAML or JSON.
    pub policy: String,
    /// Options of the log; `None` writes no log.
    pub log: Option<AuditLogOptions>,
    /// Options of the webhook that receives events; `None` sends none.
    pub webhook: Option<AuditWebhookOptions>,
}

/// Whether requests wait until their audit events are written (`--audit-log-mode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditMode {
    /// Requests do not wait. Events are dropped while the buffer is full.
    Batch,
    /// Requests wait a bounded time until their events are written. A failed write has no effect on requests.
    Blocking,
    /// As `Blocking`, but a request fails if its first event cannot be written.
    BlockingStrict,
}

impl std::str::FromStr for AuditMode {
    type Err = String;

    fn from_str(mode: &str) -> Result<Self, String> {
        match mode {
            "batch" => Ok(Self::Batch),
            "blocking" => Ok(Self::Blocking),
            "blocking-strict" => Ok(Self::BlockingStrict),
            _ => Err(format!(
                "invalid audit log mode {mode}, allowed modes are \"batch,blocking,blocking-strict\""
            )),
        }
    }
}

/// Options of the audit log (`--audit-log-…`).
#[derive(Debug, Clone)]
pub struct AuditLogOptions {
    /// File of the log; `None` for the standard output.
    pub path: Option<PathBuf>,
    /// Maximum age of rotated files in days; 0 for no limit.
    pub max_age: u32,
    /// Maximum number of rotated files; 0 for no limit.
    pub max_backups: usize,
    /// Size in bytes at which the file is rotated; 0 for no limit.
    pub max_size: u64,
    /// Whether requests wait until their events are written (`--audit-log-mode`).
    pub mode: AuditMode,
    /// Maximum number of events that wait to be written.
    pub buffer_size: usize,
}

impl Default for AuditLogOptions {
    fn default() -> Self {
        Self {
            path: None,
            max_age: 366,
            max_backups: 100,
            max_size: 100 * 1024 * 1024,
            mode: AuditMode::Blocking,
            buffer_size: 10_000,
        }
    }
}

/// Options of the audit webhook (`--audit-webhook-…`). Events are sent in batches, and dropped when the buffer is full.
#[derive(Debug, Clone)]
pub struct AuditWebhookOptions {
    /// Contents of a kubeconfig file with the webhook's URL, certificate authority and token.
    pub kubeconfig: String,
    /// Maximum number of events that wait to be sent.
    pub buffer_size: usize,
    /// Maximum number of events in a batch.
    pub max_batch_size: usize,
    /// Maximum time that an event waits for its batch to fill up.
    pub max_batch_wait: Duration,
    /// Delay before a failed batch is sent again. It grows with each attempt.
    pub initial_backoff: Duration,
}

impl AuditWebhookOptions {
    /// Returns the default options of a webhook.
    pub fn of(kubeconfig: String) -> Self {
        Self {
            kubeconfig,
            buffer_size: 10_000,
            max_batch_size: 400,
            max_batch_wait: Duration::from_secs(30),
            initial_backoff: Duration::from_secs(10),
        }
    }
}
