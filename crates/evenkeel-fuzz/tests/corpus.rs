//! Runs every target over its corpus, and over mutations of it that are the same in each run.

mod mutate;

use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};

use evenkeel_fuzz::{TARGETS, Target};
use mutate::Mutator;

/// Mutated inputs for each target.
const MUTATIONS: usize = 1500;
/// Maximum length of a mutated input, so that a debug build is fast.
const MAX_LENGTH: usize = 4096;
/// The stack of the server's threads.
const STACK: usize = 2 * 1024 * 1024;

fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let files =
        fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut inputs: Vec<(PathBuf, Vec<u8>)> = files
        .map(|file| file.expect("a file").path())
        .map(|path| (path.clone(), fs::read(path).expect("readable")))
        .collect();
    inputs.sort();
    inputs
}

/// Runs a target, and reports the input that failed.
fn run(target: Target, origin: &str, data: &[u8]) {
    let run = panic::catch_unwind(AssertUnwindSafe(|| (target.run)(data)));
    assert!(run.is_ok(), "{} fails on {origin}: b\"{}\"", target.name, data.escape_ascii());
}

fn run_corpus(target: Target) {
    let inputs = corpus(target.name);
    for (path, data) in &inputs {
        run(target, &path.display().to_string(), data);
    }
    let seeds: Vec<Vec<u8>> =
        inputs.into_iter().map(|(_, data)| data).filter(|data| data.len() <= MAX_LENGTH).collect();
    let mut mutator = Mutator::new(target.name);
    for n in 0..MUTATIONS {
        let data = mutator.mutate(&seeds, MAX_LENGTH);
        run(target, &format!("mutation {n}"), &data);
    }
}

#[test]
fn targets_hold_on_their_corpus_and_mutations_of_it() {
    let threads: Vec<_> = TARGETS
        .iter()
        .map(|target| {
            let thread = std::thread::Builder::new().name(target.name.to_owned()).stack_size(STACK);
            (target.name, thread.spawn(|| run_corpus(*target)).expect("a thread"))
        })
        .collect();
    let failed: Vec<&str> = threads
        .into_iter()
        .filter_map(|(name, thread)| thread.join().is_err().then_some(name))
        .collect();
    assert!(failed.is_empty(), "{failed:?} failed");
}

#[test]
fn every_corpus_belongs_to_a_target() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut folders: Vec<String> = fs::read_dir(root)
        .expect("corpora")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    folders.sort();
    let targets: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    assert_eq!(folders, targets);
}
