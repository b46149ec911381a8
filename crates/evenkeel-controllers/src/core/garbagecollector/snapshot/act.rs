//! Reads the owner graph of one namespace from the API server, for `evenkeel explain`.

use super::{
    super::{
        graph::{Coordinates, Graph},
        inspect,
    },
    is_observed, resources_to_list, virtual_owners,
};
use evenkeel_api::{Kind, time::Timestamp, views::Metadata};
use evenkeel_runtime::{
    client::{ApiError, Client, ListOptions},
    discovery::ServerResources,
    introspect::{ObjectReport, Subject},
};
use futures::{StreamExt as _, stream};
use std::sync::Arc;

/// Maximum number of concurrent list requests.
const MAX_CONCURRENT_LISTS: usize = 8;

/// Owner graph of one namespace at the time of [`Snapshot::read`].
pub struct Snapshot {
    client: Client,
    resources: Arc<ServerResources>,
    graph: Graph,
}

impl Snapshot {
    /// Lists the metadata of the objects of every deletable resource in `namespace`, and builds their graph. Leaves
    /// out a resource whose list fails. Lists nothing if `namespace` is empty.
    pub async fn read(client: Client, resources: Arc<ServerResources>, namespace: &str) -> Self {
        let mut graph = Graph::default();
        let kinds = resources_to_list(&resources, namespace);
        let options = ListOptions::default();
        let list = |kind: Kind| async {
            let list = client.list_metadata(&kind, namespace, &options).await;
            (kind, list)
        };
        let mut lists = stream::iter(kinds).map(list).buffer_unordered(MAX_CONCURRENT_LISTS);
        while let Some((kind, list)) = lists.next().await {
            match list {
                Ok(list) => list.items.iter().for_each(|item| {
                    graph.process_update(&kind, &item.meta);
                }),
                Err(error) => {
                    tracing::debug!(resource = &*kind.plural, %error, "Failed to list the resource; leaving it out");
                }
            }
        }
        drop(lists);
        Self { client, resources, graph }
    }

    /// Returns the garbage collector's view of an object and its next actions, or `None` if the object does not
    /// exist. Reads the object live if the graph lacks it, and each owner that the graph knows from
    /// references only.
    ///
    /// # Errors
    /// Fails if a live read fails with another error than NotFound.
    pub async fn report(
        &mut self,
        subject: &Subject,
        now: Timestamp,
    ) -> Result<Option<ObjectReport>, ApiError> {
        if !is_observed(&self.graph, subject) {
            let resource = self.resources.preferred().find(|resource| subject.is_a(&resource.kind));
            let Some(resource) = resource else { return Ok(None) };
            let kind = resource.kind.clone();
            if !self.read_into_graph(&kind, &subject.namespace, &subject.name).await? {
                return Ok(None);
            }
        }
        for owner in virtual_owners(&self.graph, subject) {
            let coordinates = Coordinates::of_owner(&owner, &subject.namespace);
            let resource = self.resources.of_kind(&owner.api_version, &owner.kind);
            let Some(kind) = resource.map(|resource| resource.kind.clone()) else { continue };
            let namespace = if kind.namespaced { &*subject.namespace } else { "" };
            self.read_into_graph(&kind, namespace, &owner.name).await?;
            // The node is still virtual, so the read did not find the owner.
            if self.graph.node(&owner.uid).is_some_and(|node| node.is_virtual) {
                self.graph.process_virtual_delete(&owner.uid, &coordinates);
            }
        }
        Ok(inspect::report(&self.graph, subject, now).map(|(_, report)| report))
    }

    /// Reads an object live and adds it to the graph. Returns false if it does not exist.
    async fn read_into_graph(
        &mut self,
        kind: &Kind,
        namespace: &str,
        name: &str,
    ) -> Result<bool, ApiError> {
        match self.client.get_metadata(kind, namespace, name).await {
            Ok(Metadata { meta, .. }) => {
                self.graph.process_update(kind, &meta);
                Ok(true)
            }
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }
}
