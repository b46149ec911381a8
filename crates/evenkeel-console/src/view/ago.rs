//! Times as ages. Ages are coarse, so that a page does not change each second.

use evenkeel_api::time::{Timestamp, seconds};

/// A point in time as an age.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ago {
    /// Age, such as `5m`, or time until then, such as `in 5m`.
    pub(crate) text: String,
    /// Time in RFC 3339.
    pub(crate) exact: String,
}

impl Ago {
    /// Returns the age of a time.
    pub(crate) fn new(now: Timestamp, then: Timestamp) -> Self {
        let age = now.as_second() - then.as_second();
        let text = if age < -1 { format!("in {}", coarse(-age)) } else { coarse(age.max(0)) };
        Self { text, exact: seconds(then) }
    }

    /// Returns the age of a time of an object, or nothing if it has none.
    pub(crate) fn parse(now: Timestamp, then: &str) -> Option<Self> {
        Some(Self::new(now, evenkeel_api::time::parse(then).ok()?))
    }
}

/// Formats seconds with one unit, or with two units below ten minutes, ten hours and ten days.
fn coarse(seconds: i64) -> String {
    let [minute, hour, day] = [60, 3600, 86_400];
    let two = |big: i64, small: i64, units: [&str; 2]| {
        let (whole, rest) = (seconds / big, seconds % big / small);
        match whole < 10 && rest > 0 {
            true => format!("{whole}{}{rest}{}", units[0], units[1]),
            false => format!("{whole}{}", units[0]),
        }
    };
    match seconds {
        0..10 => "<10s".to_owned(),
        10..60 => format!("{}s", seconds / 10 * 10),
        _ if seconds < hour => format!("{}m", seconds / minute),
        _ if seconds < day => two(hour, minute, ["h", "m"]),
        _ => two(day, hour, ["d", "h"]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_coarse() {
        let table = [
            (0, "<10s"),
            (9, "<10s"),
            (45, "40s"),
            (60, "1m"),
            (3599, "59m"),
            (3600, "1h"),
            (3700, "1h1m"),
            (36_100, "10h"),
            (90_000, "1d1h"),
            (-300, "in 5m"),
            (-1, "<10s"),
        ];
        let now = Timestamp::from_second(1_000_000).expect("a time");
        for (age, want) in table {
            let then = Timestamp::from_second(1_000_000 - age).expect("a time");
            assert_eq!(Ago::new(now, then).text, want, "{age}");
        }
        assert_eq!(Ago::new(now, now).exact, "1970-01-12T13:46:40Z");
        assert_eq!(Ago::parse(now, "yesterday"), None);
    }
}
