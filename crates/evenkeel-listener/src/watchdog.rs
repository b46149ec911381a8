//! Decides when to close a connection: the head of a request is overdue, or no request arrived for about 90 s.

use std::time::Duration;

pub(crate) const CHECK_INTERVAL: Duration = Duration::from_secs(8);
/// Number of checks after which a head is overdue: 24 to 32 s. Upstream's `ReadHeaderTimeout` is 32 s.
const HEAD_CHECKS: u32 = 4;
/// Number of checks after which a connection is idle: 88 to 96 s. Upstream's `IdleTimeout` is 90 s.
const IDLE_CHECKS: u32 = 12;

/// Snapshot of a connection's counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ConnectionActivity {
    /// Number of requests so far.
    pub(crate) requests: u64,
    /// Number of requests whose response has not been sent completely.
    pub(crate) in_flight: u64,
    /// Whether bytes arrived since the last request. They belong to the next request's head. Always false for HTTP/2,
    /// whose clients also send frames while they have no request. Upstream: Go's HTTP/2 server only has `IdleTimeout`.
    pub(crate) partial_head: bool,
}

/// Result of a check: whether a connection stays open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The connection stays open.
    Keep,
    /// The connection is idle. It closes after its open requests.
    Idle,
    /// The head of a request is overdue. The connection closes immediately.
    Overdue,
}

/// Counts the checks of one connection since its last request.
#[derive(Debug, Default)]
pub(crate) struct Watchdog {
    /// Number of requests at the last check with activity.
    requests: u64,
    /// Checks in a row without a request in flight or a new one.
    idle_checks: u32,
    /// Number of consecutive checks that found a request's head incomplete.
    head_checks: u32,
}

impl Watchdog {
    /// Checks a connection. The deadline of the first request's head starts with the connection.
    pub(crate) fn check(&mut self, activity: ConnectionActivity) -> Verdict {
        if activity.in_flight > 0 || activity.requests != self.requests {
            *self = Self { requests: activity.requests, idle_checks: 0, head_checks: 0 };
            return Verdict::Keep;
        }
        self.idle_checks += 1;
        if activity.partial_head || activity.requests == 0 {
            self.head_checks += 1;
        } else {
            self.head_checks = 0;
        }
        if self.head_checks >= HEAD_CHECKS {
            Verdict::Overdue
        } else if self.idle_checks >= IDLE_CHECKS {
            Verdict::Idle
        } else {
            Verdict::Keep
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the verdicts of consecutive checks: `.` for `Keep`, `I` for `Idle`, `O` for `Overdue`. The items are
    /// the requests so far, the requests in flight, and whether a head arrived in part.
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
                letter(watchdog.check(ConnectionActivity { requests, in_flight, partial_head }))
            })
            .collect()
    }

    #[test]
    fn idle_connections_and_overdue_heads_are_closed() {
        let idle = std::iter::repeat_n((1, 0, false), 13);
        for (activity, wanted) in [
            // The first request never arrives. Some of its bytes arrive in the second row.
            (vec![(0, 0, false); 4], "...O"),
            (vec![(0, 0, true); 4], "...O"),
            (idle.collect(), "............I"),
            // A request in flight keeps the connection open however long it takes.
            (vec![(1, 1, true); 40], &".".repeat(40)),
            // The head of the second request stays incomplete.
            (vec![(1, 0, false), (1, 0, true), (1, 0, true), (1, 0, true), (1, 0, true)], "....O"),
            (vec![(1, 0, true), (2, 0, true), (3, 0, true), (4, 0, true)], "...."),
        ] {
            assert_eq!(verdicts(activity.clone()), wanted, "{activity:?}");
        }
    }
}
