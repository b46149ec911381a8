//! Watch events: changes of stored objects.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::entry::{Change, Entry};
use super::event_bytes::RingBytes;
use crate::output::Format;

/// Maximum number of cached frames per event. Most clients request the same format.
const MAX_FRAMES: usize = 2;

/// Watch event: one change of an object.
#[derive(Debug)]
pub(crate) struct Event {
    /// Object after the change. For a deletion, it is the last state with the deletion's revision.
    pub(crate) entry: Arc<Entry>,
    /// Object before the change.
    pub(crate) previous: Option<Arc<Entry>>,
    cache: Mutex<Cache>,
}

/// Data that an event caches while it is in a ring.
#[derive(Debug, Default)]
struct Cache {
    /// Most recent frames in formats other than the stored one. All watches share them.
    frames: Vec<CachedFrame>,
    /// Counter of the ring, with the event's counted bytes; `None` outside of a ring.
    ring_bytes: Option<(Arc<RingBytes>, usize)>,
}

/// Frame of an event for the watches that request its format. The type of the event depends on a watch's selector.
#[derive(Debug)]
struct CachedFrame {
    format: Format,
    change: Change,
    bytes: Bytes,
}

impl Event {
    pub(crate) fn new(entry: Arc<Entry>, previous: Option<Arc<Entry>>) -> Self {
        Self { entry, previous, cache: Mutex::default() }
    }

    /// Returns the event's frame in this format, with the event type `change`. `encode` creates it unless it is cached.
    pub(crate) fn frame<E>(
        &self,
        format: &Format,
        change: Change,
        encode: impl FnOnce() -> Result<Bytes, E>,
    ) -> Result<Bytes, E> {
        let find = |cache: &Cache| {
            let mut frames = cache.frames.iter();
            let found = frames.find(|cached| cached.change == change && cached.format == *format);
            found.map(|cached| cached.bytes.clone())
        };
        if let Some(frame) = find(&self.cache()) {
            return Ok(frame);
        }
        let frame = encode()?;
        let mut cache = self.cache();
        let has_room = match &cache.ring_bytes {
            Some((ring_bytes, _)) => ring_bytes.has_room(frame.len()),
            None => false,
        };
        // Another watch may have cached the same frame in the meantime.
        if has_room && find(&cache).is_none() {
            if cache.frames.len() == MAX_FRAMES {
                cache.frames.remove(0);
            }
            cache.frames.push(CachedFrame { format: format.clone(), change, bytes: frame.clone() });
        }
        // `encode` may also have cached the object's protobuf message.
        self.update_counted_bytes(&mut cache);
        Ok(frame)
    }

    /// Counts the event's bytes in the ring's counter until [`leave_ring`](Self::leave_ring).
    pub(super) fn enter_ring(&self, ring_bytes: &Arc<RingBytes>) {
        let mut cache = self.cache();
        cache.ring_bytes = Some((ring_bytes.clone(), 0));
        self.update_counted_bytes(&mut cache);
    }

    /// Drops the cached frames and subtracts the event's bytes, because it has left its ring.
    pub(super) fn leave_ring(&self) {
        let mut cache = self.cache();
        if let Some((ring_bytes, bytes)) = cache.ring_bytes.take() {
            ring_bytes.change(bytes, 0);
        }
        cache.frames = Vec::new();
    }

    /// Replaces the event's counted bytes with its current size.
    fn update_counted_bytes(&self, cache: &mut Cache) {
        let Some((ring_bytes, counted)) = &mut cache.ring_bytes else { return };
        let states = std::iter::once(&self.entry).chain(&self.previous);
        let states = states.map(|e| e.size() + e.known_protobuf().map_or(0, Bytes::len));
        let frames = cache.frames.iter().map(|cached| cached.bytes.len());
        let now = size_of::<Self>() + states.chain(frames).sum::<usize>();
        ring_bytes.change(*counted, now);
        *counted = now;
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Error for a revision whose events the store no longer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Expired;

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{HeaderMap, HeaderValue};
    use serde_json::json;

    use super::super::entry::{Encoded, SelectionAttributes};
    use super::super::event_bytes::{MAX_BYTES, RingBytes};
    use super::*;
    use crate::resource::Table;

    #[test]
    fn an_event_keeps_two_frames_and_counts_them_while_it_is_in_a_ring() {
        let pods = Table::builtin().get("v1", "pods").expect("pods");
        let format = |accept: &'static str, pretty: &str| {
            let headers =
                HeaderMap::from_iter([(http::header::ACCEPT, HeaderValue::from_static(accept))]);
            let query = [("pretty".to_owned(), pretty.to_owned())];
            Format::negotiate(&pods, "", &headers, &query).expect("a form")
        };
        let object = json!({"metadata": {"name": "a"}});
        let encoded = Encoded::new(&object, SelectionAttributes::default());
        let entry = encoded.into_entry("a".into(), 1, Change::Added);
        let (size, ring_bytes) = (entry.size(), Arc::new(RingBytes::default()));
        let event = Event::new(Arc::new(entry), None);
        let frame = |format: &Format| {
            let encode = || Ok::<_, Infallible>(Bytes::from(vec![0; 1000]));
            event.frame(format, Change::Added, encode).expect("never fails")
        };
        frame(&format("application/json", "1"));
        assert_eq!((event.cache().frames.len(), ring_bytes.own()), (0, 0), "in no ring yet");
        event.enter_ring(&ring_bytes);
        let base = size_of::<Event>() + size;
        assert_eq!(ring_bytes.own(), base);
        for (frames, accept) in (1..).zip([
            "application/yaml",
            "application/json;as=Table;g=meta.k8s.io;v=v1",
            "application/json;as=Table;g=meta.k8s.io;v=v1beta1",
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
            "application/vnd.kubernetes.protobuf",
        ]) {
            let (first, again) = (frame(&format(accept, "0")), frame(&format(accept, "0")));
            assert_eq!(first.as_ptr(), again.as_ptr(), "{accept}");
            assert_eq!(ring_bytes.own(), base + 1000 * frames.min(2), "{accept}");
        }
        // Without room in the ring, each watch creates its own frame.
        ring_bytes.change(0, MAX_BYTES);
        let (first, again) =
            (frame(&format("application/yaml", "0")), frame(&format("application/yaml", "0")));
        assert_ne!(first.as_ptr(), again.as_ptr());
        ring_bytes.change(MAX_BYTES, 0);
        event.leave_ring();
        assert_eq!((event.cache().frames.len(), ring_bytes.own()), (0, 0));
        frame(&format("application/yaml", "0"));
        assert_eq!((event.cache().frames.len(), ring_bytes.own()), (0, 0));
    }
}
