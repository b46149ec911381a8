//! `DeleteOptions`: options of a deletion, and the finalizers that result from them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::meta;
use crate::request::query::{Query, check_errors, dry_run_errors};
use crate::resource::ResourceType;
use crate::strategy::GarbageCollectionPolicy;
use evenkeel_apimachinery::status::{FieldError, StatusError};

/// Finalizer that lets the garbage collector orphan the dependents.
const ORPHAN: &str = "orphan";
/// Finalizer that lets the garbage collector delete the dependents before their owner.
const FOREGROUND: &str = "foregroundDeletion";

/// Name of the option that deletes an unreadable object.
const UNSAFE: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";

/// Options of a deletion: `metav1.DeleteOptions`.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct DeleteOptions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) api_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) grace_period_seconds: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) propagation_policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) orphan_dependents: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) preconditions: Option<Preconditions>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) dry_run: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ignore_store_read_error_with_cluster_breaking_potential: Option<bool>,
}

/// Preconditions on the object to delete.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Preconditions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) uid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) resource_version: Option<String>,
}

impl DeleteOptions {
    /// Parses and validates the options in the body, or those in the query if the request has no body.
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
        options.validate()?;
        Ok(options)
    }

    /// Refuses unknown values, and the combination of `orphanDependents` and `propagationPolicy`.
    ///
    /// Upstream: `ValidateDeleteOptions`.
    pub(super) fn validate(&self) -> Result<(), StatusError> {
        let mut errors = Vec::new();
        if let Some(policy) = self.propagation_policy.as_deref() {
            if self.orphan_dependents.is_some() {
                let why = "orphanDependents and deletionPropagation cannot be both set";
                errors.push(FieldError::invalid("propagationPolicy", policy, why));
            }
            if !matches!(policy, "Foreground" | "Background" | "Orphan") {
                let known = &["Foreground", "Background", "Orphan", "nil"];
                errors.push(FieldError::not_supported("propagationPolicy", policy, known));
            }
        }
        errors.extend(dry_run_errors(self.dry_run.iter().map(String::as_str)));
        errors.extend(self.unsafe_deletion_errors());
        check_errors("DeleteOptions", &errors)
    }

    /// Returns whether the deletion is of an object that cannot be read from the store.
    pub(super) fn is_unsafe(&self) -> bool {
        self.ignore_store_read_error_with_cluster_breaking_potential == Some(true)
    }

    /// Returns an error for each option that is not allowed for the deletion of an unreadable object, because the
    /// option depends on the object.
    ///
    /// Upstream: `ValidateIgnoreStoreReadError`.
    fn unsafe_deletion_errors(&self) -> Vec<FieldError> {
        if !self.is_unsafe() {
            return Vec::new();
        }
        let set = [
            ("propagationPolicy", self.propagation_policy.is_some()),
            ("orphanDependents", self.orphan_dependents.is_some()),
            ("gracePeriodSeconds", self.grace_period_seconds.is_some()),
            ("preconditions", self.preconditions.is_some()),
        ];
        let error = |name: &str| {
            FieldError::invalid(UNSAFE, true, format!("cannot be set together with .{name}"))
        };
        set.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| error(name)).collect()
    }

    /// Refuses options that the deletion of a collection does not support.
    pub(super) fn check_for_collection(&self) -> Result<(), StatusError> {
        if !self.is_unsafe() {
            return Ok(());
        }
        let why = "is not allowed with DELETECOLLECTION, try again after removing the option";
        check_errors("DeleteOptions", &[FieldError::invalid(UNSAFE, true, why)])
    }

    fn from_query(query: &Query) -> Result<Self, StatusError> {
        let orphan_dependents = query.has("orphanDependents");
        let propagation_policy = query.has("propagationPolicy");
        let text = |name: &str| Some(query.get(name)).filter(|text| !text.is_empty());
        let (uid, version) = (text("uid"), text("resourceVersion"));
        let preconditions = (uid.is_some() || version.is_some()).then(|| Preconditions {
            uid: uid.map(str::to_owned),
            resource_version: version.map(str::to_owned),
        });
        Ok(Self {
            grace_period_seconds: query.number("gracePeriodSeconds")?,
            propagation_policy: propagation_policy
                .then(|| query.get("propagationPolicy").to_owned()),
            orphan_dependents: orphan_dependents.then(|| query.flag("orphanDependents")),
            preconditions,
            dry_run: query.all("dryRun").map(Into::into).collect(),
            ignore_store_read_error_with_cluster_breaking_potential: query
                .has(UNSAFE)
                .then(|| query.flag(UNSAFE)),
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

    /// Returns the options in JSON for admission.
    pub(super) fn to_value(&self) -> Result<Value, StatusError> {
        let with_type_meta = Self {
            api_version: Some("meta.k8s.io/v1".to_owned()),
            kind: Some("DeleteOptions".to_owned()),
            ..self.clone()
        };
        serde_json::to_value(with_type_meta).map_err(StatusError::internal)
    }

    pub(super) fn is_dry_run(&self) -> bool {
        !self.dry_run.is_empty()
    }

    /// Returns the finalizers of an object after this deletion request. The propagation policy determines the garbage
    /// collector's finalizers.
    pub(super) fn finalizers<'o>(
        &self,
        resource: &ResourceType,
        object: &'o Value,
    ) -> Vec<&'o str> {
        let current = meta::finalizers(object);
        let (orphan, foreground) =
            match (self.orphan_dependents, self.propagation_policy.as_deref()) {
                (Some(orphan), _) => (orphan, false),
                (None, Some(policy)) => (policy == "Orphan", policy == "Foreground"),
                (None, None) if current.contains(&ORPHAN) => (true, false),
                (None, None) if current.contains(&FOREGROUND) => (false, true),
                (None, None) => match resource.strategy.default_garbage_collection_policy() {
                    GarbageCollectionPolicy::OrphanDependents => (true, false),
                    GarbageCollectionPolicy::DeleteDependents => (false, false),
                },
            };
        let mut finalizers: Vec<&str> =
            current.into_iter().filter(|f| !matches!(*f, ORPHAN | FOREGROUND)).collect();
        if orphan {
            finalizers.push(ORPHAN);
        }
        if foreground {
            finalizers.push(FOREGROUND);
        }
        finalizers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_options_are_refused_with_upstreams_messages() {
        for (query, message) in [
            (
                "dryRun=x&propagationPolicy=y",
                "[propagationPolicy: Unsupported value: \"y\": supported values: \"Foreground\", \"Background\", \
                 \"Orphan\", \"nil\", dryRun: Unsupported value: [\"x\"]: supported values: \"All\"]",
            ),
            (
                "propagationPolicy=y&orphanDependents=FALSE",
                "[propagationPolicy: Invalid value: \"y\": orphanDependents and deletionPropagation cannot be both \
                 set, propagationPolicy: Unsupported value: \"y\": supported values: \"Foreground\", \"Background\", \
                 \"Orphan\", \"nil\"]",
            ),
        ] {
            let error = DeleteOptions::parse(b"", "", &Query::parse(Some(query))).expect_err(query);
            let message = format!("DeleteOptions.meta.k8s.io \"\" is invalid: {message}");
            assert_eq!(error.message(), message);
        }
    }
}
