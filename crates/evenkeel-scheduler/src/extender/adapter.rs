//! Adapter from HTTP extenders to the framework's `Extender` trait. Each method of the trait calls the inherent method
//! with the same name. Rust prefers inherent methods, so `Self::name(self)` does not call itself.

use std::{collections::BTreeMap, sync::Arc};

use super::Extender;
use crate::{
    framework::{self, ExtenderFiltered, MetaVictims, PluginFuture},
    pod::PodInfo,
};

/// Result of a call to an extender.
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

    fn is_filter(&self) -> bool {
        Self::is_filter(self)
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

    fn is_prioritizer(&self) -> bool {
        Self::is_prioritizer(self)
    }

    fn prioritize<'a>(
        &'a self,
        pod: &'a PodInfo,
        nodes: &'a [Arc<str>],
    ) -> PluginFuture<'a, CallResult<framework::ExtenderScores>> {
        Box::pin(async move {
            let scores = Self::prioritize(self, &pod.pod, nodes).await?;
            Ok(scores.into_iter().map(|(node, score)| (node.into(), score)).collect())
        })
    }

    fn supports_preemption(&self) -> bool {
        Self::supports_preemption(self)
    }

    fn process_preemption<'a>(
        &'a self,
        pod: &'a PodInfo,
        candidates: &'a [framework::Candidate],
    ) -> PluginFuture<'a, CallResult<Vec<MetaVictims>>> {
        Box::pin(async move { Ok(Self::process_preemption(self, &pod.pod, candidates).await?) })
    }

    fn is_binder(&self) -> bool {
        Self::is_binder(self)
    }

    fn bind<'a>(&'a self, pod: &'a PodInfo, node: &'a str) -> PluginFuture<'a, CallResult<()>> {
        Box::pin(async move { Ok(Self::bind(self, &pod.pod, node).await?) })
    }
}
