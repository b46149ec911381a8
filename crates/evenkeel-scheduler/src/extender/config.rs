//! Configuration of extenders in `KubeSchedulerConfiguration`.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Configuration of an extender.
///
/// Upstream: `Extender` (k8s.io/kube-scheduler/config/v1)
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExtenderConfig {
    /// URL of the extender. The scheduler appends a slash and the verb of each call.
    pub url_prefix: String,
    /// Verb of the filter call. If a verb is empty, the scheduler does not make its call.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub filter_verb: String,
    /// Verb of the preempt call.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub preempt_verb: String,
    /// Verb of the prioritize call.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub prioritize_verb: String,
    /// Factor by which the extender's scores are multiplied.
    #[serde(skip_serializing_if = "is_zero")]
    pub weight: i64,
    /// Verb of the bind call.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub bind_verb: String,
    /// Whether the scheduler uses HTTPS.
    #[serde(rename = "enableHTTPS", skip_serializing_if = "std::ops::Not::not")]
    pub enable_https: bool,
    /// TLS settings of the connection to the extender.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_config: Option<ExtenderTlsConfig>,
    /// Timeout of a call. 0 means 5 s.
    #[serde(rename = "httpTimeout")]
    pub http_timeout: GoDuration,
    /// Whether the extender caches nodes, so that calls send only node names.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub node_cache_capable: bool,
    /// Resources that the extender manages. The scheduler only calls it for pods that request one of them, or for all
    /// pods if the list is empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub managed_resources: Vec<ExtenderManagedResource>,
    /// Whether scheduling continues when the extender fails.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ignorable: bool,
}

/// TLS settings of an extender. Data (base64) take precedence over files.
///
/// Upstream: `ExtenderTLSConfig`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExtenderTlsConfig {
    /// Whether to skip the verification of the server's certificate.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub insecure: bool,
    /// Name that the server's certificate must contain. Default: the host of the URL.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub server_name: String,
    /// Path of the client certificate in PEM.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cert_file: String,
    /// Path of the client certificate's key in PEM.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key_file: String,
    /// Path of the root certificates in PEM.
    #[serde(rename = "caFile", skip_serializing_if = "String::is_empty")]
    pub ca_file: String,
    /// Client certificate in base64.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cert_data: String,
    /// Key in base64.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key_data: String,
    /// Root certificates in base64.
    #[serde(rename = "caData", skip_serializing_if = "String::is_empty")]
    pub ca_data: String,
}

/// A resource that an extender manages.
///
/// Upstream: `ExtenderManagedResource`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExtenderManagedResource {
    /// Name of the resource.
    pub name: String,
    /// Whether the plugin NodeResourcesFit ignores the resource.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ignored_by_scheduler: bool,
}

/// Returns whether a field is left out of the JSON.
fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// A duration in nanoseconds, written in Go's notation. It may be negative before validation.
///
/// Upstream: `metav1.Duration`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GoDuration(pub i64);

impl GoDuration {
    /// Converts from seconds.
    pub const fn from_seconds(seconds: i64) -> Self {
        Self(seconds * 1_000_000_000)
    }

    /// Converts to a duration. Negative values become zero.
    pub fn to_duration(self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0).unwrap_or_default())
    }
}

impl TryFrom<String> for GoDuration {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        evenkeel_api::duration::nanoseconds(&text).map(Self)
    }
}

impl From<GoDuration> for String {
    fn from(duration: GoDuration) -> Self {
        evenkeel_api::duration::format(duration.0)
    }
}
