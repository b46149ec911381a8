//! Memory of lists that the server encodes as a whole before it sends them: Tables, metadata, YAML, and API versions that
//! are not the stored one. Streamed lists need none.
//!
//! Thirty clients that ask for the Table of a namespace of 150 MB and read nothing would otherwise take gigabytes.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of one permit.
const PERMIT_BYTES: usize = 64 * 1024;
/// Bytes that all such lists may take together. A list that takes more has all permits to itself.
const MAX_BYTES: usize = 512 * 1024 * 1024;
/// Bytes of stored objects up to which a list does not wait for memory. The number of concurrent requests bounds such
/// lists.
const UNLIMITED_BYTES: usize = 1024 * 1024;
/// Bytes in memory for each byte of a stored object, while the list is encoded from decoded objects.
const DECODED_FACTOR: usize = 8;

/// Limit on the memory of lists that are encoded as a whole.
pub(crate) struct WholeLists(Arc<Semaphore>);

impl Default for WholeLists {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_BYTES / PERMIT_BYTES)))
    }
}

/// Share of the memory of a list, until it is dropped. `None` for a list that is short.
#[derive(Debug)]
pub(crate) struct ListMemory(Option<OwnedSemaphorePermit>);

impl WholeLists {
    /// Waits until there is memory to encode a list of objects with this size in the store.
    pub(crate) async fn admit(&self, stored_bytes: usize) -> ListMemory {
        if stored_bytes <= UNLIMITED_BYTES {
            return ListMemory(None);
        }
        let permits = permits(stored_bytes.saturating_mul(DECODED_FACTOR));
        // The semaphore is never closed.
        ListMemory(Arc::clone(&self.0).acquire_many_owned(permits).await.ok())
    }
}

impl ListMemory {
    /// Returns whether the list is short.
    pub(crate) fn is_short(&self) -> bool {
        self.0.is_none()
    }

    /// Releases the memory of the decoded objects. The encoded list has this length.
    pub(crate) fn shrink(&mut self, encoded_bytes: usize) {
        if let Some(held) = &mut self.0 {
            let needed = permits(encoded_bytes) as usize;
            let surplus = held.num_permits().saturating_sub(needed);
            drop(held.split(surplus));
        }
    }
}

/// Returns the number of permits for a number of bytes, at most all.
fn permits(bytes: usize) -> u32 {
    let permits = bytes.min(MAX_BYTES).div_ceil(PERMIT_BYTES);
    u32::try_from(permits).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::future::Future;

    use futures::FutureExt as _;

    use super::*;

    fn admitted(waiting: impl Future<Output = ListMemory>) -> Option<ListMemory> {
        waiting.now_or_never()
    }

    #[test]
    fn long_lists_share_the_memory_and_short_ones_wait_for_nobody() {
        let lists = WholeLists::default();
        let huge = admitted(lists.admit(MAX_BYTES * 3)).expect("nobody else is there");
        assert!(admitted(lists.admit(UNLIMITED_BYTES + 1)).is_none(), "all memory is taken");
        assert!(admitted(lists.admit(UNLIMITED_BYTES)).expect("short").is_short());
        drop(huge);
        let quarter = MAX_BYTES / DECODED_FACTOR / 4;
        let mut four: Vec<_> =
            (0..4).map(|_| admitted(lists.admit(quarter)).expect("room")).collect();
        assert!(admitted(lists.admit(quarter)).is_none());
        // Once encoded, a list takes less.
        four[0].shrink(quarter);
        assert!(admitted(lists.admit(quarter / 2)).is_some());
        drop(four);
        assert_eq!(lists.0.available_permits(), MAX_BYTES / PERMIT_BYTES);
    }
}
