//! Checks whether several concurrent simulations fit into memory.

use std::fs;

/// Bytes of memory that a simulation uses for each byte of its cluster as JSON: 21.5 were measured with 20,000 pods.
const BYTES_PER_BYTE: u64 = 24;
/// Bytes of memory that each simulation uses in addition.
const BYTES_PER_RUN: u64 = 64 << 20;
/// Assumed bytes of free memory if the system does not report them.
const UNKNOWN_FREE: u64 = 1 << 30;

/// Returns whether this number of simulations fits into the free memory. `length` is the length of the cluster's JSON.
pub(super) fn fits(length: u64, runs: u64) -> bool {
    need(length, runs) <= free().unwrap_or(UNKNOWN_FREE)
}

fn need(length: u64, runs: u64) -> u64 {
    length.saturating_mul(BYTES_PER_BYTE).saturating_add(BYTES_PER_RUN).saturating_mul(runs)
}

/// Returns the free memory of the machine, or of the control group if it has less; `None` if the system does not report it.
fn free() -> Option<u64> {
    let read = |path| fs::read_to_string(path).ok();
    let of_machine = read("/proc/meminfo").and_then(|text| available(&text));
    let of_group = || {
        let limit: u64 = read("/sys/fs/cgroup/memory.max")?.trim().parse().ok()?;
        let used: u64 = read("/sys/fs/cgroup/memory.current")?.trim().parse().ok()?;
        Some(limit.saturating_sub(used))
    };
    [of_machine, of_group()].into_iter().flatten().min()
}

/// Returns the available memory in bytes that Linux reports.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_available_memory_is_read() {
        let text =
            "MemTotal:       24682920 kB\nMemFree:         1000 kB\nMemAvailable:   23247872 kB\n";
        assert_eq!(available(text), Some(23_247_872 << 10));
        assert_eq!(available("MemAvailable: much\n"), None);
        assert_eq!(available(""), None);
    }

    #[test]
    fn a_large_cluster_needs_more() {
        // The measured run of 110 MB took 2,272 MiB.
        let large = need(110_561_688, 1);
        assert!(large > 2272 << 20 && large < 3 << 30, "{large}");
        assert_eq!(need(110_561_688, 2), 2 * large);
        assert_eq!(need(u64::MAX, 2), u64::MAX);
    }
}
