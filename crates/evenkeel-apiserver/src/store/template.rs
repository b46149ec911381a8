//! Encoded object of which only the UID and the time differ from server to server.

use memchr::memmem;

use super::entry::Encoded;

/// Value that differs.
#[derive(Debug, Clone, Copy)]
enum Part {
    Uid,
    Time,
}

/// Encoded object without its UID and its times.
#[derive(Debug)]
pub(crate) struct Template {
    /// Pieces of the encoded object, each with the value that follows it.
    pieces: Vec<(Box<[u8]>, Part)>,
    end: Box<[u8]>,
    /// Object whose bytes the pieces are.
    rest: Encoded,
}

impl Template {
    /// Cuts an encoded object wherever it contains `uid` or `time`. Its resource version comes before them.
    pub(crate) fn new(encoded: &Encoded, uid: &str, time: &str) -> Self {
        let bytes = encoded.bytes();
        let places = |text: &str, part| {
            let length = text.len();
            memmem::find_iter(bytes, text).map(move |at| (at, length, part)).collect::<Vec<_>>()
        };
        let mut found = places(uid, Part::Uid);
        found.extend(places(time, Part::Time));
        found.sort_unstable_by_key(|(at, ..)| *at);
        let (mut pieces, mut from) = (Vec::new(), 0);
        for (at, length, part) in found {
            pieces.push((bytes[from..at].into(), part));
            from = at + length;
        }
        let end = bytes[from..].into();
        Self { pieces, end, rest: encoded.with_bytes(Vec::new()) }
    }

    /// Returns the object with this UID and this time.
    pub(crate) fn fill(&self, uid: &str, time: &str) -> Encoded {
        let length: usize = self.pieces.iter().map(|(piece, _)| piece.len() + uid.len()).sum();
        let mut bytes = Vec::with_capacity(length + self.end.len());
        for (piece, part) in &self.pieces {
            bytes.extend_from_slice(piece);
            let value = match part {
                Part::Uid => uid,
                Part::Time => time,
            };
            bytes.extend_from_slice(value.as_bytes());
        }
        bytes.extend_from_slice(&self.end);
        self.rest.with_bytes(bytes)
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
