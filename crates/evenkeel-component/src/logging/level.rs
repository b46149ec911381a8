//! Verbosity of the log: `-v` and `--vmodule`.

use std::sync::atomic::{AtomicU32, Ordering};
use tracing::{Level, Metadata, level_filters::LevelFilter};

/// Verbosity of the log, which can change while the program runs.
#[derive(Debug)]
pub struct Levels {
    verbosity: AtomicU32,
    /// Patterns of `--vmodule`, each with the minimum verbosity of the files that match.
    by_file: Vec<(String, u32)>,
}

/// Verbosity of events that are never logged.
const NEVER: u32 = u32::MAX;

impl Levels {
    pub(super) fn new(verbosity: u32, by_file: Vec<(String, u32)>) -> Self {
        Self { verbosity: AtomicU32::new(verbosity), by_file }
    }

    pub(super) fn verbosity(&self) -> u32 {
        self.verbosity.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, verbosity: u32) {
        self.verbosity.store(verbosity, Ordering::Relaxed);
    }

    /// Returns whether an event or a span is logged.
    pub(super) fn is_enabled(&self, metadata: &Metadata<'_>) -> bool {
        let needed = verbosity_of(metadata);
        if needed <= self.verbosity() {
            return true;
        }
        let file = metadata.file().unwrap_or_default();
        needed != NEVER
            && self
                .by_file
                .iter()
                .any(|(pattern, level)| needed <= *level && matches(pattern, file))
    }

    /// Returns the most detailed level that can be enabled.
    pub(super) fn max_level(&self) -> LevelFilter {
        let by_file = self.by_file.iter().map(|(_, level)| *level).max().unwrap_or_default();
        match self.verbosity().max(by_file) {
            0..=3 => LevelFilter::INFO,
            4..=5 => LevelFilter::DEBUG,
            _ => LevelFilter::TRACE,
        }
    }
}

/// Returns klog's verbosity of an event.
pub(super) fn verbosity_of(metadata: &Metadata<'_>) -> u32 {
    let (target, level) = (metadata.target(), *metadata.level());
    let ours = is_ours(target);
    // kube's client logs a whole response body as a warning when it cannot decode it.
    let logs_bodies = target.starts_with("kube_client::client");
    match level {
        Level::ERROR => 0,
        Level::WARN if logs_bodies => NEVER,
        Level::WARN => 0,
        Level::INFO if ours => 0,
        Level::DEBUG if ours => 4,
        Level::TRACE if ours => 6,
        Level::INFO if !logs_bodies => 6,
        _ => NEVER,
    }
}

/// Targets of the programs' own crates.
const PROGRAMS: [&str; 3] =
    ["kube_controller_manager", "kube_scheduler", "cloud_controller_manager"];

/// Returns whether a target belongs to this workspace, rather than to a library.
fn is_ours(target: &str) -> bool {
    target.starts_with("evenkeel") || PROGRAMS.contains(&target)
}

/// Returns whether a file's name, without its extension, matches the pattern. `*` matches any characters, and `?` any
/// character. A pattern with slashes also matches the folders. A `mod.rs` has its folder's name.
fn matches(pattern: &str, path: &str) -> bool {
    let path = path.strip_suffix("/mod.rs").or_else(|| path.strip_suffix(".rs")).unwrap_or(path);
    let depth = pattern.matches('/').count();
    let start = path.rmatch_indices('/').nth(depth).map_or(0, |(index, _)| index + 1);
    matches_glob(
        pattern.strip_suffix(".rs").unwrap_or(pattern).as_bytes(),
        &path.as_bytes()[start..],
    )
}

fn matches_glob(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern, text) {
        ([], []) => true,
        ([b'*', rest @ ..], _) => {
            matches_glob(rest, text) || (!text.is_empty() && matches_glob(pattern, &text[1..]))
        }
        ([b'?', rest @ ..], [_, text @ ..]) => matches_glob(rest, text),
        ([letter, rest @ ..], [first, text @ ..]) => letter == first && matches_glob(rest, text),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{is_ours, matches};

    #[test]
    fn programs_and_libraries_of_the_workspace_are_distinguished_from_others() {
        for (target, want) in [
            ("evenkeel_runtime::cache", true),
            ("kube_controller_manager", true),
            ("kube_scheduler", true),
            ("cloud_controller_manager", true),
            ("kube_client::client", false),
            ("hyper", false),
        ] {
            assert_eq!(is_ours(target), want, "{target}");
        }
    }

    #[test]
    fn patterns_match_file_names() {
        for (pattern, path, want) in [
            ("plan", "crates/a/src/apps/deployment/plan.rs", true),
            ("deployment/plan", "crates/a/src/apps/deployment/plan.rs", true),
            ("deployment/*", "crates/a/src/apps/deployment/plan.rs", true),
            ("deployment", "crates/a/src/apps/deployment/mod.rs", true),
            ("depl*", "crates/a/src/apps/deployment/mod.rs", true),
            ("deploymen?", "crates/a/src/apps/deployment/mod.rs", true),
            ("plan", "crates/a/src/apps/deployment/planner.rs", false),
            ("replicaset/plan", "crates/a/src/apps/deployment/plan.rs", false),
        ] {
            assert_eq!(matches(pattern, path), want, "{pattern} {path}");
        }
    }
}
