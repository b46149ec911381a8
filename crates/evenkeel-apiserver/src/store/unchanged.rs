//! Overlay of a file: reads come from the file, and writes stay in memory. The engine may repair a file while it opens
//! it, but a damaged file must not change.

use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::io;
use std::ops::Bound;
use std::sync::{Mutex, PoisonError};

use redb::StorageBackend;

use super::folder::forward_locks;

const BLOCK: u64 = 4096;

/// File with an overlay of the writes since it was opened.
pub(super) struct Unchanged {
    file: Box<dyn StorageBackend>,
    changes: Mutex<Changes>,
}

struct Changes {
    length: u64,
    /// Minimum length since the file was opened. Later bytes of the file count as truncated.
    kept: u64,
    blocks: BTreeMap<u64, Box<[u8]>>,
}

impl Unchanged {
    pub(super) fn new(file: Box<dyn StorageBackend>) -> io::Result<Self> {
        let length = file.len()?;
        let changes = Changes { length, kept: length, blocks: BTreeMap::new() };
        Ok(Self { file, changes: Mutex::new(changes) })
    }

    fn with<T>(&self, work: impl FnOnce(&mut Changes) -> T) -> T {
        work(&mut self.changes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns a block, with zeros after the end of the file.
    fn block(&self, changes: &Changes, number: u64) -> io::Result<Box<[u8]>> {
        if let Some(block) = changes.blocks.get(&number) {
            return Ok(block.clone());
        }
        let mut block = vec![0; usize::try_from(BLOCK).unwrap_or_default()].into_boxed_slice();
        let start = number * BLOCK;
        let stored = changes.kept.saturating_sub(start).min(BLOCK);
        let stored = usize::try_from(stored).unwrap_or_default();
        if let Some(part) = block.get_mut(..stored).filter(|part| !part.is_empty()) {
            self.file.read(start, part)?;
        }
        Ok(block)
    }
}

/// Returns the blocks of a range: the block's number, the start of the range in the block, and its length in the block.
fn blocks(offset: u64, length: usize) -> impl Iterator<Item = (u64, usize, usize)> {
    let end = offset + length as u64;
    (offset / BLOCK..end.div_ceil(BLOCK)).map(move |number| {
        let from = offset.max(number * BLOCK);
        let to = end.min((number + 1) * BLOCK);
        let small = |n: u64| usize::try_from(n).unwrap_or_default();
        (number, small(from - number * BLOCK), small(to - from))
    })
}

impl Debug for Unchanged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.file.fmt(f)
    }
}

impl StorageBackend for Unchanged {
    fn len(&self) -> io::Result<u64> {
        Ok(self.with(|changes| changes.length))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.with(|changes| {
            if offset + out.len() as u64 > changes.length {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let pristine = changes.blocks.is_empty();
            if pristine && offset + out.len() as u64 <= changes.kept {
                return self.file.read(offset, out);
            }
            let mut rest = out;
            for (number, at, length) in blocks(offset, rest.len()) {
                let (part, after) = rest.split_at_mut(length);
                part.copy_from_slice(&self.block(changes, number)?[at..at + length]);
                rest = after;
            }
            Ok(())
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.with(|changes| {
            changes.length = len;
            changes.kept = changes.kept.min(len);
            changes.blocks.split_off(&len.div_ceil(BLOCK));
            if let Some(block) = changes.blocks.get_mut(&(len / BLOCK)) {
                let cut = usize::try_from(len % BLOCK).unwrap_or_default();
                block[cut..].fill(0);
            }
            Ok(())
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.with(|changes| {
            let mut rest = data;
            for (number, at, length) in blocks(offset, data.len()) {
                let (part, after) = rest.split_at(length);
                let mut block = self.block(changes, number)?;
                block[at..at + length].copy_from_slice(part);
                changes.blocks.insert(number, block);
                rest = after;
            }
            changes.length = changes.length.max(offset + data.len() as u64);
            Ok(())
        })
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }

    forward_locks!();
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use redb::backends::InMemoryBackend;

    proptest! {
        #[test]
        fn the_overlay_reads_like_a_changed_file(
            ops in proptest::collection::vec((0u8..3, 0u64..20_000, 0usize..9_000, any::<u8>()), 0..12),
        ) {
            let start: Vec<u8> = (0..10_000u32).map(|n| n as u8).collect();
            let file = || {
                let file = InMemoryBackend::new();
                file.set_len(start.len() as u64).expect("memory");
                file.write(0, &start).expect("memory");
                file
            };
            let (plain, overlay) = (file(), Unchanged::new(Box::new(file())).expect("memory"));
            for (op, offset, length, byte) in ops {
                for file in [&plain as &dyn StorageBackend, &overlay] {
                    let end = offset + length as u64;
                    match op {
                        0 => file.set_len(offset).expect("memory"),
                        _ if end <= file.len().expect("memory") => {
                            file.write(offset, &vec![byte; length]).expect("memory");
                        }
                        _ => {}
                    }
                }
            }
            let all = |file: &dyn StorageBackend| {
                let mut out = vec![0; usize::try_from(file.len().expect("memory")).expect("small")];
                file.read(0, &mut out).expect("whole");
                out
            };
            prop_assert!(all(&plain) == all(&overlay));
        }
    }
}
