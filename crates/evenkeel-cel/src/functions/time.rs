//! Functions of timestamps and durations. Upstream: cel-go's `cel.DefaultUTCTimeZone`, Go's `time`.

use std::cmp::Ordering;
use std::fmt;

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::Outcome;
use super::number::parse_i64;
use crate::value::Val;

/// Valid seconds of a timestamp since 1970: from the beginning of the year 1 to the end of the year 9999.
const SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

/// Seconds of a day.
const DAY: i64 = 86_400;

/// A timestamp with nanoseconds, from the year 1 to the end of the year 9999. The timestamps of `jiff` end some hours
/// earlier.
#[derive(Debug, Clone, Copy)]
pub struct Time {
    /// Seconds since 1970.
    seconds: i64,
    nanos: u32,
    /// Offset east of UTC in seconds. The timestamp is formatted with this offset; comparisons ignore it.
    offset: i32,
}

impl PartialEq for Time {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Time {}

impl PartialOrd for Time {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Time {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.seconds, self.nanos).cmp(&(other.seconds, other.nanos))
    }
}

impl Time {
    /// Beginning of the year 1.
    pub const ZERO: Self = Self { seconds: *SECONDS.start(), nanos: 0, offset: 0 };

    /// Returns a timestamp by its distance to the beginning of 1970; `None` if it is out of range.
    pub fn new(since: SignedDuration) -> Option<Self> {
        let nanos = since.as_nanos();
        let seconds = i64::try_from(nanos.div_euclid(1_000_000_000)).ok()?;
        let nanos = u32::try_from(nanos.rem_euclid(1_000_000_000)).ok()?;
        SECONDS.contains(&seconds).then_some(Self { seconds, nanos, offset: 0 })
    }

    /// Returns the timestamp of a civil time in UTC; `None` if it is out of range.
    pub(crate) fn of(local: DateTime) -> Option<Self> {
        Self::new(local.duration_since(DateTime::constant(1970, 1, 1, 0, 0, 0, 0)))
    }

    /// Returns the distance to the beginning of 1970.
    pub fn since_epoch(self) -> SignedDuration {
        SignedDuration::new(self.seconds, self.nanos as i32)
    }

    /// Returns the seconds since 1970.
    pub(super) fn as_second(self) -> i64 {
        self.seconds
    }

    /// Returns the civil time this number of seconds later, and a number to add to its year. The civil time may be out
    /// of the range of [`DateTime`]. It is therefore computed within one cycle of 400 years, after which the calendar
    /// repeats itself.
    fn civil(self, seconds: i64) -> (DateTime, i64) {
        const CYCLE: i64 = 146_097 * DAY;
        let since = self.seconds.saturating_add(seconds);
        let (cycles, within) = (since.div_euclid(CYCLE), since.rem_euclid(CYCLE));
        let epoch = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);
        let local = epoch.saturating_add(SignedDuration::new(within, self.nanos as i32));
        (local, cycles * 400)
    }

    /// Returns the timestamp, or the last one that `jiff` supports if that is earlier.
    fn to_jiff(self) -> Timestamp {
        Timestamp::from_second(self.seconds).unwrap_or(Timestamp::MAX)
    }
}

impl From<Timestamp> for Time {
    fn from(at: Timestamp) -> Self {
        let since = at.as_duration();
        Self::new(since).unwrap_or(Self::ZERO)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (local, years) = self.civil(i64::from(self.offset));
        let year = i64::from(local.year()) + years;
        write!(f, "{year:04}-{:02}-{:02}T", local.month(), local.day())?;
        write!(f, "{:02}:{:02}:{:02}", local.hour(), local.minute(), local.second())?;
        if self.nanos > 0 {
            f.write_str(format!(".{:09}", self.nanos).trim_end_matches('0'))?;
        }
        if self.offset == 0 {
            return f.write_str("Z");
        }
        let (sign, minutes) = (if self.offset < 0 { '-' } else { '+' }, self.offset.abs() / 60);
        write!(f, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)
    }
}

/// Adds a duration to a timestamp; an error if the sum is out of range.
pub(crate) fn later(at: Time, length: SignedDuration) -> Result<Time, String> {
    let sum = at.since_epoch().checked_add(length);
    let sum = sum.and_then(Time::new).map(|sum| Time { offset: at.offset, ..sum });
    sum.ok_or_else(|| "timestamp overflow".to_owned())
}

/// Returns the duration if its nanoseconds fit an `int`, else an error.
pub(crate) fn checked_duration(length: SignedDuration) -> Result<SignedDuration, String> {
    match i64::try_from(length.as_nanos()) {
        Ok(_) => Ok(length),
        Err(_) => Err("integer overflow".to_owned()),
    }
}

pub(super) fn member<'a>(name: &str, args: &[Val<'a>]) -> Option<Outcome<'a>> {
    match args {
        [Val::Duration(length)] => {
            let whole = match name {
                "getHours" => length.as_hours(),
                "getMinutes" => length.as_mins(),
                "getSeconds" => length.as_secs(),
                "getMilliseconds" => i64::try_from(length.as_millis()).unwrap_or(i64::MAX),
                _ => return None,
            };
            Some(Ok(Val::Int(whole)))
        }
        [Val::Time(at)] => time_component(name, *at, "UTC"),
        [Val::Time(at), Val::Str(zone)] => time_component(name, *at, zone),
        _ => None,
    }
}

/// Returns a component of a timestamp in a time zone, such as its month; `None` for other methods.
fn time_component<'a>(name: &str, at: Time, zone: &str) -> Option<Outcome<'a>> {
    let (local, years) = match in_zone(at, zone) {
        Ok(local) => local,
        Err(error) => return Some(Err(error)),
    };
    let number = match name {
        "getFullYear" => i64::from(local.year()) + years,
        "getMonth" => i64::from(local.month()) - 1,
        "getDate" => i64::from(local.day()),
        "getDayOfMonth" => i64::from(local.day()) - 1,
        "getDayOfYear" => i64::from(local.day_of_year()) - 1,
        "getDayOfWeek" => i64::from(local.weekday().to_sunday_zero_offset()),
        "getHours" => i64::from(local.hour()),
        "getMinutes" => i64::from(local.minute()),
        "getSeconds" => i64::from(local.second()),
        "getMilliseconds" => i64::from(local.millisecond()),
        _ => return None,
    };
    Some(Ok(Val::Int(number)))
}

/// Converts a timestamp to the civil time of a zone: an offset such as `-08:00`, a name such as `Europe/Berlin`, or
/// empty for UTC. The second result must be added to the year; see [`Time::civil`].
///
/// Upstream: `inTimeZone`.
fn in_zone(at: Time, zone: &str) -> Result<(DateTime, i64), String> {
    let Some((hours, minutes)) = zone.split_once(':') else {
        let offset = named_zone(zone)?.to_offset(at.to_jiff());
        return Ok(at.civil(i64::from(offset.seconds())));
    };
    let (hours, minutes) = (parse_i64(hours)?, parse_i64(minutes)?);
    let minutes = if zone.starts_with('-') { minutes.wrapping_neg() } else { minutes };
    // Upstream counts in 64-bit nanoseconds, without a check for overflow.
    let nanos = hours.wrapping_mul(60).wrapping_add(minutes).wrapping_mul(60_000_000_000);
    Ok(at.civil(nanos / 1_000_000_000))
}

/// Finds a time zone by its name in the IANA database.
///
/// Upstream: Go's `time.LoadLocation`.
fn named_zone(name: &str) -> Result<TimeZone, String> {
    // An expression must not depend on the time zone of the server.
    if matches!(name, "" | "UTC" | "Local") {
        return Ok(TimeZone::UTC);
    }
    if name.starts_with(['/', '\\']) || name.split('/').any(|part| part == "..") {
        return Err("time: invalid location name".to_owned());
    }
    let zone = TimeZone::get(name).ok();
    // Go reads a file of this name, so that the case of letters matters.
    zone.filter(|zone| zone.iana_name() == Some(name))
        .ok_or_else(|| format!("unknown time zone {name}"))
}

/// Parses a timestamp as Go does with `time.RFC3339`: it also accepts a fraction after a comma, and hours of one digit.
/// `None` if `text` has another form.
///
/// # Errors
/// Fails if the timestamp is out of range.
pub(crate) fn parse_timestamp(text: &str) -> Option<Result<Time, String>> {
    let (date, rest) = text.split_once('T')?;
    let date = match date.as_bytes() {
        [a, b, c, d, b'-', e, f, b'-', g, h] => {
            let number = |digits: &[u8]| -> Option<i16> {
                std::str::from_utf8(digits).ok().and_then(parse_digits)
            };
            let year = number(&[*a, *b, *c, *d])?;
            let month = i8::try_from(number(&[*e, *f])?).ok()?;
            let day = i8::try_from(number(&[*g, *h])?).ok()?;
            Date::new(year, month, day).ok()?
        }
        _ => return None,
    };
    let (hour, rest) = rest.split_once(':')?;
    let (minute, rest) = rest.split_once(':')?;
    if !(1..=2).contains(&hour.len()) || minute.len() != 2 {
        return None;
    }
    let (second, rest) = (rest.get(..2)?, rest.get(2..)?);
    let (hour, minute, second): (i8, i8, i8) =
        (parse_digits(hour)?, parse_digits(minute)?, parse_digits(second)?);
    let (nanos, zone) = parse_fraction(rest)?;
    let offset = match zone.as_bytes() {
        b"Z" => 0,
        [sign @ (b'+' | b'-'), a, b, b':', c, d] => {
            let hours: i64 = parse_digits(std::str::from_utf8(&[*a, *b]).ok()?)?;
            let minutes: i64 = parse_digits(std::str::from_utf8(&[*c, *d]).ok()?)?;
            if hours > 24 || minutes > 60 {
                return None;
            }
            let offset = hours * 3600 + minutes * 60;
            if *sign == b'-' { -offset } else { offset }
        }
        _ => return None,
    };
    let time = jiff::civil::Time::new(hour, minute, second, nanos).ok()?;
    let local = date.to_datetime(time);
    let since = local.duration_since(DateTime::constant(1970, 1, 1, 0, 0, 0, 0));
    let at = since.checked_sub(SignedDuration::from_secs(offset)).and_then(Time::new);
    let offset = i32::try_from(offset).unwrap_or_default();
    let at = at.map(|at| Time { offset, ..at });
    Some(at.ok_or_else(|| "timestamp overflow".to_owned()))
}

/// Parses an unsigned number of ASCII digits.
fn parse_digits<N: std::str::FromStr>(text: &str) -> Option<N> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

/// Parses a fraction of a second at the beginning of a string. Returns its nanoseconds, and the rest of the string.
fn parse_fraction(text: &str) -> Option<(i32, &str)> {
    let Some(rest) = text.strip_prefix(['.', ',']) else { return Some((0, text)) };
    let length = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (digits, rest) = rest.split_at_checked(length).filter(|(digits, _)| !digits.is_empty())?;
    let nanos = digits.get(..9).unwrap_or(digits);
    let scale = 10i32.checked_pow(9u32.saturating_sub(nanos.len() as u32))?;
    Some((nanos.parse::<i32>().ok()?.checked_mul(scale)?, rest))
}

/// Parses a Go duration: `1h30m`, `-1.5s`, `0`. `None` also for a duration out of range.
pub(crate) fn parse_duration(text: &str) -> Option<SignedDuration> {
    let (is_negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(SignedDuration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    // The least `int` has one more nanosecond than the greatest.
    const MAX: u64 = 1 << 63;
    let mut nanos = 0u64;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at_checked(end)?;
        let length = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at_checked(length)?;
        rest = after;
        let unit = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let (integer, fraction) = number.split_once('.').unwrap_or((number, ""));
        if integer.is_empty() && fraction.is_empty() || fraction.contains('.') {
            return None;
        }
        let integer: u64 = if integer.is_empty() { 0 } else { integer.parse().ok()? };
        // Digits beyond the 18th are less than a nanosecond.
        let fraction = fraction.get(..18).unwrap_or(fraction);
        let digits: u128 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
        let fraction_nanos = digits * u128::from(unit) / 10u128.pow(fraction.len() as u32);
        nanos = integer
            .checked_mul(unit)?
            .checked_add(u64::try_from(fraction_nanos).ok()?)?
            .checked_add(nanos)
            .filter(|nanos| *nanos <= MAX)?;
    }
    let nanos = if is_negative { -i128::from(nanos) } else { i128::from(nanos) };
    i64::try_from(nanos).ok().map(SignedDuration::from_nanos)
}

/// Formats a duration as cel-go does: in seconds.
pub(crate) fn duration_text(length: SignedDuration) -> String {
    if length.subsec_nanos() == 0 {
        return format!("{}s", length.as_secs());
    }
    format!("{}s", length.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use crate::tests::assert_results;

    #[test]
    fn timestamps_have_parts_in_a_zone() {
        for (call, want) in [
            ("getHours('')", "0"),
            ("getHours('UTC')", "0"),
            ("getHours('America/New_York')", "19"),
            ("getHours('US/Central')", "18"),
            ("getHours('-08:30')", "15"),
            ("getMinutes('-08:30')", "30"),
            ("getHours('08:30')", "8"),
            ("getHours('1:60')", "2"),
            ("getHours('1:+30')", "1"),
            ("getDayOfYear('99:30')", "4"),
            ("getDayOfWeek('-48:00')", "2"),
            ("getHours('999999999:00')", "1"),
            ("getFullYear('100000:30')", "2037"),
            ("getFullYear('-100000000:30')", "2309"),
            ("getFullYear('3000000:00')", "1783"),
            ("getHours('utc')", "error: unknown time zone utc"),
            ("getHours('america/new_york')", "error: unknown time zone america/new_york"),
            ("getHours('../etc/passwd')", "error: time: invalid location name"),
            ("getHours('/etc/localtime')", "error: time: invalid location name"),
            ("getHours('a:00')", "error: strconv.Atoi: parsing \"a\": invalid syntax"),
            ("getHours(':30')", "error: strconv.Atoi: parsing \"\": invalid syntax"),
            ("getHours('1:2:3')", "error: strconv.Atoi: parsing \"2:3\": invalid syntax"),
            (
                "getHours('9999999999999999999:00')",
                "error: strconv.Atoi: parsing \"9999999999999999999\": value out of range",
            ),
        ] {
            assert_results(&[(&format!("timestamp('2026-01-01T00:00:00Z').{call}"), want)]);
        }
        assert_results(&[
            ("timestamp('9999-12-31T23:59:59Z').getFullYear('+01:00')", "10000"),
            ("timestamp('0001-01-01T00:00:00Z').getFullYear('-01:00')", "0"),
            ("timestamp('0001-01-01T00:00:00Z').getFullYear('-100000:00')", "-11"),
            ("timestamp('2026-07-01T00:00:00.25Z').getMilliseconds('+24:00')", "250"),
        ]);
    }

    #[test]
    fn timestamps_are_those_of_rfc_3339() {
        for (text, want) in [
            ("2026-01-01T00:00:00,5Z", "\"2026-01-01T00:00:00.5Z\""),
            ("2026-01-01T00:00:00.1234567899Z", "\"2026-01-01T00:00:00.123456789Z\""),
            ("2026-01-01T0:00:00Z", "\"2026-01-01T00:00:00Z\""),
            ("2026-01-01T00:00:00+24:00", "\"2026-01-01T00:00:00+24:00\""),
            ("2026-01-01T00:00:00-00:00", "\"2026-01-01T00:00:00Z\""),
            ("9999-12-31T23:59:59.999999999Z", "\"9999-12-31T23:59:59.999999999Z\""),
            ("0000-01-01T00:00:00Z", "error: timestamp overflow"),
            ("9999-12-31T23:59:59-01:00", "error: timestamp overflow"),
            ("0001-01-01T00:00:00+01:00", "error: timestamp overflow"),
        ] {
            assert_results(&[(&format!("timestamp('{text}')"), want)]);
        }
        for text in [
            "",
            "2026-01-01 00:00:00Z",
            "2026-01-01T00:00:00+00[UTC]",
            "2026-01-01T00:00:00+00",
            "2026-01-01t00:00:00z",
            "2026-01-01T00:00Z",
            "2026-01-01T00:00:60Z",
            "2026-01-01T24:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-1-01T00:00:00Z",
            "2026-01-01T00:0:00Z",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00-0000",
            "2026-01-01T00:00:00+25:00",
            "2026-01-01T00:00:00+24:61",
            "-0001-01-01T00:00:00Z",
            "+002026-01-01T00:00:00Z",
            "2026-01-01T00:00:00Z ",
        ] {
            let want = "error: type conversion error from 'string' to 'google.protobuf.Timestamp'";
            assert_results(&[(&format!("timestamp('{text}')"), want)]);
        }
        assert_results(&[
            ("timestamp(253402300799)", "\"9999-12-31T23:59:59Z\""),
            ("timestamp(253402300800)", "error: timestamp overflow"),
            ("timestamp(-62135596801)", "error: timestamp overflow"),
        ]);
    }

    #[test]
    fn durations_are_exact() {
        for (text, nanos) in [
            ("1h30m", 5_400_000_000_000),
            ("-1.5s", -1_500_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("1μs", 1_000),
            ("9007199254740993ns", 9_007_199_254_740_993),
            ("1.9999999999ns", 1),
            ("0.100000000000000000000h", 360_000_000_000),
            ("2562047h47m16.854775807s", i64::MAX),
            ("-9223372036854775808ns", i64::MIN),
        ] {
            assert_results(&[(&format!("int(duration('{text}'))"), &nanos.to_string())]);
        }
        for text in ["", "-", "1", ".s", "1.1.1s", "1d", "9223372036854775808ns", "3000000h"] {
            let want = "error: type conversion error from 'string' to 'google.protobuf.Duration'";
            assert_results(&[(&format!("duration('{text}')"), want)]);
        }
        assert_results(&[
            ("duration('1h1m1.5s').getMilliseconds()", "3661500"),
            ("duration('-1.5s').getSeconds()", "-1"),
            ("duration('2562047h') + duration('2562047h')", "error: integer overflow"),
            ("duration('-9223372036854775808ns') - duration('1ns')", "error: integer overflow"),
            (
                "timestamp('9999-12-31T23:59:59Z') - timestamp('0001-01-01T00:00:00Z')",
                "error: integer overflow",
            ),
            ("timestamp('9999-12-31T23:59:59Z') + duration('1s')", "error: timestamp overflow"),
            ("timestamp('0001-01-01T00:00:00Z') - duration('1s')", "error: timestamp overflow"),
        ]);
    }
}
