//! Runs the unit tests of a crate against each of its mutants.

use crate::{sources::Numbered, tree::Tree};
use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// A test program, and the folder that its tests expect to run in.
pub struct Program {
    path: PathBuf,
    folder: PathBuf,
}

/// A test, how long it takes, and the mutants that it reaches.
struct Test {
    name: String,
    time: Duration,
    reached: Vec<u32>,
}

/// What became of a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// No test executes it.
    NotReached,
    /// All tests that execute it pass.
    Missed,
    /// A test fails, or does not end.
    Caught,
}

#[derive(Deserialize)]
struct Artifact {
    executable: Option<PathBuf>,
    target: Option<Target>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

/// Builds a test program of a crate: its unit tests, or an integration test of this name.
///
/// # Errors
/// If it does not build.
pub fn build(tree: &Tree, crate_name: &str, integration: Option<&str>) -> Result<Program> {
    let mut cargo = tree.cargo();
    cargo.args(["test", "--no-run", "--package", crate_name, "--message-format=json"]);
    match integration {
        Some(name) => cargo.args(["--test", name]),
        None => cargo.arg("--lib"),
    };
    let output = cargo.stderr(Stdio::inherit()).output().context("cargo test --no-run")?;
    ensure!(output.status.success(), "the tests of {crate_name} do not build");
    let name = integration.map_or_else(|| crate_name.replace('-', "_"), str::to_owned);
    let path = output
        .stdout
        .split(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice::<Artifact>(line).ok())
        .filter(|artifact| artifact.target.as_ref().is_some_and(|target| target.name == name))
        .find_map(|artifact| artifact.executable)
        .with_context(|| format!("cargo names no test program of {crate_name}"))?;
    Ok(Program { path, folder: tree.root.join("crates").join(crate_name) })
}

impl Program {
    fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder)
            .env("PROPTEST_RNG_SEED", "137")
            .env("PROPTEST_FAILURE_PERSISTENCE", "off")
            .env("RUST_BACKTRACE", "0")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .stdin(Stdio::null());
        command
    }

    /// Runs tests of these names with a mutant, 0 being none. Returns whether all pass within the time.
    ///
    /// # Errors
    /// If the program does not start.
    pub fn passes(
        &self,
        mutant: u32,
        names: &[&str],
        exact: bool,
        limit: Duration,
    ) -> Result<bool> {
        let mut command = self.command();
        if exact {
            command.args(["--exact", "--test-threads=1"]);
        }
        let mut child = command
            .args(names)
            .env("EVENKEEL_MUTANT", mutant.to_string())
            .spawn()
            .context("a test program")?;
        let end = Instant::now() + limit;
        let mut pause = Duration::from_millis(2);
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status.success());
            }
            if Instant::now() > end {
                child.kill()?;
                child.wait()?;
                return Ok(false);
            }
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }

    /// Lists the tests whose names contain a filter.
    ///
    /// # Errors
    /// If the program fails.
    pub fn list(&self, filters: &[&str]) -> Result<Vec<String>> {
        let output = self
            .command()
            .args(filters)
            .args(["--list", "--format", "terse"])
            .stdout(Stdio::piped())
            .output()?;
        let listed = String::from_utf8(output.stdout).context("a test's name")?;
        Ok(listed
            .lines()
            .filter_map(|line| line.strip_suffix(": test"))
            .map(str::to_owned)
            .collect())
    }

    fn observe(&self, name: &str, file: &Path) -> Result<Option<Test>> {
        let _ = fs::remove_file(file);
        let start = Instant::now();
        let mut command = self.command();
        let status = command
            .args(["--exact", "--test-threads=1", name])
            .env("EVENKEEL_MUTANTS_REACHED", file)
            .status()?;
        if !status.success() {
            return Ok(None);
        }
        let reached = fs::read_to_string(file).unwrap_or_default();
        let reached = reached.lines().filter_map(|line| line.parse().ok()).collect();
        Ok(Some(Test { name: name.to_owned(), time: start.elapsed(), reached }))
    }
}

/// Runs `work` for each item on this many threads.
fn on_threads<T: Sync>(
    threads: usize,
    items: &[T],
    work: impl Fn(usize, &T) -> Result<()> + Sync,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|worker| {
                let (next, work) = (&next, &work);
                scope.spawn(move || -> Result<()> {
                    while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                        work(worker, item)?;
                    }
                    Ok(())
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker does not panic"))
    })
}

/// Runs each test that reaches a mutant with it, the fastest first.
///
/// # Errors
/// If a program does not start, or a test fails without mutants.
pub fn run(
    tree: &Tree,
    program: &Program,
    mutants: &[Numbered],
    threads: usize,
) -> Result<BTreeMap<u32, Outcome>> {
    let names = program.list(&[])?;
    eprintln!("{} tests, {} mutants", names.len(), mutants.len());
    let tests = Mutex::new(Vec::new());
    on_threads(threads, &names, |worker, name| {
        match program.observe(name, &tree.target.join(format!("reached-{worker}")))? {
            Some(test) => tests.lock().unwrap_or_else(PoisonError::into_inner).push(test),
            None => eprintln!("{name} fails without a mutant, and is left out"),
        }
        Ok(())
    })?;
    let mut tests = tests.into_inner().unwrap_or_else(PoisonError::into_inner);
    ensure!(!tests.is_empty(), "no test passes");
    tests.sort_by_key(|test| test.time);
    let mut by_mutant: BTreeMap<u32, Vec<&Test>> = BTreeMap::new();
    for test in &tests {
        for mutant in &test.reached {
            by_mutant.entry(*mutant).or_default().push(test);
        }
    }
    let outcomes = Mutex::new(BTreeMap::new());
    let done = AtomicUsize::new(0);
    on_threads(threads, mutants, |_, mutant| {
        let reaching = by_mutant.get(&mutant.number).map_or(&[][..], Vec::as_slice);
        let outcome = judge(program, mutant.number, reaching)?;
        outcomes.lock().unwrap_or_else(PoisonError::into_inner).insert(mutant.number, outcome);
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        if done % 500 == 0 {
            eprintln!("{done} of {}", mutants.len());
        }
        Ok(())
    })?;
    Ok(outcomes.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// How many tests run in one process: few at first, because most mutants are caught by the first.
const BATCHES: [usize; 3] = [8, 64, 512];

fn judge(program: &Program, mutant: u32, tests: &[&Test]) -> Result<Outcome> {
    if tests.is_empty() {
        return Ok(Outcome::NotReached);
    }
    let mut rest = tests;
    let mut sizes = BATCHES.into_iter();
    while !rest.is_empty() {
        let (batch, later) = rest.split_at(sizes.next().unwrap_or(usize::MAX).min(rest.len()));
        rest = later;
        let names: Vec<&str> = batch.iter().map(|test| test.name.as_str()).collect();
        let time: Duration = batch.iter().map(|test| test.time).sum();
        if !program.passes(mutant, &names, true, Duration::from_secs(5) + time * 10)? {
            return Ok(Outcome::Caught);
        }
    }
    Ok(Outcome::Missed)
}
