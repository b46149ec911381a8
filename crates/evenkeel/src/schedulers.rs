//! Schedulers that one process runs side by side: their configurations, and the options that follow from them. `evenkeel up`
//! serves them, so that `evenkeel explain` evaluates a pod as its scheduler does.

use anyhow::{Context as _, Result, bail};
use evenkeel_component::features::FeatureGates;
use evenkeel_kube_scheduler::{Registry, library_options};
use evenkeel_scheduler::{DEFAULT_SCHEDULER, SchedulerOptions};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap};

/// Path of the schedulers on the control socket of `evenkeel up`.
pub const PATH: &str = "/schedulers";

/// Schedulers of one process. The default is one scheduler with upstream's defaults.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Schedulers {
    /// A configuration for each scheduler.
    pub configs: Vec<SchedulerConfig>,
    /// Feature gates of all schedulers.
    pub feature_gates: BTreeMap<String, bool>,
}

/// Configuration of one scheduler.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SchedulerConfig {
    /// Path of the configuration in errors: `scheduler.configs[0]`.
    pub place: String,
    /// A KubeSchedulerConfiguration; its `apiVersion` and `kind` may be left out.
    pub config: Map<String, Value>,
}

impl Default for Schedulers {
    fn default() -> Self {
        let config = SchedulerConfig { place: "scheduler".to_owned(), config: Map::new() };
        Self { configs: vec![config], feature_gates: BTreeMap::new() }
    }
}

impl Schedulers {
    /// Returns the options of each scheduler. Each call creates new plugins, because a scheduler's plugins are connected to one
    /// set of caches. Ties among nodes are broken differently by each scheduler.
    ///
    /// # Errors
    /// Fails if a configuration or a feature gate is invalid, or two configurations have a profile of the same name. The error
    /// names the place.
    pub fn options(&self) -> Result<Vec<SchedulerOptions>> {
        let pairs = self.feature_gates.iter();
        let pairs: Vec<_> =
            pairs.map(|(gate, on)| (String::new(), format!("{gate}={on}"))).collect();
        let gates = FeatureGates::resolve(&[], &[], &pairs);
        if !gates.errors.is_empty() {
            bail!("feature gates: {}", gates.errors.join("; "));
        }
        let options = self.configs.iter().map(|scheduler| {
            let options = self.options_of(&scheduler.config, &gates.gates);
            options.with_context(|| scheduler.place.clone())
        });
        let mut options = options.collect::<Result<Vec<_>>>()?;
        for (seed, scheduler) in (0..).zip(&mut options) {
            scheduler.seed = seed;
        }
        self.check_names(&options)?;
        Ok(options)
    }

    fn options_of(
        &self,
        config: &Map<String, Value>,
        gates: &FeatureGates,
    ) -> Result<SchedulerOptions> {
        if config.is_empty() && self.feature_gates.is_empty() {
            return Ok(SchedulerOptions::default());
        }
        let mut config = config.clone();
        // The configuration needs no `apiVersion` and `kind`, because only one type is possible.
        config.entry("apiVersion").or_insert_with(|| "kubescheduler.config.k8s.io/v1".into());
        config.entry("kind").or_insert_with(|| "KubeSchedulerConfiguration".into());
        library_options(&serde_json::to_string(&config)?, &Registry::in_tree(), gates)
    }

    /// Checks that no two schedulers have a profile of the same name, because both would schedule its pods.
    fn check_names(&self, options: &[SchedulerOptions]) -> Result<()> {
        let mut places = HashMap::new();
        for (scheduler, options) in self.configs.iter().zip(options) {
            for (index, name) in options.names().enumerate() {
                let place = scheduler.place_of_profile(index);
                if let Some(first) = places.insert(name, place.clone()) {
                    bail!(
                        "{place}: {first} is {name:?}, too; pods have one scheduler, so give one of the two another name"
                    );
                }
            }
        }
        Ok(())
    }
}

impl SchedulerConfig {
    /// Returns the path of a profile's name in the configuration, even if the name is not set.
    fn place_of_profile(&self, index: usize) -> String {
        let profile = &self.config.get("profiles").unwrap_or(&Value::Null)[index];
        let place = &self.place;
        match profile["schedulerName"] {
            Value::Null => {
                format!("{place} (whose profile has no name, which means {DEFAULT_SCHEDULER})")
            }
            _ => format!("{place}.profiles[{index}].schedulerName"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schedulers(configs: &[Value]) -> Schedulers {
        let config = |(index, config): (usize, &Value)| SchedulerConfig {
            place: format!("scheduler.configs[{index}]"),
            config: config.as_object().expect("an object").clone(),
        };
        let configs = configs.iter().enumerate().map(config).collect();
        Schedulers { configs, ..Schedulers::default() }
    }

    fn named(names: &[&str]) -> Value {
        let profiles = names.iter().map(|name| json!({"schedulerName": name}));
        json!({"profiles": profiles.collect::<Vec<_>>()})
    }

    #[test]
    fn each_configuration_is_a_scheduler_of_its_own() {
        let all = schedulers(&[named(&["a", "b"]), json!({"podInitialBackoffSeconds": 3})]);
        let options = all.options().expect("valid");
        let names: Vec<Vec<&str>> = options.iter().map(|one| one.names().collect()).collect();
        assert_eq!(names, [vec!["a", "b"], vec!["default-scheduler"]]);
        assert_eq!(options[1].pod_initial_backoff.as_secs(), 3);
        assert_ne!(options[0].seed, options[1].seed, "ties are broken differently");
        assert_eq!(Schedulers::default().options().expect("valid").len(), 1);
        let sent = serde_json::to_string(&all).expect("JSON");
        assert_eq!(serde_json::from_str::<Schedulers>(&sent).expect("the same"), all);
    }

    #[test]
    fn errors_name_the_place() {
        for (configs, want) in [
            (
                [named(&["a", "b"]), named(&["c", "b"])],
                "scheduler.configs[1].profiles[1].schedulerName: scheduler.configs[0].profiles[1].schedulerName is \"b\", too; ",
            ),
            (
                [json!({}), json!({"profiles": [{}]})],
                "scheduler.configs[1] (whose profile has no name, which means default-scheduler): scheduler.configs[0] (whose ",
            ),
            (
                [json!({}), named(&["default-scheduler"])],
                "scheduler.configs[1].profiles[0].schedulerName: scheduler.configs[0] (whose profile ",
            ),
            ([named(&["a"]), json!({"profilse": []})], "scheduler.configs[1]: "),
        ] {
            let error = format!("{:#}", schedulers(&configs).options().expect_err("invalid"));
            assert!(error.starts_with(want), "{error}");
        }
        let gates = BTreeMap::from([("Nothing".to_owned(), true)]);
        let error = Schedulers { feature_gates: gates, ..Schedulers::default() }.options();
        let error = error.expect_err("unknown").to_string();
        assert!(error.contains("unrecognized feature gate: Nothing"), "{error}");
    }
}
