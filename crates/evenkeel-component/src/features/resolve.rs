//! Resolution of `--feature-gates` and the emulated version.

use super::{
    FeatureGates, Stage, Versions,
    generic::is_generic,
    table::{FeatureGate, GATES},
};
use crate::flags::Reader;
use std::{collections::BTreeMap, sync::Arc};

/// Resolved feature gates, with errors and warnings.
#[derive(Debug, Clone, Default)]
pub struct Resolved {
    /// Feature gates with the requested values and defaults.
    pub gates: FeatureGates,
    /// Invalid settings, in upstream's words.
    pub errors: Vec<String>,
    /// Warnings about valid but discouraged settings.
    pub warnings: Vec<String>,
}

impl Resolved {
    /// Records the errors in the flag reader `read`, and returns the gates and the warnings.
    pub fn record_errors(self, read: &Reader) -> (Arc<FeatureGates>, Vec<String>) {
        for error in &self.errors {
            read.record_invalid(error, error.clone());
        }
        (Arc::new(self.gates), self.warnings)
    }
}

impl FeatureGates {
    /// Resolves `--emulated-version`, `--min-compatibility-version` and `--feature-gates` (pairs of component and
    /// `Gate=true`, in order).
    pub fn resolve(
        emulated: &[String],
        min_compatibility: &[String],
        gates: &[(String, String)],
    ) -> Resolved {
        let mut resolved = Resolved::default();
        match Versions::read(emulated, min_compatibility) {
            Ok(versions) => resolved.gates.versions = versions,
            Err(error) => {
                resolved.errors.push(error);
                return resolved;
            }
        }
        resolved.errors = resolved.gates.versions.errors();
        match parse_settings(gates) {
            Ok(requested) => resolved.set(&requested, |_| true),
            Err(error) => resolved.errors.push(error),
        }
        resolved
    }

    /// Like [`resolve`](Self::resolve), for a program on the generic server library. `AllAlpha` and `AllBeta`
    /// only affect the gates of such a program. Other gates can be set by name.
    pub fn resolve_generic(gates: &[(String, String)]) -> Resolved {
        let mut resolved = Resolved::default();
        match parse_settings(gates) {
            Ok(requested) => resolved.set(&requested, is_generic),
            Err(error) => resolved.errors.push(error),
        }
        resolved
    }
}

/// Returns the requested values of this component's feature gates.
fn parse_settings(settings: &[(String, String)]) -> Result<BTreeMap<&str, bool>, String> {
    let has_prefix = |prefix: &str| settings.iter().any(|(component, _)| component == prefix);
    if has_prefix("") && has_prefix("kube") {
        let rule = "set kube feature gates with default empty prefix or kube: prefix consistently, do not mix use";
        return Err(rule.to_owned());
    }
    let mut requested = BTreeMap::new();
    for (component, pair) in settings {
        if !matches!(component.as_str(), "" | "kube") {
            return Err(format!("component not registered: {component}"));
        }
        if pair.is_empty() {
            continue;
        }
        let Some((gate, value)) = pair.split_once('=') else {
            return Err(format!("missing bool value for {}", pair.trim()));
        };
        let (gate, value) = (gate.trim(), value.trim());
        let on = match value {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => true,
            "0" | "f" | "F" | "false" | "FALSE" | "False" => false,
            _ => {
                let reason = format!("strconv.ParseBool: parsing {value:?}: invalid syntax");
                return Err(format!("invalid value of {gate}={value}, err: {reason}"));
            }
        };
        requested.insert(gate, on);
    }
    Ok(requested)
}

impl Resolved {
    /// Sets the requested values. `AllAlpha` and `AllBeta` affect only the gates for which `in_group` is true.
    ///
    /// Upstream: `unsafeSetFromMap` in `component-base/featuregate`.
    fn set(&mut self, requested: &BTreeMap<&str, bool>, in_group: fn(&str) -> bool) {
        let errors_before = self.errors.len();
        for (requested_name, on) in requested {
            let Some((name, gate)) = GATES.get_key_value(*requested_name) else {
                self.errors.push(format!("unrecognized feature gate: {requested_name}"));
                return;
            };
            match *name {
                "AllAlpha" => self.set_all(Stage::Alpha, *on, requested, in_group),
                "AllBeta" => self.set_all(Stage::Beta, *on, requested, in_group),
                _ => self.set_one(name, gate, *on),
            }
            if matches!(*name, "AllAlpha" | "AllBeta") {
                self.gates.set.insert(name, *on);
            }
        }
        if self.errors.len() == errors_before {
            self.check_dependencies();
        }
    }

    fn set_one(&mut self, name: &'static str, gate: &FeatureGate, on: bool) {
        let Versions { emulated, min_compatibility } = self.gates.versions;
        let cannot = format!("cannot set feature gate {name} to {on}, feature is");
        let Some(spec) = gate.at(self.gates.versions) else {
            self.errors.push(format!(
                "{cannot} PreAlpha at emulated version {emulated}, min compatibility version {min_compatibility}"
            ));
            return;
        };
        if spec.locked && spec.default != on {
            self.errors.push(format!("{cannot} locked to {}", spec.default));
            return;
        }
        self.gates.set.insert(name, on);
        self.gates.by_name.insert(name);
        let kind = match spec.stage {
            Stage::Deprecated => "deprecated",
            Stage::Stable => "GA",
            Stage::PreAlpha | Stage::Alpha | Stage::Beta => {
                return self.warn_of_emulated(name, spec.stage, on);
            }
        };
        self.warnings.push(format!(
            "setting {kind} feature gate {name}={on}. It will be removed in a future release."
        ));
    }

    /// Warns if an alpha feature is on in an older, emulated version, which is unsupported.
    fn warn_of_emulated(&mut self, name: &str, stage: Stage, on: bool) {
        if on && stage == Stage::Alpha && self.gates.versions.emulated < super::version::BINARY {
            self.warnings.push(format!(
                "the alpha feature {name} is on in an emulated version, which is unsupported"
            ));
        }
    }

    /// Sets all gates of a stage, except for those that `requested` sets by name.
    fn set_all(
        &mut self,
        stage: Stage,
        on: bool,
        requested: &BTreeMap<&str, bool>,
        in_group: fn(&str) -> bool,
    ) {
        for (name, gate) in GATES.iter().filter(|(name, _)| in_group(name)) {
            let is_of_stage = gate.at(self.gates.versions).is_some_and(|spec| spec.stage == stage);
            if is_of_stage && !requested.contains_key(name) {
                self.gates.set.insert(name, on);
            }
        }
    }

    fn check_dependencies(&mut self) {
        for (name, gate) in GATES.iter().filter(|(name, _)| self.gates.enabled(name)) {
            let disabled: Vec<&str> = gate
                .dependencies
                .iter()
                .copied()
                .filter(|dependency| !self.gates.enabled(dependency))
                .collect();
            if !disabled.is_empty() {
                self.errors.push(format!(
                    "{name} is enabled, but depends on features that are disabled: [{}]",
                    disabled.join(" ")
                ));
            }
        }
    }
}
