//! Recorded and compressed OpenAPI documents of built-in groups.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::sync::OnceLock;

use flate2::read::MultiGzDecoder;
use serde_json::Value;

pub(super) static V2_JSON: &[u8] = include_bytes!("../../data/openapi/v2.json.gz");
pub(super) static V2_PROTOBUF: &[u8] = include_bytes!("../../data/openapi/v2.pb.gz");
/// JSON object with the [`index`].
static V3_INDEX: &str = include_str!("../../data/openapi/v3.index.json");
/// Concatenated documents, each compressed with gzip.
static V3_PACK: &[u8] = include_bytes!("../../data/openapi/v3.pack");

/// Returns the hash of each recorded v3 document, and its offset and length in the pack.
pub(super) fn index() -> &'static BTreeMap<String, (String, usize, usize)> {
    static INDEX: OnceLock<BTreeMap<String, (String, usize, usize)>> = OnceLock::new();
    INDEX.get_or_init(|| serde_json::from_str(V3_INDEX).unwrap_or_default())
}

/// Returns the hash and the compressed bytes of a recorded v3 document.
pub(super) fn compressed(name: &str) -> Option<(&'static str, &'static [u8])> {
    let (hash, offset, length) = index().get(name)?;
    Some((hash, V3_PACK.get(*offset..offset + length)?))
}

/// Returns a recorded v3 document; null if none has that name.
pub(super) fn recorded(name: &str) -> Value {
    let text = compressed(name).and_then(|(_, compressed)| decompressed(compressed).ok());
    text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

/// Decompresses a document.
///
/// # Errors
/// Fails if the document is not valid gzip.
pub(super) fn decompressed(compressed: &[u8]) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    MultiGzDecoder::new(compressed).read_to_end(&mut body)?;
    Ok(body)
}
