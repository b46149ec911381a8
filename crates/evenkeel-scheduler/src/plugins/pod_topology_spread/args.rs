//! Arguments: what pods without constraints of their own get.

use std::sync::LazyLock;

/// Arguments of [`PodTopologySpread`](super::PodTopologySpread).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Args {
    /// For pods without constraints of their own; only with [`DefaultingType::List`].
    pub default_constraints: Vec<DefaultConstraint>,
    /// Where default constraints come from.
    pub defaulting_type: DefaultingType,
    /// Whether constraints' `matchLabelKeys` count.
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

/// Where default constraints come from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DefaultingType {
    /// Kubernetes' own: rather even over hosts and zones.
    #[default]
    System,
    /// The arguments.
    List,
}

/// A constraint for pods that have none; which pods count follows from the pod's Services and owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefaultConstraint {
    /// Difference allowed.
    pub max_skew: i32,
    /// Node label whose value is the topology.
    pub topology_key: Box<str>,
    /// Rule or wish.
    pub when_unsatisfiable: WhenUnsatisfiable,
}

/// Rule or wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenUnsatisfiable {
    /// A rule.
    DoNotSchedule,
    /// A wish.
    ScheduleAnyway,
}

impl WhenUnsatisfiable {
    /// As the API writes it.
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
