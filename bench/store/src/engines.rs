//! The engines behind one trait.

use std::fs::File;
use std::io::{BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use redb::ReadableDatabase as _;
use redb::ReadableTable as _;

use crate::Record;

pub trait Engine {
    /// Writes a batch as a whole; it is on disk when this returns.
    fn commit(&mut self, batch: &[Record]) -> Result<()>;
    /// Gives every record in order.
    fn load(&self, each: &mut dyn FnMut(u64, &[u8]) -> Result<()>) -> Result<()>;
}

pub fn open(name: &str, dir: &Path) -> Result<Box<dyn Engine>> {
    Ok(match name {
        "redb" => Box::new(Redb(redb::Builder::new().set_cache_size(8 << 20).create(dir.join("redb"))?)),
        "fjall" => {
            let database = fjall::Database::builder(dir).cache_size(8 << 20).open()?;
            let records = database.keyspace("records", fjall::KeyspaceCreateOptions::default)?;
            Box::new(Fjall { database, records })
        }
        "heed" => {
            // SAFETY: the folder is this process's own.
            let env = unsafe { heed::EnvOpenOptions::new().map_size(4 << 30).max_dbs(1).open(dir)? };
            let mut write = env.write_txn()?;
            let records = env.create_database(&mut write, Some("records"))?;
            write.commit()?;
            Box::new(Heed { env, records })
        }
        "log" => {
            let path = dir.join("log");
            let file = File::options().create(true).append(true).open(&path)?;
            let end = file.metadata()?.len();
            Box::new(Log { path, file, end, buffer: Vec::new() })
        }
        _ => bail!("no engine {name}"),
    })
}

const RECORDS: redb::TableDefinition<'_, u64, &[u8]> = redb::TableDefinition::new("records");

struct Redb(redb::Database);

impl Engine for Redb {
    fn commit(&mut self, batch: &[Record]) -> Result<()> {
        let write = self.0.begin_write()?;
        {
            let mut table = write.open_table(RECORDS)?;
            for (revision, bytes) in batch {
                table.insert(revision, bytes.as_slice())?;
            }
        }
        write.commit()?;
        Ok(())
    }

    fn load(&self, each: &mut dyn FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        for row in self.0.begin_read()?.open_table(RECORDS)?.iter()? {
            let (revision, bytes) = row?;
            each(revision.value(), bytes.value())?;
        }
        Ok(())
    }
}

struct Fjall {
    database: fjall::Database,
    records: fjall::Keyspace,
}

impl Engine for Fjall {
    fn commit(&mut self, batch: &[Record]) -> Result<()> {
        let mut write = self.database.batch().durability(Some(fjall::PersistMode::SyncData));
        for (revision, bytes) in batch {
            write.insert(&self.records, revision.to_be_bytes(), bytes.as_slice());
        }
        write.commit()?;
        Ok(())
    }

    fn load(&self, each: &mut dyn FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        for row in self.records.iter() {
            let (revision, bytes) = row.into_inner()?;
            each(u64::from_be_bytes(revision.as_ref().try_into()?), &bytes)?;
        }
        Ok(())
    }
}

struct Heed {
    env: heed::Env,
    records: heed::Database<heed::types::U64<heed::byteorder::BigEndian>, heed::types::Bytes>,
}

impl Engine for Heed {
    fn commit(&mut self, batch: &[Record]) -> Result<()> {
        let mut write = self.env.write_txn()?;
        for (revision, bytes) in batch {
            self.records.put_with_flags(&mut write, heed::PutFlags::APPEND, revision, bytes)?;
        }
        write.commit()?;
        Ok(())
    }

    fn load(&self, each: &mut dyn FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        let read = self.env.read_txn()?;
        for row in self.records.iter(&read)? {
            let (revision, bytes) = row?;
            each(revision, bytes)?;
        }
        Ok(())
    }
}

/// A file of records with length and checksum, appended to: the lower bound.
struct Log {
    path: PathBuf,
    file: File,
    end: u64,
    buffer: Vec<u8>,
}

impl Engine for Log {
    fn commit(&mut self, batch: &[Record]) -> Result<()> {
        self.buffer.clear();
        for (revision, bytes) in batch {
            self.buffer.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            self.buffer.extend_from_slice(&revision.to_le_bytes());
            self.buffer.extend_from_slice(bytes);
        }
        if let Err(error) = self.file.write_all(&self.buffer) {
            self.file.set_len(self.end)?;
            return Err(error.into());
        }
        self.file.sync_data()?;
        self.end += self.buffer.len() as u64;
        Ok(())
    }

    fn load(&self, each: &mut dyn FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        let mut file = BufReader::with_capacity(1 << 20, File::open(&self.path)?);
        let (mut head, mut bytes) = ([0; 12], Vec::new());
        while file.read_exact(&mut head).is_ok() {
            let length = u32::from_le_bytes(head[..4].try_into()?) as usize;
            bytes.resize(length, 0);
            file.read_exact(&mut bytes)?;
            each(u64::from_le_bytes(head[4..].try_into()?), &bytes)?;
        }
        Ok(())
    }
}
