//! Validation of the configuration by upstream's rules (`pkg/scheduler/apis/config/validation/validation.go`), with
//! upstream's messages.

use super::{
    ExtenderConfig, GROUP, GoDuration, KubeSchedulerConfiguration, KubeSchedulerProfile,
    LeaderElectionConfiguration, args,
};
use evenkeel_api::forms::qualified_name;
use evenkeel_component::features::FeatureGates;
use serde_json::{Value, json};
use std::fmt;

/// An invalid field of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct FieldError {
    path: String,
    message: String,
}

impl FieldError {
    /// Returns the error of a value that is not allowed.
    pub(super) fn value(path: String, value: impl Into<Value>, detail: &str) -> Self {
        Self { path, message: format!("Invalid value: {}: {detail}", value.into()) }
    }

    /// Returns the error of a missing value.
    pub(super) fn required(path: String, detail: &str) -> Self {
        let colon = if detail.is_empty() { "" } else { ": " };
        Self { path, message: format!("Required value{colon}{detail}") }
    }

    /// Returns the error of a field that must not be set.
    pub(super) fn forbidden(path: String, detail: &str) -> Self {
        Self { path, message: format!("Forbidden: {detail}") }
    }

    /// Returns the error of a value that appears twice.
    pub(super) fn duplicate(path: String, value: impl Into<Value>) -> Self {
        Self { path, message: format!("Duplicate value: {}", value.into()) }
    }

    /// Returns the error of a value that is none of the `supported` ones.
    pub(super) fn unsupported(path: String, value: &str, supported: &[&str]) -> Self {
        let supported: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
        let message =
            format!("Unsupported value: {value:?}: supported values: {}", supported.join(", "));
        Self { path, message }
    }
}

/// Several errors as one, in upstream's format. Each message appears once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Aggregate(pub(crate) Vec<String>);

impl fmt::Display for Aggregate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [message] => f.write_str(message),
            messages => write!(f, "[{}]", messages.join(", ")),
        }
    }
}

impl std::error::Error for Aggregate {}

impl KubeSchedulerConfiguration {
    /// Validates a configuration with defaults.
    ///
    /// Upstream: `ValidateKubeSchedulerConfiguration`.
    ///
    /// # Errors
    ///
    /// Returns the errors of all invalid fields.
    pub(crate) fn validate(&self, gates: &FeatureGates) -> Result<(), Aggregate> {
        let errors = self.errors(gates);
        let mut texts: Vec<String> = Vec::new();
        for text in errors.iter().map(ToString::to_string) {
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        if texts.is_empty() { Ok(()) } else { Err(Aggregate(texts)) }
    }

    /// Returns the errors of all fields.
    fn errors(&self, gates: &FeatureGates) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let burst = self.client_connection.burst;
        if burst < 0 {
            errors.push(FieldError::value(
                "clientConnection.burst".to_owned(),
                burst,
                "must be non-negative",
            ));
        }
        errors.extend(self.leader_election.errors());
        let parallelism = self.parallelism.unwrap_or_default();
        if parallelism <= 0 {
            let rule = "should be an integer value greater than zero";
            errors.push(FieldError::value("parallelism".to_owned(), parallelism, rule));
        }
        errors.extend(check_profiles(&self.profiles, gates));
        errors.extend(check_percentage(
            "percentageOfNodesToScore",
            self.percentage_of_nodes_to_score,
        ));
        let initial_backoff = self.pod_initial_backoff_seconds.unwrap_or_default();
        let max_backoff = self.pod_max_backoff_seconds.unwrap_or_default();
        if initial_backoff <= 0 {
            let rule = "must be greater than 0";
            errors.push(FieldError::value(
                "podInitialBackoffSeconds".to_owned(),
                initial_backoff,
                rule,
            ));
        }
        if max_backoff < initial_backoff {
            let rule = "must be greater than or equal to PodInitialBackoffSeconds";
            errors.push(FieldError::value("podMaxBackoffSeconds".to_owned(), max_backoff, rule));
        }
        errors.extend(check_extenders(&self.extenders));
        errors
    }
}

impl LeaderElectionConfiguration {
    /// Returns the errors of leader election; none if it is disabled.
    fn errors(&self) -> Vec<FieldError> {
        if self.leader_elect == Some(false) {
            return Vec::new();
        }
        let at = |field: &str| format!("leaderElection.{field}");
        let text = |duration: GoDuration| String::from(duration);
        let mut errors = Vec::new();
        for (field, duration) in [
            ("leaseDuration", self.lease_duration),
            ("renewDeadline", self.renew_deadline),
            ("retryPeriod", self.retry_period),
        ] {
            if duration <= GoDuration(0) {
                errors.push(FieldError::value(
                    at(field),
                    text(duration),
                    "must be greater than zero",
                ));
            }
        }
        if self.lease_duration <= self.renew_deadline {
            // Like upstream, the error shows the value of the other field.
            let other_value = text(self.renew_deadline);
            let rule = "must be greater than `RenewDeadline`";
            errors.push(FieldError::value(at("leaseDuration"), other_value, rule));
        }
        for (field, value) in [
            ("resourceLock", &self.resource_lock),
            ("resourceNamespace", &self.resource_namespace),
            ("resourceName", &self.resource_name),
        ] {
            if value.is_empty() {
                errors.push(FieldError::required(at(field), ""));
            }
        }
        if self.resource_lock != "leases" {
            let rule = "resourceLock value must be \"leases\"";
            errors.push(FieldError::value(at("resourceLock"), self.resource_lock.as_str(), rule));
        }
        errors
    }
}

/// Checks a percentage: 0 to 100. Upstream: `validatePercentageOfNodesToScore`.
fn check_percentage(path: &str, percentage: Option<i32>) -> Option<FieldError> {
    let percentage = percentage.filter(|percentage| !(0..=100).contains(percentage))?;
    Some(FieldError::value(path.to_owned(), percentage, "not in valid range [0-100]"))
}

/// Plugins of earlier versions that upstream rejects by name.
const INVALID_PLUGINS: [&str; 4] = ["AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"];

/// Returns an error if the plugin is one of [`INVALID_PLUGINS`]. Upstream: `isPluginInvalid`.
fn check_plugin_name(path: String, name: &str) -> Option<FieldError> {
    let rule =
        format!("was invalid in version \"v1\" (KubeSchedulerConfiguration is version {GROUP:?})");
    INVALID_PLUGINS.contains(&name).then(|| FieldError::value(path, name, &rule))
}

/// Requires profiles with distinct names and the same QueueSort plugin. Upstream: `validateKubeSchedulerProfile`.
fn check_profiles(profiles: &[KubeSchedulerProfile], gates: &FeatureGates) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (n, profile) in profiles.iter().enumerate() {
        let path = format!("profiles[{n}]");
        let name = profile.scheduler_name.as_deref().unwrap_or_default();
        if name.is_empty() {
            errors.push(FieldError::required(format!("{path}.schedulerName"), ""));
        }
        let percentage = profile.percentage_of_nodes_to_score;
        errors.extend(check_percentage(&format!("{path}.percentageOfNodesToScore"), percentage));
        errors.extend(check_plugin_sets(profile, &path));
        errors.extend(check_plugin_configs(profile, &path, gates));
        if profiles[..n].iter().any(|other| other.scheduler_name == profile.scheduler_name) {
            // Upstream passes the field path instead of the name, which formats as `{}`.
            errors.push(FieldError::duplicate(format!("{path}.schedulerName"), json!({})));
        }
    }
    errors.extend(check_queue_sorts(profiles));
    errors
}

/// Checks that no list enables an invalid plugin. Upstream: `validatePluginSetForInvalidPlugins`.
fn check_plugin_sets(profile: &KubeSchedulerProfile, path: &str) -> Vec<FieldError> {
    let sets = profile.plugins.iter().flat_map(|plugins| &plugins.0);
    let checked = sets.filter(|(point, _)| {
        !matches!(point.as_str(), "multiPoint" | "placementGenerate" | "placementScore")
    });
    let errors = checked.flat_map(|(point, set)| {
        set.enabled.iter().enumerate().filter_map(move |(n, plugin)| {
            check_plugin_name(format!("{path}.plugins.{point}.enabled[{n}]"), &plugin.name)
        })
    });
    errors.collect()
}

/// Checks the plugin arguments of a profile. Upstream: `validatePluginConfig`.
fn check_plugin_configs(
    profile: &KubeSchedulerProfile,
    path: &str,
    gates: &FeatureGates,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (n, config) in profile.plugin_config.iter().enumerate() {
        let (at, name) = (format!("{path}.pluginConfig[{n}]"), config.name.as_str());
        if profile.plugin_config[..n].iter().any(|other| other.name == name) {
            errors.push(FieldError::duplicate(at.clone(), name));
        }
        match check_plugin_name(at.clone(), name) {
            Some(error) => errors.push(error),
            None => errors.extend(args::validate(name, &config.args, &format!("{at}.args"), gates)),
        }
    }
    errors
}

/// Requires the same QueueSort plugin with the same arguments in all profiles, because they share one queue. Upstream:
/// `validateCommonQueueSort`.
fn check_queue_sorts(profiles: &[KubeSchedulerProfile]) -> Vec<FieldError> {
    let queue_sort_set = |profile: &KubeSchedulerProfile| {
        profile
            .plugins
            .as_ref()
            .map(|plugins| plugins.at_point("queueSort").clone())
            .unwrap_or_default()
    };
    let Some(first) = profiles.first() else {
        return vec![FieldError::required("profiles".to_owned(), "")];
    };
    let mut errors = Vec::new();
    let expected = queue_sort_set(first);
    if expected.enabled.len() > 1 {
        let at = "profiles[0].plugins.queueSort.Enabled".to_owned();
        errors.push(FieldError::value(
            at,
            expected.enabled.len(),
            "only one queue sort plugin can be enabled",
        ));
    }
    let args_of = |profile: &KubeSchedulerProfile, name: &str| {
        let config = profile.plugin_config.iter().find(|config| config.name == name);
        config.map(|config| config.args.clone())
    };
    let plugin = expected.enabled.first().map(|plugin| plugin.name.clone()).unwrap_or_default();
    let expected_args = args_of(first, &plugin);
    for (n, profile) in profiles.iter().enumerate().skip(1) {
        let queue_sort = queue_sort_set(profile);
        if queue_sort != expected {
            let at = format!("profiles[{n}].plugins.queueSort");
            errors.push(FieldError::value(
                at,
                json!(queue_sort),
                "must be the same for all profiles",
            ));
        }
        if let Some(args) =
            args_of(profile, &plugin).filter(|args| Some(args) != expected_args.as_ref())
        {
            let at = format!("profiles[{n}].pluginConfig.args");
            errors.push(FieldError::value(at, args, "queueSort must be the same for all profiles"));
        }
    }
    errors
}

/// Requires positive weights, distinct extended resources, and at most one extender that binds. Upstream:
/// `validateExtenders`.
fn check_extenders(extenders: &[ExtenderConfig]) -> Vec<FieldError> {
    let (mut errors, mut managed) = (Vec::new(), Vec::new());
    for (n, extender) in extenders.iter().enumerate() {
        if !extender.prioritize_verb.is_empty() && extender.weight <= 0 {
            let rule = "must have a positive weight applied to it";
            errors.push(FieldError::value(format!("extenders[{n}].weight"), extender.weight, rule));
        }
        for (m, resource) in extender.managed_resources.iter().enumerate() {
            let (at, name) =
                (format!("extenders[{n}].managedResources[{m}].name"), &*resource.name);
            let messages = qualified_name(name);
            errors
                .extend(messages.iter().map(|detail| FieldError::value(at.clone(), name, detail)));
            if messages.is_empty() && !is_extended_resource(name) {
                let rule = "is an invalid extended resource name";
                errors.push(FieldError::value(at.clone(), name, rule));
            }
            if managed.contains(&name) {
                errors.push(FieldError::value(
                    at,
                    name,
                    "duplicate extender managed resource name",
                ));
            }
            managed.push(name);
        }
    }
    let n_binders = extenders.iter().filter(|extender| !extender.bind_verb.is_empty()).count();
    if n_binders > 1 {
        let found = format!("found {n_binders} extenders implementing bind");
        errors.push(FieldError::value(
            "extenders".to_owned(),
            found,
            "only one extender can implement bind",
        ));
    }
    errors
}

/// Returns whether the name belongs to an extended resource (upstream: `IsExtendedResourceName`).
fn is_extended_resource(name: &str) -> bool {
    let is_native = !name.contains('/') || name.contains("kubernetes.io/");
    !is_native
        && !name.starts_with("requests.")
        && qualified_name(&format!("requests.{name}")).is_empty()
}
