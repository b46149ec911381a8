//! Copy-on-write overlay of a database file: reads fall through to the file, writes stay in memory. redb repairs an
//! unclean file when it opens it. Verification opens the overlay instead, so that a damaged file is kept as evidence.

use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::io;
use std::iter;
use std::ops::Bound;
use std::sync::{Mutex, PoisonError};

use redb::StorageBackend;

use super::folder::forward_locks;

/// Size in bytes of the blocks that are copied before they change.
const BLOCK: usize = 4096;

/// File with an overlay of the writes since it was opened.
pub(super) struct OverlayBackend {
    file: Box<dyn StorageBackend>,
    overlay: Mutex<Overlay>,
}

/// Changes of a file that are kept in memory.
struct Overlay {
    /// Length of the file with the changes.
    length: u64,
    /// Smallest length that `set_len` has set. Reads return zeros for the bytes of the file beyond this
    /// offset, because they were truncated.
    truncated_to: u64,
    /// Changed blocks, by number.
    blocks: BTreeMap<u64, Box<[u8]>>,
}

impl OverlayBackend {
    pub(super) fn new(file: Box<dyn StorageBackend>) -> io::Result<Self> {
        let length = file.len()?;
        let overlay = Overlay { length, truncated_to: length, blocks: BTreeMap::new() };
        Ok(Self { file, overlay: Mutex::new(overlay) })
    }

    /// Runs `work` on the locked overlay.
    fn with<T>(&self, work: impl FnOnce(&mut Overlay) -> T) -> T {
        work(&mut self.overlay.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns a block, with zeros after the end of the file.
    fn block(&self, overlay: &Overlay, number: u64) -> io::Result<Box<[u8]>> {
        if let Some(block) = overlay.blocks.get(&number) {
            return Ok(block.clone());
        }
        let mut block = vec![0; BLOCK].into_boxed_slice();
        let start = number * BLOCK as u64;
        let stored = overlay.truncated_to.saturating_sub(start).min(BLOCK as u64) as usize;
        if stored > 0 {
            self.file.read(start, &mut block[..stored])?;
        }
        Ok(block)
    }
}

/// Returns the position of an offset in its block.
fn in_block(offset: u64) -> usize {
    (offset % BLOCK as u64) as usize
}

/// Splits a range at block boundaries into (block number, offset in the block, length).
fn split_by_block(mut offset: u64, mut length: usize) -> impl Iterator<Item = (u64, usize, usize)> {
    iter::from_fn(move || {
        if length == 0 {
            return None;
        }
        let (number, start) = (offset / BLOCK as u64, in_block(offset));
        let part_length = length.min(BLOCK - start);
        offset += part_length as u64;
        length -= part_length;
        Some((number, start, part_length))
    })
}

impl Debug for OverlayBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.file.fmt(f)
    }
}

impl StorageBackend for OverlayBackend {
    fn len(&self) -> io::Result<u64> {
        Ok(self.with(|overlay| overlay.length))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.with(|overlay| {
            let end = offset + out.len() as u64;
            if end > overlay.length {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if overlay.blocks.is_empty() && end <= overlay.truncated_to {
                return self.file.read(offset, out);
            }
            let mut rest = out;
            for (number, start, length) in split_by_block(offset, rest.len()) {
                let (part, after) = rest.split_at_mut(length);
                part.copy_from_slice(&self.block(overlay, number)?[start..start + length]);
                rest = after;
            }
            Ok(())
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.with(|overlay| {
            overlay.length = len;
            overlay.truncated_to = overlay.truncated_to.min(len);
            overlay.blocks.split_off(&len.div_ceil(BLOCK as u64));
            if let Some(block) = overlay.blocks.get_mut(&(len / BLOCK as u64)) {
                block[in_block(len)..].fill(0);
            }
            Ok(())
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.with(|overlay| {
            let mut rest = data;
            for (number, start, length) in split_by_block(offset, data.len()) {
                let (part, after) = rest.split_at(length);
                let mut block = self.block(overlay, number)?;
                block[start..start + length].copy_from_slice(part);
                overlay.blocks.insert(number, block);
                rest = after;
            }
            overlay.length = overlay.length.max(offset + data.len() as u64);
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

    /// Opens an overlay of a file with these bytes.
    fn overlay_of(bytes: &[u8]) -> OverlayBackend {
        let file = InMemoryBackend::new();
        file.set_len(bytes.len() as u64).expect("memory");
        file.write(0, bytes).expect("memory");
        OverlayBackend::new(Box::new(file)).expect("memory")
    }

    fn contents(file: &dyn StorageBackend) -> Vec<u8> {
        let mut out = vec![0; file.len().expect("memory") as usize];
        file.read(0, &mut out).expect("the whole file");
        out
    }

    proptest! {
        #[test]
        fn overlay_reads_like_a_changed_file_and_keeps_the_file(
            ops in proptest::collection::vec((0u8..4, 0u64..20_000, 0usize..9_000, any::<u8>()), 0..12),
        ) {
            let original: Vec<u8> = (0..10_000u32).map(|n| n as u8).collect();
            let mut expected = original.clone();
            let overlay = overlay_of(&original);
            for (op, offset, length, byte) in ops {
                let range = offset as usize..offset as usize + length;
                match op {
                    0 => {
                        overlay.set_len(offset).expect("memory");
                        expected.resize(range.start, 0);
                    }
                    // A write past the end makes the file longer.
                    1 => {
                        overlay.write(offset, &vec![byte; length]).expect("memory");
                        expected.resize(expected.len().max(range.end), 0);
                        expected[range].fill(byte);
                    }
                    _ => {
                        let mut out = vec![0; length];
                        let read = overlay.read(offset, &mut out).map_err(|error| error.kind());
                        match expected.get(range) {
                            Some(part) => prop_assert!(read.is_ok() && out == part),
                            None => prop_assert_eq!(read, Err(io::ErrorKind::UnexpectedEof)),
                        }
                    }
                }
                prop_assert_eq!(overlay.len().expect("memory"), expected.len() as u64);
            }
            prop_assert!(contents(&overlay) == expected);
            prop_assert!(contents(&*overlay.file) == original, "the file changed");
        }
    }

    #[test]
    fn extended_file_reads_zeros_where_it_was_truncated() {
        let overlay = overlay_of(&[1; 100]);
        overlay.set_len(40).expect("memory");
        overlay.set_len(60).expect("memory");
        assert_eq!(contents(&overlay), [vec![1; 40], vec![0; 20]].concat());
    }
}
