//! Steps that delete the content of a namespace and list the remaining objects. Upstream: `deleteAllContent`.

use super::{
    delete::Ended,
    plan::{self, Findings, Remains, pods_estimate},
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

/// A terminating namespace.
pub(super) struct Content<'a> {
    /// Name of the namespace.
    pub(super) namespace: &'a str,
    /// Deletion timestamp of the namespace.
    pub(super) deleted_at: Timestamp,
    pub(super) now: Timestamp,
}

/// State of the objects of one resource after the request to delete them. Lists are decoded only when needed.
enum Requested<'a> {
    /// The resource does not have the verb `list`.
    Unlisted,
    /// A request failed.
    Failed(&'a Failure),
    /// `remaining` lists the objects after the request; for pods, `before` lists them before it.
    Listed { remaining: &'a Outcome, before: Option<&'a Outcome> },
}

impl Content<'_> {
    /// Deletes the pods and, once none remain, all other objects. Upstream: `deleteAllContent`.
    pub(super) fn delete(
        &self,
        discovered: &ServerResources,
        steps: &mut Steps<'_>,
    ) -> Result<Findings, Ended> {
        let failed = &discovered.failed;
        let mut findings =
            Findings { discovery: plan::undiscovered(failed), ..Findings::default() };
        let deletable = || {
            discovered.preferred().filter(|resource| {
                resource.kind.namespaced
                    && resource.supports_verb("delete")
                    && plan::is_discovered(&resource.kind, failed)
            })
        };
        let is_pods = |kind: &Kind| kind.group.is_empty() && kind.plural == "pods";
        if let Some(pods) = deletable().find(|resource| is_pods(&resource.kind)) {
            let requested = self.delete_all(pods, steps)?;
            let remains = self.remains(&pods.kind, &requested);
            findings.pods_only = remains.count > 0;
            findings.remains.push((pods.kind.clone(), remains));
        }
        if findings.pods_only {
            return Ok(findings);
        }
        let mut others = Vec::new();
        for resource in deletable().filter(|resource| !is_pods(&resource.kind)) {
            others.push((&resource.kind, self.delete_all(resource, steps)?));
        }
        let others = others.into_iter();
        findings
            .remains
            .extend(others.map(|(kind, requested)| (kind.clone(), self.remains(kind, &requested))));
        Ok(findings)
    }

    /// Requests the deletion of all objects of a resource, and lists the remaining ones. Upstream:
    /// `deleteAllContentForGroupVersionResource`.
    fn delete_all<'s>(
        &self,
        resource: &Resource,
        steps: &mut Steps<'s>,
    ) -> Result<Requested<'s>, Plan> {
        let kind = &resource.kind;
        let before = if *kind == Pod::kind() {
            let all = LiveRead::list::<Pod>(kind, self.namespace, &ListOptions::default());
            let read = steps.one(LiveRead { on_error: OnError::Ignore, ..all })?;
            if let Some(error) = &read.error {
                return Ok(Requested::Failed(error));
            }
            Some(read)
        } else {
            None
        };
        let listable = resource.supports_verb("list");
        let mut done = false;
        if resource.supports_verb("deletecollection") {
            let all = DeleteCollection::new(kind.clone(), self.namespace);
            let deleted = steps.one(DeleteCollection { on_error: OnError::Ignore, ..all })?;
            // If the server lacks the verb or the resource, discovery is outdated: delete the objects one by
            // one.
            match failure(deleted) {
                Some(error) => return Ok(Requested::Failed(error)),
                None => done = deleted.error.is_none(),
            }
        }
        if !done
            && listable
            && let Some(error) = self.delete_each_item(kind, steps)?
        {
            return Ok(Requested::Failed(error));
        }
        if !listable {
            return Ok(Requested::Unlisted);
        }
        let remaining = self.list(kind, steps)?;
        Ok(failure(remaining).map_or(Requested::Listed { remaining, before }, Requested::Failed))
    }

    /// Deletes the objects one by one. Returns the first error. Upstream: `deleteEachItem`.
    fn delete_each_item<'s>(
        &self,
        kind: &Kind,
        steps: &mut Steps<'s>,
    ) -> Result<Option<&'s Failure>, Plan> {
        let listed = self.list(kind, steps)?;
        if let Some(error) = failure(listed) {
            return Ok(Some(error));
        }
        let Ok(items) = items(listed) else { return Ok(None) };
        let deletes = items.iter().map(|item| {
            let target = Target::new(kind.clone(), self.namespace, &item.meta.name, "");
            Delete {
                propagation: Some(Propagation::Background),
                on_error: OnError::Ignore,
                ..Delete::new(target)
            }
            .into()
        });
        Ok(steps.all(Plan::of(deletes.collect()))?.iter().find_map(failure))
    }

    /// Lists names and finalizers of all objects.
    fn list<'s>(&self, kind: &Kind, steps: &mut Steps<'s>) -> Result<&'s Outcome, Plan> {
        let all = LiveRead::list::<Metadata>(kind, self.namespace, &ListOptions::default());
        steps.one(LiveRead { on_error: OnError::Ignore, ..all })
    }

    /// Evaluates the remaining objects.
    fn remains(&self, kind: &Kind, requested: &Requested<'_>) -> Remains {
        let (remaining, before) = match requested {
            Requested::Unlisted => return Remains::default(),
            Requested::Failed(error) => return Remains::failed(error),
            Requested::Listed { remaining, before } => (remaining, before),
        };
        let finalizers: Vec<Box<[Text]>> = match items(remaining) {
            Ok(items) => items.into_iter().map(|item| item.meta.finalizers).collect(),
            Err(error) => return Remains::failed(&error),
        };
        let estimate = match before.filter(|_| !finalizers.is_empty()) {
            Some(before) => match self.estimate(before) {
                Ok(estimate) => estimate,
                Err(error) => return Remains::failed(&error),
            },
            None => Duration::ZERO,
        };
        Remains::of(kind, self.namespace, &finalizers, estimate)
    }

    /// Estimates the time until the pods are deleted. Upstream: `estimateGracefulTermination`.
    fn estimate(&self, pods: &Outcome) -> Result<Duration, Failure> {
        let Some(reply) = &pods.reply else { return Ok(Duration::ZERO) };
        let pods = reply.list::<Pod>()?;
        let running =
            pods.items.iter().filter(|pod| !matches!(&*pod.status.phase, "Succeeded" | "Failed"));
        let grace =
            running.filter_map(|pod| pod.spec.termination_grace_period_seconds).max().unwrap_or(0);
        let grace = Duration::from_secs(grace.try_into().unwrap_or(0));
        Ok(pods_estimate(grace, self.deleted_at, self.now))
    }
}

/// Returns the failure of a request, unless the server lacks the verb or the resource.
fn failure(outcome: &Outcome) -> Option<&Failure> {
    outcome.error.as_ref().filter(|error| !matches!(error.code, 404 | 405))
}

/// Returns the listed objects. A resource that does not exist has none.
fn items(listed: &Outcome) -> Result<Vec<Metadata>, Failure> {
    listed.reply.as_ref().map_or(Ok(Vec::new()), |reply| Ok(reply.list()?.items))
}
