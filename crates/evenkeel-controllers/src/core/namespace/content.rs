//! Steps that delete the content of a namespace and list the remaining objects. Upstream: `deleteAllContent`.

use super::{
    delete::Stop,
    plan::{self, DeletionResult, RemainingObjects, pods_estimate},
};
use evenkeel_api::{Kind, Text, View, time::Timestamp, views::Pod};
use evenkeel_runtime::{
    client::{ListOptions, Metadata},
    discovery::{Resource, ServerResources},
    plan::{
        Delete, DeleteCollection, Failure, LiveRead, OnError, Outcome, Plan, Propagation, Steps,
        Target,
    },
};
use std::time::Duration;

/// Deleter of a terminating namespace's content.
pub(super) struct ContentDeleter<'a> {
    /// Name of the namespace.
    pub(super) namespace: &'a str,
    /// Deletion timestamp of the namespace.
    pub(super) deleted_at: Timestamp,
    pub(super) now: Timestamp,
}

/// State of the objects of one resource after the request to delete them. Lists are decoded only when needed.
enum ResourceState<'a> {
    /// The resource does not have the verb `list`.
    Unlisted,
    /// A request failed.
    Failed(&'a Failure),
    /// `remaining` lists the objects after the request; for pods, `before` lists them before it.
    Listed { remaining: &'a Outcome, before: Option<&'a Outcome> },
}

impl ContentDeleter<'_> {
    /// Deletes the pods and, once none remain, all other objects. Upstream: `deleteAllContent`.
    pub(super) fn delete(
        &self,
        discovered: &ServerResources,
        steps: &mut Steps<'_>,
    ) -> Result<DeletionResult, Stop> {
        let failed = &discovered.failed;
        let mut deletion = DeletionResult {
            discovery_error: plan::discovery_error(failed),
            ..DeletionResult::default()
        };
        let deletable = || {
            discovered.preferred().filter(|resource| {
                resource.kind.namespaced
                    && resource.supports_verb("delete")
                    && plan::is_discovered(&resource.kind, failed)
            })
        };
        let is_pods = |kind: &Kind| kind.group.is_empty() && kind.plural == "pods";
        if let Some(pods) = deletable().find(|resource| is_pods(&resource.kind)) {
            let result = self.delete_all(pods, steps)?;
            let remaining = self.evaluate(&pods.kind, &result);
            deletion.pods_only = remaining.count > 0;
            deletion.remaining.push((pods.kind.clone(), remaining));
        }
        if deletion.pods_only {
            return Ok(deletion);
        }
        // The results are evaluated once, after the last step, and not at each step.
        let mut results = Vec::new();
        for resource in deletable().filter(|resource| !is_pods(&resource.kind)) {
            results.push((&resource.kind, self.delete_all(resource, steps)?));
        }
        for (kind, result) in results {
            deletion.remaining.push((kind.clone(), self.evaluate(kind, &result)));
        }
        Ok(deletion)
    }

    /// Requests the deletion of all objects of a resource, and lists the remaining ones. Upstream:
    /// `deleteAllContentForGroupVersionResource`.
    fn delete_all<'s>(
        &self,
        resource: &Resource,
        steps: &mut Steps<'s>,
    ) -> Result<ResourceState<'s>, Plan> {
        let kind = &resource.kind;
        let before = if *kind == Pod::kind() {
            let list = LiveRead::list::<Pod>(kind, self.namespace, &ListOptions::default());
            let pods = steps.one(LiveRead { on_error: OnError::Ignore, ..list })?;
            if let Some(error) = &pods.error {
                return Ok(ResourceState::Failed(error));
            }
            Some(pods)
        } else {
            None
        };
        let mut is_deleted = false;
        if resource.supports_verb("deletecollection") {
            let request = DeleteCollection::new(kind.clone(), self.namespace);
            let outcome = steps.one(DeleteCollection { on_error: OnError::Ignore, ..request })?;
            if let Some(error) = unexpected_failure(outcome) {
                return Ok(ResourceState::Failed(error));
            }
            // If the server lacks the verb or the resource, discovery is outdated: delete the objects one by
            // one.
            is_deleted = outcome.error.is_none();
        }
        if !resource.supports_verb("list") {
            return Ok(ResourceState::Unlisted);
        }
        if !is_deleted && let Some(error) = self.delete_each_item(kind, steps)? {
            return Ok(ResourceState::Failed(error));
        }
        let remaining = self.list(kind, steps)?;
        Ok(unexpected_failure(remaining)
            .map_or(ResourceState::Listed { remaining, before }, ResourceState::Failed))
    }

    /// Deletes the objects one by one. Returns the first error. Upstream: `deleteEachItem`.
    fn delete_each_item<'s>(
        &self,
        kind: &Kind,
        steps: &mut Steps<'s>,
    ) -> Result<Option<&'s Failure>, Plan> {
        let listed = self.list(kind, steps)?;
        if let Some(error) = unexpected_failure(listed) {
            return Ok(Some(error));
        }
        let Ok(items) = listed_items(listed) else { return Ok(None) };
        let deletes = items.iter().map(|item| {
            let target = Target::new(kind.clone(), self.namespace, &item.meta.name, "");
            Delete {
                propagation: Some(Propagation::Background),
                on_error: OnError::Ignore,
                ..Delete::new(target)
            }
            .into()
        });
        Ok(steps.all(Plan::of(deletes.collect()))?.iter().find_map(unexpected_failure))
    }

    /// Lists names and finalizers of all objects.
    fn list<'s>(&self, kind: &Kind, steps: &mut Steps<'s>) -> Result<&'s Outcome, Plan> {
        let list = LiveRead::list::<Metadata>(kind, self.namespace, &ListOptions::default());
        steps.one(LiveRead { on_error: OnError::Ignore, ..list })
    }

    /// Returns the remaining objects of a kind after their deletion, with an estimate of the time that they need.
    fn evaluate(&self, kind: &Kind, result: &ResourceState<'_>) -> RemainingObjects {
        let (remaining, before) = match result {
            ResourceState::Unlisted => return RemainingObjects::default(),
            ResourceState::Failed(error) => return RemainingObjects::failed(error),
            ResourceState::Listed { remaining, before } => (remaining, before),
        };
        let finalizers: Vec<Box<[Text]>> = match listed_items(remaining) {
            Ok(items) => items.into_iter().map(|item| item.meta.finalizers).collect(),
            Err(error) => return RemainingObjects::failed(&error),
        };
        let mut estimate = Duration::ZERO;
        if let Some(before) = before
            && !finalizers.is_empty()
        {
            match self.estimate_termination(before) {
                Ok(termination) => estimate = termination,
                Err(error) => return RemainingObjects::failed(&error),
            }
        }
        RemainingObjects::of(kind, self.namespace, &finalizers, estimate)
    }

    /// Estimates the time until the pods are deleted. Upstream: `estimateGracefulTermination`.
    fn estimate_termination(&self, pods: &Outcome) -> Result<Duration, Failure> {
        let Some(reply) = &pods.reply else { return Ok(Duration::ZERO) };
        let pods = reply.list::<Pod>()?;
        let running =
            pods.items.iter().filter(|pod| !matches!(&*pod.status.phase, "Succeeded" | "Failed"));
        let grace_seconds =
            running.filter_map(|pod| pod.spec.termination_grace_period_seconds).max().unwrap_or(0);
        let longest_grace = Duration::from_secs(grace_seconds.try_into().unwrap_or(0));
        Ok(pods_estimate(longest_grace, self.deleted_at, self.now))
    }
}

/// Returns the failure of a request; `None` if the request failed because the server lacks the verb or resource.
fn unexpected_failure(outcome: &Outcome) -> Option<&Failure> {
    outcome.error.as_ref().filter(|error| !matches!(error.code, 404 | 405))
}

/// Returns the listed objects. A resource that does not exist has none.
fn listed_items(listed: &Outcome) -> Result<Vec<Metadata>, Failure> {
    listed.reply.as_ref().map_or(Ok(Vec::new()), |reply| Ok(reply.list()?.items))
}
