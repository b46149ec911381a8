//! Durations as Go's flags take and print them: `1h30m`, `100ms`, `1.5s`.

use std::time::Duration;

const UNITS: [(&str, f64); 8] = [
    ("ns", 1.0),
    ("us", 1e3),
    ("µs", 1e3),
    ("μs", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("m", 6e10),
    ("h", 3.6e12),
];

/// Parses a duration. Negative ones are refused: no flag here has a use for one.
pub fn parse(text: &str) -> Result<Duration, String> {
    let invalid = || format!("invalid duration {text:?}, want for instance 300ms, 1.5s or 2h45m");
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut nanos = 0f64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(|| {
            format!("missing unit in duration {text:?}, want for instance {text}s")
        })?;
        let number: f64 = rest[..digits].parse().map_err(|_| invalid())?;
        rest = &rest[digits..];
        let end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let unit = &rest[..end];
        let (_, scale) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(invalid)?;
        nanos += number * scale;
        rest = &rest[end..];
    }
    // Go holds a duration in an i64 of nanoseconds.
    if nanos > i64::MAX as f64 {
        return Err(invalid());
    }
    Ok(Duration::from_nanos(nanos.round() as u64))
}

/// Prints a duration as Go does: `12h0m0s`, `1m40s`, `1.5s`, `500ms`, `0s`.
pub fn print(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    if nanos == 0 {
        return "0s".to_owned();
    }
    let fraction = |value: u128, unit: u128| {
        let mut text = format!("{}", value / unit);
        let part = value % unit;
        if part > 0 {
            let width = unit.ilog10() as usize;
            let digits = format!("{part:0width$}");
            text.push('.');
            text.push_str(digits.trim_end_matches('0'));
        }
        text
    };
    match nanos {
        n if n < 1_000 => format!("{n}ns"),
        n if n < 1_000_000 => format!("{}µs", fraction(n, 1_000)),
        n if n < 1_000_000_000 => format!("{}ms", fraction(n, 1_000_000)),
        n => {
            let seconds = fraction(n % 60_000_000_000, 1_000_000_000);
            let minutes = n / 60_000_000_000;
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{seconds}s"),
                (0, m) => format!("{m}m{seconds}s"),
                (h, m) => format!("{h}h{m}m{seconds}s"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parses_what_go_parses() {
        for (text, millis) in [
            ("0", 0),
            ("5s", 5_000),
            ("1.5s", 1_500),
            ("2h45m", 9_900_000),
            ("12h0m0s", 43_200_000),
            ("100ms", 100),
            ("+1m", 60_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "5", "s", "-5s", "5 s", "1x", "..s", "1e3s", "999999999h"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn prints_what_it_parses(millis in 0u64..1_000_000_000) {
            let duration = Duration::from_millis(millis);
            prop_assert_eq!(parse(&print(duration)), Ok(duration));
        }
    }
}
