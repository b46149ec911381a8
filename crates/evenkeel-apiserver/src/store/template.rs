//! Template of an encoded object that every server creates at its start, with its own UID and creation time.

use std::ops::Range;

use memchr::memmem;

use super::entry::Encoded;

/// Value that differs between servers.
#[derive(Debug, Clone, Copy)]
enum Placeholder {
    Uid,
    Time,
}

/// Encoded object without its UID and its times.
#[derive(Debug)]
pub(crate) struct Template {
    /// Pieces of the encoded object, each with the value that follows it.
    pieces: Vec<(Box<[u8]>, Placeholder)>,
    /// Bytes after the last value.
    end: Box<[u8]>,
    /// Object with an empty buffer, for its other attributes.
    without_bytes: Encoded,
}

impl Template {
    /// Cuts an encoded object wherever it contains `uid` or `time`. Both must follow the object's resource version.
    pub(crate) fn new(encoded: &Encoded, uid: &str, time: &str) -> Self {
        let bytes = encoded.bytes();
        let mut found: Vec<(Range<usize>, Placeholder)> = Vec::new();
        for (text, placeholder) in [(uid, Placeholder::Uid), (time, Placeholder::Time)] {
            for start in memmem::find_iter(bytes, text) {
                found.push((start..start + text.len(), placeholder));
            }
        }
        found.sort_unstable_by_key(|(range, _)| range.start);
        let (mut pieces, mut piece_start) = (Vec::new(), 0);
        for (range, placeholder) in found {
            pieces.push((bytes[piece_start..range.start].into(), placeholder));
            piece_start = range.end;
        }
        let end = bytes[piece_start..].into();
        Self { pieces, end, without_bytes: encoded.with_bytes(Vec::new()) }
    }

    /// Returns the object with this UID and this time.
    pub(crate) fn fill(&self, uid: &str, time: &str) -> Encoded {
        let length: usize = self.pieces.iter().map(|(piece, _)| piece.len() + uid.len()).sum();
        let mut bytes = Vec::with_capacity(length + self.end.len());
        for (piece, placeholder) in &self.pieces {
            bytes.extend_from_slice(piece);
            let value = match placeholder {
                Placeholder::Uid => uid,
                Placeholder::Time => time,
            };
            bytes.extend_from_slice(value.as_bytes());
        }
        bytes.extend_from_slice(&self.end);
        self.without_bytes.with_bytes(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::super::SelectionAttributes;
    use super::*;
    use serde_json::json;

    #[test]
    fn templates_take_values_of_other_lengths() {
        let object =
            json!({"kind": "A", "metadata": {"uid": "U", "n": "nUn"}, "a": "T", "b": ["T"]});
        let encoded = Encoded::new(&object, SelectionAttributes::default());
        let template = Template::new(&encoded, "\"U\"", "T");
        for (uid, time) in [("longer", ""), ("", "2026-01-01")] {
            let filled = template.fill(&format!("\"{uid}\""), time).decode().expect("JSON");
            let expected = json!({
                "kind": "A", "apiVersion": null, "a": time, "b": [time],
                "metadata": {"resourceVersion": "", "uid": uid, "n": "nUn"},
            });
            assert_eq!(filled, expected);
        }
    }
}
