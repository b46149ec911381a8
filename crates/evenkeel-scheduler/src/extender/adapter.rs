//! Adapter from HTTP extenders to the framework's `Extender` trait. A call such as `Self::name(self)` calls the
//! inherent method of the HTTP extender, not the method of the trait.
//!
//! Upstream: `IsFilter`, `IsPrioritizer`, `SupportsPreemption`, `IsBinder`, `ProcessPreemption`.

use std::{collections::BTreeMap, sync::Arc};

use super::Extender;
use crate::{
    framework::{self, ExtenderFiltered, MetaVictims, PluginFuture},
    pod::PodInfo,
};

/// Result of a call of an extender.
type CallResult<T> = Result<T, framework::ExtenderError>;

impl framework::Extender for Extender {
    fn name(&self) -> &str {
        Self::name(self)
    }

    fn is_interested(&self, pod: &PodInfo) -> bool {
        Self::is_interested(self, &pod.pod)
    }

    fn is_ignorable(&self) -> bool {
        Self::is_ignorable(self)
    }

    fn filters(&self) -> bool {
        Self::filters(self)
    }

    fn filter<'a>(
        &'a self,
        pod: &'a PodInfo,
        nodes: &'a [Arc<str>],
    ) -> PluginFuture<'a, CallResult<ExtenderFiltered>> {
        Box::pin(async move {
            let filtered = Self::filter(self, &pod.pod, nodes).await?;
            let reasons = |nodes: BTreeMap<String, String>| {
                nodes.into_iter().map(|(node, reason)| (node.into(), reason)).collect()
            };
            Ok(ExtenderFiltered {
                feasible: filtered.nodes.iter().map(|node| (**node).into()).collect(),
                failed: reasons(filtered.failed),
                unresolvable: reasons(filtered.unresolvable),
            })
        })
    }

    fn prioritizes(&self) -> bool {
        self.scores()
    }

    fn prioritize<'a>(
        &'a self,
        pod: &'a PodInfo,
        nodes: &'a [Arc<str>],
    ) -> PluginFuture<'a, CallResult<Vec<(Box<str>, i64)>>> {
        Box::pin(async move {
            let scores = self.score(&pod.pod, nodes).await?;
            Ok(scores.into_iter().map(|(node, score)| (node.into(), score)).collect())
        })
    }

    fn preempts(&self) -> bool {
        Self::preempts(self)
    }

    fn preempt<'a>(
        &'a self,
        pod: &'a PodInfo,
        candidates: &'a [framework::Candidate],
    ) -> PluginFuture<'a, CallResult<Vec<MetaVictims>>> {
        Box::pin(async move {
            let victims = candidates.iter().map(|candidate| {
                let num_pdb_violations =
                    i64::try_from(candidate.num_pdb_violations).unwrap_or(i64::MAX);
                (Arc::clone(&candidate.node), (candidate.pods.clone(), num_pdb_violations))
            });
            let accepted = Self::preempt(self, &pod.pod, &victims.collect()).await?;
            let candidates = accepted.into_iter().map(|(node, victims)| MetaVictims {
                node: node.into(),
                pods: victims.pods.into_iter().map(Into::into).collect(),
                num_pdb_violations: usize::try_from(victims.num_pdb_violations).unwrap_or(0),
            });
            Ok(candidates.collect())
        })
    }

    fn binds(&self) -> bool {
        Self::binds(self)
    }

    fn bind<'a>(&'a self, pod: &'a PodInfo, node: &'a str) -> PluginFuture<'a, CallResult<()>> {
        Box::pin(async move { Ok(Self::bind(self, &pod.pod, node).await?) })
    }
}
