//! Builds profiles from the configuration: expands `multiPoint`, and reports errors with upstream's messages.
//!
//! Upstream: `NewFramework` (pkg/scheduler/framework/runtime/framework.go)

use crate::{
    config::{KubeSchedulerConfiguration, KubeSchedulerProfile, PluginRef, Plugins},
    registry::{PluginContext, Registry},
};
use anyhow::{Context as _, Result, anyhow, bail};
use evenkeel_component::features::FeatureGates;
use evenkeel_scheduler::framework::{ExtensionPoint, Plugin, Profile};
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc};

/// An extension point that the configuration may name.
#[derive(Clone, Copy)]
struct ConfigPoint {
    /// Name of its list in the configuration.
    field: &'static str,
    /// `None` if no plugin implements it here.
    point: Option<ExtensionPoint>,
}

impl ConfigPoint {
    /// Returns upstream's plugin type, used in messages: `PreFilterPlugin` for `preFilter`.
    fn plugin_type(self) -> String {
        let (first, rest) = self.field.split_at(1);
        format!("{}{rest}Plugin", first.to_ascii_uppercase())
    }
}

/// Extension points in upstream's order.
///
/// Upstream: `getExtensionPoints`.
const POINTS: [ConfigPoint; 15] = [
    ConfigPoint { field: "preFilter", point: Some(ExtensionPoint::PreFilter) },
    ConfigPoint { field: "filter", point: Some(ExtensionPoint::Filter) },
    ConfigPoint { field: "postFilter", point: Some(ExtensionPoint::PostFilter) },
    ConfigPoint { field: "reserve", point: Some(ExtensionPoint::Reserve) },
    ConfigPoint { field: "preScore", point: Some(ExtensionPoint::PreScore) },
    ConfigPoint { field: "score", point: Some(ExtensionPoint::Score) },
    ConfigPoint { field: "preBind", point: Some(ExtensionPoint::PreBind) },
    ConfigPoint { field: "bind", point: Some(ExtensionPoint::Bind) },
    ConfigPoint { field: "postBind", point: Some(ExtensionPoint::PostBind) },
    ConfigPoint { field: "permit", point: Some(ExtensionPoint::Permit) },
    ConfigPoint { field: "preEnqueue", point: Some(ExtensionPoint::PreEnqueue) },
    ConfigPoint { field: "queueSort", point: Some(ExtensionPoint::QueueSort) },
    ConfigPoint { field: "placementGenerate", point: None },
    ConfigPoint { field: "placementScore", point: None },
    ConfigPoint { field: "podGroupPostFilter", point: None },
];

/// Builds the profiles of a validated configuration.
///
/// # Errors
/// Fails if a plugin is unknown, cannot be created, or does not implement an extension point that names it.
pub(super) fn build_profiles(
    config: &KubeSchedulerConfiguration,
    registry: &Registry,
    gates: &FeatureGates,
) -> Result<Vec<Profile>> {
    let default_percentage = config.percentage_of_nodes_to_score.unwrap_or_default();
    let build_profile = |config: &KubeSchedulerProfile| {
        let name = config.scheduler_name.as_deref().unwrap_or_default();
        let percentage = config.percentage_of_nodes_to_score.unwrap_or(default_percentage);
        let profile = ProfileBuilder::new(config, registry, gates)
            .and_then(|builder| builder.profile(name))
            .with_context(|| format!("creating profile for scheduler name {name}"))?;
        Ok(profile.percentage_of_nodes_to_score(u32::try_from(percentage).unwrap_or_default()))
    };
    config
        .profiles
        .iter()
        .map(build_profile)
        .collect::<Result<_>>()
        .context("initializing profiles")
}

/// Plugins of a profile before they are assigned to extension points.
struct ProfileBuilder<'a> {
    /// Enabled and disabled plugins, by extension point.
    lists: &'a Plugins,
    /// Created plugins, by name.
    created: BTreeMap<&'a str, Arc<dyn Plugin>>,
}

impl<'a> ProfileBuilder<'a> {
    fn new(
        profile: &'a KubeSchedulerProfile,
        registry: &Registry,
        gates: &FeatureGates,
    ) -> Result<Self> {
        let lists = profile.plugins.as_ref().context("plugins required")?;
        let mut created = BTreeMap::new();
        for name in lists.0.values().flat_map(|set| &set.enabled).map(|plugin| &*plugin.name) {
            if created.contains_key(name) {
                continue;
            }
            let config = profile.plugin_config.iter().find(|config| config.name == name);
            let args = config.map_or(&Value::Null, |config| &config.args);
            // `check_list` and `expand` report unknown plugins together with their extension point.
            let Some(plugin) = registry.create(name, &PluginContext { args, gates }) else {
                continue;
            };
            let plugin = plugin.map_err(|error| anyhow!(error));
            created.insert(name, plugin.with_context(|| format!("initializing plugin {name:?}"))?);
        }
        Ok(Self { lists, created })
    }

    /// Assigns the plugins to extension points.
    ///
    /// # Errors
    /// Fails if a list is invalid, or there is not exactly one queue sort plugin, or there is no bind plugin.
    fn profile(&self, name: &str) -> Result<Profile> {
        for point in POINTS {
            self.check_list(point)?;
        }
        let mut plugins_by_point = Vec::new();
        for point in POINTS {
            plugins_by_point.push((point, self.expand(point)?));
        }
        let plugin_count = |field: &str| {
            let of_field = plugins_by_point.iter().find(|(point, _)| point.field == field);
            of_field.map_or(0, |(_, plugins)| plugins.len())
        };
        let subject = format!("profile with scheduler name {name:?}");
        match plugin_count("queueSort") {
            1 => {}
            n => bail!("only one queue sort plugin required for {subject}, but got {n}"),
        }
        if plugin_count("bind") == 0 {
            bail!("at least one bind plugin is needed for {subject}");
        }
        let names: Vec<&str> = self.created.keys().copied().collect();
        let plugins = names.iter().map(|name| (Arc::clone(&self.created[name]), self.weight(name)));
        let index = |name: &&str| names.iter().position(|created| created == name);
        let points = plugins_by_point.iter().filter_map(|(point, plugins)| {
            Some((point.point?, plugins.iter().filter_map(index).collect()))
        });
        Ok(Profile::from_parts(name, plugins.collect(), points.collect()))
    }

    /// Returns the plugin's weight from the list `score`, otherwise from `multiPoint`, otherwise 1. The first entry counts.
    fn weight(&self, name: &str) -> i64 {
        let [score, multi_point] =
            ["score", "multiPoint"].map(|point| &self.lists.at_point(point).enabled);
        let configured = score.iter().chain(multi_point).find(|plugin| plugin.name == name);
        configured.map(|plugin| i64::from(plugin.weight)).filter(|weight| *weight != 0).unwrap_or(1)
    }

    /// Returns whether a plugin has been created, which means that the registry knows its name.
    fn exists(&self, name: &str) -> bool {
        self.created.contains_key(name)
    }

    /// Returns whether a plugin implements an extension point.
    fn implements(&self, name: &str, point: Option<ExtensionPoint>) -> bool {
        point
            .zip(self.created.get(name))
            .is_some_and(|(point, plugin)| point.is_implemented_by(&**plugin))
    }

    /// Checks the plugins that an extension point's list enables: they exist, implement it and are not repeated.
    fn check_list(&self, config_point: ConfigPoint) -> Result<()> {
        let plugin_type = config_point.plugin_type();
        let ConfigPoint { field, point } = config_point;
        let enabled = &self.lists.at_point(field).enabled;
        for (n, PluginRef { name, .. }) in enabled.iter().enumerate() {
            if !self.exists(name) {
                bail!("{plugin_type} {name:?} does not exist");
            }
            if !self.implements(name, point) {
                bail!("plugin {name:?} does not extend {plugin_type} plugin");
            }
            if enabled[..n].iter().any(|other| other.name == *name) {
                bail!("plugin {name:?} already registered as {plugin_type:?}");
            }
        }
        Ok(())
    }

    /// Returns the plugins of an extension point in order: first the plugins of `multiPoint` that this point's list
    /// overrides, then the other plugins of `multiPoint`, then the plugins that only the list names.
    ///
    /// Upstream: `expandMultiPointPlugins`.
    fn expand(&self, config_point: ConfigPoint) -> Result<Vec<&str>> {
        let plugin_type = config_point.plugin_type();
        let ConfigPoint { field, point } = config_point;
        let set = self.lists.at_point(field);
        let listed: Vec<&str> = set.enabled.iter().map(|plugin| &*plugin.name).collect();
        let is_disabled = |name: &str| set.disabled.iter().any(|plugin| plugin.name == name);
        let multi_point = &self.lists.at_point("multiPoint").enabled;
        if is_disabled("*") || multi_point.is_empty() {
            return Ok(listed);
        }
        let (mut overridden, mut others) = (Vec::new(), Vec::new());
        for PluginRef { name, .. } in multi_point {
            if !self.exists(name) {
                bail!("{plugin_type} {name:?} does not exist");
            }
            if !self.implements(name, point) || is_disabled(name) {
                continue;
            }
            if listed.contains(&name.as_str()) {
                overridden.push(name.as_str());
            } else if others.contains(&name.as_str()) {
                bail!("plugin {name:?} already registered as {plugin_type:?}");
            } else {
                others.push(name.as_str());
            }
        }
        let (first, last): (Vec<&str>, Vec<&str>) =
            listed.into_iter().partition(|name| overridden.contains(name));
        Ok(first.into_iter().chain(others).chain(last).collect())
    }
}
