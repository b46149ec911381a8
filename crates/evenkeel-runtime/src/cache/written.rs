//! Answers to the program's own writes, by whose text a watch event of such a write is recognized. Its object is then decoded
//! only once.

use super::object::Object;
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Maximum size in bytes of the remembered texts of one cache. The events of writes follow within milliseconds, so few answers
/// wait for theirs. Some never get one: the event came first, or another write hides it.
const MAX_BYTES: usize = 64 << 10;

/// Recent answers whose events have not come, the oldest at the front.
#[derive(Default)]
pub(super) struct Written(Mutex<Answers>);

#[derive(Default)]
struct Answers {
    answers: VecDeque<(Box<[u8]>, Arc<dyn Object>)>,
    /// Size of the texts.
    bytes: usize,
}

impl Written {
    /// Remembers an object by its text in an answer.
    pub(super) fn add(&self, text: &[u8], object: &Arc<dyn Object>) {
        let text = text.trim_ascii_end();
        if text.len() > MAX_BYTES {
            return;
        }
        let mut state = self.lock();
        state.bytes += text.len();
        state.answers.push_back((text.into(), Arc::clone(object)));
        while state.bytes > MAX_BYTES
            && let Some((text, _)) = state.answers.pop_front()
        {
            state.bytes -= text.len();
        }
    }

    /// Removes and returns the object whose answer had exactly this text.
    pub(super) fn take(&self, text: &[u8]) -> Option<Arc<dyn Object>> {
        let mut state = self.lock();
        let at = state.answers.iter().position(|(known, _)| **known == *text)?;
        let (text, object) = state.answers.remove(at)?;
        state.bytes -= text.len();
        Some(object)
    }

    fn lock(&self) -> MutexGuard<'_, Answers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Metadata;

    fn object() -> Arc<dyn Object> {
        Arc::new(Metadata::default())
    }

    #[test]
    fn an_answer_is_taken_once_and_by_its_whole_text() {
        let (written, first, second) = (Written::default(), object(), object());
        written.add(b"{\"a\":1}\n", &first);
        written.add(b"{\"a\":2}", &second);
        assert!(written.take(b"{\"a\":3}").is_none() && written.take(b"{\"a\":1").is_none());
        assert!(Arc::ptr_eq(&written.take(b"{\"a\":1}").unwrap(), &first));
        assert!(written.take(b"{\"a\":1}").is_none());
        assert!(Arc::ptr_eq(&written.take(b"{\"a\":2}").unwrap(), &second));
        assert_eq!(written.lock().bytes, 0);
    }

    #[test]
    fn the_oldest_answers_are_forgotten() {
        let written = Written::default();
        let text = |n: u8| vec![n; MAX_BYTES / 2];
        (0..3).for_each(|n| written.add(&text(n), &object()));
        assert!(written.take(&text(0)).is_none());
        assert!(written.take(&text(1)).is_some() && written.take(&text(2)).is_some());
        written.add(&vec![3; MAX_BYTES + 1], &object());
        assert!(written.lock().answers.is_empty());
    }
}
