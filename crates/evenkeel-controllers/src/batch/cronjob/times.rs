//! Scheduled times. Upstream: `mostRecentScheduleTime`, `nextScheduleTimeDuration` in `utils.go`.

use evenkeel_api::{
    time::{SignedDuration, Timestamp},
    views::CronJob,
};
use evenkeel_component_helpers::cron::{Schedule, zone};
use jiff::tz::TimeZone;
use std::time::Duration;

/// Time between a scheduled time and its reconciliation, to tolerate clock skew. Upstream: `nextScheduleDelta`.
const SCHEDULE_DELAY: Duration = Duration::from_millis(100);
/// Number of missed times above which the controller records the event `TooManyMissedTimes`.
const MAX_MISSED_TIMES: i64 = 100;

/// A schedule in its time zone.
#[derive(Debug, Clone)]
pub(super) struct Times {
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

/// Scheduled times up to now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Due {
    /// The most recent time since the last Job, if any.
    pub(super) at: Option<Timestamp>,
    /// Whether more than 100 times were missed.
    pub(super) too_many: bool,
    /// Whether any time has passed since the last Job.
    any: bool,
}

impl Times {
    /// Parses the schedule. Its time zone is the one of a `TZ` prefix, else `timeZone`, else `local`, the zone of the
    /// controller's machine. Upstream: `formatSchedule`.
    pub(super) fn of(cron: &CronJob, local: &TimeZone) -> Result<Self, ScheduleError> {
        let unknown = |name: &str| ScheduleError::Zone(format!("unknown time zone {name}"));
        let named = cron.spec.time_zone.as_deref();
        let spec_zone = named.map_or_else(|| Some(local.clone()), zone);
        let spec_zone = spec_zone.ok_or_else(|| unknown(named.unwrap_or_default()))?;
        let text = &*cron.spec.schedule;
        let prefix_zone = ["TZ=", "CRON_TZ="].iter().find_map(|prefix| text.strip_prefix(prefix));
        let (zone, text) = match prefix_zone.and_then(|rest| rest.split_once(' ')) {
            Some((name, rest)) => {
                let zone = zone(name).ok_or_else(|| {
                    ScheduleError::Schedule(format!(
                        "provided bad location {name}: unknown time zone {name}"
                    ))
                })?;
                (zone, rest.trim_start())
            }
            None => (spec_zone, text),
        };
        let schedule = Schedule::parse(text).map_err(ScheduleError::Schedule)?;
        Ok(Self { schedule, zone })
    }

    /// Returns the most recent time since the last Job, or since the creation, and not before `not_before`. Upstream:
    /// `mostRecentScheduleTime`.
    ///
    /// # Errors
    /// Fails if the schedule has fewer than two times.
    pub(super) fn due(
        &self,
        cron: &CronJob,
        not_before: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<Due, &'static str> {
        const NEVER: &str = "time difference between two schedules is less than 1 second";
        let since = since(cron).max(not_before.unwrap_or(Timestamp::MIN));
        // `next` searches only a few years ahead.
        let Some(first) = self.next(since) else { return Err(NEVER) };
        if now < first {
            return Ok(Due::default());
        }
        let second = self.next(first).ok_or(NEVER)?;
        if now < second {
            return Ok(Due { at: Some(first), too_many: false, any: true });
        }
        let interval = second.duration_since(first).as_secs().max(1);
        let missed = now.duration_since(first).as_secs() / interval + 1;
        let skip = SignedDuration::from_secs((missed - 2).saturating_mul(interval));
        let from = first.checked_add(skip).unwrap_or(first);
        let mut at = None;
        let mut next = self.next(from);
        while let Some(time) = next.filter(|time| *time <= now) {
            at = Some(time);
            next = self.next(time);
        }
        Ok(Due { at, too_many: missed > MAX_MISSED_TIMES, any: true })
    }

    /// Returns the delay until the next reconciliation. Upstream: `nextScheduleTimeDuration`.
    pub(super) fn until_next(&self, cron: &CronJob, now: Timestamp) -> Option<Duration> {
        let from = match self.due(cron, None, now) {
            Ok(Due { at: Some(at), .. }) => at,
            Ok(Due { any: false, .. }) => since(cron),
            Ok(_) | Err(_) => now,
        };
        let remaining = self.next(from)?.duration_since(now);
        Some(Duration::try_from(remaining).unwrap_or(Duration::ZERO) + SCHEDULE_DELAY)
    }

    fn next(&self, after: Timestamp) -> Option<Timestamp> {
        self.schedule.next(after, &self.zone)
    }
}

/// Returns the time after which scheduled times count: the last schedule time, else the creation time.
fn since(cron: &CronJob) -> Timestamp {
    let created = || cron.meta.creation.unwrap_or(Timestamp::UNIX_EPOCH);
    cron.status.last_schedule_time.unwrap_or_else(created)
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
        // Schedule, `lastScheduleTime`, time of the pass, expected due time, and whether too many times were missed.
        for (schedule, last, now, expected, too_many) in [
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
            let due =
                Times::of(&cron, &TimeZone::UTC).unwrap().due(&cron, None, time(now)).unwrap();
            assert_eq!((due.at, due.too_many), (expected.map(time), too_many), "{schedule} {now}");
        }
        let never = cron("59 23 31 2 *", "2026-01-05T10:00:00Z");
        assert!(
            Times::of(&never, &TimeZone::UTC)
                .unwrap()
                .due(&never, None, time("2026-01-06T00:00:00Z"))
                .is_err()
        );
    }

    #[test]
    fn requeue_delay_ends_after_the_next_scheduled_time() {
        let cron = cron("0 * * * *", "2026-01-05T10:00:00Z");
        let times = Times::of(&cron, &TimeZone::UTC).unwrap();
        for (now, seconds) in [
            ("2026-01-05T10:10:00Z", 50 * 60),
            ("2026-01-05T13:30:00Z", 30 * 60),
            ("2026-01-05T11:00:00Z", 3600),
        ] {
            let expected = Duration::from_secs(seconds) + SCHEDULE_DELAY;
            assert_eq!(times.until_next(&cron, time(now)), Some(expected), "{now}");
        }
    }

    #[test]
    fn zone_is_of_the_schedule_else_of_time_zone_else_local() {
        let mut cron = cron("TZ=Asia/Tokyo 0 0 * * *", "2026-01-05T10:00:00Z");
        assert_eq!(Times::of(&cron, &TimeZone::UTC).unwrap().zone.iana_name(), Some("Asia/Tokyo"));
        cron.spec.schedule = "0 0 * * *".into();
        let local = zone("Europe/Vienna").unwrap();
        assert_eq!(Times::of(&cron, &local).unwrap().zone, local, "the local zone");
        cron.spec.time_zone = Some("Asia/Tokyo".into());
        assert_eq!(Times::of(&cron, &local).unwrap().zone.iana_name(), Some("Asia/Tokyo"));
        cron.spec.time_zone = Some("Mars/Olympus".into());
        assert_eq!(
            Times::of(&cron, &TimeZone::UTC).err(),
            Some(ScheduleError::Zone("unknown time zone Mars/Olympus".into()))
        );
    }
}
