//! DefaultPreemption: where no node has room, pods of lower priority make it.
//!
//! Whom to evict is decided by `plan`, which is pure; the evicting goes on beside other attempts (`execute`), and holds the pod
//! back meanwhile. Upstream: `plugins/defaultpreemption`, `framework/preemption`.

mod execute;
mod plan;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};

use crate::{
    framework::{
        ActionType, Candidate, Change, ClusterEvent, CycleState, EventResource, Handle,
        MetaVictims, Plugin, PluginFuture, PostFilter, PostFilterResult, PreEnqueue, Preview,
        QueueingHint, Status, StatusResult,
    },
    nodes::NodeRef,
    pod::PodInfo,
    schedule::{Cycle, Unfit},
};
use execute::Executor;

const NAME: &str = "DefaultPreemption";

/// What can be set about [`DefaultPreemption`]; upstream's `DefaultPreemptionArgs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Args {
    /// So many of a hundred nodes are looked at, or more.
    pub min_candidate_nodes_percentage: usize,
    /// So many nodes are looked at, or more.
    pub min_candidate_nodes_absolute: usize,
}

impl Default for Args {
    fn default() -> Self {
        Self { min_candidate_nodes_percentage: 10, min_candidate_nodes_absolute: 100 }
    }
}

/// Evicts pods of lower priority.
#[derive(Default)]
pub struct DefaultPreemption {
    args: Args,
    executor: OnceLock<Arc<Executor>>,
}

impl DefaultPreemption {
    /// With settings of its own.
    pub fn new(args: Args) -> Self {
        Self { args, executor: OnceLock::new() }
    }

    /// Whom to evict from where, before extenders are asked; where there is nobody, what is said of that.
    fn candidates(
        &self,
        cycle: &mut Cycle<'_>,
        state: &CycleState,
        unfit: &Unfit,
    ) -> Result<Vec<Candidate>, PostFilterResult> {
        if let Some(why) = plan::ineligible(cycle, unfit) {
            return Err(said(None, why));
        }
        let executor = self.executor.get();
        let budgets = executor.map(|executor| executor.budgets()).unwrap_or_default();
        let candidates = plan::candidates(cycle, state, unfit, &budgets, &self.args);
        candidates.map_err(|helpless| said(Some("".into()), &helpless.to_string()))
    }

    async fn preempt(
        &self,
        cycle: &mut Cycle<'_>,
        state: &CycleState,
        unfit: &Unfit,
    ) -> PostFilterResult {
        let candidates = match self.candidates(cycle, state, unfit) {
            Ok(candidates) => candidates,
            Err(none) => return none,
        };
        let candidates = match extended(cycle, candidates).await {
            Ok(candidates) => candidates,
            Err(error) => return PostFilterResult { done: true, ..said(None, &error) },
        };
        let Some(chosen) = plan::choose(candidates) else {
            return said(None, "no candidate node for preemption");
        };
        let (message, nominated) = (found(&chosen), Some(Arc::clone(&chosen.node)));
        if let Some(executor) = self.executor.get() {
            let pod = cycle.pod();
            let promised = cycle.nominator().nominated_pods_for_node(&chosen.node).iter();
            let lower = promised.filter(|other| other.priority() < pod.priority());
            let lower = lower.map(|other| Arc::clone(&other.pod)).collect();
            executor.start(pod, chosen, lower);
        }
        said(nominated, &message)
    }
}

/// What comes of it; a nominated node that is not empty ends the search.
fn said(nominated: Option<Arc<str>>, message: &str) -> PostFilterResult {
    PostFilterResult {
        done: nominated.as_ref().is_some_and(|node| !node.is_empty()),
        nominated,
        message: format!("preemption: {message}"),
    }
}

fn found(Candidate { node, pods, .. }: &Candidate) -> String {
    let n_victims = pods.len();
    format!("found a potential placement for pod on node {node}, preempting {n_victims} victims")
}

/// What extenders leave of the candidates.
async fn extended(
    cycle: &Cycle<'_>,
    mut candidates: Vec<Candidate>,
) -> Result<Vec<Candidate>, String> {
    for extender in cycle.extenders() {
        if !extender.preempts() || !extender.is_interested(cycle.pod()) || candidates.is_empty() {
            continue;
        }
        let answer = extender.preempt(cycle.pod(), &candidates).await;
        let answer = answer.map_err(|error| error.to_string()).and_then(|left| {
            left.iter().map(|left| victims(cycle, extender.name(), left)).collect()
        });
        let left: Vec<Candidate> = match answer {
            Ok(left) => left,
            Err(error) if extender.is_ignorable() => {
                tracing::info!(extender = extender.name(), error, "Extender left out");
                continue;
            }
            Err(error) => return Err(error),
        };
        candidates = left;
        if extender.is_ignorable() {
            candidates.retain(|left| !left.pods.is_empty());
        } else if let Some(none) = candidates.iter().find(|left| left.pods.is_empty()) {
            let node = &none.node;
            return Err(format!("expected at least one victim pod on node \"{node}\""));
        }
    }
    Ok(candidates)
}

/// The victims that an extender names.
///
/// # Errors
/// Says which node or pod is not there: the extender knows of others than the scheduler.
fn victims(cycle: &Cycle<'_>, extender: &str, left: &MetaVictims) -> Result<Candidate, String> {
    let name = &left.node;
    let node = cycle.nodes().get(name);
    let node = node.ok_or_else(|| format!("nodeinfo not found for node name \"{name}\""))?;
    let on_node = |uid: &str| {
        let found = NodeRef::pods(node).iter().find(|pod| pod.uid() == uid);
        found.map(|pod| Arc::clone(&pod.pod)).ok_or_else(|| {
            format!(
                "extender: {extender} claims to preempt pod (UID: &{{{uid}}}) on node: {name}, but the pod is not found on that node"
            )
        })
    };
    let pods = left.pods.iter().map(|uid| on_node(uid)).collect::<Result<_, _>>()?;
    Ok(Candidate {
        node: Arc::clone(node.name()),
        pods,
        num_pdb_violations: left.num_pdb_violations,
    })
}

impl Plugin for DefaultPreemption {
    fn name(&self) -> &'static str {
        NAME
    }

    fn connect(&self, handle: &Handle) {
        self.executor.get_or_init(|| Arc::new(Executor::new(handle)));
    }

    fn events_to_register(&self) -> Vec<ClusterEvent> {
        vec![ClusterEvent::new(EventResource::AssignedPod, &[ActionType::Delete])]
    }

    /// Those who also rejected the pod say whether it is worth another try.
    fn queueing_hint(&self, _: &PodInfo, _: &Change) -> QueueingHint {
        QueueingHint::Skip
    }

    fn as_pre_enqueue(&self) -> Option<&dyn PreEnqueue> {
        Some(self)
    }
    fn as_post_filter(&self) -> Option<&dyn PostFilter> {
        Some(self)
    }
}

impl PreEnqueue for DefaultPreemption {
    fn pre_enqueue(&self, pod: &PodInfo) -> StatusResult {
        if self.executor.get().is_some_and(|executor| executor.is_running(pod.uid())) {
            return Err(Status::unresolvable(
                "waiting for the preemption for this pod to be finished",
            ));
        }
        Ok(())
    }
}

impl PostFilter for DefaultPreemption {
    fn post_filter<'a>(
        &'a self,
        cycle: &'a mut Cycle<'_>,
        state: &'a CycleState,
        unfit: &'a Unfit,
    ) -> PluginFuture<'a, PostFilterResult> {
        if let Some(executor) = self.executor.get() {
            executor.tried();
        }
        Box::pin(self.preempt(cycle, state, unfit))
    }

    fn preview(&self, cycle: &mut Cycle<'_>, state: &CycleState, unfit: &Unfit) -> Preview {
        match self.candidates(cycle, state, unfit).map(plan::best) {
            Ok(victims) => {
                let message = victims.first().map(|first| said(None, &found(first)).message);
                Preview { message: message.unwrap_or_default(), victims, done: false }
            }
            Err(none) => Preview { message: none.message, ..Preview::default() },
        }
    }
}

impl std::fmt::Debug for DefaultPreemption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct(NAME).field("args", &self.args).finish_non_exhaustive()
    }
}
