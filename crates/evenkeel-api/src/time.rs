//! Timestamps in the API's encoding.

use jiff::TimestampArithmetic;
pub use jiff::{SignedDuration, Timestamp, tz::TimeZone};

/// Go's zero time, 0001-01-01T00:00:00Z, which upstream uses for an absent time.
pub(crate) const ZERO: Timestamp = Timestamp::constant(-62_135_596_800, 0);

/// Adds a duration from an object or a request. A sum beyond the maximum of [`Timestamp`], at the end of the year
/// 9999, becomes that maximum. A sum before the year 1 becomes the first time of that year.
pub fn saturating_add(time: Timestamp, by: impl Into<TimestampArithmetic>) -> Timestamp {
    time.saturating_add(by).unwrap_or(Timestamp::MAX).max(ZERO)
}

/// Subtracts a duration from an object or a request. The difference has the same bounds as in [`saturating_add`].
pub fn saturating_sub(time: Timestamp, by: impl Into<TimestampArithmetic>) -> Timestamp {
    time.saturating_sub(by).unwrap_or(ZERO).max(ZERO)
}

/// Parses a time in RFC 3339, with or without a fraction.
///
/// # Errors
/// Fails if the string is malformed.
pub fn parse(text: &str) -> Result<Timestamp, jiff::Error> {
    match parse_plain(text.as_bytes()) {
        Some(time) => Ok(time),
        None => text.parse(),
    }
}

/// Parses exactly the form `2026-01-02T03:04:05Z`, which nearly every time on the wire has. Returns `None` for other
/// forms.
fn parse_plain(text: &[u8]) -> Option<Timestamp> {
    // The letters are the digits of year, month, day, hour, minute (`n`) and second.
    let &[
        y1,
        y2,
        y3,
        y4,
        b'-',
        m1,
        m2,
        b'-',
        d1,
        d2,
        b'T',
        h1,
        h2,
        b':',
        n1,
        n2,
        b':',
        s1,
        s2,
        b'Z',
    ] = text
    else {
        return None;
    };
    let two_digits = |tens: u8, ones: u8| {
        if !tens.is_ascii_digit() || !ones.is_ascii_digit() {
            return None;
        }
        Some(i64::from(tens - b'0') * 10 + i64::from(ones - b'0'))
    };
    let year = two_digits(y1, y2)? * 100 + two_digits(y3, y4)?;
    let (month, day) = (two_digits(m1, m2)?, two_digits(d1, d2)?);
    let (hour, minute, second) = (two_digits(h1, h2)?, two_digits(n1, n2)?, two_digits(s1, s2)?);
    // The full parser handles February 29, which not every year has.
    let day_exists = (1..=28).contains(&day)
        || (day <= 30 && month != 2)
        || (day == 31 && matches!(month, 1 | 3 | 5 | 7 | 8 | 10 | 12));
    if year == 0
        || !(1..=12).contains(&month)
        || !(1..=31).contains(&day)
        || !day_exists
        || hour > 23
        || minute > 59
        || second > 59
    {
        return None;
    }
    // Count the days since 1970. Years begin in March here, so that a leap day is the last day of its year. An era is a
    // cycle of 400 years, which has 146,097 days. The first day of era 0 is 719,468 days before 1970.
    let (march_year, march_month) =
        if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, year_of_era) = (march_year.div_euclid(400), march_year.rem_euclid(400));
    let day_of_year = (153 * march_month + 2) / 5 + day - 1;
    let days = era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100
        + day_of_year
        - 719_468;
    Timestamp::from_second(days * 86_400 + hour * 3600 + minute * 60 + second).ok()
}

/// Formats a `metav1.Time`, in UTC and whole seconds.
pub fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Formats a `metav1.MicroTime`, in UTC and microseconds.
pub fn micros(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn saturating_sums_stay_in_representable_years() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let seconds = SignedDuration::from_secs;
        for (by, added, subtracted) in [
            (0, "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
            (60, "2026-01-01T00:01:00Z", "2025-12-31T23:59:00Z"),
            (-60, "2025-12-31T23:59:00Z", "2026-01-01T00:01:00Z"),
            (i64::MAX, "9999-12-30T22:00:00Z", "0001-01-01T00:00:00Z"),
            (i64::MIN, "0001-01-01T00:00:00Z", "9999-12-30T22:00:00Z"),
        ] {
            assert_eq!(super::seconds(saturating_add(now, seconds(by))), added, "{by}");
            assert_eq!(super::seconds(saturating_sub(now, seconds(by))), subtracted, "{by}");
        }
        assert_eq!(saturating_add(now, Duration::MAX), Timestamp::MAX);
        assert_eq!(saturating_sub(now, Duration::MAX), ZERO);
    }
}
