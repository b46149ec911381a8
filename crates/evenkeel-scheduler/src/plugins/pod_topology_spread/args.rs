//! Arguments of the plugin: which constraints apply to pods that define none.

use std::sync::LazyLock;

/// Arguments of [`PodTopologySpread`](super::PodTopologySpread).
///
/// Upstream: `PodTopologySpreadArgs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Args {
    /// Constraints of a pod whose spec has no `topologySpreadConstraints`; must be empty with [`DefaultingType::System`].
    pub default_constraints: Vec<DefaultConstraint>,
    /// Where the constraints of such a pod come from; `System` by default.
    pub defaulting_type: DefaultingType,
    /// Whether `matchLabelKeys` of a constraint narrows its selector to pods with the incoming pod's values of these labels
    /// (feature gate `MatchLabelKeysInPodTopologySpread`); true by default.
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

/// Where the constraints of a pod come from that defines none.
///
/// Upstream: `PodTopologySpreadConstraintsDefaulting`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DefaultingType {
    /// Kubernetes' own (`SYSTEM_DEFAULT_CONSTRAINTS`): pods spread over nodes and zones where possible.
    #[default]
    System,
    /// The configuration's [`Args::default_constraints`].
    List,
}

/// Constraint of pods that define none. Its selector is that of the pod's Services and of its ReplicationController, ReplicaSet
/// or StatefulSet; it does not apply to a pod without any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefaultConstraint {
    /// Greatest difference between the number of matching pods in a topology domain and the least number in any domain;
    /// at least 1.
    pub max_skew: i32,
    /// Key of a node label. Nodes with equal values of the label are one topology domain.
    pub topology_key: Box<str>,
    /// Whether the constraint excludes nodes or ranks them.
    pub when_unsatisfiable: WhenUnsatisfiable,
}

/// What happens to a node on which the pod would violate the constraint (`whenUnsatisfiable`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenUnsatisfiable {
    /// The node is filtered out.
    DoNotSchedule,
    /// The node stays feasible and gets a lower score.
    ScheduleAnyway,
}

impl WhenUnsatisfiable {
    /// Returns the value in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DoNotSchedule => "DoNotSchedule",
            Self::ScheduleAnyway => "ScheduleAnyway",
        }
    }
}

/// Constraints that [`DefaultingType::System`] applies: they rank nodes and exclude none.
///
/// Upstream: `systemDefaultConstraints`.
static SYSTEM_DEFAULT_CONSTRAINTS: LazyLock<[DefaultConstraint; 2]> = LazyLock::new(|| {
    let soft = |max_skew, key: &str| DefaultConstraint {
        max_skew,
        topology_key: key.into(),
        when_unsatisfiable: WhenUnsatisfiable::ScheduleAnyway,
    };
    [soft(3, "kubernetes.io/hostname"), soft(5, "topology.kubernetes.io/zone")]
});

impl Args {
    /// Returns the constraints of a pod that defines none.
    pub(super) fn constraints(&self) -> &[DefaultConstraint] {
        match self.defaulting_type {
            DefaultingType::System => &*SYSTEM_DEFAULT_CONSTRAINTS,
            DefaultingType::List => &self.default_constraints,
        }
    }
}
