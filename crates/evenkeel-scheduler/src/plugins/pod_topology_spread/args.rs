//! Arguments of the plugin.

use std::sync::LazyLock;

/// Arguments of [`PodTopologySpread`](super::PodTopologySpread).
///
/// Upstream: `PodTopologySpreadArgs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Args {
    /// Constraints for pods without their own; only with [`DefaultingType::List`].
    pub default_constraints: Vec<DefaultConstraint>,
    /// Source of the default constraints.
    pub defaulting_type: DefaultingType,
    /// Whether constraints apply their `matchLabelKeys`.
    pub match_label_keys: bool,
}

impl Default for Args {
    fn default() -> Self {
        Self {
            default_constraints: Vec::new(),
            defaulting_type: DefaultingType::default(),
            match_label_keys: true,
        }
    }
}

/// Source of the default constraints.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DefaultingType {
    /// Kubernetes' defaults: soft constraints over hosts and zones.
    #[default]
    System,
    /// `defaultConstraints` of the arguments.
    List,
}

/// A default constraint; its selector comes from the pod's Services and owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefaultConstraint {
    /// Maximum skew, at least 1.
    pub max_skew: i32,
    /// Node label whose values are the topology domains.
    pub topology_key: Box<str>,
    /// Requirement or preference.
    pub when_unsatisfiable: WhenUnsatisfiable,
}

/// Value of `whenUnsatisfiable`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenUnsatisfiable {
    /// `DoNotSchedule`.
    DoNotSchedule,
    /// `ScheduleAnyway`.
    ScheduleAnyway,
}

impl WhenUnsatisfiable {
    /// Returns the value as the API spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DoNotSchedule => "DoNotSchedule",
            Self::ScheduleAnyway => "ScheduleAnyway",
        }
    }
}

static SYSTEM: LazyLock<[DefaultConstraint; 2]> = LazyLock::new(|| {
    let wish = |max_skew, key: &str| DefaultConstraint {
        max_skew,
        topology_key: key.into(),
        when_unsatisfiable: WhenUnsatisfiable::ScheduleAnyway,
    };
    [wish(3, "kubernetes.io/hostname"), wish(5, "topology.kubernetes.io/zone")]
});

impl Args {
    pub(super) fn constraints(&self) -> &[DefaultConstraint] {
        match self.defaulting_type {
            DefaultingType::System => &*SYSTEM,
            DefaultingType::List => &self.default_constraints,
        }
    }
}
