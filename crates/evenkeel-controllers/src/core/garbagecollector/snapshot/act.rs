//! Reads the graph of one namespace from the server.

use super::{
    super::{
        graph::{Coordinates, Graph},
        inspect,
    },
    is_complete, resources_to_list, virtual_owners,
};
use evenkeel_api::{Kind, time::Timestamp, views::Metadata};
use evenkeel_runtime::{
    client::{ApiError, Client, ListOptions},
    discovery::ServerResources,
    introspect::{ObjectReport, Subject},
};
use futures::{StreamExt as _, stream};
use std::sync::Arc;

/// Lists requested concurrently.
const MAX_CONCURRENT: usize = 8;

/// Owners and dependents in one namespace.
pub struct Snapshot {
    client: Client,
    resources: Arc<ServerResources>,
    graph: Graph,
}

impl Snapshot {
    /// Lists the metadata of all deletable resources in `namespace`; for an empty namespace, none. Resources that
    /// cannot be listed are left out.
    pub async fn read(client: Client, resources: Arc<ServerResources>, namespace: &str) -> Self {
        let mut graph = Graph::default();
        let kinds = resources_to_list(&resources, namespace);
        let all = ListOptions::default();
        let list = |kind: Kind| async {
            let list = client.list_metadata(&kind, namespace, &all).await;
            (kind, list)
        };
        let mut lists = stream::iter(kinds).map(list).buffer_unordered(MAX_CONCURRENT);
        while let Some((kind, list)) = lists.next().await {
            match list {
                Ok(list) => list.items.iter().for_each(|item| {
                    graph.observed(&kind, &item.meta);
                }),
                Err(error) => {
                    tracing::debug!(resource = &*kind.plural, %error, "Failed to list the resource; leaving it out");
                }
            }
        }
        drop(lists);
        Self { client, resources, graph }
    }

    /// Returns the garbage collector's report about an object, with live reads of its owners.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn object(
        &mut self,
        subject: &Subject,
        now: Timestamp,
    ) -> Result<Option<ObjectReport>, ApiError> {
        if !is_complete(&self.graph, subject) {
            let resource = self.resources.preferred().find(|resource| subject.is_a(&resource.kind));
            let Some(resource) = resource else { return Ok(None) };
            if !self
                .read_into_graph(&resource.kind.clone(), &subject.namespace, &subject.name)
                .await?
            {
                return Ok(None);
            }
        }
        for owner in virtual_owners(&self.graph, subject) {
            let coordinates = Coordinates::of_owner(&owner, &subject.namespace);
            let resource = self.resources.of_kind(&owner.api_version, &owner.kind);
            let Some(kind) = resource.map(|resource| resource.kind.clone()) else { continue };
            let namespace = if kind.namespaced { &*subject.namespace } else { "" };
            self.read_into_graph(&kind, namespace, &owner.name).await?;
            // Still virtual after the read, so the owner does not exist.
            if self.graph.node(&owner.uid).is_some_and(|node| node.is_virtual) {
                self.graph.virtual_deleted(&owner.uid, &coordinates);
            }
        }
        Ok(inspect::report(&self.graph, subject, now).map(|(_, report)| report))
    }

    /// Reads an object live and adds it to the graph. Returns whether it exists.
    async fn read_into_graph(
        &mut self,
        kind: &Kind,
        namespace: &str,
        name: &str,
    ) -> Result<bool, ApiError> {
        match self.client.get_metadata(kind, namespace, name).await {
            Ok(Metadata { meta, .. }) => {
                self.graph.observed(kind, &meta);
                Ok(true)
            }
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }
}
