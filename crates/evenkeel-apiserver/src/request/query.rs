//! Query parameters of a request, and the options of writes (`CreateOptions`, `UpdateOptions`, `PatchOptions`).

use std::num::{IntErrorKind, ParseIntError};

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};

use crate::decode::FieldValidation;
use crate::resource::GroupKind;
use evenkeel_apimachinery::status::{FieldError, StatusError, is_print};

/// Maximum length of a field manager in bytes.
const MAX_FIELD_MANAGER_LENGTH: usize = 128;

/// Decoded query parameters in the order of the URL.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(pub(crate) Vec<(String, String)>);

impl Query {
    /// Parses the query of a URL.
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

    /// Returns the first value of a parameter; empty if the parameter is absent.
    pub(crate) fn get(&self, key: &str) -> &str {
        self.0.iter().find(|(k, _)| k == key).map_or("", |(_, v)| v)
    }

    /// Returns whether the parameter is present, even without a value.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.0.iter().any(|(k, _)| k == key)
    }

    /// Returns all values of a parameter.
    pub(crate) fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// Returns a boolean parameter: true if the parameter is present with any value except `0` and `false` in any case.
    ///
    /// Upstream: `Convert_Slice_string_To_bool`.
    pub(crate) fn flag(&self, key: &str) -> bool {
        let value = self.get(key);
        self.has(key) && value != "0" && !value.eq_ignore_ascii_case("false")
    }

    /// Parses an integer parameter; `None` if it is absent.
    pub(crate) fn number(&self, key: &str) -> Result<Option<i64>, StatusError> {
        let Some((_, text)) = self.0.iter().find(|(known, _)| known == key) else {
            return Ok(None);
        };
        text.parse()
            .map(Some)
            .map_err(|error| StatusError::bad_request(number_error("ParseInt", text, &error)))
    }
}

/// Returns the error message of a Go function for a string that is not a number.
///
/// Upstream: `strconv.NumError`.
pub(crate) fn number_error(function: &str, text: &str, error: &ParseIntError) -> String {
    let why = match error.kind() {
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
        _ => "invalid syntax",
    };
    let text = evenkeel_apimachinery::status::quote(text);
    format!("strconv.{function}: parsing {text}: {why}")
}

/// Options of create, update and patch requests.
#[derive(Debug, Clone)]
pub(crate) struct WriteOptions {
    /// Whether to run all stages of the request without storing the result.
    pub(crate) dry_run: bool,
    /// `fieldManager`; default: the start of the user agent.
    pub(crate) manager: String,
    /// Whether the client set `fieldManager`.
    has_manager: bool,
    /// `fieldValidation`: ignores, warns about or refuses unknown and duplicate fields. Default: warns.
    pub(crate) validation: FieldValidation,
    /// Whether the client set `fieldValidation`.
    has_validation: bool,
    /// `force` of a server-side apply: takes fields over from other managers instead of reporting a conflict.
    pub(crate) force: Option<bool>,
}

impl WriteOptions {
    /// Parses and validates the options. `kind` is `CreateOptions`, `UpdateOptions` or `PatchOptions`;
    /// `apply` is true for a server-side apply.
    ///
    /// Upstream: `ValidateCreateOptions`, `ValidateUpdateOptions`, `ValidatePatchOptions`.
    pub(crate) fn parse(
        query: &Query,
        user_agent: &str,
        kind: &'static str,
        apply: bool,
    ) -> Result<Self, StatusError> {
        let manager = query.get("fieldManager");
        let force = query.has("force").then(|| query.flag("force"));
        let mut errors = Vec::new();
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
        errors.extend(field_manager_errors(manager));
        errors.extend(dry_run_errors(query.all("dryRun")));
        let validation = match query.get("fieldValidation") {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                errors.push(FieldError::not_supported(
                    "fieldValidation",
                    other,
                    &["", "Ignore", "Strict", "Warn"],
                ));
                FieldValidation::Warn
            }
        };
        check_errors(kind, &errors)?;
        Ok(Self {
            dry_run: query.has("dryRun"),
            manager: if manager.is_empty() {
                default_manager(user_agent)
            } else {
                manager.to_owned()
            },
            has_manager: !manager.is_empty(),
            validation,
            has_validation: !query.get("fieldValidation").is_empty(),
            force,
        })
    }

    /// Returns the options without defaults, for admission. `kind` is `CreateOptions` or `UpdateOptions`, also for a
    /// patch.
    ///
    /// Upstream: `patchToCreateOptions`, `patchToUpdateOptions`.
    pub(crate) fn to_value(&self, kind: &str) -> Value {
        let mut options = Map::new();
        options.insert("kind".to_owned(), kind.into());
        options.insert("apiVersion".to_owned(), "meta.k8s.io/v1".into());
        if self.dry_run {
            options.insert("dryRun".to_owned(), json!(["All"]));
        }
        if self.has_manager {
            options.insert("fieldManager".to_owned(), self.manager.as_str().into());
        }
        if self.has_validation {
            let validation = match self.validation {
                FieldValidation::Ignore => "Ignore",
                FieldValidation::Warn => "Warn",
                FieldValidation::Strict => "Strict",
            };
            options.insert("fieldValidation".to_owned(), validation.into());
        }
        Value::Object(options)
    }
}

/// Returns the errors of `fieldManager`: its length, and each character that is not printable.
///
/// Upstream: `ValidateFieldManager`.
fn field_manager_errors(manager: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if manager.len() > MAX_FIELD_MANAGER_LENGTH {
        errors.push(FieldError::too_long("fieldManager", MAX_FIELD_MANAGER_LENGTH));
    }
    errors.extend(manager.char_indices().filter(|(_, c)| !is_print(*c)).map(|(index, c)| {
        let why = format!("invalid character U+{:04X} (at position {index})", u32::from(c));
        FieldError::invalid("fieldManager", manager, why)
    }));
    errors
}

/// Returns the default field manager: the user agent up to the first slash, at most 128 bytes, without characters that
/// are not printable.
///
/// Upstream: `managerOrUserAgent`.
fn default_manager(user_agent: &str) -> String {
    let name = user_agent.split('/').next().unwrap_or_default();
    let mut out = String::new();
    for c in name.chars().filter(|c| is_print(*c)) {
        if out.len().saturating_add(c.len_utf8()) > MAX_FIELD_MANAGER_LENGTH {
            break;
        }
        out.push(c);
    }
    out
}

/// Returns the errors of `dryRun`, whose only value is `All`.
///
/// Upstream: `ValidateDryRun`.
pub(crate) fn dry_run_errors<'a>(values: impl Iterator<Item = &'a str>) -> Vec<FieldError> {
    let values: Vec<&str> = values.collect();
    if values.iter().all(|v| *v == "All") {
        return Vec::new();
    }
    vec![FieldError::not_supported("dryRun", values, &["All"])]
}

/// Returns a 422 if there are errors of an options object. `kind` is the kind of the options.
pub(crate) fn check_errors(kind: &'static str, errors: &[FieldError]) -> Result<(), StatusError> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(StatusError::invalid(
        &GroupKind { group: "meta.k8s.io".into(), kind: kind.into() },
        "",
        errors,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_is_true_unless_it_is_absent_zero_or_false() {
        for (query, on) in [
            ("", false),
            ("a", true),
            ("a=", true),
            ("a=true", true),
            ("a=no", true),
            ("a=00", true),
            ("a=0", false),
            ("a=false", false),
            ("a=FaLsE", false),
            ("a=false&a=true", false),
        ] {
            let query = Query::parse(Some(query));
            assert_eq!(query.flag("a"), on, "{query:?}");
        }
    }

    #[test]
    fn write_options_are_validated_with_upstreams_messages() {
        fn parse(
            kind: &'static str,
            apply: bool,
            query: &str,
        ) -> Result<WriteOptions, StatusError> {
            WriteOptions::parse(&Query::parse(Some(query)), "kubectl/v1", kind, apply)
        }
        let long = format!("fieldManager={}%00", "x".repeat(129));
        let value = format!("{}\\x00", "x".repeat(129));
        let both = format!(
            "[fieldManager: Too long: may not be more than 128 bytes, \
             fieldManager: Invalid value: \"{value}\": invalid character U+0000 (at position 129)]"
        );
        for (kind, apply, query, message) in [
            (
                "CreateOptions",
                false,
                "fieldManager=a%09%CC%81%C2%A0&dryRun=x&fieldValidation=y",
                "[fieldManager: Invalid value: \"a\\t\u{301}\\u00a0\": invalid character U+0009 (at position 1), \
                 fieldManager: Invalid value: \"a\\t\u{301}\\u00a0\": invalid character U+00A0 (at position 4), \
                 dryRun: Unsupported value: [\"x\"]: supported values: \"All\", \
                 fieldValidation: Unsupported value: \"y\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"]",
            ),
            ("CreateOptions", false, &long, &both),
            (
                "PatchOptions",
                false,
                "force=0&dryRun=x",
                "[force: Forbidden: may not be specified for non-apply patch, \
                 dryRun: Unsupported value: [\"x\"]: supported values: \"All\"]",
            ),
            (
                "PatchOptions",
                true,
                "force",
                "fieldManager: Required value: is required for apply patch",
            ),
        ] {
            let error = parse(kind, apply, query).expect_err(query);
            let message = format!("{kind}.meta.k8s.io \"\" is invalid: {message}");
            assert_eq!(error.message(), message);
        }
        for (query, force) in [
            ("", None),
            ("&force", Some(true)),
            ("&force=yes", Some(true)),
            ("&force=False", Some(false)),
        ] {
            let query = format!("fieldManager=m{query}");
            let options = parse("PatchOptions", true, &query);
            assert_eq!(options.expect(&query).force, force, "{query}");
        }
    }

    #[test]
    fn the_default_manager_is_the_printable_start_of_the_user_agent() {
        assert_eq!(default_manager("a\u{a0}b\u{301}\t/1 c"), "ab\u{301}");
        assert_eq!(default_manager(&"é".repeat(70)), "é".repeat(64));
    }
}
