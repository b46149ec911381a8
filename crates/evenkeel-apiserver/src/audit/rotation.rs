//! Names of rotated audit logs, and the choice of logs to remove.
//!
//! Upstream: `lumberjack.Logger`.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// Format of the time in the name of a rotated log, without its milliseconds.
const TIME_FORMAT: &str = "%Y-%m-%dT%H-%M-%S";

const HOURS_PER_DAY: i64 = 24;

/// Returns the name to which a full log is renamed: `audit.log` becomes `audit-2026-01-02T03-04-05.678.log`.
pub(super) fn backup(log: &Path, now: Timestamp) -> PathBuf {
    let (stem, extension) = stem_and_extension(log);
    let milliseconds = now.subsec_millisecond();
    let time = now.strftime(TIME_FORMAT);
    log.with_file_name(format!("{stem}-{time}.{milliseconds:03}{extension}"))
}

/// Returns the stem of a log's name, and its extension with the dot.
fn stem_and_extension(log: &Path) -> (String, String) {
    let extension = log.extension().map(|ext| format!(".{}", ext.display())).unwrap_or_default();
    let stem = log.file_stem().map(|stem| stem.display().to_string()).unwrap_or_default();
    (stem, extension)
}

/// Returns the time in the name of a rotated log; `None` for other files.
fn time_of(log: &Path, name: &str) -> Option<Timestamp> {
    let (stem, extension) = stem_and_extension(log);
    let time = name.strip_prefix(&stem)?.strip_prefix('-')?.strip_suffix(&extension)?;
    let (time, milliseconds) = time.split_once('.')?;
    let milliseconds: i32 = milliseconds.parse().ok().filter(|_| milliseconds.len() == 3)?;
    let time = DateTime::strptime(TIME_FORMAT, time).ok()?;
    let time = time.with().subsec_nanosecond(milliseconds * 1_000_000).build().ok()?;
    time.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp())
}

/// Returns the rotated logs to remove: all but the newest `max_backups`, and logs older than `max_age` days. Zero means
/// no limit. `names` are all files in the log's folder.
pub(super) fn removed<'a>(
    log: &Path,
    names: &'a [String],
    now: Timestamp,
    max_age: u32,
    max_backups: usize,
) -> Vec<&'a str> {
    let with_time = |name: &'a String| time_of(log, name).map(|time| (time, name.as_str()));
    let mut newest_first: Vec<(Timestamp, &str)> = names.iter().filter_map(with_time).collect();
    newest_first.sort_unstable_by(|a, b| b.cmp(a));
    let max_age_span = jiff::SignedDuration::from_hours(i64::from(max_age) * HOURS_PER_DAY);
    let mut removed = Vec::new();
    for (index, (time, name)) in newest_first.into_iter().enumerate() {
        let exceeds_number = max_backups > 0 && index >= max_backups;
        let exceeds_age = max_age > 0 && now.duration_since(time) > max_age_span;
        if exceeds_number || exceeds_age {
            removed.push(name);
        }
    }
    removed
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    #[test]
    fn a_full_log_is_named_by_its_time() {
        for (log, want) in [
            ("/a/audit.log", "/a/audit-2026-01-02T03-04-05.678.log"),
            ("/a/audit", "/a/audit-2026-01-02T03-04-05.678"),
            ("/a/b.c.json", "/a/b.c-2026-01-02T03-04-05.678.json"),
        ] {
            let now = time("2026-01-02T03:04:05.678Z");
            let name = backup(Path::new(log), now);
            assert_eq!(name, Path::new(want));
            let file = name.file_name().map(|name| name.display().to_string()).unwrap_or_default();
            assert_eq!(time_of(Path::new(log), &file), Some(now));
        }
    }

    #[test]
    fn old_logs_are_removed_by_number_and_age() {
        let log = Path::new("/a/audit.log");
        let names = [
            "audit.log",
            "audit-2026-01-01T00-00-00.000.log",
            "audit-2026-01-09T00-00-00.000.log",
            "audit-2026-01-05T00-00-00.000.log",
            "audit-yesterday.log",
            "other-2025-01-01T00-00-00.000.log",
        ];
        let names = names.map(str::to_owned);
        let now = time("2026-01-10T00:00:00Z");
        let [first, third, second] = [1, 3, 2].map(|at| names[at].as_str());
        for (max_age, max_backups, want) in [
            (0, 0, vec![]),
            (0, 1, vec![third, first]),
            (5, 0, vec![first]),
            (1, 0, vec![third, first]),
            (5, 2, vec![first]),
            (0, 3, vec![]),
        ] {
            assert_eq!(
                removed(log, &names, now, max_age, max_backups),
                want,
                "{max_age} {max_backups}"
            );
        }
        assert!(!removed(log, &names, now, 1, 0).contains(&second));
    }

    proptest! {
        /// At most `max` backups remain, and no remaining backup is older than a removed one.
        #[test]
        fn the_newest_stay(days in prop::collection::btree_set(1i64..300, 0..12), max in 1usize..6) {
            let log = Path::new("/a/audit.log");
            let now = time("2026-12-31T00:00:00Z");
            let at = |day: &i64| now - jiff::SignedDuration::from_hours(24 * day);
            let name = |day| backup(log, at(day)).file_name().map(|n| n.display().to_string());
            let names: Vec<String> = days.iter().filter_map(name).collect();
            let gone = removed(log, &names, now, 0, max);
            prop_assert_eq!(names.len() - gone.len(), names.len().min(max));
            let (gone, kept): (Vec<&String>, Vec<&String>) =
                names.iter().partition(|name| gone.contains(&name.as_str()));
            let time = |name: &&String| time_of(log, name);
            let newest_gone = gone.iter().filter_map(time).max();
            let oldest_kept = kept.iter().filter_map(time).min();
            if let (Some(gone), Some(kept)) = (newest_gone, oldest_kept) {
                prop_assert!(gone < kept);
            }
        }
    }
}
