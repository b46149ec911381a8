//! Arguments of the plugin: the constraints of pods that define none.

use evenkeel_component_helpers::scheduling::corev1::TolerationOperators;
use std::sync::LazyLock;

/// Arguments of [`PodTopologySpread`](super::PodTopologySpread).
///
/// Upstream: `PodTopologySpreadArgs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Args {
    /// Constraints of a pod whose spec has no `topologySpreadConstraints`. Must be empty with
    /// [`DefaultingType::System`].
    pub default_constraints: Vec<DefaultConstraint>,
    /// Source of the constraints of such a pod. Default: `System`.
    pub defaulting_type: DefaultingType,
    /// Feature gate `MatchLabelKeysInPodTopologySpread`. With it, `matchLabelKeys` of a constraint restricts its
    /// selector to pods with the incoming pod's values of these labels. Default: true.
    pub match_label_keys: bool,
    /// Operators of tolerations that match taints, where `nodeTaintsPolicy` is `Honor`. Default: without comparison of numbers.
    pub toleration_operators: TolerationOperators,
}

impl Default for Args {
    fn default() -> Self {
        Self {
            default_constraints: Vec::new(),
            defaulting_type: DefaultingType::default(),
            match_label_keys: true,
            toleration_operators: TolerationOperators::default(),
        }
    }
}

/// Source of the constraints of a pod that defines none.
///
/// Upstream: `PodTopologySpreadConstraintsDefaulting`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DefaultingType {
    /// Kubernetes' own constraints (`SYSTEM_DEFAULT_CONSTRAINTS`), which spread pods over nodes and zones if possible.
    #[default]
    System,
    /// The configuration's [`Args::default_constraints`].
    List,
}

/// Constraint of a pod that defines none. Its selector combines those of the pod's Services and of its
/// ReplicationController, ReplicaSet or StatefulSet. It does not apply to a pod without any of these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefaultConstraint {
    /// Maximum difference between the number of matching pods in a domain and the lowest number in any domain. At least
    /// 1.
    pub max_skew: i32,
    /// Key of a node label. Nodes with equal values of the label are one topology domain.
    pub topology_key: Box<str>,
    /// Whether the constraint filters nodes or only scores them.
    pub when_unsatisfiable: WhenUnsatisfiable,
}

/// Effect of the constraint on a node where the pod would violate it (`whenUnsatisfiable`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenUnsatisfiable {
    /// The plugin filters out the node.
    DoNotSchedule,
    /// The node stays feasible and gets a lower score.
    ScheduleAnyway,
}

impl WhenUnsatisfiable {
    /// Returns the value of the API field.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DoNotSchedule => "DoNotSchedule",
            Self::ScheduleAnyway => "ScheduleAnyway",
        }
    }
}

/// Constraints of [`DefaultingType::System`]. They affect only scores.
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
    pub(super) fn effective_defaults(&self) -> &[DefaultConstraint] {
        match self.defaulting_type {
            DefaultingType::System => &*SYSTEM_DEFAULT_CONSTRAINTS,
            DefaultingType::List => &self.default_constraints,
        }
    }
}
