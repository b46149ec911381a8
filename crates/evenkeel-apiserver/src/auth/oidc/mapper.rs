//! Maps the claims of a verified token to a user.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | `claimMappings.username`: a claim with a prefix, or an expression with a non-empty string | `username` |
//! | The claim `email` needs a true or absent `email_verified` | `username` |
//! | `claimMappings.groups`: a string or a list of strings | `groups` |
//! | `claimMappings.uid`, `claimMappings.extra` | `uid`, `extra` |
//! | `claimValidationRules`: required values and expressions | `check_claims` |
//! | `userValidationRules` | `check_user` |

use std::collections::BTreeMap;

use evenkeel_apimachinery::user::User;
use evenkeel_cel::Val;
use serde_json::Value;

use super::expression::{Expression, user_info};
use crate::auth::authenticated_group::with_authenticated_group;

/// Key in `extra` under which the user has the ID of the token.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// Source of a field of the user.
#[derive(Debug)]
pub(super) enum Source {
    /// Value of the claim with this name, after a prefix.
    Claim {
        name: String,
        prefix: String,
    },
    Expression(Expression),
}

/// Condition on the claims or the user, with the message for a token that does not meet it.
#[derive(Debug)]
pub(super) struct Condition {
    pub(super) expression: Expression,
    pub(super) message: String,
}

/// Compiled mappings and validation rules of one issuer.
///
/// Upstream: `CELMapper`.
#[derive(Debug)]
pub(super) struct Mapper {
    pub(super) username: Source,
    pub(super) groups: Option<Source>,
    pub(super) uid: Option<Source>,
    pub(super) extra: Vec<ExtraSource>,
    pub(super) required_claims: Vec<RequiredClaim>,
    /// Conditions on the claims.
    pub(super) claim_rules: Vec<Condition>,
    /// Conditions on the mapped user.
    pub(super) user_rules: Vec<Condition>,
}

/// Key in the user's `extra`, with the expression that returns its values.
#[derive(Debug)]
pub(super) struct ExtraSource {
    pub(super) key: String,
    pub(super) values: Expression,
}

/// Claim that a token must have with this value.
#[derive(Debug)]
pub(super) struct RequiredClaim {
    pub(super) claim: String,
    pub(super) value: String,
}

impl Mapper {
    /// Returns the user of a verified token, or the reason to refuse the token.
    ///
    /// Upstream: `jwtAuthenticator.AuthenticateToken`.
    pub(super) fn user(&self, claims: &Value) -> Result<User, String> {
        let user = User {
            name: self.username(claims)?.into(),
            groups: self.groups(claims)?.into_iter().map(Into::into).collect(),
            uid: self.uid(claims)?.into(),
            extra: self.extra(claims)?,
        };
        self.check_claims(claims)?;
        self.check_user(&user)?;
        Ok(with_authenticated_group(user))
    }

    /// Returns the user name from the claims of a token. If the name is the claim `email`, `email_verified` must not
    /// be false.
    ///
    /// Upstream: `getUsername`.
    fn username(&self, claims: &Value) -> Result<String, String> {
        let (claim, prefix) = match &self.username {
            Source::Expression(expression) => {
                let failed = |why: String| {
                    format!("oidc: error evaluating username claim expression: {why}")
                };
                let name = expression.over_claims(claims).map_err(failed)?;
                let Val::Str(name) = name else {
                    return Err(failed(
                        "username claim expression must return a string".to_owned(),
                    ));
                };
                if name.is_empty() {
                    return Err("oidc: empty username via CEL expression is not allowed".to_owned());
                }
                return Ok(name.into_owned());
            }
            Source::Claim { name, prefix } => (name, prefix),
        };
        let name = string_claim(claims, claim)
            .map_err(|why| format!("oidc: parse username claims {claim:?}: {why}"))?;
        if claim == "email" {
            match claims.get("email_verified") {
                None | Some(Value::Bool(true)) => {}
                Some(Value::Bool(false) | Value::Null) => {
                    return Err("oidc: email not verified".to_owned());
                }
                Some(_) => {
                    return Err("oidc: parse 'email_verified' claim: it is not a bool".to_owned());
                }
            }
        }
        Ok(format!("{prefix}{name}"))
    }

    /// Returns the groups from the claims of a token; none without a mapping or claim.
    ///
    /// Upstream: `getGroups`.
    fn groups(&self, claims: &Value) -> Result<Vec<String>, String> {
        match &self.groups {
            None => Ok(Vec::new()),
            Some(Source::Claim { name: claim, prefix }) => {
                let Some(value) = claims.get(claim) else { return Ok(Vec::new()) };
                let groups = string_or_array(value)
                    .ok_or_else(|| format!("oidc: parse groups claim {claim:?}: it is neither a string nor a list of strings"))?;
                Ok(groups.into_iter().map(|group| format!("{prefix}{group}")).collect())
            }
            Some(Source::Expression(expression)) => expression
                .over_claims(claims)
                .and_then(|value| string_list(&value))
                .map_err(|why| format!("oidc: error evaluating group claim expression: {why}")),
        }
    }

    /// Returns the UID from the claims of a token; empty without a mapping.
    ///
    /// Upstream: `getUID`.
    fn uid(&self, claims: &Value) -> Result<String, String> {
        match &self.uid {
            None => Ok(String::new()),
            Some(Source::Claim { name: claim, .. }) => string_claim(claims, claim)
                .map_err(|why| format!("oidc: parse uid claim {claim:?}: {why}")),
            Some(Source::Expression(expression)) => match expression.over_claims(claims) {
                Ok(Val::Str(uid)) => Ok(uid.into_owned()),
                Ok(_) => Err("uid claim expression must return a string".to_owned()),
                Err(why) => Err(why),
            }
            .map_err(|why| format!("oidc: error evaluating uid claim expression: {why}")),
        }
    }

    /// Returns the extra values from the claims of a token, including the credential ID from `jti`.
    ///
    /// Upstream: `getExtra`.
    fn extra(&self, claims: &Value) -> Result<Box<[evenkeel_apimachinery::user::Extra]>, String> {
        let mut extra: BTreeMap<Box<str>, Vec<String>> = BTreeMap::new();
        if let Some(id) = claims.get("jti").and_then(Value::as_str).filter(|id| !id.is_empty()) {
            extra.insert(CREDENTIAL_ID.into(), vec![format!("JTI={id}")]);
        }
        for ExtraSource { key, values: expression } in &self.extra {
            let values = expression.over_claims(claims).and_then(|value| string_list(&value));
            let values = values.map_err(|why| {
                format!("oidc: error evaluating extra claim expression: {}: {why}", expression.text)
            })?;
            if !values.is_empty() {
                extra.insert(key.as_str().into(), values);
            }
        }
        let boxed = |values: Vec<String>| values.into_iter().map(Into::into).collect();
        Ok(extra.into_iter().map(|(key, values)| (key, boxed(values))).collect())
    }

    /// Checks the rules for claims.
    fn check_claims(&self, claims: &Value) -> Result<(), String> {
        for RequiredClaim { claim, value: required_value } in &self.required_claims {
            if claims.get(claim).is_none() {
                return Err(format!("oidc: required claim {claim} not present in ID token"));
            }
            let value = string_claim(claims, claim)
                .map_err(|why| format!("oidc: parse claim {claim}: {why}"))?;
            if value != *required_value {
                return Err(format!(
                    "oidc: required claim {claim} value does not match. Got = {value}, want = {required_value}"
                ));
            }
        }
        for condition in &self.claim_rules {
            check_condition(condition, condition.expression.over_claims(claims)).map_err(
                |why| format!("oidc: error evaluating claim validation expression: {why}"),
            )?;
        }
        Ok(())
    }

    /// Checks the rules for the mapped user.
    fn check_user(&self, user: &User) -> Result<(), String> {
        if self.user_rules.is_empty() {
            return Ok(());
        }
        let user = user_info(user);
        for condition in &self.user_rules {
            check_condition(condition, condition.expression.over_user(&user)).map_err(|why| {
                format!("oidc: error evaluating user info validation rule: {why}")
            })?;
        }
        Ok(())
    }
}

/// Returns an error unless the condition's expression evaluated to true.
///
/// Upstream: `checkValidationRulesEvaluation`.
fn check_condition(condition: &Condition, value: Result<Val<'_>, String>) -> Result<(), String> {
    match value? {
        Val::Bool(true) => Ok(()),
        Val::Bool(false) => Err(format!(
            "validation expression '{}' failed: {}",
            condition.expression.text, condition.message
        )),
        _ => Err("validation expression must return a boolean".to_owned()),
    }
}

/// Returns a claim that is a string. JSON's null counts as an empty string, as in Go.
fn string_claim(claims: &Value, claim: &str) -> Result<String, &'static str> {
    match claims.get(claim) {
        None => Err("claim not present"),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Null) => Ok(String::new()),
        Some(_) => Err("it is not a string"),
    }
}

/// Returns the strings of a claim that is a string or a list of strings; `None` for any other value. JSON's null counts
/// as an empty list, or as an empty string in a list, as in Go.
///
/// Upstream: `stringOrArray`.
fn string_or_array(value: &Value) -> Option<Vec<String>> {
    let string = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Null => Some(String::new()),
        _ => None,
    };
    match value {
        Value::Null => Some(Vec::new()),
        Value::Array(items) => items.iter().map(string).collect(),
        single => string(single).map(|string| vec![string]),
    }
}

/// Converts an expression's value, a string or a list of strings, to a list without empty strings.
///
/// Upstream: `convertCELValueToStringList`.
fn string_list(value: &Val<'_>) -> Result<Vec<String>, String> {
    const ERROR: &str = "expression must return a string or a list of strings";
    let mut strings = Vec::new();
    match value {
        Val::Null => {}
        Val::Str(string) => strings.push(string.to_string()),
        value => {
            for item in &value.items().ok_or(ERROR)? {
                let Val::Str(string) = item else { return Err(ERROR.to_owned()) };
                strings.push(string.to_string());
            }
        }
    }
    strings.retain(|string| !string.is_empty());
    Ok(strings)
}

#[cfg(test)]
mod tests;
