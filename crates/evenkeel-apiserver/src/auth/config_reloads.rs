//! Metrics of a configuration file that the server follows, under upstream's names.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;

/// Counters of the reloads of one file, and the digest of the content that applies.
pub(super) struct ConfigReloads {
    /// Subject of the file, a part of the metrics' names: `authentication` or `authorization`.
    subject: &'static str,
    /// Digest of the server's ID, a label of all metrics.
    server: String,
    counts: Mutex<Counts>,
}

/// Counts by rendered labels.
#[derive(Default)]
struct Counts {
    reloads: BTreeMap<String, u64>,
    /// Seconds since the epoch.
    last_reloads: BTreeMap<String, i64>,
    /// Digest of the content that applies; empty before the first load.
    applied: String,
}

impl ConfigReloads {
    /// Creates the metrics of the server with this ID.
    pub(super) fn new(subject: &'static str, server_id: &str) -> Self {
        Self { subject, server: digest(server_id), counts: Mutex::default() }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a reload of the file.
    pub(super) fn record(&self, succeeded: bool, now: Timestamp) {
        let status = if succeeded { "success" } else { "failure" };
        let labels = format!("apiserver_id_hash=\"{}\",status=\"{status}\"", self.server);
        let mut counts = self.counts();
        *counts.reloads.entry(labels.clone()).or_default() += 1;
        counts.last_reloads.insert(labels, now.as_second());
    }

    /// Records the content of the file that applies now.
    pub(super) fn applies(&self, content: &[u8]) {
        self.counts().applied = digest(content);
    }

    /// Appends the metrics in the Prometheus text format.
    pub(super) fn render(&self, out: &mut String) {
        let counts = self.counts();
        let subject = self.subject;
        let prefix = format!("apiserver_{subject}_config_controller");
        values(
            out,
            &format!("{prefix}_automatic_reloads_total"),
            &format!(
                "[BETA] Total number of automatic reloads of {subject} configuration split by status and apiserver identity."
            ),
            "counter",
            &counts.reloads,
        );
        values(
            out,
            &format!("{prefix}_automatic_reload_last_timestamp_seconds"),
            &format!(
                "[BETA] Timestamp of the last automatic reload of {subject} configuration split by status and apiserver identity."
            ),
            "gauge",
            &counts.last_reloads,
        );
        if !counts.applied.is_empty() {
            let labels =
                format!("apiserver_id_hash=\"{}\",hash=\"{}\"", self.server, counts.applied);
            values(
                out,
                &format!("{prefix}_last_config_info"),
                &format!(
                    "[ALPHA] Information about the last applied {subject} configuration with hash as label, split by apiserver identity."
                ),
                "gauge",
                &BTreeMap::from([(labels, 1)]),
            );
        }
    }
}

/// Appends a family of metrics with one value for each combination of labels. Omits an empty family.
pub(super) fn values<T: Display>(
    out: &mut String,
    name: &str,
    help: &str,
    kind: &str,
    values: &BTreeMap<String, T>,
) {
    if values.is_empty() {
        return;
    }
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
    for (labels, value) in values {
        let _ = writeln!(out, "{name}{{{labels}}} {value}");
    }
}

/// Returns the SHA-256 digest of a value in the form that metrics show; empty for an empty value.
fn digest(value: impl AsRef<[u8]>) -> String {
    if value.as_ref().is_empty() {
        return String::new();
    }
    let digest = ring::digest::digest(&ring::digest::SHA256, value.as_ref());
    let mut out = String::from("sha256:");
    for byte in digest.as_ref() {
        let _ = write!(out, "{byte:02x}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_have_upstreams_names_and_labels() {
        let reloads = ConfigReloads::new("authentication", "x");
        let rendered = || {
            let mut out = String::new();
            reloads.render(&mut out);
            out
        };
        assert_eq!(rendered(), "");
        reloads.applies(b"a");
        reloads.record(false, Timestamp::UNIX_EPOCH);
        reloads.record(true, Timestamp::from_second(7).expect("a time"));
        // SHA-256 of "x" and of "a".
        let server = "sha256:2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881";
        let content = "sha256:ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb";
        let prefix = "apiserver_authentication_config_controller";
        for line in [
            format!(
                "{prefix}_automatic_reloads_total{{apiserver_id_hash=\"{server}\",status=\"failure\"}} 1\n"
            ),
            format!(
                "{prefix}_automatic_reload_last_timestamp_seconds{{apiserver_id_hash=\"{server}\",status=\"success\"}} 7\n"
            ),
            format!(
                "{prefix}_last_config_info{{apiserver_id_hash=\"{server}\",hash=\"{content}\"}} 1\n"
            ),
        ] {
            assert!(rendered().contains(&line), "{line}\n{}", rendered());
        }
    }
}
