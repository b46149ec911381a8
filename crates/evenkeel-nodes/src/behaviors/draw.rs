//! Draws: random values that depend only on a seed and on names, so that a run can be repeated.

use evenkeel_api::quantity::Quantity;
use std::time::Duration;

use crate::{annotations::Annotation, behaviour::duration};

/// Separator of the two ends of a range.
const RANGE: &str = "..";

/// Denominator of rates: they are in millionths.
pub(crate) const MILLION: u32 = 1_000_000;

/// Returns a hash of a seed and of names. It is the same on each machine and in each version.
pub(crate) fn hash(seed: u64, names: &[&str]) -> u64 {
    // FNV-1a over the names. A byte that does not occur in UTF-8 ends each name.
    let bytes = names.iter().flat_map(|name| name.bytes().chain([0xff]));
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325 ^ seed, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    mix(hash)
}

/// Finalizes a hash as SplitMix64 does, so that each bit depends on all bits.
fn mix(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// Returns the draw number `n` of a hash.
pub(crate) fn draw(hash: u64, n: u64) -> u64 {
    mix(hash.wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

/// Returns whether draw number `n` of a hash is within a rate in millionths.
pub(crate) fn happens(hash: u64, n: u32, rate: u32) -> bool {
    draw(hash, n.into()) % u64::from(MILLION) < u64::from(rate)
}

/// Returns the ends of a range such as `1s..5s`; `None` for a single value.
pub(crate) fn range(value: &str) -> Option<(&str, &str)> {
    value.split_once(RANGE).map(|(low, high)| (low.trim(), high.trim()))
}

/// Unit of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Count,
    Duration,
    Quantity,
}

impl Unit {
    /// Returns the unit of an annotation's values; `None` if they are words.
    pub(crate) fn of(annotation: &Annotation) -> Option<Self> {
        match annotation.values.split([' ', ',']).next() {
            Some("duration") => Some(Self::Duration),
            Some("quantity") => Some(Self::Quantity),
            Some("count" | "0") => Some(Self::Count),
            _ => None,
        }
    }
}

/// Returns a single value unchanged, or draws a value from a range by the hash. All values of a range are equally
/// likely. The error is the end of a sentence about the value.
pub(crate) fn resolve(value: &str, unit: Option<Unit>, hash: u64) -> Result<String, &'static str> {
    let Some((low, high)) = range(value) else { return Ok(value.to_owned()) };
    let (parse, suffix, invalid): (fn(&str) -> Option<i64>, _, _) = match unit {
        Some(Unit::Count) => (count, "", "is not a range of counts such as 1..3"),
        Some(Unit::Duration) => (nanos, "ns", "is not a range of durations such as 1s..5s"),
        Some(Unit::Quantity) => (millis, "m", "is not a range of amounts such as 100m..2"),
        None => return Err("is a range, but the field has words as values"),
    };
    let drawn = parse(low).zip(parse(high)).and_then(|(low, high)| between(low, high, hash));
    Ok(format!("{}{suffix}", drawn.ok_or(invalid)?))
}

fn count(text: &str) -> Option<i64> {
    text.parse::<u32>().ok().map(i64::from)
}

fn nanos(text: &str) -> Option<i64> {
    i64::try_from(duration(text).ok()?.as_nanos()).ok()
}

fn millis(text: &str) -> Option<i64> {
    Quantity::parse(text).ok().map(Quantity::milli_value)
}

/// Draws a number from `low` to `high` by a hash; `None` if `low` is larger.
fn between(low: i64, high: i64, hash: u64) -> Option<i64> {
    let count = u64::try_from(high.checked_sub(low)?).ok()?.checked_add(1)?;
    low.checked_add_unsigned(hash % count)
}

/// Usage over time: a piecewise linear curve through points.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Curve {
    /// Whether the times are times of the day (UTC), and the curve repeats daily. Otherwise, they count from the pod's
    /// start.
    pub(crate) daily: bool,
    /// Times, ascending, each with thousandths of the unit. Not empty.
    pub(crate) points: Vec<(Duration, i64)>,
}

/// Length of a day.
const DAY: Duration = Duration::from_secs(86_400);

impl Curve {
    /// Returns thousandths of the unit at a time of the day and since the pod's start.
    pub(crate) fn value(&self, time_of_day: Duration, since_start: Duration) -> i64 {
        let time = if self.daily { time_of_day } else { since_start };
        let next = self.points.partition_point(|(at, _)| *at <= time);
        let (first, last) = (self.points.first(), self.points.last());
        let before = next.checked_sub(1).and_then(|index| self.points.get(index)).copied();
        let after = self.points.get(next).copied();
        let of_day_before = || last.map(|(at, value)| (*at, *value));
        let of_day_after = || first.map(|(at, value)| (*at + DAY, *value));
        match (before, after) {
            (Some(before), Some(after)) => interpolate(before, after, time),
            (Some(before), None) if self.daily => {
                of_day_after().map_or(before.1, |after| interpolate(before, after, time))
            }
            (None, Some(after)) if self.daily => {
                let after = (after.0 + DAY, after.1);
                of_day_before().map_or(after.1, |before| interpolate(before, after, time + DAY))
            }
            (Some((_, value)), None) | (None, Some((_, value))) => value,
            (None, None) => 0,
        }
    }
}

/// Returns the value at a time on the line between two points. A point is a time and its value.
fn interpolate(
    (start, start_value): (Duration, i64),
    (end, end_value): (Duration, i64),
    time: Duration,
) -> i64 {
    let length = end.saturating_sub(start).as_secs_f64();
    if length == 0.0 {
        return end_value;
    }
    let elapsed_share = time.saturating_sub(start).as_secs_f64() / length;
    (start_value as f64 + (end_value as f64 - start_value as f64) * elapsed_share).round() as i64
}

/// Parses a time of a curve: `HH:MM` of a day, or a duration. Also returns whether it is a time of the day.
pub(crate) fn curve_time(text: &str) -> Result<(bool, Duration), &'static str> {
    const INVALID: &str = "is neither a time of day such as 08:30 nor a duration such as 5m";
    let Some((hours, minutes)) = text.split_once(':') else {
        return duration(text).map(|time| (false, time)).map_err(|_| INVALID);
    };
    let number = |text: &str, limit: u64| {
        let number = Some(text).filter(|text| text.len() == 2)?.parse::<u64>().ok();
        number.filter(|number| *number < limit)
    };
    let (hours, minutes) = number(hours, 24).zip(number(minutes, 60)).ok_or(INVALID)?;
    Ok((true, Duration::from_secs(hours * 3600 + minutes * 60)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_repeat_and_spread() {
        assert_eq!(hash(7, &["ns", "web"]), hash(7, &["ns", "web"]));
        assert_ne!(hash(7, &["ns", "web"]), hash(8, &["ns", "web"]));
        assert_ne!(hash(7, &["ns", "web"]), hash(7, &["nsw", "eb"]));
        // The hash is part of the interface: a seed gives the same draws in each version.
        assert_eq!(hash(0, &[]), mix(0xcbf2_9ce4_8422_2325));
        let of_pods = |rate| {
            let names = (0..1000).map(|n| format!("web-{n}"));
            names.filter(|name| happens(hash(1, &[name.as_str()]), 0, rate)).count()
        };
        assert!((30..70).contains(&of_pods(50_000)), "{}", of_pods(50_000));
        assert_eq!((of_pods(0), of_pods(MILLION)), (0, 1000));
        let of_runs = (0..1000).filter(|run| happens(hash(1, &[]), *run, 500_000)).count();
        assert!((450..550).contains(&of_runs), "{of_runs}");
    }

    #[test]
    fn values_are_drawn_from_ranges() {
        let (counts, durations) = (Some(Unit::Count), Some(Unit::Duration));
        for (value, unit, hash, want) in [
            ("5s", durations, 9, Some("5s")),
            ("never", None, 9, Some("never")),
            ("1..3", counts, 0, Some("1")),
            ("1..3", counts, 5, Some("3")),
            ("7..7", counts, 5, Some("7")),
            ("1s..2s", durations, 0, Some("1000000000ns")),
            ("1s..2s", durations, 1_000_000_000, Some("2000000000ns")),
            ("0..1ns", durations, 1, Some("1ns")),
            ("100m..200m", durations, 0, Some("6000000000000ns")),
            ("100m..200m", Some(Unit::Quantity), 50, Some("150m")),
            ("1Ki..2Ki", Some(Unit::Quantity), 0, Some("1024000m")),
            ("3..1", counts, 0, None),
            ("2s..1s", durations, 0, None),
            ("1..5", durations, 0, None),
            ("soon..later", durations, 0, None),
            ("always..never", None, 0, None),
            ("1s..", durations, 0, None),
        ] {
            assert_eq!(resolve(value, unit, hash).ok().as_deref(), want, "{value} {unit:?}");
        }
    }

    #[test]
    fn curves_are_lines_through_their_points() {
        let hour = |hours: u64| Duration::from_secs(hours * 3600);
        let points = vec![(hour(6), 100), (hour(12), 700), (hour(18), 100)];
        let daily = Curve { daily: true, points: points.clone() };
        for (time, want) in [(6, 100), (9, 400), (12, 700), (18, 100), (0, 100), (23, 100)] {
            assert_eq!(daily.value(hour(time), hour(9)), want, "{time}");
        }
        let night = Curve { daily: true, points: vec![(hour(6), 0), (hour(18), 120)] };
        assert_eq!([0, 3, 21].map(|time| night.value(hour(time), hour(0))), [60, 30, 90]);
        let since_start = Curve { daily: false, points };
        for (time, want) in [(0, 100), (9, 400), (100, 100)] {
            assert_eq!(since_start.value(hour(9), hour(time)), want, "{time}");
        }
    }

    #[test]
    fn times_of_curves_are_parsed() {
        for (text, want) in [
            ("08:30", Some((true, 30_600))),
            ("00:00", Some((true, 0))),
            ("5m", Some((false, 300))),
            ("0", Some((false, 0))),
            ("24:00", None),
            ("8:30", None),
            ("08:60", None),
            ("noon", None),
        ] {
            let want = want.map(|(daily, seconds)| (daily, Duration::from_secs(seconds)));
            assert_eq!(curve_time(text).ok(), want, "{text}");
        }
    }
}
