//! The garbage collector's view of one namespace, read once: for who asks where no collector runs.

use super::{
    graph::{Graph, Place},
    inspect,
    monitor::collectable,
};
use evenkeel_api::{Kind, time::Timestamp, views::Metadata};
use evenkeel_runtime::{
    client::{ApiError, Client, ListOptions},
    discovery::Discovered,
    introspect::{ObjectReport, Subject},
};
use futures::{StreamExt as _, stream};
use std::sync::Arc;

/// Lists that are under way at a time.
const AT_A_TIME: usize = 8;

/// Who owns whom in one namespace.
pub struct Snapshot {
    client: Client,
    found: Arc<Discovered>,
    graph: Graph,
}

impl Snapshot {
    /// Lists the metadata of everything in `namespace`; of nothing where that is empty. Kinds that cannot be listed are left
    /// out.
    pub async fn read(client: Client, found: Arc<Discovered>, namespace: &str) -> Self {
        let mut graph = Graph::default();
        let kinds = found.preferred().filter(|r| r.kind.namespaced && collectable(r));
        let kinds = kinds.map(|resource| &resource.kind).filter(|_| !namespace.is_empty());
        let kinds: Vec<Kind> = kinds.cloned().collect();
        let all = ListOptions::default();
        let list = |kind: Kind| async {
            let list = client.list_metadata(&kind, namespace, &all).await;
            (kind, list)
        };
        let mut lists = stream::iter(kinds).map(list).buffer_unordered(AT_A_TIME);
        while let Some((kind, list)) = lists.next().await {
            match list {
                Ok(list) => list.items.iter().for_each(|item| {
                    graph.observed(&kind, &item.meta);
                }),
                Err(error) => tracing::debug!(resource = &*kind.plural, %error, "not listed"),
            }
        }
        drop(lists);
        Self { client, found, graph }
    }

    /// What a collector would have to say of an object, with live reads of its owners.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn object(
        &mut self,
        subject: &Subject,
        now: Timestamp,
    ) -> Result<Option<ObjectReport>, ApiError> {
        let place = |place: &Place| inspect::is_at(place, subject);
        if self.graph.find(place).is_none_or(|(_, node)| node.is_virtual) {
            let resource = self.found.preferred().find(|resource| subject.is_a(&resource.kind));
            let Some(resource) = resource else { return Ok(None) };
            if !self.observe(&resource.kind.clone(), &subject.namespace, &subject.name).await? {
                return Ok(None);
            }
        }
        let owners: Vec<_> = self.graph.find(place).map_or_else(Vec::new, |(_, node)| {
            let virtual_owners = node
                .owners
                .iter()
                .filter(|owner| self.graph.node(&owner.uid).is_some_and(|owner| owner.is_virtual));
            virtual_owners.cloned().collect()
        });
        for owner in owners {
            let place = Place::named_by(&owner, &subject.namespace);
            let resource = self.found.of_kind(&owner.api_version, &owner.kind);
            let Some(kind) = resource.map(|resource| resource.kind.clone()) else { continue };
            let namespace = if kind.namespaced { &*subject.namespace } else { "" };
            self.observe(&kind, namespace, &owner.name).await?;
            if self.graph.node(&owner.uid).is_some_and(|node| node.is_virtual) {
                self.graph.not_found(&owner.uid, &place);
            }
        }
        Ok(inspect::report(&self.graph, subject, now).map(|(_, report)| report))
    }

    /// Takes in an object as it is; whether there is one.
    async fn observe(
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
