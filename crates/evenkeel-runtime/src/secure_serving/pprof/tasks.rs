//! Tasks and threads of the process, by name.

use std::collections::BTreeMap;

/// Returns the number of tasks by name.
pub(super) fn tasks() -> Vec<(String, usize)> {
    crate::tasks::running_by_name().into_iter().map(|(name, n)| (name.into_owned(), n)).collect()
}

/// Returns the number of threads by name.
pub(super) fn threads() -> Vec<(String, usize)> {
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    for thread in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        // A thread that has just ended has no name.
        if let Ok(name) = std::fs::read_to_string(thread.path().join("comm")) {
            *names.entry(name.trim_end().to_owned()).or_default() += 1;
        }
    }
    names.into_iter().collect()
}
