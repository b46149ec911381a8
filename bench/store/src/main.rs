//! Measures storage engines under the design of the API server's store: one writer commits batches of revisions, each a
//! record under an ascending number, and a batch is acknowledged when it is synced. The next batch fills meanwhile.
//!
//! `store-bench write ENGINE DIR CONNECTIONS SECONDS`; `store-bench fill ENGINE DIR OBJECTS`, which ends as a kill does, then
//! `store-bench start ENGINE DIR OBJECTS`; `store-bench full ENGINE DIR`, with DIR on a small file system of its own.

mod engines;

use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use engines::open;

/// A revision and its record.
pub type Record = (u64, Vec<u8>);

/// A ConfigMap of `data` bytes as the store encodes it, about 300 bytes of metadata included.
fn record(revision: u64, data: usize) -> Vec<u8> {
    let mut text = format!(
        "/configmaps\0default/c-{revision:012}\0{{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"{revision}\",\"name\":\"c-{revision:012}\",\"namespace\":\"default\",\"uid\":\"0a1b2c3d-0000-4000-8000-{revision:012}\",\"creationTimestamp\":\"2026-01-01T00:00:00Z\",\"managedFields\":[{{\"manager\":\"bench\",\"operation\":\"Update\",\"apiVersion\":\"v1\"}}]}},\"data\":{{\"a\":\""
    );
    text.push_str(&"x".repeat(data));
    text.push_str("\"}}");
    let crc = crc32fast::hash(text.as_bytes());
    let mut bytes = text.into_bytes();
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["write", engine, dir, connections, seconds] => {
            write(engine, Path::new(dir), connections.parse()?, seconds.parse()?)
        }
        ["fill", engine, dir, objects] => fill(engine, Path::new(dir), objects.parse()?),
        ["start", engine, dir, objects] => start(engine, Path::new(dir), objects.parse()?),
        ["full", engine, dir] => full(engine, Path::new(dir)),
        _ => bail!("see the head of main.rs for the arguments"),
    }
}

fn fresh(dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir)?;
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() { std::fs::remove_dir_all(path)? } else { std::fs::remove_file(path)? }
    }
    Ok(())
}

fn write(name: &str, dir: &Path, connections: usize, seconds: u64) -> Result<()> {
    fresh(dir)?;
    let mut engine = open(name, dir)?;
    let (send, receive) = mpsc::channel::<mpsc::Sender<()>>();
    let end = Instant::now() + Duration::from_secs(seconds);
    let clients: Vec<_> = (0..connections)
        .map(|_| {
            let send = send.clone();
            std::thread::spawn(move || {
                let mut took = Vec::new();
                while Instant::now() < end {
                    let (ack, acked) = mpsc::channel();
                    let began = Instant::now();
                    if send.send(ack).is_err() || acked.recv().is_err() {
                        break;
                    }
                    took.push(began.elapsed());
                }
                took
            })
        })
        .collect();
    drop(send);
    let (mut revision, mut batches) = (0, 0);
    while let Ok(first) = receive.recv() {
        let waiting: Vec<_> = std::iter::once(first).chain(receive.try_iter()).collect();
        let batch: Vec<Record> = waiting
            .iter()
            .map(|_| {
                revision += 1;
                (revision, record(revision, 500))
            })
            .collect();
        engine.commit(&batch).context("commit")?;
        batches += 1;
        for ack in waiting {
            let _ = ack.send(());
        }
    }
    let mut took = Vec::new();
    for client in clients {
        took.extend(client.join().map_err(|_| anyhow::anyhow!("a client panicked"))?);
    }
    took.sort_unstable();
    let at = |part: f64| took.get((took.len() as f64 * part) as usize).map_or(0.0, |t| t.as_secs_f64() * 1e3);
    println!(
        "write {name} connections={connections} creates/s={:.0} batches/s={:.0} p50={:.2}ms p99={:.2}ms size={:.1}MiB",
        took.len() as f64 / seconds as f64,
        f64::from(batches) / seconds as f64,
        at(0.5),
        at(0.99),
        size(dir)? as f64 / 1048576.0,
    );
    Ok(())
}

fn size(dir: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt as _;
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() { size(&entry.path())? } else { metadata.blocks() * 512 };
    }
    Ok(bytes)
}

fn fill(name: &str, dir: &Path, objects: u64) -> Result<()> {
    fresh(dir)?;
    let mut engine = open(name, dir)?;
    let mut revision = 0;
    while revision < objects {
        let batch: Vec<Record> = (revision + 1..=(revision + 16).min(objects)).map(|r| (r, record(r, 500))).collect();
        revision = (revision + 16).min(objects);
        // As the server does, synced in batches of 16.
        engine.commit(&batch)?;
    }
    std::process::abort()
}

fn start(name: &str, dir: &Path, objects: u64) -> Result<()> {
    let began = Instant::now();
    let engine = open(name, dir)?;
    let mut found = 0u64;
    engine.load(&mut |revision, bytes| {
        let (text, crc) = bytes.split_at(bytes.len() - 4);
        anyhow::ensure!(crc32fast::hash(text).to_le_bytes() == crc, "revision {revision} is damaged");
        found += 1;
        Ok(())
    })?;
    let took = began.elapsed();
    anyhow::ensure!(found == objects, "{found} of {objects}");
    println!("start {name} objects={objects} opened={:.0}ms size={:.1}MiB payload={:.1}MiB", took.as_secs_f64() * 1e3, size(dir)? as f64 / 1048576.0, objects as f64 * record(1, 500).len() as f64 / 1048576.0);
    Ok(())
}

/// Writes until the file system is full, tries deletions, makes room by another file's removal, and goes on.
fn full(name: &str, dir: &Path) -> Result<()> {
    fresh(dir)?;
    let ballast = dir.join("ballast");
    std::fs::write(&ballast, vec![7; 4 << 20])?;
    let home = dir.join("data");
    std::fs::create_dir_all(&home)?;
    let mut engine = open(name, &home)?;
    let mut acknowledged = 0;
    let error = loop {
        let batch: Vec<Record> = (acknowledged + 1..=acknowledged + 16).map(|r| (r, record(r, 500))).collect();
        match engine.commit(&batch) {
            Ok(()) => acknowledged += 16,
            Err(error) => break error,
        }
    };
    println!("full {name}: {acknowledged} records, then: {error:#}");
    let mut small = 0;
    for _ in 0..10 {
        small += u32::from(engine.commit(&[(acknowledged + 1, b"tombstone".to_vec())]).map(|()| acknowledged += 1).is_ok());
    }
    println!("full {name}: {small} of 10 records of 9 bytes written while full");
    std::fs::remove_file(&ballast)?;
    let same = engine.commit(&[(acknowledged + 1, record(acknowledged + 1, 500))]);
    println!("full {name}: with room again, the same handle: {}", same.as_ref().map_or_else(|e| format!("{e:#}"), |()| "goes on".to_owned()));
    acknowledged += u64::from(same.is_ok());
    drop(engine);
    let began = Instant::now();
    let engine = open(name, &home)?;
    let mut last = 0;
    let mut count = 0u64;
    engine.load(&mut |revision, _| {
        last = last.max(revision);
        count += 1;
        Ok(())
    })?;
    println!("full {name}: opened anew in {:.0} ms: {count} records up to {last}, acknowledged {acknowledged}", began.elapsed().as_secs_f64() * 1e3);
    Ok(())
}
