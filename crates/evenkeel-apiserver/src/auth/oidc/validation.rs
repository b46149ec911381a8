//! Validates an authentication configuration, and compiles its expressions.
//!
//! Upstream: `ValidateAuthenticationConfiguration`.

use std::collections::BTreeSet;

use evenkeel_api::forms::dns_subdomain;
use evenkeel_apimachinery::status::FieldError;
use evenkeel_x509::CertPool;
use http::Uri;

use super::config::{
    AuthenticationConfiguration, ClaimMappings, ClaimValidationRule, Issuer,
    JwtAuthenticatorConfig, PrefixedClaimOrExpression, UserValidationRule,
};
use super::expression::{Expression, Variable};
use super::mapper::{Condition, ExtraSource, Mapper, RequiredClaim, Source};

/// Maximum number of issuers in a configuration.
const MAX_ISSUERS: usize = 64;

/// Returns the compiled rules of each issuer, or all validation errors. `disallowed_issuers` are the issuers of service
/// account tokens, which the configuration must not name.
pub(super) fn compile(
    config: &AuthenticationConfiguration,
    disallowed_issuers: &[String],
) -> Result<Vec<Mapper>, Vec<FieldError>> {
    if config.jwt.len() > MAX_ISSUERS {
        let error = FieldError::too_many("jwt", config.jwt.len() as u64, MAX_ISSUERS as u64);
        return Err(vec![error]);
    }
    let mut checker = Checker::default();
    let (mut seen_urls, mut seen_discovery_urls) = (BTreeSet::new(), BTreeSet::new());
    let mut mappers = Vec::new();
    for (index, authenticator) in config.jwt.iter().enumerate() {
        let path = format!("jwt[{index}]");
        mappers.push(checker.authenticator(authenticator, &path, disallowed_issuers));
        let issuer = &authenticator.issuer;
        if !seen_urls.insert(&issuer.url) {
            checker.add(FieldError::duplicate(format!("{path}.issuer.url"), &*issuer.url));
        }
        if !issuer.discovery_url.is_empty() && !seen_discovery_urls.insert(&issuer.discovery_url) {
            let field = format!("{path}.issuer.discoveryURL");
            checker.add(FieldError::duplicate(field, &*issuer.discovery_url));
        }
    }
    if let Some(anonymous) = &config.anonymous
        && !anonymous.enabled
        && !anonymous.conditions.is_empty()
    {
        let paths: Vec<&str> =
            anonymous.conditions.iter().map(|condition| &*condition.path).collect();
        let why = "enabled should be set to true when conditions are defined";
        checker.add(FieldError::invalid("anonymous.conditions", paths.join(","), why));
    }
    match (checker.errors.as_slice(), mappers.into_iter().collect::<Option<Vec<_>>>()) {
        ([], Some(mappers)) => Ok(mappers),
        _ => Err(checker.errors),
    }
}

/// Compiled claim mappings of an issuer.
struct Mappings {
    username: Source,
    groups: Option<Source>,
    uid: Option<Source>,
    extra: Vec<ExtraSource>,
}

/// Collects the errors of a configuration, and compiles its expressions.
#[derive(Default)]
struct Checker {
    errors: Vec<FieldError>,
}

impl Checker {
    fn add(&mut self, error: FieldError) {
        self.errors.push(error);
    }

    /// Validates one issuer with its rules. Returns the compiled rules, or `None` if the mappings have errors.
    ///
    /// Upstream: `validateJWTAuthenticator`.
    fn authenticator(
        &mut self,
        config: &JwtAuthenticatorConfig,
        path: &str,
        disallowed_issuers: &[String],
    ) -> Option<Mapper> {
        self.issuer(&config.issuer, &format!("{path}.issuer"), disallowed_issuers);
        let rules = format!("{path}.claimValidationRules");
        let (required_claims, claim_rules) =
            self.claim_rules(&config.claim_validation_rules, &rules);
        let mappings =
            self.mappings(&config.claim_mappings, &format!("{path}.claimMappings"), &claim_rules);
        let rules = format!("{path}.userValidationRules");
        let user_rules = self.user_rules(&config.user_validation_rules, &rules);
        let Mappings { username, groups, uid, extra } = mappings?;
        Some(Mapper { username, groups, uid, extra, required_claims, claim_rules, user_rules })
    }

    /// Validates the addresses, audiences and certificates of an issuer.
    ///
    /// Upstream: `validateIssuer`.
    fn issuer(&mut self, issuer: &Issuer, path: &str, disallowed_issuers: &[String]) {
        let field = format!("{path}.url");
        if issuer.url.is_empty() {
            self.add(FieldError::required(field, ""));
        } else {
            if disallowed_issuers.contains(&issuer.url) {
                let issuers = disallowed_issuers.join(" ");
                let why = format!("URL must not overlap with disallowed issuers: [{issuers}]");
                self.add(FieldError::invalid(&*field, &*issuer.url, why));
            }
            self.url(&issuer.url, &field);
        }
        if !issuer.discovery_url.is_empty() {
            let field = format!("{path}.discoveryURL");
            let without_slash = |url: &str| url.trim_end_matches('/').to_owned();
            if without_slash(&issuer.url) == without_slash(&issuer.discovery_url) {
                let why = "discoveryURL must be different from URL";
                self.add(FieldError::invalid(&*field, &*issuer.discovery_url, why));
            }
            self.url(&issuer.discovery_url, &field);
        }
        self.audiences(issuer, path);
        if let Err(error) = CertPool::from_pem(issuer.certificate_authority.as_bytes()) {
            let field = format!("{path}.certificateAuthority");
            self.add(FieldError::invalid(field, "<omitted>", error.to_string()));
        } else if !issuer.certificate_authority.is_empty()
            && !issuer.certificate_authority.contains("BEGIN CERTIFICATE")
        {
            let field = format!("{path}.certificateAuthority");
            let why = "data does not contain any valid RSA or ECDSA certificates";
            self.add(FieldError::invalid(field, "<omitted>", why));
        }
        if !issuer.egress_selector_type.is_empty() {
            let why = "there is no egress selector; leave it out";
            let value = &*issuer.egress_selector_type;
            self.add(FieldError::invalid(format!("{path}.egressSelectorType"), value, why));
        }
    }

    /// Requires an `https` URL with a host, and without user, query and fragment.
    ///
    /// Upstream: `validateURL`.
    fn url(&mut self, url: &str, field: &str) {
        let parsed = url.parse::<Uri>().ok().filter(|uri| uri.authority().is_some());
        let Some(uri) = parsed else {
            let why = "URL must name a scheme and a host";
            return self.add(FieldError::invalid(field, url, why));
        };
        let has_userinfo =
            uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
        for (is_wrong, why) in [
            (uri.scheme_str() != Some("https"), "URL scheme must be https"),
            (has_userinfo, "URL must not contain a username or password"),
            (uri.query().is_some_and(|query| !query.is_empty()), "URL must not contain a query"),
            (
                url.split_once('#').is_some_and(|(_, rest)| !rest.is_empty()),
                "URL must not contain a fragment",
            ),
        ] {
            if is_wrong {
                self.add(FieldError::invalid(field, url, why));
            }
        }
    }

    /// Requires distinct audiences. Several audiences need the match policy `MatchAny`.
    ///
    /// Upstream: `validateAudiences`.
    fn audiences(&mut self, issuer: &Issuer, path: &str) {
        let field = format!("{path}.audiences");
        if issuer.audiences.is_empty() {
            let why = format!("at least one {field} is required");
            return self.add(FieldError::required(field, why));
        }
        let mut seen_audiences = BTreeSet::new();
        for (index, audience) in issuer.audiences.iter().enumerate() {
            if audience.is_empty() {
                self.add(FieldError::required(format!("{field}[{index}]"), ""));
            }
            if !seen_audiences.insert(audience) {
                self.add(FieldError::duplicate(format!("{field}[{index}]"), &**audience));
            }
        }
        let policy = &*issuer.audience_match_policy;
        let why = match (issuer.audiences.len(), policy) {
            (_, "MatchAny") | (1, "") => return,
            (1, _) => "audienceMatchPolicy must be empty or MatchAny for single audience",
            _ => "audienceMatchPolicy must be MatchAny for multiple audiences",
        };
        self.add(FieldError::invalid(format!("{path}.audienceMatchPolicy"), policy, why));
    }

    /// Compiles an expression. With `is_condition`, it must evaluate to a bool.
    fn expression(
        &mut self,
        text: &str,
        variable: Variable,
        is_condition: bool,
        field: &str,
    ) -> Option<Expression> {
        Expression::compile(text, variable, is_condition)
            .map_err(|why| self.add(FieldError::invalid(field, text, why)))
            .ok()
    }

    /// Returns the required claims, and the conditions on claims.
    ///
    /// Upstream: `validateClaimValidationRules`.
    fn claim_rules(
        &mut self,
        rules: &[ClaimValidationRule],
        path: &str,
    ) -> (Vec<RequiredClaim>, Vec<Condition>) {
        let (mut required_claims, mut conditions) = (Vec::new(), Vec::new());
        let (mut seen_claims, mut seen_expressions) = (BTreeSet::new(), BTreeSet::new());
        for (index, rule) in rules.iter().enumerate() {
            let path = format!("{path}[{index}]");
            match (rule.claim.is_empty(), rule.expression.is_empty()) {
                (false, false) => {
                    let why = "claim and expression can't both be set";
                    self.add(FieldError::invalid(path, &*rule.claim, why));
                }
                (true, true) => {
                    self.add(FieldError::required(path, "claim or expression is required"));
                }
                (false, true) => {
                    if !rule.message.is_empty() {
                        let why = "may not be specified when claim is set";
                        let field = format!("{path}.message");
                        self.add(FieldError::invalid(field, &*rule.message, why));
                    }
                    if !seen_claims.insert(&rule.claim) {
                        let field = format!("{path}.claim");
                        self.add(FieldError::duplicate(field, &*rule.claim));
                    }
                    required_claims.push(RequiredClaim {
                        claim: rule.claim.clone(),
                        value: rule.required_value.clone(),
                    });
                }
                (true, false) => {
                    if !rule.required_value.is_empty() {
                        let why = "may not be specified when expression is set";
                        let field = format!("{path}.requiredValue");
                        self.add(FieldError::invalid(field, &*rule.required_value, why));
                    }
                    let field = format!("{path}.expression");
                    if !seen_expressions.insert(&rule.expression) {
                        self.add(FieldError::duplicate(field, &*rule.expression));
                        continue;
                    }
                    if let Some(expression) =
                        self.expression(&rule.expression, Variable::Claims, true, &field)
                    {
                        conditions.push(Condition { expression, message: rule.message.clone() });
                    }
                }
            }
        }
        (required_claims, conditions)
    }

    /// Compiles the claim mappings. Returns `None` if the user name's mapping has errors.
    ///
    /// Upstream: `validateClaimMappings`.
    fn mappings(
        &mut self,
        mappings: &ClaimMappings,
        path: &str,
        claim_rules: &[Condition],
    ) -> Option<Mappings> {
        let field = format!("{path}.username");
        let username = self.prefixed(&mappings.username, &field, true);
        let groups = self.prefixed(&mappings.groups, &format!("{path}.groups"), false);
        let uid = match (&*mappings.uid.claim, &*mappings.uid.expression) {
            ("", "") => None,
            (claim, "") => Some(Source::Claim { name: claim.to_owned(), prefix: String::new() }),
            ("", expression) => {
                let field = format!("{path}.uid.expression");
                self.expression(expression, Variable::Claims, false, &field).map(Source::Expression)
            }
            _ => {
                let why = "claim and expression can't both be set";
                self.add(FieldError::invalid(format!("{path}.uid"), "", why));
                None
            }
        };
        let extra = self.extra(mappings, path);
        // A user name that comes from `email` is only safe if a rule also reads `email_verified`.
        if let Some(Source::Expression(expression)) = &username
            && expression.reads_claim("email")
        {
            let rules = claim_rules.iter().map(|rule| &rule.expression);
            let extra_values = extra.iter().map(|source| &source.values);
            let mut expressions = rules.chain(extra_values).chain([expression]);
            if !expressions.any(|expression| expression.reads_claim("email_verified")) {
                let why = "claims.email_verified must be used in claimMappings.username.expression or claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is used in claimMappings.username.expression";
                let text = &*mappings.username.expression;
                self.add(FieldError::invalid(format!("{path}.username.expression"), text, why));
            }
        }
        Some(Mappings { username: username?, groups, uid, extra })
    }

    fn extra(&mut self, mappings: &ClaimMappings, path: &str) -> Vec<ExtraSource> {
        let mut seen_keys = BTreeSet::new();
        let mut extra = Vec::new();
        for (index, mapping) in mappings.extra.iter().enumerate() {
            let (path, key) = (format!("{path}.extra[{index}]"), &*mapping.key);
            let field = format!("{path}.key");
            for error in domain_prefixed_path_errors(&field, key) {
                self.add(error);
            }
            if key != key.to_lowercase() {
                self.add(FieldError::invalid(&*field, key, "must be lowercase"));
            }
            let domain = key.split_once('/').map_or("", |(domain, _)| domain);
            let is_reserved = ["kubernetes.io", "k8s.io"].into_iter().any(|parent| {
                domain
                    .strip_suffix(parent)
                    .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
            });
            if is_reserved {
                let why =
                    "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use";
                self.add(FieldError::invalid(&*field, key, why));
            }
            if !seen_keys.insert(key) {
                self.add(FieldError::duplicate(field, key));
                continue;
            }
            let field = format!("{path}.valueExpression");
            if mapping.value_expression.is_empty() {
                self.add(FieldError::required(field, ""));
                continue;
            }
            if let Some(values) =
                self.expression(&mapping.value_expression, Variable::Claims, false, &field)
            {
                extra.push(ExtraSource { key: key.to_owned(), values });
            }
        }
        extra
    }

    /// Returns the source of a user name or of groups; `None` if it is not configured or has errors.
    ///
    /// Upstream: `validatePrefixClaimOrExpression`.
    fn prefixed(
        &mut self,
        mapping: &PrefixedClaimOrExpression,
        path: &str,
        is_required: bool,
    ) -> Option<Source> {
        match (&*mapping.claim, &*mapping.expression) {
            ("", "") => {
                if is_required {
                    self.add(FieldError::required(path, "claim or expression is required"));
                }
                None
            }
            (claim, "") => {
                let Some(prefix) = &mapping.prefix else {
                    let why = "prefix is required when claim is set. It can be set to an empty string to disable prefixing";
                    self.add(FieldError::required(format!("{path}.prefix"), why));
                    return None;
                };
                Some(Source::Claim { name: claim.to_owned(), prefix: prefix.clone() })
            }
            ("", expression) => {
                if let Some(prefix) = &mapping.prefix {
                    let why = "may not be specified when expression is set";
                    self.add(FieldError::invalid(format!("{path}.prefix"), &**prefix, why));
                }
                let field = format!("{path}.expression");
                self.expression(expression, Variable::Claims, false, &field).map(Source::Expression)
            }
            _ => {
                let why = "claim and expression can't both be set";
                self.add(FieldError::invalid(path, "", why));
                None
            }
        }
    }

    /// Returns the conditions on the mapped user.
    ///
    /// Upstream: `validateUserValidationRules`.
    fn user_rules(&mut self, rules: &[UserValidationRule], path: &str) -> Vec<Condition> {
        let mut seen_expressions = BTreeSet::new();
        let mut conditions = Vec::new();
        for (index, rule) in rules.iter().enumerate() {
            let field = format!("{path}[{index}].expression");
            if rule.expression.is_empty() {
                self.add(FieldError::required(field, ""));
                continue;
            }
            if !seen_expressions.insert(&rule.expression) {
                self.add(FieldError::duplicate(field, &*rule.expression));
                continue;
            }
            if let Some(expression) =
                self.expression(&rule.expression, Variable::User, true, &field)
            {
                conditions.push(Condition { expression, message: rule.message.clone() });
            }
        }
        conditions
    }
}

/// Returns the errors of a key that is not a path below a domain, such as `example.org/foo`.
///
/// Upstream: `IsDomainPrefixedPath`.
fn domain_prefixed_path_errors(field: &str, key: &str) -> Vec<FieldError> {
    if key.is_empty() {
        return vec![FieldError::required(field, "")];
    }
    let Some((host, path)) =
        key.split_once('/').filter(|(host, path)| !host.is_empty() && !path.is_empty())
    else {
        let why = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        return vec![FieldError::invalid(field, key, why)];
    };
    let host_errors = dns_subdomain(host).into_iter();
    let mut errors: Vec<_> = host_errors.map(|why| FieldError::invalid(field, host, why)).collect();
    let is_allowed =
        |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte);
    if !path.bytes().all(is_allowed) {
        let why = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
        errors.push(FieldError::invalid(field, path, why));
    }
    errors
}

#[cfg(test)]
mod tests;
