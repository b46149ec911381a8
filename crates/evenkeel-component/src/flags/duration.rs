//! Durations in the format of upstream's flags: `1h30m`, `100ms`, `1.5s`.

use evenkeel_api::duration;
use std::time::Duration;

/// Parses a duration. Returns an error for a negative one, because no flag here needs it.
pub fn parse(text: &str) -> Result<Duration, String> {
    let nanos = duration::nanoseconds(text)?;
    u64::try_from(nanos).map(Duration::from_nanos).map_err(|_| "must not be negative".to_owned())
}

/// Formats a duration as Go does: `12h0m0s`, `1m40s`, `1.5s`, `500ms`, `0s`.
pub fn print(duration: Duration) -> String {
    duration::format(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_are_parsed_as_go_does() {
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
        fn printed_duration_parses_to_the_same_value(millis in 0u64..1_000_000_000) {
            let duration = Duration::from_millis(millis);
            prop_assert_eq!(parse(&print(duration)), Ok(duration));
        }
    }
}
