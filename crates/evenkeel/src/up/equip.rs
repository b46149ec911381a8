//! Gives nodes their devices and images, as a DRA driver and a container runtime would: once a node is registered, and again
//! when it is registered anew.

use super::{
    config::{EQUIPMENT_LABEL, Equipment},
    prune::prune,
};
use crate::clusters::load_objects;
use anyhow::{Context as _, Result};
use bytes::Bytes;
use evenkeel_api::{Kind, views::Node};
use evenkeel_runtime::{cache::Caches, client::Client};
use http::{Request, header};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// Interval at which the cached nodes are read during the start.
const START_INTERVAL: Duration = Duration::from_millis(20);

/// Interval at which they are read afterwards: a node that is registered anew gets its devices this late.
const INTERVAL: Duration = Duration::from_secs(2);

/// Nodes with the equipment that they are to have, and those that have it.
#[derive(Clone)]
pub(super) struct Equipper {
    client: Client,
    caches: Caches,
    equipment: Arc<BTreeMap<String, Equipment>>,
    /// Names and uids of equipped nodes.
    equipped: Arc<Mutex<HashMap<String, String>>>,
}

impl Equipper {
    pub(super) fn new(
        client: Client,
        caches: Caches,
        equipment: BTreeMap<String, Equipment>,
    ) -> Self {
        Self { client, caches, equipment: Arc::new(equipment), equipped: Arc::default() }
    }

    /// Returns whether no node is to have devices or images.
    pub(super) fn is_empty(&self) -> bool {
        self.equipment.is_empty()
    }

    /// Returns the nodes that wait for their equipment, for reports.
    pub(super) fn pending(&self) -> Vec<String> {
        let equipped = self.equipped.lock().unwrap_or_else(PoisonError::into_inner);
        let names = self.equipment.keys().filter(|name| !equipped.contains_key(*name));
        names.map(|name| format!("node {name}")).collect()
    }

    /// Creates the classes, and equips all nodes as they are registered. Returns their number.
    ///
    /// # Errors
    /// When the server refuses an object.
    pub(super) async fn start(&self) -> Result<usize> {
        let classes = Equipment::classes(self.equipment.values());
        load_objects(&self.client, "nodes[].devices", classes, |_| {}).await?;
        loop {
            self.equip_new().await?;
            if self.pending().is_empty() {
                return Ok(self.equipment.len());
            }
            self.client.clock().sleep(START_INTERVAL).await;
        }
    }

    /// Takes away what a former configuration gave: devices of any node, and images of `nodes`.
    ///
    /// # Errors
    /// When the server refuses it.
    pub(super) async fn clear(&self, nodes: &[String]) -> Result<()> {
        let slices: Vec<Value> = self
            .equipment
            .iter()
            // The uid is not a part of the names.
            .flat_map(|(node, equipment)| equipment.slices(node, ""))
            .collect();
        let kind = Kind::new("resource.k8s.io", "v1", "ResourceSlice", "resourceslices", false);
        prune(&self.client, EQUIPMENT_LABEL, &[kind], &slices).await.context("nodes[].devices")?;
        let cached = self.caches.of::<Node>();
        for name in nodes {
            let has_images =
                self.equipment.get(name).is_some_and(|node| node.images_patch().is_some());
            let had_images =
                cached.get("", name).is_some_and(|node| !node.status.images.is_empty());
            if had_images && !has_images {
                let path = format!("/api/v1/nodes/{name}/status");
                let patch = json!({"status": {"images": null}});
                patch_object(&self.client, &path, &patch)
                    .await
                    .with_context(|| format!("nodes[].images: node {name}"))?;
            }
        }
        Ok(())
    }

    /// Equips nodes that are registered anew, for as long as the cluster runs.
    pub(super) async fn keep(self) {
        loop {
            self.client.clock().sleep(INTERVAL).await;
            if let Err(error) = self.equip_new().await {
                tracing::warn!("a node has not got its devices and images again: {error:#}");
            }
        }
    }

    /// Equips the registered nodes that have not been.
    async fn equip_new(&self) -> Result<()> {
        let nodes = self.caches.of::<Node>();
        for (name, equipment) in self.equipment.iter() {
            let Some(node) = nodes.get("", name) else { continue };
            let uid = node.meta.uid.to_string();
            let is_equipped = {
                let equipped = self.equipped.lock().unwrap_or_else(PoisonError::into_inner);
                equipped.get(name) == Some(&uid)
            };
            if !is_equipped {
                self.equip(name, &uid, equipment).await?;
                let mut equipped = self.equipped.lock().unwrap_or_else(PoisonError::into_inner);
                equipped.insert(name.clone(), uid);
            }
        }
        Ok(())
    }

    async fn equip(&self, node: &str, uid: &str, equipment: &Equipment) -> Result<()> {
        let slices = equipment.slices(node, uid);
        load_objects(&self.client, "nodes[].devices", slices, |_| {}).await?;
        if let Some(patch) = equipment.images_patch() {
            let path = format!("/api/v1/nodes/{node}/status");
            patch_object(&self.client, &path, &patch)
                .await
                .with_context(|| format!("nodes[].images: node {node}"))?;
        }
        Ok(())
    }
}

/// Sends a merge patch.
///
/// # Errors
/// When the server refuses it.
async fn patch_object(client: &Client, path: &str, patch: &Value) -> Result<()> {
    let request = Request::patch(path)
        .header(header::CONTENT_TYPE, "application/merge-patch+json")
        .body(Bytes::from(patch.to_string()))?;
    client.raw(request).await?;
    Ok(())
}
