//! The file of `--authentication-config`.
//!
//! Upstream: `AuthenticationConfiguration` of `apiserver.config.k8s.io`.

use serde::Deserialize;

/// Configuration of authentication. Fields have the names of the file; absent texts are empty.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct AuthenticationConfiguration {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    /// Issuers whose tokens authenticate.
    pub(crate) jwt: Vec<JwtAuthenticatorConfig>,
    /// Which requests without credentials are served; all, if absent.
    pub(crate) anonymous: Option<AnonymousConfig>,
}

/// Which requests without credentials are served.
///
/// Upstream: `AnonymousAuthConfig`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct AnonymousConfig {
    pub(crate) enabled: bool,
    pub(crate) conditions: Vec<AnonymousCondition>,
}

/// A path whose requests need no credentials.
///
/// Upstream: `AnonymousAuthCondition`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct AnonymousCondition {
    pub(crate) path: String,
}

/// An issuer, and how its tokens become users.
///
/// Upstream: `JWTAuthenticator`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct JwtAuthenticatorConfig {
    pub(crate) issuer: Issuer,
    pub(crate) claim_validation_rules: Vec<ClaimValidationRule>,
    pub(crate) claim_mappings: ClaimMappings,
    pub(crate) user_validation_rules: Vec<UserValidationRule>,
}

/// Where an issuer is, and whom its tokens are for.
///
/// Upstream: `Issuer`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Issuer {
    pub(crate) url: String,
    #[serde(rename = "discoveryURL")]
    pub(crate) discovery_url: String,
    /// Roots of the issuer's certificate, PEM; the system's if empty.
    pub(crate) certificate_authority: String,
    pub(crate) audiences: Vec<String>,
    pub(crate) audience_match_policy: String,
    pub(crate) egress_selector_type: String,
}

/// A claim with a required value, or an expression that must hold.
///
/// Upstream: `ClaimValidationRule`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct ClaimValidationRule {
    pub(crate) claim: String,
    pub(crate) required_value: String,
    pub(crate) expression: String,
    pub(crate) message: String,
}

/// Where the parts of a user come from.
///
/// Upstream: `ClaimMappings`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct ClaimMappings {
    pub(crate) username: PrefixedClaimOrExpression,
    pub(crate) groups: PrefixedClaimOrExpression,
    pub(crate) uid: ClaimOrExpression,
    pub(crate) extra: Vec<ExtraMapping>,
}

/// A claim with a prefix, or an expression.
///
/// Upstream: `PrefixedClaimOrExpression`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct PrefixedClaimOrExpression {
    pub(crate) claim: String,
    pub(crate) prefix: Option<String>,
    pub(crate) expression: String,
}

/// A claim or an expression.
///
/// Upstream: `ClaimOrExpression`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct ClaimOrExpression {
    pub(crate) claim: String,
    pub(crate) expression: String,
}

/// A key in `extra` and the expression of its values.
///
/// Upstream: `ExtraMapping`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct ExtraMapping {
    pub(crate) key: String,
    pub(crate) value_expression: String,
}

/// An expression that must hold for the user.
///
/// Upstream: `UserValidationRule`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct UserValidationRule {
    pub(crate) expression: String,
    pub(crate) message: String,
}

impl AuthenticationConfiguration {
    /// Reads the file: YAML or JSON, without unknown or duplicate fields.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, String> {
        const VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha1"];
        let document = evenkeel_apimachinery::decode::file(text)?;
        let config: Self = serde_json::from_value(document).map_err(|e| e.to_string())?;
        let version = config.api_version.strip_prefix("apiserver.config.k8s.io/");
        if config.kind != "AuthenticationConfiguration"
            || !version.is_some_and(|version| VERSIONS.contains(&version))
        {
            return Err(format!(
                "it is a {:?} of {:?}, and must be an AuthenticationConfiguration of apiserver.config.k8s.io/v1",
                config.kind, config.api_version
            ));
        }
        Ok(config)
    }
}
