//! Publishes the devices and images of nodes, as a DRA driver and a container runtime do, after each registration of a node.

use super::{
    config::{EQUIPMENT_LABEL, Equipment},
    generated::hash,
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

/// Interval between reads of the cached nodes during the start.
const START_INTERVAL: Duration = Duration::from_millis(20);

/// Interval between reads of the cached nodes after the start: maximum time until a node that registers again gets its devices.
const INTERVAL: Duration = Duration::from_secs(2);

/// Annotation of a node with a hash of the images that a configuration set. If the images have another hash, another client
/// has changed them since then, and they are not removed.
const IMAGES: &str = "evenkeel.dev/images";

/// Desired equipment of nodes, and the nodes that have it.
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

    /// Returns whether no node has devices or images in the configuration.
    pub(super) fn is_empty(&self) -> bool {
        self.equipment.is_empty()
    }

    /// Returns the names of the nodes that lack their equipment, for reports.
    pub(super) fn pending(&self) -> Vec<String> {
        let equipped = self.equipped.lock().unwrap_or_else(PoisonError::into_inner);
        let names = self.equipment.keys().filter(|name| !equipped.contains_key(*name));
        names.map(|name| format!("node {name}")).collect()
    }

    /// Creates the DeviceClasses, and equips each node once it is registered. Returns the number of nodes.
    ///
    /// # Errors
    /// Fails if the server rejects an object.
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

    /// Removes the devices of any node and the images of `nodes` that a previous configuration set, unless another client has
    /// changed them.
    ///
    /// # Errors
    /// Fails if the server rejects it.
    pub(super) async fn clear(&self, nodes: &[String]) -> Result<()> {
        let slices: Vec<Value> = self
            .equipment
            .iter()
            // The names do not contain the uid.
            .flat_map(|(node, equipment)| equipment.slices(node, ""))
            .collect();
        let kind = Kind::new("resource.k8s.io", "v1", "ResourceSlice", "resourceslices", false);
        prune(&self.client, EQUIPMENT_LABEL, &[kind], &slices).await.context("nodes[].devices")?;
        let cached = self.caches.of::<Node>();
        for name in nodes {
            let has_images =
                self.equipment.get(name).is_some_and(|node| node.images_patch().is_some());
            let recorded = cached
                .get("", name)
                .and_then(|node| Some(node.meta.annotations.get(IMAGES)?.to_owned()));
            if let Some(recorded) = recorded.filter(|_| !has_images) {
                self.remove_images(name, &recorded)
                    .await
                    .with_context(|| format!("nodes[].images: node {name}"))?;
            }
        }
        Ok(())
    }

    /// Removes the images of a node if they still have the hash `recorded`.
    async fn remove_images(&self, node: &str, recorded: &str) -> Result<()> {
        let path = format!("/api/v1/nodes/{node}");
        let answer = self.client.raw(Request::get(&path).body(Bytes::new())?).await?;
        let object: Value = serde_json::from_slice(answer.body())?;
        if images_hash(&object["status"]["images"]) == recorded {
            let patch = json!({"status": {"images": null}});
            patch_object(&self.client, &format!("{path}/status"), &patch).await?;
        }
        let patch = json!({"metadata": {"annotations": {IMAGES: null}}});
        patch_object(&self.client, &path, &patch).await
    }

    /// Equips nodes that register again, while the cluster runs.
    pub(super) async fn run(self) {
        loop {
            self.client.clock().sleep(INTERVAL).await;
            if let Err(error) = self.equip_new().await {
                tracing::warn!("the devices and images of a node cannot be written: {error:#}");
            }
        }
    }

    /// Equips the registered nodes that are not equipped yet.
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
            let path = format!("/api/v1/nodes/{node}");
            let hash = images_hash(&patch["status"]["images"]);
            let record = json!({"metadata": {"annotations": {IMAGES: hash}}});
            // Write the annotation first: without it, a later start would not remove the images.
            for (path, patch) in [(path.clone(), record), (format!("{path}/status"), patch)] {
                patch_object(&self.client, &path, &patch)
                    .await
                    .with_context(|| format!("nodes[].images: node {node}"))?;
            }
        }
        Ok(())
    }
}

/// Returns a hash of the names and sizes of the images in a node's status.
fn images_hash(images: &Value) -> String {
    let images = images.as_array().into_iter().flatten();
    let known: Vec<Value> =
        images.map(|image| json!([image["names"], image["sizeBytes"]])).collect();
    hash(&known.into())
}

/// Sends a merge patch.
///
/// # Errors
/// Fails if the server rejects it.
async fn patch_object(client: &Client, path: &str, patch: &Value) -> Result<()> {
    let request = Request::patch(path)
        .header(header::CONTENT_TYPE, "application/merge-patch+json")
        .body(Bytes::from(patch.to_string()))?;
    client.raw(request).await?;
    Ok(())
}
