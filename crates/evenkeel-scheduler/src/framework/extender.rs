//! Programs beside the scheduler that have a say in it (`k8s.io/kube-scheduler/framework`, `Extender`).

use std::{error::Error, sync::Arc};

use super::Pending;
use crate::pod::PodInfo;
use evenkeel_api::views::Pod;

/// Why an extender did not answer.
pub type ExtenderError = Box<dyn Error + Send + Sync>;

/// What an extender adds to nodes' scores, by name.
pub type ExtenderScores = Vec<(Box<str>, i64)>;

/// Something outside of the scheduler that filters and scores nodes, looks over preemptions, or binds. While it is asked in an
/// attempt no other pod is tried, as upstream has it.
pub trait Extender: std::fmt::Debug + Send + Sync + 'static {
    /// For messages and logs.
    fn name(&self) -> &str;

    /// Whether it has to do with the pod: it manages no resource in particular, or one that the pod asks for.
    fn is_interested(&self, pod: &PodInfo) -> bool;

    /// Whether pods are scheduled without it when it does not answer.
    fn is_ignorable(&self) -> bool {
        false
    }

    /// Whether it filters nodes.
    fn filters(&self) -> bool {
        false
    }

    /// Which of the nodes are good for the pod.
    fn filter<'a>(
        &'a self,
        pod: &'a PodInfo,
        nodes: &'a [Arc<str>],
    ) -> Pending<'a, Result<ExtenderFiltered, ExtenderError>>;

    /// Whether it scores nodes.
    fn prioritizes(&self) -> bool {
        false
    }

    /// What it adds to the plugins' weighted scores, by name of the node: upstream takes scores from 0 to 10, times ten, times
    /// the extender's weight.
    fn prioritize<'a>(
        &'a self,
        pod: &'a PodInfo,
        nodes: &'a [Arc<str>],
    ) -> Pending<'a, Result<ExtenderScores, ExtenderError>>;

    /// Whether it looks over preemptions.
    fn preempts(&self) -> bool {
        false
    }

    /// The nodes among those offered on which the pod would run with these victims (or others on the same node) gone.
    fn preempt<'a>(
        &'a self,
        pod: &'a PodInfo,
        offered: &'a [Victims],
    ) -> Pending<'a, Result<Vec<LeftVictims>, ExtenderError>>;

    /// Whether it binds pods that it is interested in.
    fn binds(&self) -> bool {
        false
    }

    /// Binds the pod.
    fn bind<'a>(
        &'a self,
        pod: &'a PodInfo,
        node: &'a str,
    ) -> Pending<'a, Result<(), ExtenderError>>;
}

/// What an extender made of nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExtenderFiltered {
    /// The good ones.
    pub feasible: Vec<Box<str>>,
    /// Those that are not, and why.
    pub failed: Vec<(Box<str>, String)>,
    /// Those that are not, and would not be with pods removed, and why. Takes precedence over `failed`.
    pub unresolvable: Vec<(Box<str>, String)>,
}

/// Pods that would have to leave a node.
#[derive(Debug, Clone, PartialEq)]
pub struct Victims {
    /// The node.
    pub node: Arc<str>,
    /// The pods, the most important first.
    pub pods: Vec<Arc<Pod>>,
    /// How many of them a PodDisruptionBudget does not let go.
    pub violations: usize,
}

/// What an extender leaves of [`Victims`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftVictims {
    /// The node.
    pub node: Box<str>,
    /// The pods on it that would have to leave, by uid.
    pub pods: Vec<Box<str>>,
    /// How many of them a PodDisruptionBudget does not let go.
    pub violations: usize,
}
