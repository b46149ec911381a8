//! Maps the claims of a verified token to its user.
//!
//! | documented | where |
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

/// Key in `extra` of the token's ID.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// Source of a field of the user.
#[derive(Debug)]
pub(super) enum Source {
    /// Name of a claim, and the prefix to add to its value.
    Claim(String, String),
    Expression(Expression),
}

/// Condition on claims or on the user, with the message of a refusal.
#[derive(Debug)]
pub(super) struct Condition {
    pub(super) expression: Expression,
    pub(super) message: String,
}

/// Compiled rules of one issuer.
///
/// Upstream: `CELMapper`.
#[derive(Debug)]
pub(super) struct Mapper {
    pub(super) username: Source,
    pub(super) groups: Option<Source>,
    pub(super) uid: Option<Source>,
    /// Keys, with the expressions that return their values.
    pub(super) extra: Vec<(String, Expression)>,
    /// Names and required values of claims.
    pub(super) required: Vec<(String, String)>,
    pub(super) claim_rules: Vec<Condition>,
    pub(super) user_rules: Vec<Condition>,
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
            Source::Claim(claim, prefix) => (claim, prefix),
        };
        let name = text(claims, claim)
            .map_err(|why| format!("oidc: parse username claims {claim:?}: {why}"))?;
        if claim == "email" {
            match claims.get("email_verified") {
                None | Some(Value::Bool(true)) => {}
                Some(Value::Bool(false) | Value::Null) => {
                    return Err("oidc: email not verified".to_owned());
                }
                Some(_) => {
                    return Err("oidc: parse 'email_verified' claim: it is no bool".to_owned());
                }
            }
        }
        Ok(format!("{prefix}{name}"))
    }

    /// Upstream: `getGroups`.
    fn groups(&self, claims: &Value) -> Result<Vec<String>, String> {
        match &self.groups {
            None => Ok(Vec::new()),
            Some(Source::Claim(claim, prefix)) => {
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

    /// Upstream: `getUID`.
    fn uid(&self, claims: &Value) -> Result<String, String> {
        match &self.uid {
            None => Ok(String::new()),
            Some(Source::Claim(claim, _)) => {
                text(claims, claim).map_err(|why| format!("oidc: parse uid claim {claim:?}: {why}"))
            }
            Some(Source::Expression(expression)) => match expression.over_claims(claims) {
                Ok(Val::Str(uid)) => Ok(uid.into_owned()),
                Ok(_) => Err("uid claim expression must return a string".to_owned()),
                Err(why) => Err(why),
            }
            .map_err(|why| format!("oidc: error evaluating uid claim expression: {why}")),
        }
    }

    /// Upstream: `getExtra`.
    fn extra(&self, claims: &Value) -> Result<Box<[evenkeel_apimachinery::user::Extra]>, String> {
        let mut extra: BTreeMap<Box<str>, Vec<String>> = BTreeMap::new();
        if let Some(id) = claims.get("jti").and_then(Value::as_str).filter(|id| !id.is_empty()) {
            extra.insert(CREDENTIAL_ID.into(), vec![format!("JTI={id}")]);
        }
        for (key, expression) in &self.extra {
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

    fn check_claims(&self, claims: &Value) -> Result<(), String> {
        for (claim, wanted) in &self.required {
            if claims.get(claim).is_none() {
                return Err(format!("oidc: required claim {claim} not present in ID token"));
            }
            let value =
                text(claims, claim).map_err(|why| format!("oidc: parse claim {claim}: {why}"))?;
            if value != *wanted {
                return Err(format!(
                    "oidc: required claim {claim} value does not match. Got = {value}, want = {wanted}"
                ));
            }
        }
        for condition in &self.claim_rules {
            holds(condition, condition.expression.over_claims(claims)).map_err(|why| {
                format!("oidc: error evaluating claim validation expression: {why}")
            })?;
        }
        Ok(())
    }

    fn check_user(&self, user: &User) -> Result<(), String> {
        if self.user_rules.is_empty() {
            return Ok(());
        }
        let user = user_info(user);
        for condition in &self.user_rules {
            holds(condition, condition.expression.over_user(&user)).map_err(|why| {
                format!("oidc: error evaluating user info validation rule: {why}")
            })?;
        }
        Ok(())
    }
}

/// Upstream: `checkValidationRulesEvaluation`.
fn holds(condition: &Condition, value: Result<Val<'_>, String>) -> Result<(), String> {
    match value? {
        Val::Bool(true) => Ok(()),
        Val::Bool(false) => Err(format!(
            "validation expression '{}' failed: {}",
            condition.expression.text, condition.message
        )),
        _ => Err("validation expression must return a boolean".to_owned()),
    }
}

/// Returns a string claim. JSON's null counts as an empty string.
fn text(claims: &Value, claim: &str) -> Result<String, &'static str> {
    match claims.get(claim) {
        None => Err("claim not present"),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Null) => Ok(String::new()),
        Some(_) => Err("it is no string"),
    }
}

/// Upstream: `stringOrArray`.
fn string_or_array(value: &Value) -> Option<Vec<String>> {
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Null => Some(String::new()),
        _ => None,
    };
    match value {
        Value::Null => Some(Vec::new()),
        Value::Array(all) => all.iter().map(text).collect(),
        one => text(one).map(|one| vec![one]),
    }
}

/// Converts an expression's value, a string or a list of strings, to a list without empty strings.
///
/// Upstream: `convertCELValueToStringList`.
fn string_list(value: &Val<'_>) -> Result<Vec<String>, String> {
    let texts = match value {
        Val::Null => Vec::new(),
        Val::Str(text) => vec![text.to_string()],
        value => value
            .items()
            .and_then(|items| {
                let text = |item: &Val<'_>| match item {
                    Val::Str(text) => Some(text.to_string()),
                    _ => None,
                };
                items.iter().map(text).collect::<Option<_>>()
            })
            .ok_or("expression must return a string or a list of strings")?,
    };
    Ok(texts.into_iter().filter(|text: &String| !text.is_empty()).collect())
}

#[cfg(test)]
mod tests;
