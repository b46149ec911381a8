//! Profiles out of their configuration: which plugin takes part where, as upstream's framework expands it
//! (`pkg/scheduler/framework/runtime/framework.go`), and its errors in upstream's words.

use super::{
    config::{Configuration, PluginRef, Plugins, ProfileConfig},
    registry::{Making, Registry},
};
use crate::framework::{Plugin, Point, Profile};
use anyhow::{Context as _, Result, anyhow, bail};
use evenkeel_component::features::FeatureGates;
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc};

/// An extension point: its name in the configuration, upstream's type, and what it is here. In the order in which upstream looks at
/// them.
const POINTS: [(&str, &str, Option<Point>); 15] = [
    ("preFilter", "PreFilterPlugin", Some(Point::PreFilter)),
    ("filter", "FilterPlugin", Some(Point::Filter)),
    ("postFilter", "PostFilterPlugin", Some(Point::PostFilter)),
    ("reserve", "ReservePlugin", Some(Point::Reserve)),
    ("preScore", "PreScorePlugin", Some(Point::PreScore)),
    ("score", "ScorePlugin", Some(Point::Score)),
    ("preBind", "PreBindPlugin", Some(Point::PreBind)),
    ("bind", "BindPlugin", Some(Point::Bind)),
    ("postBind", "PostBindPlugin", Some(Point::PostBind)),
    ("permit", "PermitPlugin", Some(Point::Permit)),
    ("preEnqueue", "PreEnqueuePlugin", Some(Point::PreEnqueue)),
    ("queueSort", "QueueSortPlugin", Some(Point::QueueSort)),
    ("placementGenerate", "PlacementGeneratePlugin", None),
    ("placementScore", "PlacementScorePlugin", None),
    ("podGroupPostFilter", "PodGroupPostFilterPlugin", None),
];

/// The profiles of a checked configuration.
///
/// # Errors
/// When a plugin is not known, cannot be made, or is asked for where it does not take part.
pub(super) fn build(
    config: &Configuration,
    registry: &Registry,
    gates: &FeatureGates,
) -> Result<Vec<Profile>> {
    let share = config.percentage_of_nodes_to_score.unwrap_or_default();
    let profile = |own: &ProfileConfig| {
        let name = own.scheduler_name.as_deref().unwrap_or_default();
        let share = own.percentage_of_nodes_to_score.unwrap_or(share);
        let profile = Building::new(own, registry, gates)
            .and_then(|building| building.profile(name))
            .with_context(|| format!("creating profile for scheduler name {name}"))?;
        Ok(profile.percentage_of_nodes_to_score(u32::try_from(share).unwrap_or_default()))
    };
    config.profiles.iter().map(profile).collect::<Result<_>>().context("initializing profiles")
}

/// A profile's plugins, made.
struct Building<'a> {
    lists: &'a Plugins,
    made: BTreeMap<&'a str, Arc<dyn Plugin>>,
}

impl<'a> Building<'a> {
    fn new(own: &'a ProfileConfig, registry: &Registry, gates: &FeatureGates) -> Result<Self> {
        let lists = own.plugins.as_ref().context("plugins required")?;
        let mut made = BTreeMap::new();
        for name in lists.0.values().flat_map(|set| &set.enabled).map(|plugin| &*plugin.name) {
            if made.contains_key(name) {
                continue;
            }
            let config = own.plugin_config.iter().find(|config| config.name == name);
            let args = config.map_or(&Value::Null, |config| &config.args);
            // One that is not known is told of with the extension point that it was asked for at.
            let Some(plugin) = registry.make(name, &Making { args, gates }) else { continue };
            let plugin = plugin.map_err(|error| anyhow!(error));
            made.insert(name, plugin.with_context(|| format!("initializing plugin {name:?}"))?);
        }
        Ok(Self { lists, made })
    }

    fn profile(&self, name: &str) -> Result<Profile> {
        for point in POINTS {
            self.check_list(point)?;
        }
        let mut expanded = Vec::new();
        for (field, kind, point) in POINTS {
            expanded.push((field, point, self.expand(field, kind, point)?));
        }
        let at = |wanted: &str| {
            let found = expanded.iter().find(|(field, ..)| *field == wanted);
            found.map_or(0, |(_, _, list)| list.len())
        };
        let of = format!("profile with scheduler name {name:?}");
        match at("queueSort") {
            1 => {}
            n => bail!("only one queue sort plugin required for {of}, but got {n}"),
        }
        if at("bind") == 0 {
            bail!("at least one bind plugin is needed for {of}");
        }
        let order: Vec<&str> = self.made.keys().copied().collect();
        let plugins = order.iter().map(|name| (Arc::clone(&self.made[name]), self.weight(name)));
        let index = |name: &&str| order.iter().position(|known| known == name);
        let points = expanded.iter().filter_map(|(_, point, list)| {
            Some(((*point)?, list.iter().filter_map(index).collect()))
        });
        Ok(Profile::assembled(name, plugins.collect(), points.collect()))
    }

    /// Of its own list for scores, or else of the list for all points; one where neither says.
    fn weight(&self, name: &str) -> i64 {
        let [score, all] = ["score", "multiPoint"].map(|point| &self.lists.of(point).enabled);
        let said = score.iter().chain(all).find(|plugin| plugin.name == name);
        said.map(|plugin| i64::from(plugin.weight)).filter(|weight| *weight != 0).unwrap_or(1)
    }

    fn exists(&self, name: &str) -> bool {
        self.made.contains_key(name)
    }

    /// Whether a plugin is of an extension point's kind.
    fn takes_part(&self, name: &str, point: Option<Point>) -> bool {
        point.zip(self.made.get(name)).is_some_and(|(point, plugin)| point.has(&**plugin))
    }

    fn check_list(&self, (field, kind, point): (&str, &str, Option<Point>)) -> Result<()> {
        let enabled = &self.lists.of(field).enabled;
        for (n, PluginRef { name, .. }) in enabled.iter().enumerate() {
            if !self.exists(name) {
                bail!("{kind} {name:?} does not exist");
            }
            if !self.takes_part(name, point) {
                bail!("plugin {name:?} does not extend {kind} plugin");
            }
            if enabled[..n].iter().any(|other| other.name == *name) {
                bail!("plugin {name:?} already registered as {kind:?}");
            }
        }
        Ok(())
    }

    /// The plugins of one extension point, in order: those of the list for all points that have a place of their own here, in
    /// the order of that place; the others of that list; what else is named here.
    fn expand(&self, field: &str, kind: &str, point: Option<Point>) -> Result<Vec<&str>> {
        let own = self.lists.of(field);
        let named: Vec<&str> = own.enabled.iter().map(|plugin| &*plugin.name).collect();
        let off = |name: &str| own.disabled.iter().any(|plugin| plugin.name == name);
        let all = &self.lists.of("multiPoint").enabled;
        if off("*") || all.is_empty() {
            return Ok(named);
        }
        let (mut overridden, mut expanded) = (Vec::new(), Vec::new());
        for PluginRef { name, .. } in all {
            if !self.exists(name) {
                bail!("{kind} {name:?} does not exist");
            }
            if !self.takes_part(name, point) || off(name) {
                continue;
            }
            if named.contains(&name.as_str()) {
                overridden.push(name.as_str());
            } else if expanded.contains(&name.as_str()) {
                bail!("plugin {name:?} already registered as {kind:?}");
            } else {
                expanded.push(name.as_str());
            }
        }
        let (first, last): (Vec<&str>, Vec<&str>) =
            named.into_iter().partition(|name| overridden.contains(name));
        Ok(first.into_iter().chain(expanded).chain(last).collect())
    }
}
