//! How numbers, times and objects are put in descriptions.

use evenkeel_api::duration;
use std::time::Duration;

/// `1 pod`, `3 pods`.
pub(crate) fn count(n: i64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// A number of things, for arithmetic with signs.
pub(crate) fn signed(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// A length of time to the second, as Go writes it: `9m30s`.
pub(crate) fn time(time: Duration) -> String {
    // Rounded up: what is waited for is not there a moment before.
    let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    duration::write(i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1_000_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times() {
        assert_eq!((&*count(1, "pod"), &*count(0, "pod")), ("1 pod", "0 pods"));
        assert_eq!(time(Duration::from_millis(569_100)), "9m30s");
        assert_eq!(time(Duration::ZERO), "0s");
    }
}
