//! Parses the durations in flags and configuration files. Each error shows an example.

use evenkeel_component::flags::duration;
use std::time::Duration;

/// Parses a duration such as `1h30m`.
///
/// # Errors
/// Fails if the value is not a duration, or is negative. The error shows the format.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    duration::parse(text).map_err(|reason| format!("{reason}; write one such as 90s, 5m or 1h30m"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_shows_an_example() {
        assert_eq!(parse("1h30m"), Ok(Duration::from_mins(90)));
        for text in ["abc", "5", "-1m", ""] {
            let error = parse(text).expect_err(text);
            assert!(error.ends_with("; write one such as 90s, 5m or 1h30m"), "{error}");
        }
    }
}
