//! Recognizes the events of the program's own writes. The server sends a written object twice: in the response, and in a watch
//! event, in either order. Both have the same bytes, so that the object is decoded only once.

use super::object::Object;
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Maximum size in bytes of the remembered encodings of one cache, for responses and for events each. The second encoding
/// follows within milliseconds.
const MAX_BYTES: usize = 64 << 10;

/// Encodings of one cache's objects that may arrive a second time.
#[derive(Default)]
pub(super) struct Written(Mutex<State>);

#[derive(Default)]
struct State {
    /// Objects of responses whose event has not arrived. Some never get an event, because a later write hides it.
    answers: Texts,
    /// Objects of events since the writes in flight began.
    events: Texts,
    /// Number of writes in flight.
    in_flight: usize,
}

/// An object's encoding, and the object.
type Decoded = (Box<[u8]>, Arc<dyn Object>);

/// Copies an encoding, unless it is too large to be kept.
fn decoded(text: &[u8], object: &Arc<dyn Object>) -> Option<Decoded> {
    (text.len() <= MAX_BYTES).then(|| (text.into(), Arc::clone(object)))
}

/// Objects by their encoding, the oldest at the front.
#[derive(Default)]
struct Texts {
    objects: VecDeque<Decoded>,
    /// Total size of the encodings.
    bytes: usize,
}

impl Texts {
    fn add(&mut self, (text, object): Decoded) {
        self.bytes += text.len();
        self.objects.push_back((text, object));
        while self.bytes > MAX_BYTES
            && let Some((text, _)) = self.objects.pop_front()
        {
            self.bytes -= text.len();
        }
    }

    fn take(&mut self, text: &[u8]) -> Option<Arc<dyn Object>> {
        let at = self.objects.iter().position(|(known, _)| **known == *text)?;
        let (text, object) = self.objects.remove(at)?;
        self.bytes -= text.len();
        Some(object)
    }
}

impl Written {
    /// Records that a write is sent.
    pub(super) fn begin(&self) {
        self.lock().in_flight += 1;
    }

    /// Records that a write has its response, or has failed.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.in_flight = state.in_flight.saturating_sub(1);
        if state.in_flight == 0 {
            state.events = Texts::default();
        }
    }

    /// Returns the object in the response to a write. If the event with the same encoding has arrived, returns the event's
    /// object. Otherwise, calls `decode`.
    pub(super) fn of_answer<E>(
        &self,
        text: &[u8],
        decode: impl FnOnce(&[u8]) -> Result<Arc<dyn Object>, E>,
    ) -> Result<Arc<dyn Object>, E> {
        let text = text.trim_ascii_end();
        if let Some(object) = self.lock().events.take(text) {
            return Ok(object);
        }
        let object = decode(text)?;
        if let Some(decoded) = decoded(text, &object) {
            self.lock().answers.add(decoded);
        }
        Ok(object)
    }

    /// Returns the object of an event. If the response with the same encoding has arrived, returns the response's object.
    /// Otherwise, calls `decode`.
    pub(super) fn of_event<E>(
        &self,
        text: &[u8],
        decode: impl FnOnce(&[u8]) -> Result<Arc<dyn Object>, E>,
    ) -> Result<Arc<dyn Object>, E> {
        if let Some(object) = self.lock().answers.take(text) {
            return Ok(object);
        }
        let object = decode(text)?;
        if self.lock().in_flight > 0
            && let Some(decoded) = decoded(text, &object)
        {
            // The encoding was copied without the lock, so the writes may have ended meanwhile.
            let mut state = self.lock();
            if state.in_flight > 0 {
                state.events.add(decoded);
            }
        }
        Ok(object)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Metadata;
    use std::cell::Cell;

    /// Decodes any bytes, and counts how often.
    fn decode(count: &Cell<u32>) -> impl Fn(&[u8]) -> Result<Arc<dyn Object>, ()> {
        |_| {
            count.set(count.get() + 1);
            Ok(Arc::new(Metadata::default()))
        }
    }

    #[test]
    fn an_object_is_decoded_once_whether_its_answer_or_its_event_is_first() {
        let (written, count) = (Written::default(), Cell::new(0));
        written.begin();
        let answer = written.of_answer(b"{\"a\":1}\n", decode(&count)).unwrap();
        let event = written.of_event(b"{\"a\":1}", decode(&count)).unwrap();
        assert!(Arc::ptr_eq(&answer, &event) && count.get() == 1);
        let event = written.of_event(b"{\"a\":2}", decode(&count)).unwrap();
        let answer = written.of_answer(b"{\"a\":2}", decode(&count)).unwrap();
        assert!(Arc::ptr_eq(&answer, &event) && count.get() == 2);
        // Each is recognized once, and by its whole encoding.
        for text in [&b"{\"a\":1}"[..], b"{\"a\":1", b"{\"a\":10}"] {
            let event = written.of_event(text, decode(&count)).unwrap();
            assert!(!Arc::ptr_eq(&answer, &event));
        }
        assert_eq!(count.get(), 5);
    }

    #[test]
    fn events_are_remembered_only_while_a_write_is_in_flight() {
        let (written, count) = (Written::default(), Cell::new(0));
        written.of_event(b"1", decode(&count)).unwrap();
        assert!(written.lock().events.objects.is_empty());
        written.begin();
        written.begin();
        written.of_event(b"2", decode(&count)).unwrap();
        written.end();
        assert_eq!(written.lock().events.objects.len(), 1);
        written.end();
        assert!(written.lock().events.objects.is_empty());
        written.of_answer(b"2", decode(&count)).unwrap();
        assert_eq!(count.get(), 3);
    }

    #[test]
    fn the_oldest_texts_are_forgotten() {
        let (written, count) = (Written::default(), Cell::new(0));
        let text = |n: u8| vec![n; MAX_BYTES / 2];
        for n in 1..=3 {
            written.of_answer(&text(n), decode(&count)).unwrap();
        }
        for n in 1..=3 {
            written.of_event(&text(n), decode(&count)).unwrap();
        }
        assert_eq!(count.get(), 4);
        written.of_answer(&vec![4; MAX_BYTES + 1], decode(&count)).unwrap();
        assert!(written.lock().answers.objects.is_empty());
    }
}
