//! Scheduler extenders: filtering, scoring, preemption and binding outside the scheduler's process.
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

/// A scheduler extender. An attempt waits for its responses, and no other attempt runs in the meantime.
pub trait Extender: std::fmt::Debug + Send + Sync + 'static {
    /// Returns the name for messages and logs.
    fn name(&self) -> &str;

    /// Returns whether the extender handles the pod: either it manages no particular resources, or the pod requests one
    /// of them.
    fn is_interested(&self, pod: &PodInfo) -> bool;

    /// Returns whether scheduling continues without the extender while it fails.
    fn is_ignorable(&self) -> bool {
        false
    }

    /// Returns whether the extender filters nodes.
    fn is_filter(&self) -> bool {
        false
    }

    /// Returns the nodes on which the pod can run.
    fn filter<'a>(
        &'a self,
        pod: &'a PodInfo,
        nodes: &'a [Arc<str>],
    ) -> PluginFuture<'a, Result<ExtenderFiltered, ExtenderError>>;

    /// Returns whether the extender scores nodes.
    fn is_prioritizer(&self) -> bool {
        false
    }

    /// Returns the scores to add to the plugins' weighted scores, each with its node name. The implementation
    /// multiplies the extender's own scores of 0 to 10 by 10 and by its weight.
    fn prioritize<'a>(
        &'a self,
        pod: &'a PodInfo,
        nodes: &'a [Arc<str>],
    ) -> PluginFuture<'a, Result<ExtenderScores, ExtenderError>>;

    /// Returns whether the extender has a preempt verb.
    ///
    /// Upstream: `SupportsPreemption`.
    fn supports_preemption(&self) -> bool {
        false
    }

    /// Returns the candidates that the extender accepts. It may remove victims from a node or add some.
    ///
    /// Upstream: `ProcessPreemption`.
    fn process_preemption<'a>(
        &'a self,
        pod: &'a PodInfo,
        candidates: &'a [Candidate],
    ) -> PluginFuture<'a, Result<Vec<MetaVictims>, ExtenderError>>;

    /// Returns whether the extender binds the pods that it is interested in.
    fn is_binder(&self) -> bool {
        false
    }

    /// Binds the pod to the node.
    fn bind<'a>(
        &'a self,
        pod: &'a PodInfo,
        node: &'a str,
    ) -> PluginFuture<'a, Result<(), ExtenderError>>;
}

/// Result of an extender's filter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExtenderFiltered {
    /// Names of the nodes on which the pod can run.
    pub feasible: Vec<Box<str>>,
    /// Names of rejected nodes, each with its reason.
    pub failed: Vec<(Box<str>, String)>,
    /// Names of rejected nodes where preemption cannot help, each with its reason. They take precedence over `failed`.
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

/// A [`Candidate`] in an extender's response.
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
