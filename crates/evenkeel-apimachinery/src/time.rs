//! Times as objects have them.

use jiff::Timestamp;

/// A time as `metadata` has it: whole seconds.
pub fn seconds(time: Timestamp) -> String {
    let whole = Timestamp::from_second(time.as_second()).unwrap_or(time);
    whole.to_string()
}
