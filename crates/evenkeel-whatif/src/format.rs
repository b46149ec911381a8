//! Numbers and times in words.

use evenkeel_api::duration;
use std::time::Duration;

/// Returns a number with its noun, whose plural has an `s`.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// Returns a part in percent of the whole; 0 if the whole is 0.
pub(crate) fn share(part: i64, whole: i64) -> i64 {
    if whole <= 0 { 0 } else { part.saturating_mul(100) / whole }
}

/// Formats a duration in whole seconds, or in milliseconds if it is below one second.
pub(crate) fn time(time: Duration) -> String {
    let unit = if time < Duration::from_secs(1) { 1_000_000 } else { 1_000_000_000 };
    let nanos = i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
    duration::format(nanos / unit * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_shares_are_short() {
        assert_eq!(time(Duration::from_millis(90_250)), "1m30s");
        assert_eq!(time(Duration::from_micros(2500)), "2ms");
        assert_eq!(time(Duration::ZERO), "0s");
        assert_eq!((share(1, 3), share(1, 0)), (33, 0));
        assert_eq!([0, 1, 2].map(|count| counted(count, "pod")), ["0 pods", "1 pod", "2 pods"]);
    }
}
