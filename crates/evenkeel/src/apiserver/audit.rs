//! Options of auditing, from kube-apiserver's flags.

use crate::server;
use anyhow::Result;
use evenkeel_apiserver::{AuditLogOptions, AuditMode, AuditOptions, AuditWebhookOptions};
use evenkeel_component::flags::Reader;
use std::{path::PathBuf, time::Duration};

/// Flags that accept a single value, because this server implements no other.
const SINGLE_VALUE_FLAGS: [(&str, &str); 5] = [
    ("audit-log-format", "json"),
    ("audit-log-version", "audit.k8s.io/v1"),
    ("audit-webhook-version", "audit.k8s.io/v1"),
    ("audit-webhook-mode", "batch"),
    ("audit-log-compress", "false"),
];

/// Flags that this server rejects, because it does not truncate events, and their users rely on small events.
const TRUNCATION: [&str; 2] = ["audit-log-truncate-enabled", "audit-webhook-truncate-enabled"];

/// Validated options of auditing. The files are read when the server starts.
#[derive(Debug)]
pub(super) struct AuditFlags {
    policy: PathBuf,
    log: Option<AuditLogOptions>,
    /// Kubeconfig of the webhook, and its other flags.
    webhook: Option<(PathBuf, WebhookFlags)>,
}

#[derive(Debug)]
struct WebhookFlags {
    buffer_size: usize,
    max_batch_size: usize,
    max_batch_wait: Duration,
    initial_backoff: Duration,
}

/// Reads the flags. Returns `None` without a policy, because no events are recorded then.
pub(super) fn flags(read: &Reader) -> Option<AuditFlags> {
    for (flag, only_value) in SINGLE_VALUE_FLAGS {
        let value = match flag {
            "audit-log-compress" => read.bool(flag).to_string(),
            flag => read.text(flag),
        };
        if value != only_value {
            read.record_invalid(flag, format!("--{flag} must be {only_value} in this server"));
        }
    }
    for flag in TRUNCATION {
        if read.bool(flag) {
            read.record_invalid(
                flag,
                format!("--{flag} is not in this server: events are not truncated"),
            );
        }
    }
    let log = read.non_empty_text("audit-log-path").map(|path| log_options(read, &path));
    let webhook = read.non_empty_text("audit-webhook-config-file").map(PathBuf::from);
    let webhook = webhook.map(|path| (path, webhook_flags(read)));
    let policy = read.non_empty_text("audit-policy-file").map(PathBuf::from)?;
    Some(AuditFlags { policy, log, webhook })
}

fn log_options(read: &Reader, path: &str) -> AuditLogOptions {
    let number = |flag: &str| {
        let number = read.int(flag);
        u32::try_from(number).unwrap_or_else(|_| {
            read.record_invalid(flag, format!("--{flag} {number} can't be a negative number"));
            0
        })
    };
    let mode = read.text("audit-log-mode").parse().unwrap_or_else(|why: String| {
        read.record_invalid("audit-log-mode", why);
        AuditMode::Blocking
    });
    AuditLogOptions {
        path: (path != "-").then(|| path.into()),
        max_age: number("audit-log-maxage"),
        max_backups: number("audit-log-maxbackup") as usize,
        max_size: u64::from(number("audit-log-maxsize")) * 1024 * 1024,
        mode,
        buffer_size: read.positive("audit-log-batch-buffer-size"),
    }
}

fn webhook_flags(read: &Reader) -> WebhookFlags {
    WebhookFlags {
        buffer_size: read.positive("audit-webhook-batch-buffer-size"),
        max_batch_size: read.positive("audit-webhook-batch-max-size"),
        max_batch_wait: read.duration("audit-webhook-batch-max-wait"),
        initial_backoff: read.duration("audit-webhook-initial-backoff"),
    }
}

impl AuditFlags {
    /// Reads the files.
    pub(super) fn options(&self) -> Result<AuditOptions> {
        let policy = server::read_file("audit-policy-file", &self.policy)?;
        let webhook = self.webhook.as_ref().map(|(path, flags)| {
            let kubeconfig = server::read_file("audit-webhook-config-file", path)?;
            Ok::<_, anyhow::Error>(AuditWebhookOptions {
                kubeconfig,
                buffer_size: flags.buffer_size,
                max_batch_size: flags.max_batch_size,
                max_batch_wait: flags.max_batch_wait,
                initial_backoff: flags.initial_backoff,
            })
        });
        Ok(AuditOptions { policy, log: self.log.clone(), webhook: webhook.transpose()? })
    }
}
