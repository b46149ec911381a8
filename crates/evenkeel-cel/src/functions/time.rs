//! Functions of timestamps and durations.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, Zoned};

use super::Outcome;
use crate::value::Val;

pub(super) fn member<'a>(name: &str, args: &[Val<'a>]) -> Option<Outcome<'a>> {
    match args {
        [Val::Duration(length)] => {
            let whole = match name {
                "getHours" => length.as_hours(),
                "getMinutes" => length.as_mins(),
                "getSeconds" => length.as_secs(),
                "getMilliseconds" => i64::from(length.subsec_millis()),
                _ => return None,
            };
            Some(Ok(Val::Int(whole)))
        }
        [Val::Time(at)] => part(name, *at, "UTC"),
        [Val::Time(at), Val::Str(zone)] => part(name, *at, zone),
        _ => None,
    }
}

fn part<'a>(name: &str, at: Timestamp, zone: &str) -> Option<Outcome<'a>> {
    let zoned = match in_zone(at, zone) {
        Ok(zoned) => zoned,
        Err(error) => return Some(Err(error)),
    };
    let number = match name {
        "getFullYear" => i64::from(zoned.year()),
        "getMonth" => i64::from(zoned.month()) - 1,
        "getDate" => i64::from(zoned.day()),
        "getDayOfMonth" => i64::from(zoned.day()) - 1,
        "getDayOfYear" => i64::from(zoned.day_of_year()) - 1,
        "getDayOfWeek" => i64::from(zoned.weekday().to_sunday_zero_offset()),
        "getHours" => i64::from(zoned.hour()),
        "getMinutes" => i64::from(zoned.minute()),
        "getSeconds" => i64::from(zoned.second()),
        "getMilliseconds" => i64::from(zoned.millisecond()),
        _ => return None,
    };
    Some(Ok(Val::Int(number)))
}

/// Converts a timestamp to a time zone: `UTC`, empty for UTC, or an offset such as `-08:00`. A zone's name is an
/// error.
fn in_zone(at: Timestamp, zone: &str) -> Result<Zoned, String> {
    if zone == "UTC" || zone.is_empty() {
        return Ok(at.to_zoned(TimeZone::UTC));
    }
    let offset = zone.split_once(':').and_then(|(hours, minutes)| {
        let hours: i32 = hours.parse().ok()?;
        let minutes: i32 = minutes.parse().ok()?;
        let sign = if zone.starts_with('-') { -1 } else { 1 };
        jiff::tz::Offset::from_seconds(hours * 3600 + sign * minutes * 60).ok()
    });
    match offset {
        Some(offset) => Ok(at.to_zoned(offset.to_time_zone())),
        None => Err(format!("unknown time zone {zone}")),
    }
}

/// Parses a Go duration: `1h30m`, `-1.5s`, `0`.
pub(crate) fn parse_duration(text: &str) -> Option<SignedDuration> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(SignedDuration::ZERO);
    }
    let mut nanos = 0.0f64;
    let mut any = false;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        rest = &rest[end..];
        let length = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        nanos += number
            * match &rest[..length] {
                "ns" => 1.0,
                "us" | "µs" => 1e3,
                "ms" => 1e6,
                "s" => 1e9,
                "m" => 60e9,
                "h" => 3600e9,
                _ => return None,
            };
        rest = &rest[length..];
        any = true;
    }
    let nanos = if negative { -nanos } else { nanos };
    any.then(|| SignedDuration::from_nanos(nanos as i64))
}

/// Formats a duration as cel-go does: in seconds.
pub(crate) fn duration_text(length: SignedDuration) -> String {
    if length.subsec_nanos() == 0 {
        return format!("{}s", length.as_secs());
    }
    format!("{}s", length.as_secs_f64())
}
