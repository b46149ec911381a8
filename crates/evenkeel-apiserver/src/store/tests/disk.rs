//! Folder in memory that injects the faults of disks: a full disk, refused writes, and the loss of unsynced data and of
//! data whose sync failed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Debug};
use std::io;
use std::sync::{Arc, Mutex};

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use redb::StorageBackend;

use super::super::folder::Folder;

const BLOCK: usize = 4096;
/// Unit in bytes that a disk writes atomically.
const SECTOR: usize = 512;

/// Faulty folder. Clones share its files.
#[derive(Clone)]
pub(super) struct FaultyFolder(Arc<Mutex<Files>>);

struct Files {
    names: BTreeMap<String, usize>,
    files: Vec<Contents>,
    faults: Faults,
    rng: StdRng,
}

/// Faults that the folder injects.
#[derive(Debug, Clone, Default)]
pub(super) struct Faults {
    /// Capacity of the disk in bytes; `None` for no limit.
    pub(super) capacity: Option<usize>,
    /// Number of writes before one that fails halfway.
    pub(super) fail_write: Option<usize>,
    /// Number of syncs before one that fails. Its data may be lost in a crash, although readers see it until then.
    pub(super) fail_sync: Option<usize>,
    /// Whether all writes fail.
    pub(super) read_only: bool,
}

#[derive(Debug, Clone)]
enum Write {
    Length(usize),
    Bytes(usize, Vec<u8>),
}

#[derive(Debug, Clone, Default)]
struct Contents {
    /// Contents that readers see.
    now: Vec<u8>,
    /// Contents after a crash that loses all unsynced data.
    stored: Vec<u8>,
    unsynced: Vec<Write>,
    /// Numbers of the blocks that the file occupies on the disk.
    blocks: BTreeSet<usize>,
}

fn apply(bytes: &mut Vec<u8>, write: &Write) {
    match write {
        Write::Length(length) => bytes.resize(*length, 0),
        Write::Bytes(offset, data) => {
            bytes.resize(bytes.len().max(offset + data.len()), 0);
            bytes[*offset..offset + data.len()].copy_from_slice(data);
        }
    }
}

impl FaultyFolder {
    pub(super) fn new(seed: u64) -> Self {
        Self::holding(BTreeMap::new(), seed)
    }

    fn holding(files: BTreeMap<String, Vec<u8>>, seed: u64) -> Self {
        let mut names = BTreeMap::new();
        let mut contents = Vec::new();
        for (name, bytes) in files {
            names.insert(name, contents.len());
            let blocks = (0..bytes.len().div_ceil(BLOCK)).collect();
            let (now, stored) = (bytes.clone(), bytes);
            contents.push(Contents { now, stored, unsynced: Vec::new(), blocks });
        }
        let rng = StdRng::seed_from_u64(seed);
        Self(Arc::new(Mutex::new(Files { names, files: contents, faults: Faults::default(), rng })))
    }

    fn with<T>(&self, work: impl FnOnce(&mut Files) -> T) -> T {
        work(&mut self.0.lock().expect("no panic before"))
    }

    pub(super) fn set(&self, faults: impl FnOnce(&mut Faults)) {
        self.with(|files| faults(&mut files.faults));
    }

    /// Returns the number of bytes in use.
    pub(super) fn used(&self) -> usize {
        self.with(|files| files.used())
    }

    /// Returns a copy of the folder as readers see it.
    pub(super) fn copy(&self) -> Self {
        let files = self.with(|files| {
            files
                .names
                .iter()
                .map(|(name, file)| (name.clone(), files.files[*file].now.clone()))
                .collect()
        });
        Self::holding(files, 0)
    }

    /// Returns the folder after a power failure: any part of the unsynced data may be written, in any order.
    pub(super) fn crash(&self) -> Self {
        self.with(|files| {
            let mut left = BTreeMap::new();
            for (name, file) in files.names.clone() {
                let contents = files.files[file].clone();
                let mut bytes = contents.stored;
                let share = files.rng.random_range(0..=4);
                for write in &contents.unsynced {
                    match write {
                        Write::Length(_) if files.rng.random_range(0..4) < share => {
                            apply(&mut bytes, write);
                        }
                        Write::Length(_) => {}
                        Write::Bytes(offset, data) => {
                            for (n, sector) in data.chunks(SECTOR).enumerate() {
                                if files.rng.random_range(0..4) < share {
                                    let part = Write::Bytes(offset + n * SECTOR, sector.to_vec());
                                    apply(&mut bytes, &part);
                                }
                            }
                        }
                    }
                }
                left.insert(name, bytes);
            }
            let seed = files.rng.random();
            Self::holding(left, seed)
        })
    }

    /// Flips a random bit of a file. Returns false if the file does not exist or is empty.
    pub(super) fn flip(&self, name: &str) -> bool {
        self.with(|files| {
            let Some(file) = files.names.get(name).copied() else { return false };
            let length = files.files[file].now.len();
            if length == 0 {
                return false;
            }
            let (offset, bit) = (files.rng.random_range(0..length), files.rng.random_range(0..8));
            let contents = &mut files.files[file];
            for bytes in [&mut contents.now, &mut contents.stored] {
                bytes[offset] ^= 1 << bit;
            }
            true
        })
    }

    /// Truncates a file.
    pub(super) fn cut(&self, name: &str, length: usize) {
        self.with(|files| {
            let file = files.names[name];
            files.files[file].now.truncate(length);
            files.files[file].stored.truncate(length);
        });
    }

    /// Returns the bytes of a file.
    pub(super) fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        self.with(|files| Some(files.files[*files.names.get(name)?].now.clone()))
    }
}

impl Files {
    fn used(&self) -> usize {
        self.names.values().map(|file| self.files[*file].blocks.len() * BLOCK).sum()
    }

    fn write(&mut self, file: usize, write: Write) -> io::Result<()> {
        if self.faults.read_only {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        let (mut write, mut result) = (write, Ok(()));
        if let Write::Bytes(offset, data) = &mut write {
            let failing = countdown(&mut self.faults.fail_write);
            let fitting = self.fitting(file, *offset, data.len());
            if failing {
                data.truncate(data.len() / 2);
                result = Err(io::Error::other("injected"));
            } else if fitting < data.len() {
                data.truncate(fitting);
                result = Err(io::ErrorKind::StorageFull.into());
            }
            let blocks = *offset / BLOCK..(*offset + data.len()).div_ceil(BLOCK);
            self.files[file].blocks.extend(blocks);
        }
        let contents = &mut self.files[file];
        if let Write::Length(length) = &write {
            let _ = contents.blocks.split_off(&length.div_ceil(BLOCK));
        }
        apply(&mut contents.now, &write);
        contents.unsynced.push(write);
        result
    }

    /// Returns how many of these bytes fit on the disk.
    fn fitting(&self, file: usize, offset: usize, length: usize) -> usize {
        let Some(capacity) = self.faults.capacity else { return length };
        let mut free = capacity.saturating_sub(self.used()) / BLOCK;
        for block in offset / BLOCK..(offset + length).div_ceil(BLOCK) {
            if self.files[file].blocks.contains(&block) {
                continue;
            }
            if free == 0 {
                return (block * BLOCK).saturating_sub(offset);
            }
            free -= 1;
        }
        length
    }

    fn sync(&mut self, file: usize) -> io::Result<()> {
        if self.faults.read_only {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        let failing = countdown(&mut self.faults.fail_sync);
        let contents = &mut self.files[file];
        for write in std::mem::take(&mut contents.unsynced) {
            if !failing || self.rng.random() {
                apply(&mut contents.stored, &write);
            }
        }
        if failing { Err(io::Error::other("injected")) } else { Ok(()) }
    }
}

/// Decrements a counter. Returns whether it was 0, and clears it then.
fn countdown(counter: &mut Option<usize>) -> bool {
    match counter {
        Some(0) => {
            *counter = None;
            true
        }
        Some(n) => {
            *n -= 1;
            false
        }
        None => false,
    }
}

impl Folder for FaultyFolder {
    fn open(&self, name: &str) -> io::Result<Box<dyn StorageBackend>> {
        self.with(|files| {
            let file = match files.names.get(name) {
                Some(file) => *file,
                None if files.faults.read_only => {
                    return Err(io::ErrorKind::ReadOnlyFilesystem.into());
                }
                None => {
                    files.files.push(Contents::default());
                    files.names.insert(name.to_owned(), files.files.len() - 1);
                    files.files.len() - 1
                }
            };
            Ok(Box::new(Handle { folder: self.clone(), file }) as Box<dyn StorageBackend>)
        })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.with(|files| {
            let file = files.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
            files.names.insert(to.to_owned(), file);
            Ok(())
        })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.with(|files| {
            if files.faults.read_only && files.names.contains_key(name) {
                return Err(io::ErrorKind::ReadOnlyFilesystem.into());
            }
            files.names.remove(name);
            Ok(())
        })
    }

    fn fill(&self, name: &str, bytes: usize) -> io::Result<()> {
        let file = self.open(name)?;
        file.write(0, &vec![1; bytes])?;
        file.sync_data()
    }

    fn contains(&self, name: &str) -> bool {
        self.with(|files| files.names.contains_key(name))
    }

    fn display_path(&self) -> String {
        "/data".to_owned()
    }
}

/// Open file: an index into the folder's files.
struct Handle {
    folder: FaultyFolder,
    file: usize,
}

impl Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "file {}", self.file)
    }
}

impl StorageBackend for Handle {
    fn len(&self) -> io::Result<u64> {
        Ok(self.folder.with(|files| files.files[self.file].now.len() as u64))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).expect("small");
        self.folder.with(|files| match files.files[self.file].now.get(start..start + out.len()) {
            Some(bytes) => {
                out.copy_from_slice(bytes);
                Ok(())
            }
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let length = usize::try_from(len).expect("small");
        self.folder.with(|files| files.write(self.file, Write::Length(length)))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.folder.with(|files| files.sync(self.file))
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let offset = usize::try_from(offset).expect("small");
        self.folder.with(|files| files.write(self.file, Write::Bytes(offset, data.to_vec())))
    }
}
