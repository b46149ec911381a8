//! Hash functions, and names that contain hashes.

use crate::template::{HASH_LABEL, Template};

/// Alphabet of generated names. It has no vowels and no `0`, `1` or `3`, so that names do not spell words.
///
/// Upstream: `alphanums`.
pub const ALPHANUMS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// FNV-1a hash of 32 bits: first exclusive or, then multiply.
#[derive(Debug, Clone, Copy)]
pub struct Fnv32a(u32);

impl Default for Fnv32a {
    fn default() -> Self {
        Self(0x811c_9dc5)
    }
}

impl Fnv32a {
    /// Adds `bytes` to the hash.
    pub fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes
            .iter()
            .fold(self.0, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    }

    /// Returns the hash.
    pub fn sum(self) -> u32 {
        self.0
    }
}

/// Returns the FNV-1 hash of 32 bits: first multiply, then exclusive or. Names of ControllerRevisions contain it.
pub fn fnv32(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(0x811c_9dc5, |hash: u32, byte| hash.wrapping_mul(0x0100_0193) ^ u32::from(*byte))
}

/// Maps each byte of a text to a letter or digit of [`ALPHANUMS`].
///
/// Upstream: `SafeEncodeString`.
pub fn safe_encode_string(text: &str) -> String {
    text.bytes().map(|byte| char::from(ALPHANUMS[usize::from(byte) % ALPHANUMS.len()])).collect()
}

/// Returns the hash of a pod template, for the name of a ReplicaSet and the label on its pods. The hash depends on
/// the canonical text, so it is the same in every release. It differs from upstream's hash, which is harmless:
/// controllers find a template's ReplicaSet by comparing templates. Another collision count yields another hash.
pub fn template(template: &Template, collisions: Option<i32>) -> String {
    let mut fnv = Fnv32a::default();
    for (name, map) in [("labels", &template.labels), ("annotations", &template.annotations)] {
        for (key, value) in map.iter().filter(|(key, _)| *key != HASH_LABEL) {
            for part in [name, key, value] {
                fnv.write(part.as_bytes());
                fnv.write(&[0]);
            }
        }
    }
    for finalizer in &template.finalizers {
        fnv.write(finalizer.as_bytes());
        fnv.write(&[0]);
    }
    fnv.write(template.spec.as_bytes());
    if let Some(collisions) = collisions {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&collisions.to_le_bytes());
        fnv.write(&bytes);
    }
    safe_encode_string(&fnv.sum().to_string())
}
