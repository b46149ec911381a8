//! Configuration file of `--authorization-config`.
//!
//! Upstream: `AuthorizationConfiguration` of `apiserver.config.k8s.io`.

use evenkeel_api::duration;
use serde::{Deserialize, Deserializer};

/// Authorizers of a server, in order. Fields are named as in the file; absent strings are empty.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct AuthorizationConfiguration {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) authorizers: Vec<AuthorizerConfiguration>,
}

/// One authorizer.
///
/// Upstream: `AuthorizerConfiguration`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AuthorizerConfiguration {
    /// `Node`, `RBAC`, `AlwaysAllow`, `AlwaysDeny` or `Webhook`.
    #[serde(rename = "type")]
    pub(super) authorizer_type: String,
    /// Name in refusals and metrics. The name of an authorizer other than a webhook is its type in lower case.
    pub(super) name: String,
    pub(super) webhook: Option<WebhookConfiguration>,
}

/// Webhook that authorizes requests.
///
/// Upstream: `WebhookConfiguration`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct WebhookConfiguration {
    #[serde(rename = "authorizedTTL")]
    pub(super) authorized_ttl: GoDuration,
    /// Whether decisions that allow are cached. Default: true.
    pub(super) cache_authorized_requests: Option<bool>,
    #[serde(rename = "unauthorizedTTL")]
    pub(super) unauthorized_ttl: GoDuration,
    /// Whether all other decisions are cached. Default: true.
    pub(super) cache_unauthorized_requests: Option<bool>,
    pub(super) timeout: GoDuration,
    pub(super) subject_access_review_version: String,
    pub(super) match_condition_subject_access_review_version: String,
    pub(super) failure_policy: String,
    pub(super) connection_info: ConnectionInfo,
    pub(super) match_conditions: Vec<MatchCondition>,
}

/// Address of a webhook.
///
/// Upstream: `WebhookConnectionInfo`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ConnectionInfo {
    #[serde(rename = "type")]
    pub(super) connection_type: String,
    pub(super) kube_config_file: Option<String>,
}

/// Condition that a request must meet for the webhook to be called.
///
/// Upstream: `WebhookMatchCondition`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct MatchCondition {
    pub(super) expression: String,
}

/// Duration in nanoseconds, which may be negative. Zero if absent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GoDuration(pub(super) i64);

impl GoDuration {
    pub(super) const fn from_seconds(seconds: i64) -> Self {
        Self(seconds.saturating_mul(1_000_000_000))
    }

    /// Returns the duration for timers; zero for a negative one.
    pub(super) fn to_std(self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.0.try_into().unwrap_or(0))
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        duration::nanoseconds(&text).map(Self).map_err(serde::de::Error::custom)
    }
}

impl AuthorizationConfiguration {
    /// Parses YAML or JSON, and fills in defaults. Unknown and duplicate fields are errors.
    pub(super) fn parse(text: &[u8]) -> Result<Self, String> {
        const VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha1"];
        let document = evenkeel_apimachinery::decode::file(text)?;
        let mut config: Self =
            serde_json::from_value(document).map_err(|error| error.to_string())?;
        let version = config.api_version.strip_prefix("apiserver.config.k8s.io/");
        if config.kind != "AuthorizationConfiguration"
            || !version.is_some_and(|version| VERSIONS.contains(&version))
        {
            return Err(format!(
                "it is a {:?} of {:?}, and must be an AuthorizationConfiguration of apiserver.config.k8s.io/v1",
                config.kind, config.api_version
            ));
        }
        for authorizer in &mut config.authorizers {
            if let Some(webhook) = &mut authorizer.webhook {
                webhook.set_defaults();
            }
        }
        Ok(config)
    }
}

impl WebhookConfiguration {
    /// Sets the default lifetimes of cached decisions: five minutes for allowed requests, 30 seconds for others.
    ///
    /// Upstream: `SetDefaults_WebhookConfiguration`.
    fn set_defaults(&mut self) {
        if self.authorized_ttl == GoDuration::default() {
            self.authorized_ttl = GoDuration::from_seconds(5 * 60);
        }
        if self.unauthorized_ttl == GoDuration::default() {
            self.unauthorized_ttl = GoDuration::from_seconds(30);
        }
        self.cache_authorized_requests.get_or_insert(true);
        self.cache_unauthorized_requests.get_or_insert(true);
    }
}
