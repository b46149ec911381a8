//! `DeleteOptions`: how a deletion is asked for, and which finalizers that brings and takes.

use serde::Deserialize;
use serde_json::Value;

use super::meta;
use crate::request::query::{Query, dry_run_errors, refuse};
use crate::resource::ResourceType;
use crate::strategy::GarbageCollectionPolicy;
use evenkeel_apimachinery::status::{FieldError, StatusError};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// Options of a deletion: `metav1.DeleteOptions`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct DeleteOptions {
    pub(crate) api_version: Option<String>,
    pub(crate) kind: Option<String>,
    pub(crate) grace_period_seconds: Option<i64>,
    pub(crate) propagation_policy: Option<String>,
    pub(crate) orphan_dependents: Option<bool>,
    pub(crate) preconditions: Option<Preconditions>,
    pub(crate) dry_run: Vec<String>,
}

/// What the object must be for the deletion to happen.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Preconditions {
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
}

impl DeleteOptions {
    /// From the body, or from the query when there is none; checked.
    pub(crate) fn parse(
        body: &[u8],
        content_type: &str,
        query: &Query,
    ) -> Result<Self, StatusError> {
        let options = if body.is_empty() {
            Self::from_query(query)?
        } else {
            Self::from_body(body, content_type)?
        };
        let mut errors = dry_run_errors(options.dry_run.iter().map(String::as_str));
        if let Some(policy) = &options.propagation_policy {
            if options.orphan_dependents.is_some() {
                let why = "orphanDependents and deletionPropagation cannot be both set";
                errors.push(FieldError::invalid("propagationPolicy", policy.as_str(), why));
            }
            if !matches!(policy.as_str(), "Foreground" | "Background" | "Orphan") {
                let known = &["Foreground", "Background", "Orphan", "nil"];
                errors.push(FieldError::not_supported("propagationPolicy", policy.as_str(), known));
            }
        }
        refuse("DeleteOptions", &errors)?;
        Ok(options)
    }

    fn from_query(query: &Query) -> Result<Self, StatusError> {
        let given = |key: &str| query.has(key).then(|| query.get(key).to_owned());
        Ok(Self {
            grace_period_seconds: query.number("gracePeriodSeconds")?,
            propagation_policy: given("propagationPolicy"),
            orphan_dependents: query
                .has("orphanDependents")
                .then(|| query.flag("orphanDependents")),
            dry_run: query.all("dryRun").map(Into::into).collect(),
            ..Self::default()
        })
    }

    fn from_body(body: &[u8], content_type: &str) -> Result<Self, StatusError> {
        let value = crate::decode::options(body, content_type)?;
        let options: Self = serde_json::from_value(value)
            .map_err(|error| StatusError::bad_request(error.to_string()))?;
        let version = options.api_version.as_deref().unwrap_or_default();
        match options.kind.as_deref().unwrap_or_default() {
            "" | "DeleteOptions" => Ok(options),
            kind => Err(StatusError::bad_request(format!(
                "no kind \"{kind}\" is registered for version \"{version}\" in scheme \"pkg/runtime/scheme.go:111\""
            ))),
        }
    }

    pub(super) fn is_dry_run(&self) -> bool {
        !self.dry_run.is_empty()
    }

    /// Finalizers of an object once this deletion was asked for: those of the garbage collector come and go with the propagation.
    pub(super) fn finalizers<'o>(
        &self,
        resource: &ResourceType,
        object: &'o Value,
    ) -> Vec<&'o str> {
        let now = meta::finalizers(object);
        let (orphan, foreground) =
            match (self.orphan_dependents, self.propagation_policy.as_deref()) {
                (Some(orphan), _) => (orphan, false),
                (None, Some(policy)) => (policy == "Orphan", policy == "Foreground"),
                (None, None) if now.contains(&ORPHAN) => (true, false),
                (None, None) if now.contains(&FOREGROUND) => (false, true),
                (None, None) => match resource.strategy.default_garbage_collection_policy() {
                    GarbageCollectionPolicy::OrphanDependents => (true, false),
                    GarbageCollectionPolicy::DeleteDependents => (false, false),
                },
            };
        let mut finalizers: Vec<&str> =
            now.into_iter().filter(|f| !matches!(*f, ORPHAN | FOREGROUND)).collect();
        if orphan {
            finalizers.push(ORPHAN);
        }
        if foreground {
            finalizers.push(FOREGROUND);
        }
        finalizers
    }
}
