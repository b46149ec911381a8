//! All gates of upstream's kube-controller-manager, recorded from its registry: stage, default and lock by
//! version.

use super::{Version, Versions};
use std::{collections::BTreeMap, sync::LazyLock};

const TABLE: &str = include_str!("../../data/feature-gates.tsv");

/// Maturity of a feature, which decides its default and whether its gate is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Not yet part of the emulated version.
    PreAlpha,
    /// Off by default. May change, or be removed without notice.
    Alpha,
    /// Tested. On by default unless the table has another default.
    Beta,
    /// Generally available. The gate is removed some releases later.
    Stable,
    /// Deprecated. Removed in a later release.
    Deprecated,
}

impl Stage {
    /// Returns the stage's label in metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::PreAlpha => "PRE-ALPHA",
            Self::Alpha => "ALPHA",
            Self::Beta => "BETA",
            Self::Stable => "",
            Self::Deprecated => "DEPRECATED",
        }
    }

    fn read(text: &str) -> Self {
        match text {
            "ALPHA" => Self::Alpha,
            "BETA" => Self::Beta,
            "DEPRECATED" => Self::Deprecated,
            "" => Self::Stable,
            _ => Self::PreAlpha,
        }
    }
}

/// Maturity and default of a gate from one version on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FeatureSpec {
    pub(super) from: Version,
    pub(super) stage: Stage,
    pub(super) default: bool,
    pub(super) locked: bool,
    /// Minimum version of all other components, if the spec needs one.
    pub(super) min_compatibility: Option<Version>,
}

impl FeatureSpec {
    /// Returns the gate's entry in the help text, or `None` if it is not alpha or beta.
    pub(super) fn option(&self, name: &str) -> Option<String> {
        let settable = matches!(self.stage, Stage::Alpha | Stage::Beta);
        settable.then(|| {
            format!("{name}=true|false ({} - default={})", self.stage.label(), self.default)
        })
    }
}

/// A feature gate's stages by version, and its dependencies.
#[derive(Debug, Default)]
pub(super) struct FeatureGate {
    /// Specs by version, oldest first (upstream's `VersionedSpecs`).
    specs: Vec<FeatureSpec>,
    /// Gates that must be on if this gate is on.
    pub(super) dependencies: Vec<&'static str>,
}

impl FeatureGate {
    /// Returns the spec that applies at these versions, or `None` if the gate does not exist yet.
    pub(super) fn at(&self, versions: Versions) -> Option<&FeatureSpec> {
        self.specs.iter().rev().find(|spec| {
            spec.from <= versions.emulated
                && spec
                    .min_compatibility
                    .is_none_or(|min_version| versions.min_compatibility >= min_version)
        })
    }
}

/// All gates by name.
pub(super) static GATES: LazyLock<BTreeMap<&'static str, FeatureGate>> = LazyLock::new(|| {
    let mut gates: BTreeMap<&str, FeatureGate> = BTreeMap::new();
    for line in TABLE.lines().skip(1) {
        let mut cells = line.split('\t');
        let mut next = || cells.next().unwrap_or_default();
        let (name, from, stage, default, locked) = (next(), next(), next(), next(), next());
        let (min_compatibility, dependencies) = (next(), next());
        let gate = gates.entry(name).or_default();
        gate.specs.extend(Version::parse(from).map(|from| FeatureSpec {
            from,
            stage: Stage::read(stage),
            default: default == "true",
            locked: locked == "true",
            min_compatibility: Version::parse(min_compatibility),
        }));
        gate.dependencies = dependencies.split(',').filter(|name| !name.is_empty()).collect();
    }
    gates
});
