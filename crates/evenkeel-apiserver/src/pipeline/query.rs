//! Parameters of a request's query, and the options that they make.

use percent_encoding::percent_decode_str;

use crate::decode::FieldValidation;
use crate::resource::GroupKind;
use evenkeel_apimachinery::status::{FieldError, StatusError};

/// Decoded parameters, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(pub(crate) Vec<(String, String)>);

impl Query {
    /// Takes a query apart.
    pub(crate) fn parse(query: Option<&str>) -> Self {
        let decode = |text: &str| {
            percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned()
        };
        Self(
            query
                .unwrap_or_default()
                .split('&')
                .filter(|part| !part.is_empty())
                .map(|part| part.split_once('=').unwrap_or((part, "")))
                .map(|(key, value)| (decode(key), decode(value)))
                .collect(),
        )
    }

    /// The first value of a parameter, "" where there is none.
    pub(crate) fn get(&self, key: &str) -> &str {
        self.0.iter().find(|(k, _)| k == key).map_or("", |(_, v)| v)
    }

    /// Whether the parameter is there.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.0.iter().any(|(k, _)| k == key)
    }

    /// All values of a parameter.
    pub(crate) fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// A yes or no: there and not `false` or `0`.
    pub(crate) fn flag(&self, key: &str) -> bool {
        self.has(key) && !matches!(self.get(key), "false" | "0")
    }

    /// A number.
    pub(crate) fn number(&self, key: &str) -> Result<Option<i64>, StatusError> {
        match self.get(key) {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| {
                StatusError::bad_request(format!(
                    "strconv.ParseInt: parsing {}: invalid syntax",
                    evenkeel_apimachinery::status::quote(text)
                ))
            }),
        }
    }
}

/// What every write is told: by whom, and whether to store it.
#[derive(Debug, Clone)]
pub(crate) struct WriteOptions {
    /// Nothing is stored.
    pub(crate) dry_run: bool,
    /// `fieldManager`, or what the user agent gives.
    pub(crate) manager: String,
    /// What to do about unknown fields.
    pub(crate) validation: FieldValidation,
    /// Take fields from their managers.
    pub(crate) force: Option<bool>,
}

impl WriteOptions {
    /// Reads and checks them. `kind` is `CreateOptions`, `UpdateOptions` or `PatchOptions`; `apply` is whether it is a server-side apply.
    pub(crate) fn parse(
        query: &Query,
        user_agent: &str,
        kind: &'static str,
        apply: bool,
    ) -> Result<Self, StatusError> {
        let mut errors = dry_run_errors(query.all("dryRun"));
        let manager = query.get("fieldManager");
        if manager.len() > 128 {
            errors.push(FieldError::too_long("fieldManager", 128));
        } else if let Some((at, c)) = manager.char_indices().find(|(_, c)| c.is_control()) {
            errors.push(FieldError::invalid(
                "fieldManager",
                manager,
                format!("invalid character {} (at position {at})", c.escape_debug()),
            ));
        }
        let validation = match query.get("fieldValidation") {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                errors.push(FieldError::not_supported(
                    "fieldValidation",
                    other,
                    &["Ignore", "Strict", "Warn", ""],
                ));
                FieldValidation::Warn
            }
        };
        let force = match query.get("force") {
            "" if !query.has("force") => None,
            "" | "true" | "1" => Some(true),
            _ => Some(false),
        };
        if kind == "PatchOptions" {
            if apply && manager.is_empty() {
                errors.push(FieldError::required("fieldManager", "is required for apply patch"));
            }
            if !apply && force.is_some() {
                errors.push(FieldError::forbidden(
                    "force",
                    "may not be specified for non-apply patch",
                ));
            }
        }
        refuse(kind, &errors)?;
        Ok(Self {
            dry_run: query.has("dryRun"),
            manager: if manager.is_empty() { prefix_of(user_agent) } else { manager.to_owned() },
            validation,
            force,
        })
    }
}

/// What upstream takes of a user agent for a manager: up to the first slash, 128 bytes of printable characters at most.
fn prefix_of(user_agent: &str) -> String {
    let name = user_agent.split('/').next().unwrap_or_default();
    let mut out = String::new();
    for c in name.chars().filter(|c| !c.is_control()) {
        if out.len() + c.len_utf8() > 128 {
            break;
        }
        out.push(c);
    }
    out
}

/// What is wrong with `dryRun`.
pub(crate) fn dry_run_errors<'a>(values: impl Iterator<Item = &'a str>) -> Vec<FieldError> {
    let values: Vec<&str> = values.collect();
    if values.iter().all(|v| *v == "All") {
        return Vec::new();
    }
    vec![FieldError::not_supported("dryRun", values, &["All"])]
}

/// A 422 about options, when anything is wrong with them.
pub(crate) fn refuse(kind: &'static str, errors: &[FieldError]) -> Result<(), StatusError> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(StatusError::invalid(
        &GroupKind { group: "meta.k8s.io".into(), kind: kind.into() },
        "",
        errors,
    ))
}
