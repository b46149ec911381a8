//! Configuration file of `--authentication-config`.
//!
//! Upstream: `AuthenticationConfiguration` of `apiserver.config.k8s.io`.

use serde::Deserialize;

use super::super::anonymous::Anonymous;

/// Configuration of authentication. Fields are named as in the file; absent strings are empty.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct AuthenticationConfiguration {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    /// Issuers whose tokens the server accepts.
    pub(crate) jwt: Vec<JwtAuthenticatorConfig>,
    /// Configuration of anonymous requests. If it is absent, `--anonymous-auth` applies.
    pub(crate) anonymous: Option<AnonymousConfig>,
}

/// Configuration of anonymous requests.
///
/// Upstream: `AnonymousAuthConfig`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct AnonymousConfig {
    pub(crate) enabled: bool,
    pub(crate) conditions: Vec<AnonymousCondition>,
}

/// Path that the server allows anonymous requests for.
///
/// Upstream: `AnonymousAuthCondition`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct AnonymousCondition {
    pub(crate) path: String,
}

/// Issuer of tokens, with the rules that map its claims to users.
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

/// Issuer's address and audiences.
///
/// Upstream: `Issuer`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Issuer {
    pub(crate) url: String,
    #[serde(rename = "discoveryURL")]
    pub(crate) discovery_url: String,
    /// Certificate authorities for the issuer's server, in PEM; empty for the system's certificate authorities.
    pub(crate) certificate_authority: String,
    pub(crate) audiences: Vec<String>,
    pub(crate) audience_match_policy: String,
    pub(crate) egress_selector_type: String,
}

/// Rule for a token's claims: a claim with a required value, or a CEL expression that must be true.
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

/// Sources of the fields of the user that a token authenticates.
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

/// Source of a field: a claim whose value gets a prefix, or a CEL expression.
///
/// Upstream: `PrefixedClaimOrExpression`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct PrefixedClaimOrExpression {
    pub(crate) claim: String,
    pub(crate) prefix: Option<String>,
    pub(crate) expression: String,
}

/// Source of a field: a claim, or a CEL expression.
///
/// Upstream: `ClaimOrExpression`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct ClaimOrExpression {
    pub(crate) claim: String,
    pub(crate) expression: String,
}

/// Key in the user's `extra`, with the CEL expression that returns its values.
///
/// Upstream: `ExtraMapping`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct ExtraMapping {
    pub(crate) key: String,
    pub(crate) value_expression: String,
}

/// Rule for the mapped user: a CEL expression that must be true.
///
/// Upstream: `UserValidationRule`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct UserValidationRule {
    pub(crate) expression: String,
    pub(crate) message: String,
}

impl AnonymousConfig {
    /// Returns the configuration in the form that requests are checked against.
    pub(super) fn compile(&self) -> Anonymous {
        let paths = self.conditions.iter().map(|condition| condition.path.clone());
        Anonymous { enabled: self.enabled, paths: paths.collect() }
    }
}

impl AuthenticationConfiguration {
    /// Parses YAML or JSON. Unknown and duplicate fields are errors.
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
