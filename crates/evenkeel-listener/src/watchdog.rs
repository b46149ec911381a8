//! Decides when a connection is closed: when the head of a request is overdue, or when no request comes for long.

use std::time::Duration;

/// Interval of the checks.
pub(crate) const TICK: Duration = Duration::from_secs(8);
/// Checks after which a head is overdue: it has at least 24 s, and at most 32 s as upstream's `ReadHeaderTimeout`.
const HEAD_TICKS: u32 = 4;
/// Checks after which a connection is idle: upstream's `IdleTimeout` of 90 s.
const IDLE_TICKS: u32 = 12;

/// Counts of a connection at one time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ConnectionActivity {
    /// Requests so far.
    pub(crate) requests: u64,
    /// Requests whose response is not sent.
    pub(crate) in_flight: u64,
    /// Whether bytes came since the last request, which are a part of the next one's head.
    pub(crate) partial_head: bool,
}

/// Whether a connection stays open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It stays open.
    Keep,
    /// It has been idle for long: it is closed after open requests.
    Idle,
    /// The head of a request is overdue: it is closed at once.
    Overdue,
}

/// Counts, over the checks of one connection, since when nothing has come.
#[derive(Debug, Default)]
pub(crate) struct Watchdog {
    requests: u64,
    idle: u32,
    head: u32,
}

impl Watchdog {
    /// Checks a connection. The first request is due from the beginning.
    pub(crate) fn tick(&mut self, activity: ConnectionActivity) -> Verdict {
        if activity.in_flight > 0 || activity.requests != self.requests {
            *self = Self { requests: activity.requests, idle: 0, head: 0 };
            return Verdict::Keep;
        }
        self.idle += 1;
        self.head = if activity.partial_head || activity.requests == 0 { self.head + 1 } else { 0 };
        if self.head >= HEAD_TICKS {
            Verdict::Overdue
        } else if self.idle >= IDLE_TICKS {
            Verdict::Idle
        } else {
            Verdict::Keep
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Verdicts of checks, `.` for `Keep`.
    fn verdicts(activity: impl IntoIterator<Item = (u64, u64, bool)>) -> String {
        let mut watchdog = Watchdog::default();
        let letter = |verdict| match verdict {
            Verdict::Keep => '.',
            Verdict::Idle => 'I',
            Verdict::Overdue => 'O',
        };
        activity
            .into_iter()
            .map(|(requests, in_flight, partial_head)| {
                letter(watchdog.tick(ConnectionActivity { requests, in_flight, partial_head }))
            })
            .collect()
    }

    #[test]
    fn connections_are_closed_when_nothing_comes() {
        let idle = std::iter::repeat_n((1, 0, false), 13);
        for (activity, wanted) in [
            // The first request does not come, whether or not some bytes do.
            (vec![(0, 0, false); 4], "...O"),
            (vec![(0, 0, true); 4], "...O"),
            (idle.collect(), "............I"),
            // A request under way keeps the connection for as long as it takes.
            (vec![(1, 1, true); 40], &".".repeat(40)),
            // The head of the second request stops in the middle.
            (vec![(1, 0, false), (1, 0, true), (1, 0, true), (1, 0, true), (1, 0, true)], "....O"),
            (vec![(1, 0, true), (2, 0, true), (3, 0, true), (4, 0, true)], "...."),
        ] {
            assert_eq!(verdicts(activity.clone()), wanted, "{activity:?}");
        }
    }
}
