//! Format of timestamps in objects.

use jiff::Timestamp;

/// Formats a time as in `metadata`, in whole seconds.
pub fn seconds(time: Timestamp) -> String {
    let whole = Timestamp::from_second(time.as_second()).unwrap_or(time);
    whole.to_string()
}
