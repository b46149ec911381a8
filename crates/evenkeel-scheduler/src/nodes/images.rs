//! Index of container images by node.

use evenkeel_api::{Text, views::Node};
use hashbrown::HashMap;

use super::Slot;

/// All images by name.
#[derive(Debug, Default)]
pub(super) struct Images(HashMap<Text, Image>);

/// An image that is on at least one node.
#[derive(Debug, Clone)]
pub struct Image {
    /// Size in bytes.
    size: i64,
    /// Number of nodes that have the image.
    n_nodes: u32,
    /// Bit set of the slots of nodes that have the image.
    slot_bits: Vec<u64>,
}

impl Image {
    /// Returns the size in bytes that the first node reported.
    pub fn size(&self) -> i64 {
        self.size
    }

    /// Returns the number of nodes that have the image.
    pub fn n_nodes(&self) -> u32 {
        self.n_nodes
    }

    /// Returns whether a node has the image.
    pub fn is_on(&self, slot: Slot) -> bool {
        self.slot_bits.get(slot as usize / 64).is_some_and(|bits| bits & bit(slot) != 0)
    }

    /// Adds a node to the nodes that have the image.
    fn add(&mut self, slot: Slot) {
        if !self.is_on(slot) {
            let word = slot as usize / 64;
            self.slot_bits.resize(self.slot_bits.len().max(word + 1), 0);
            self.slot_bits[word] |= bit(slot);
            self.n_nodes += 1;
        }
    }

    /// Removes a node from the nodes that have the image.
    fn remove(&mut self, slot: Slot) {
        if self.is_on(slot) {
            self.slot_bits[slot as usize / 64] &= !bit(slot);
            self.n_nodes -= 1;
        }
    }
}

/// Returns the bit of a slot in its word.
fn bit(slot: Slot) -> u64 {
    1 << (slot % 64)
}

impl Images {
    /// Returns the image with this name.
    pub(super) fn get(&self, name: &str) -> Option<&Image> {
        self.0.get(name)
    }

    /// Replaces the images of a node.
    pub(super) fn set(&mut self, slot: Slot, old: Option<&Node>, new: Option<&Node>) {
        if let (Some(old), Some(new)) = (old, new)
            && old.status.images == new.status.images
        {
            return;
        }
        let old_images = old.iter().flat_map(|node| &*node.status.images);
        for name in old_images.flat_map(|image| &*image.names) {
            let Some(image) = self.0.get_mut(&**name) else { continue };
            image.remove(slot);
            if image.n_nodes == 0 {
                self.0.remove(&**name);
            }
        }
        for image in new.iter().flat_map(|node| &*node.status.images) {
            for name in &*image.names {
                let new_image =
                    || Image { size: image.size_bytes, n_nodes: 0, slot_bits: Vec::new() };
                self.0.entry(name.clone()).or_insert_with(new_image).add(slot);
            }
        }
    }
}
