//! Scheduler extenders: out-of-process filters, scores, preemption and binding.
//!
//! Upstream: `Extender` in `k8s.io/kube-scheduler/framework`.

use std::{error::Error, sync::Arc};

use super::PluginFuture;
use crate::pod::PodInfo;
use evenkeel_api::views::Pod;

/// Failure of an extender call.
pub type ExtenderError = Box<dyn Error + Send + Sync>;

/// Scores that an extender adds, by node name.
pub type ExtenderScores = Vec<(Box<str>, i64)>;

/// A scheduler extender. As upstream, an attempt waits for its extenders, and no other pod is scheduled meanwhile.
pub trait Extender: std::fmt::Debug + Send + Sync + 'static {
    /// Name for messages and logs.
    fn name(&self) -> &str;

    /// Reports whether the extender handles the pod: it manages no resource in particular, or one that the pod requests.
    fn is_interested(&self, pod: &PodInfo) -> bool;

    /// Reports whether pods are scheduled without the extender while it fails.
    fn is_ignorable(&self) -> bool {
        false
    }

    /// Reports whether the extender filters nodes.
    fn filters(&self) -> bool {
        false
    }

    /// Returns the nodes that suit the pod.
    fn filter<'a>(
        &'a self,
        pod: &'a PodInfo,
        nodes: &'a [Arc<str>],
    ) -> PluginFuture<'a, Result<ExtenderFiltered, ExtenderError>>;

    /// Reports whether the extender scores nodes.
    fn prioritizes(&self) -> bool {
        false
    }

    /// Returns the scores to add to the plugins' weighted scores, by node name. An extender's own 0 to 10 is multiplied by 10
    /// and by its weight.
    fn prioritize<'a>(
        &'a self,
        pod: &'a PodInfo,
        nodes: &'a [Arc<str>],
    ) -> PluginFuture<'a, Result<ExtenderScores, ExtenderError>>;

    /// Reports whether the extender takes part in preemption.
    fn preempts(&self) -> bool {
        false
    }

    /// Returns the candidates that the extender keeps, with the victims that it leaves or adds on each node.
    ///
    /// Upstream: `ProcessPreemption`.
    fn preempt<'a>(
        &'a self,
        pod: &'a PodInfo,
        offered: &'a [Candidate],
    ) -> PluginFuture<'a, Result<Vec<MetaVictims>, ExtenderError>>;

    /// Reports whether the extender binds the pods that it is interested in.
    fn binds(&self) -> bool {
        false
    }

    /// Binds the pod to the node.
    fn bind<'a>(
        &'a self,
        pod: &'a PodInfo,
        node: &'a str,
    ) -> PluginFuture<'a, Result<(), ExtenderError>>;
}

/// Answer of an extender's filter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExtenderFiltered {
    /// Names of the nodes that suit the pod.
    pub feasible: Vec<Box<str>>,
    /// Names of other nodes, each with a reason.
    pub failed: Vec<(Box<str>, String)>,
    /// Names of nodes that preemption cannot help, each with a reason. Takes precedence over `failed`.
    pub unresolvable: Vec<(Box<str>, String)>,
}

/// A node with the victims whose eviction would make the pod fit there.
///
/// Upstream: `Candidate`, `Victims`.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// Name of the node.
    pub node: Arc<str>,
    /// The victims, most important first.
    pub pods: Vec<Arc<Pod>>,
    /// Number of victims whose eviction violates a PodDisruptionBudget.
    pub num_pdb_violations: usize,
}

/// A [`Candidate`] as an extender returns it.
///
/// Upstream: `MetaVictims`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetaVictims {
    /// Name of the node.
    pub node: Box<str>,
    /// Uids of the victims.
    pub pods: Vec<Box<str>>,
    /// Number of victims whose eviction violates a PodDisruptionBudget.
    pub num_pdb_violations: usize,
}
