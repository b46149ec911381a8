//! Audit events of a cluster's API server.

use anyhow::{Context, Result, bail};
use evenkeel_apiserver::{AuditLogOptions, AuditOptions, AuditWebhookOptions};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// Audit events: a policy, and a log or a webhook.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Audit {
    /// A Policy (audit.k8s.io/v1).
    pub(crate) policy: Option<Map<String, Value>>,
    /// File of a Policy, in place of policy.
    pub(crate) policy_file: Option<PathBuf>,
    /// File of the log, a JSON document on each line.
    pub(crate) log_file: Option<PathBuf>,
    /// Kubeconfig file of the webhook that receives events.
    pub(crate) webhook_config_file: Option<PathBuf>,
}

impl Audit {
    /// Returns the settings with paths relative to a folder.
    pub(crate) fn relative_to(self, folder: &Path) -> Self {
        let path = |path: Option<PathBuf>| path.map(|path| folder.join(path));
        Self {
            policy: self.policy,
            policy_file: path(self.policy_file),
            log_file: path(self.log_file),
            webhook_config_file: path(self.webhook_config_file),
        }
    }

    /// Returns the options of the API server. Reads the files.
    ///
    /// # Errors
    /// Fails if there is no policy or no destination, or a file cannot be read.
    pub(crate) fn options(&self) -> Result<AuditOptions> {
        let read = |field: &str, path: &Path| {
            std::fs::read_to_string(path)
                .with_context(|| format!("apiServer.audit.{field}: cannot read {}", path.display()))
        };
        let policy = match (&self.policy, &self.policy_file) {
            (Some(policy), None) => {
                let mut policy = policy.clone();
                // The file may leave out apiVersion and kind, because only one kind is possible here.
                policy.entry("apiVersion").or_insert_with(|| "audit.k8s.io/v1".into());
                policy.entry("kind").or_insert_with(|| "Policy".into());
                serde_json::to_string(&policy)?
            }
            (None, Some(path)) => read("policyFile", path)?,
            (None, None) => {
                bail!("apiServer.audit: set policy or policyFile, which say what has events")
            }
            (Some(_), Some(_)) => bail!("apiServer.audit: set either policy or policyFile"),
        };
        let log = self.log_file.as_ref();
        let log = log
            .map(|path| AuditLogOptions { path: Some(path.clone()), ..AuditLogOptions::default() });
        let webhook = self.webhook_config_file.as_ref();
        let webhook =
            webhook.map(|path| read("webhookConfigFile", path).map(AuditWebhookOptions::of));
        let webhook = webhook.transpose()?;
        if log.is_none() && webhook.is_none() {
            bail!("apiServer.audit: set logFile or webhookConfigFile, which receive the events");
        }
        Ok(AuditOptions { policy, log, webhook })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(text: &str) -> Result<AuditOptions> {
        let audit: Audit = serde_saphyr::from_str(text).expect("settings");
        audit.relative_to(Path::new("/c")).options()
    }

    #[test]
    fn a_policy_and_a_destination_are_needed() {
        let options =
            options("{policy: {rules: [{level: Metadata}]}, logFile: a.log}").expect("valid");
        assert!(options.policy.contains("\"kind\":\"Policy\""), "{}", options.policy);
        assert_eq!(options.log.expect("a log").path.as_deref(), Some(Path::new("/c/a.log")));
        for (text, want) in [
            ("{logFile: a}", "set policy or policyFile"),
            ("{policy: {}, policyFile: p, logFile: a}", "set either policy or policyFile"),
            ("{policy: {rules: []}}", "set logFile or webhookConfigFile"),
            ("{policyFile: none, logFile: a}", "apiServer.audit.policyFile: cannot read /c/none"),
        ] {
            let error = self::options(text).expect_err(text).to_string();
            assert!(error.contains(want), "{error}");
        }
    }
}
