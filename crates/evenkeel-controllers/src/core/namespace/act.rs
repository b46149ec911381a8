//! Deletes the content of a namespace and lists the rest. Upstream: `deleteAllContent`.

use super::plan::{self, Findings, Remains, pods_estimate};
use evenkeel_api::{Kind, Text, time::Timestamp, views::Pod};
use evenkeel_runtime::{
    client::{ApiError, Client, DeleteOptions, ListOptions},
    discovery::ServerResources,
    plan::Propagation,
};
use std::time::Duration;

/// A terminating namespace.
pub(super) struct Content<'a> {
    /// Client of all requests.
    pub(super) client: &'a Client,
    /// Name of the namespace.
    pub(super) namespace: &'a str,
    /// Deletion timestamp of the namespace.
    pub(super) deleted_at: Timestamp,
}

impl Content<'_> {
    /// Deletes the pods and, when none are left, all other objects. Upstream: `deleteAllContent`.
    pub(super) async fn delete(&self, discovered: &ServerResources) -> Findings {
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
            let remains = self
                .delete_all(
                    &pods.kind,
                    pods.supports_verb("deletecollection"),
                    pods.supports_verb("list"),
                )
                .await;
            findings.pods_only = remains.count > 0;
            findings.remains.push((pods.kind.clone(), remains));
        }
        if findings.pods_only {
            return findings;
        }
        for resource in deletable().filter(|resource| !is_pods(&resource.kind)) {
            let remains = self
                .delete_all(
                    &resource.kind,
                    resource.supports_verb("deletecollection"),
                    resource.supports_verb("list"),
                )
                .await;
            findings.remains.push((resource.kind.clone(), remains));
        }
        findings
    }

    async fn delete_all(&self, kind: &Kind, by_collection: bool, listable: bool) -> Remains {
        match self.try_delete_all(kind, by_collection, listable).await {
            Ok(remains) => remains,
            Err(error) => Remains::failed(&error),
        }
    }

    async fn try_delete_all(
        &self,
        kind: &Kind,
        by_collection: bool,
        listable: bool,
    ) -> Result<Remains, ApiError> {
        let estimate = if *kind == <Pod as evenkeel_api::View>::kind() {
            self.estimate().await?
        } else {
            Duration::ZERO
        };
        let options = DeleteOptions {
            propagation: Some(Propagation::Background),
            ..DeleteOptions::default()
        };
        let mut done = false;
        if by_collection {
            let everything = ListOptions::default();
            match self.client.delete_collection(kind, self.namespace, &options, &everything).await {
                // Discovery is outdated: the server lacks the verb or the resource.
                Err(error) if error.is_not_found() || error.code() == 405 => {}
                other => {
                    other?;
                    done = true;
                }
            }
        }
        if !done && listable {
            for item in self.list(kind).await? {
                match self.client.delete(kind, self.namespace, &item.0, &options).await {
                    Err(error) if !(error.is_not_found() || error.code() == 405) => {
                        return Err(error);
                    }
                    _ => {}
                }
            }
        }
        if !listable {
            return Ok(Remains::default());
        }
        let finalizers: Vec<_> =
            self.list(kind).await?.into_iter().map(|(_, finalizers)| finalizers).collect();
        Ok(Remains::of(kind, self.namespace, &finalizers, estimate))
    }

    /// Lists names and finalizers of all objects. A resource that does not exist has none.
    async fn list(&self, kind: &Kind) -> Result<Vec<(Text, Box<[Text]>)>, ApiError> {
        match self.client.list_metadata(kind, self.namespace, &ListOptions::default()).await {
            Ok(list) => Ok(list
                .items
                .into_iter()
                .map(|item| (item.meta.name, item.meta.finalizers))
                .collect()),
            Err(error) if error.is_not_found() || error.code() == 405 => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    async fn estimate(&self) -> Result<Duration, ApiError> {
        let pods = self.client.list::<Pod>(self.namespace, &ListOptions::default()).await?;
        let running =
            pods.items.iter().filter(|pod| !matches!(&*pod.status.phase, "Succeeded" | "Failed"));
        let grace =
            running.filter_map(|pod| pod.spec.termination_grace_period_seconds).max().unwrap_or(0);
        let grace = Duration::from_secs(grace.try_into().unwrap_or(0));
        Ok(pods_estimate(grace, self.deleted_at, self.client.clock().now()))
    }
}
