//! Hash functions, and names that contain hashes.

use crate::template::{HASH_LABEL, Template};

/// Alphabet of generated names. It has no vowels and no `0`, `1` or `3`, so that names do not spell words.
///
/// Upstream: `alphanums`.
pub const ALPHANUMS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Initial value of both FNV hashes of 32 bits.
const FNV_OFFSET_BASIS: u32 = 0x811c_9dc5;

/// Multiplier of both FNV hashes of 32 bits.
const FNV_PRIME: u32 = 0x0100_0193;

/// FNV-1a hash of 32 bits. For each byte, it first applies exclusive or, then multiplies.
#[derive(Debug, Clone, Copy)]
pub struct Fnv32a(u32);

impl Default for Fnv32a {
    fn default() -> Self {
        Self(FNV_OFFSET_BASIS)
    }
}

impl Fnv32a {
    /// Adds `bytes` to the hash.
    pub fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u32::from(*byte)).wrapping_mul(FNV_PRIME);
        }
    }

    /// Returns the hash.
    pub fn sum(self) -> u32 {
        self.0
    }
}

/// Returns the FNV-1 hash of 32 bits, which is part of the names of ControllerRevisions. For each byte, it first
/// multiplies, then applies exclusive or.
pub fn fnv32(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(FNV_OFFSET_BASIS, |hash, byte| hash.wrapping_mul(FNV_PRIME) ^ u32::from(*byte))
}

/// Maps each byte of a string to a letter or digit of [`ALPHANUMS`].
///
/// Upstream: `SafeEncodeString`.
pub fn safe_encode_string(text: &str) -> String {
    text.bytes().map(|byte| char::from(ALPHANUMS[usize::from(byte) % ALPHANUMS.len()])).collect()
}

/// Returns the hash of a pod template, for the name of a ReplicaSet and the label on its pods. Another collision count
/// yields another hash.
///
/// The hash depends only on the canonical JSON, so it is the same in every release. It differs from upstream's hash,
/// which is harmless: controllers find a template's ReplicaSet by comparing templates.
pub fn template(template: &Template, collisions: Option<i32>) -> String {
    let mut fnv = Fnv32a::default();
    for (name, map) in [("labels", &template.labels), ("annotations", &template.annotations)] {
        for (key, value) in map.iter().filter(|(key, _)| *key != HASH_LABEL) {
            // A zero byte ends each part, so that parts of different lengths cannot yield the same bytes.
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
        // As in upstream's `ComputeHash`, the count takes four of eight bytes.
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&collisions.to_le_bytes());
        fnv.write(&bytes);
    }
    safe_encode_string(&fnv.sum().to_string())
}
