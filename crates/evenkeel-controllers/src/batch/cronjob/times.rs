//! Scheduled times. Upstream: `mostRecentScheduleTime`, `nextScheduleTimeDuration` in `utils.go`.

use evenkeel_api::{
    time::{SignedDuration, Timestamp},
    views::CronJob,
};
use evenkeel_component_helpers::cron::{Schedule, time_zone};
use jiff::tz::TimeZone;
use std::time::Duration;

/// Time between a scheduled time and its reconciliation, to tolerate clock skew. Upstream: `nextScheduleDelta`.
const SCHEDULE_DELAY: Duration = Duration::from_millis(100);
/// Maximum number of scheduled times that count as [`MissedSchedules::Few`].
const MAX_FEW_MISSED: i64 = 100;

/// A parsed cron schedule, and the time zone in which it applies.
#[derive(Debug, Clone)]
pub(super) struct ZonedSchedule {
    schedule: Schedule,
    zone: TimeZone,
}

/// Reason why a schedule cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ScheduleError {
    /// The time zone is unknown.
    Zone(String),
    /// The schedule cannot be parsed.
    Schedule(String),
}

/// Scheduled times from the last Job up to now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Due {
    /// The most recent of these times. A Job is due at this time.
    pub(super) at: Option<Timestamp>,
    /// Approximate number of these times, including the most recent one.
    pub(super) missed: MissedSchedules,
}

/// Approximate number of scheduled times since the last Job, up to now. Upstream: `missedSchedulesType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MissedSchedules {
    None,
    /// From 1 to 100.
    Few,
    /// More than 100. The controller records the event `TooManyMissedTimes`.
    Many,
}

impl ZonedSchedule {
    /// Parses the schedule. Its time zone is the one of a `TZ` prefix, otherwise `timeZone`, otherwise `local`, the zone of the
    /// controller's machine. Upstream: `formatSchedule`.
    pub(super) fn of(cron: &CronJob, local: &TimeZone) -> Result<Self, ScheduleError> {
        let spec_zone = match cron.spec.time_zone.as_deref() {
            None => local.clone(),
            Some(name) => time_zone(name)
                .ok_or_else(|| ScheduleError::Zone(format!("unknown time zone {name}")))?,
        };
        let (zone, fields) = match split_zone_prefix(&cron.spec.schedule) {
            None => (spec_zone, &*cron.spec.schedule),
            Some((name, fields)) => {
                let prefix_zone = time_zone(name).ok_or_else(|| {
                    ScheduleError::Schedule(format!(
                        "provided bad location {name}: unknown time zone {name}"
                    ))
                })?;
                (prefix_zone, fields)
            }
        };
        let schedule = Schedule::parse(fields).map_err(ScheduleError::Schedule)?;
        Ok(Self { schedule, zone })
    }

    /// Returns the scheduled times from the last Job up to `now`. Without a Job, they count from the creation of the
    /// CronJob. Times before `not_before` do not count. Upstream: `mostRecentScheduleTime`.
    ///
    /// # Errors
    /// Fails with upstream's message if the schedule has no next time, or if that time is due and has no successor.
    pub(super) fn due(
        &self,
        cron: &CronJob,
        not_before: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<Due, &'static str> {
        // Upstream's message for every schedule without a next time. It does not describe the actual cause.
        const NO_NEXT_TIME: &str = "time difference between two schedules is less than 1 second";
        let earliest = earliest_time(cron).max(not_before.unwrap_or(Timestamp::MIN));
        // `next` finds no time for a schedule such as February 31st, because it searches only a few years ahead.
        let first = self.next(earliest).ok_or(NO_NEXT_TIME)?;
        if now < first {
            return Ok(Due { at: None, missed: MissedSchedules::None });
        }
        let second = self.next(first).ok_or(NO_NEXT_TIME)?;
        if now < second {
            return Ok(Due { at: Some(first), missed: MissedSchedules::Few });
        }
        // Skip most of the missed times as if all intervals were equal, then step through the last ones.
        let interval = second.duration_since(first).as_secs().max(1);
        let n_missed = now.duration_since(first).as_secs() / interval + 1;
        // The last time is `n_missed - 1` intervals after `first`. `next` returns only later times, so the search
        // starts one interval before it.
        let skipped = SignedDuration::from_secs((n_missed - 2).saturating_mul(interval));
        let mut at = None;
        let mut next = self.next(first.checked_add(skipped).unwrap_or(first));
        while let Some(time) = next
            && time <= now
        {
            at = Some(time);
            next = self.next(time);
        }
        let missed =
            if n_missed > MAX_FEW_MISSED { MissedSchedules::Many } else { MissedSchedules::Few };
        Ok(Due { at, missed })
    }

    /// Returns the delay until the reconciliation at the next scheduled time. Upstream: `nextScheduleTimeDuration`.
    pub(super) fn until_next(&self, cron: &CronJob, now: Timestamp) -> Option<Duration> {
        let from = match self.due(cron, None, now) {
            Ok(Due { at: Some(at), .. }) => at,
            Ok(Due { missed: MissedSchedules::None, .. }) => earliest_time(cron),
            // With unequal intervals, `due` can skip all due times. `Err`: the schedule has no next time.
            Ok(_) | Err(_) => now,
        };
        let remaining = self.next(from)?.duration_since(now);
        Some(Duration::try_from(remaining).unwrap_or(Duration::ZERO) + SCHEDULE_DELAY)
    }

    /// Returns the first scheduled time after `after`.
    fn next(&self, after: Timestamp) -> Option<Timestamp> {
        self.schedule.next(after, &self.zone)
    }
}

/// Splits a schedule such as `TZ=Asia/Tokyo 0 0 * * *` into the time zone's name and the other fields.
fn split_zone_prefix(schedule: &str) -> Option<(&str, &str)> {
    let zone_and_fields =
        schedule.strip_prefix("TZ=").or_else(|| schedule.strip_prefix("CRON_TZ="))?;
    let (zone_name, fields) = zone_and_fields.split_once(' ')?;
    Some((zone_name, fields.trim_start()))
}

/// Returns the time after which scheduled times count: the last schedule time, or the creation time without one. Upstream:
/// `earliestTime`.
fn earliest_time(cron: &CronJob) -> Timestamp {
    cron.status.last_schedule_time.or(cron.meta.creation).unwrap_or(Timestamp::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::object;
    use serde_json::json;

    fn cron(schedule: &str, last: &str) -> CronJob {
        object(&json!({
            "metadata": { "name": "tick", "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "schedule": schedule },
            "status": { "lastScheduleTime": last },
        }))
    }

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn most_recent_scheduled_time_is_due() {
        // Schedule, `lastScheduleTime`, current time, expected due time, and whether many times were missed.
        for (schedule, last, now, expected, are_many_missed) in [
            ("0 * * * *", "2026-01-05T10:00:00Z", "2026-01-05T10:59:59Z", None, false),
            (
                "0 * * * *",
                "2026-01-05T10:00:00Z",
                "2026-01-05T11:00:00Z",
                Some("2026-01-05T11:00:00Z"),
                false,
            ),
            (
                "0 * * * *",
                "2026-01-05T10:00:00Z",
                "2026-01-05T13:30:00Z",
                Some("2026-01-05T13:00:00Z"),
                false,
            ),
            (
                "* * * * *",
                "2026-01-05T10:00:00Z",
                "2026-01-05T13:30:10Z",
                Some("2026-01-05T13:30:00Z"),
                true,
            ),
            (
                "30 6-16/4 * * 1-5",
                "2026-01-02T14:30:00Z",
                "2026-01-05T07:00:00Z",
                Some("2026-01-05T06:30:00Z"),
                false,
            ),
            (
                "@every 1h",
                "2026-01-05T10:00:07Z",
                "2026-01-05T13:30:00Z",
                Some("2026-01-05T13:00:07Z"),
                false,
            ),
        ] {
            let cron = cron(schedule, last);
            let due = ZonedSchedule::of(&cron, &TimeZone::UTC)
                .unwrap()
                .due(&cron, None, time(now))
                .unwrap();
            assert_eq!(due.at, expected.map(time), "{schedule} {now}");
            assert_eq!(due.missed == MissedSchedules::Many, are_many_missed, "{schedule} {now}");
        }
        let never = cron("59 23 31 2 *", "2026-01-05T10:00:00Z");
        assert!(
            ZonedSchedule::of(&never, &TimeZone::UTC)
                .unwrap()
                .due(&never, None, time("2026-01-06T00:00:00Z"))
                .is_err()
        );
    }

    #[test]
    fn requeue_delay_ends_after_the_next_scheduled_time() {
        let cron = cron("0 * * * *", "2026-01-05T10:00:00Z");
        let zoned_schedule = ZonedSchedule::of(&cron, &TimeZone::UTC).unwrap();
        for (now, seconds) in [
            ("2026-01-05T10:10:00Z", 50 * 60),
            ("2026-01-05T13:30:00Z", 30 * 60),
            ("2026-01-05T11:00:00Z", 3600),
        ] {
            let expected = Duration::from_secs(seconds) + SCHEDULE_DELAY;
            assert_eq!(zoned_schedule.until_next(&cron, time(now)), Some(expected), "{now}");
        }
    }

    #[test]
    fn zone_prefix_precedes_time_zone_field_and_local_zone() {
        let mut cron = cron("TZ=Asia/Tokyo 0 0 * * *", "2026-01-05T10:00:00Z");
        assert_eq!(
            ZonedSchedule::of(&cron, &TimeZone::UTC).unwrap().zone.iana_name(),
            Some("Asia/Tokyo")
        );
        cron.spec.schedule = "0 0 * * *".into();
        let local = time_zone("Europe/Vienna").unwrap();
        assert_eq!(ZonedSchedule::of(&cron, &local).unwrap().zone, local, "the local zone");
        cron.spec.time_zone = Some("Asia/Tokyo".into());
        assert_eq!(ZonedSchedule::of(&cron, &local).unwrap().zone.iana_name(), Some("Asia/Tokyo"));
        cron.spec.time_zone = Some("Mars/Olympus".into());
        assert_eq!(
            ZonedSchedule::of(&cron, &TimeZone::UTC).err(),
            Some(ScheduleError::Zone("unknown time zone Mars/Olympus".into()))
        );
    }
}
