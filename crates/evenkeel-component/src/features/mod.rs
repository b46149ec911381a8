//! Feature gates and the versions that they depend on: `--feature-gates`, `--emulated-version` and
//! `--min-compatibility-version` (KEP-4330), validated with upstream's messages.

mod effects;
mod generic;
mod resolve;
mod table;
mod version;

pub use effects::Program;
pub use resolve::Resolved;
pub use table::Stage;
pub use version::{BINARY, Version, Versions};

use prometheus::{Opts, Registry};
use std::collections::{BTreeMap, BTreeSet};
use table::{FeatureSpec, GATES};

/// Enabled features of a program, shared as an `Arc`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FeatureGates {
    versions: Versions,
    /// Gates set on the command line, with `AllAlpha` and `AllBeta` expanded.
    set: BTreeMap<&'static str, bool>,
    /// Those of them that were set by their own name.
    by_name: BTreeSet<&'static str>,
}

impl FeatureGates {
    /// Returns whether a feature is on. An unknown feature is off.
    pub fn enabled(&self, gate: &str) -> bool {
        match self.set.get(gate) {
            Some(on) => *on,
            None => self.spec(gate).is_some_and(|spec| spec.default),
        }
    }

    /// Returns the versions that determine which features exist.
    pub fn versions(&self) -> Versions {
        self.versions
    }

    /// Returns all gates: name, stage, and whether the gate is on.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, Stage, bool)> + '_ {
        GATES.iter().map(|(name, gate)| {
            (
                *name,
                gate.at(self.versions).map_or(Stage::PreAlpha, |spec| spec.stage),
                self.enabled(name),
            )
        })
    }

    /// Registers `kubernetes_feature_enabled`, with a series for each gate.
    ///
    /// # Errors
    /// Fails if the registry already has the metric.
    pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        let help = "This metric records the data about the stage and enablement of a k8s feature.";
        let gauge = prometheus::GaugeVec::new(
            Opts::new("kubernetes_feature_enabled", help),
            &["name", "stage"],
        )?;
        for (name, stage, on) in self.iter() {
            gauge.with_label_values(&[name, stage.label()]).set(f64::from(u8::from(on)));
        }
        registry.register(Box::new(gauge))
    }

    fn spec(&self, gate: &str) -> Option<&'static FeatureSpec> {
        GATES.get(gate)?.at(self.versions)
    }
}

/// Returns the help text of `--feature-gates`: the gates that can be set.
pub fn options() -> String {
    let versions = Versions::default();
    // Some gates change when no older component has to be supported.
    let newest = Versions { min_compatibility: versions.emulated, ..versions };
    let mut lines = Vec::new();
    for (name, gate) in GATES.iter() {
        let (default_spec, newest_spec) = (gate.at(versions), gate.at(newest));
        let mut alternatives = Vec::new();
        alternatives.extend(default_spec.and_then(|spec| spec.option(name)));
        if newest_spec != default_spec
            && let Some(spec) = newest_spec
            && let Some(min_version) = spec.min_compatibility
            && let Some(option) = spec.option(name)
        {
            alternatives.push(format!("{option} if --min-compatibility-version>={min_version}"));
        }
        if !alternatives.is_empty() {
            lines.push(format!("kube:{}", alternatives.join(", or ")));
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests;
