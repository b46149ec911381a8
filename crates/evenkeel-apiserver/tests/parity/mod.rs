//! Shared parts of the parity tests: the two servers, the comparison of their responses, and the report of a run.
#![allow(dead_code, reason = "not every suite uses all of it")]

pub(crate) mod compare;
#[path = "../kube_apiserver/mod.rs"]
pub(crate) mod kube_apiserver;
pub(crate) mod report;
pub(crate) mod servers;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Mutex;

/// Returns a variable of the environment.
#[expect(clippy::disallowed_methods, reason = "a longer run is asked for by the environment")]
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Returns a variable of the environment that is a number.
pub(crate) fn number(name: &str) -> Option<u64> {
    variable(name).and_then(|text| text.parse().ok())
}

/// Returns the folder of upstream's programs. Without one, it prints that this test is skipped, and why.
#[expect(clippy::print_stdout, reason = "a skipped test says so")]
pub(crate) fn binaries(test: &str) -> Option<PathBuf> {
    let folder = variable("EVENKEEL_UPSTREAM_BIN").map(PathBuf::from);
    if folder.is_none() {
        println!(
            "{test}: SKIPPED: EVENKEEL_UPSTREAM_BIN is not set; tests/upstream/build FOLDER builds what it names"
        );
    }
    folder
}

/// Seeds of a run's cases, which its workers share.
pub(crate) struct Seeds(Mutex<Range<u64>>);

impl Seeds {
    /// Returns seeds. The variable `count` has their number (default: `default`), and the variable `first` the first
    /// seed.
    pub(crate) fn from_variables(first: &str, count: &str, default: u64) -> Self {
        let first = number(first).unwrap_or_default();
        Self(Mutex::new(first..first + number(count).unwrap_or(default)))
    }

    /// Returns `count` seeds, beginning with `first`.
    pub(crate) fn between(first: u64, count: u64) -> Self {
        Self(Mutex::new(first..first + count))
    }

    /// Returns the number of seeds that no worker has taken yet.
    pub(crate) fn left(&self) -> u64 {
        let seeds = self.0.lock().expect("no worker panicked");
        seeds.end - seeds.start
    }

    /// Takes the next seed; `None` when the run is over.
    pub(crate) fn take(&self) -> Option<u64> {
        self.0.lock().expect("no worker panicked").next()
    }
}
