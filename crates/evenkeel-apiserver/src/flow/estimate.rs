//! Estimates the work of a request: the seats that it occupies. A write also keeps seats after its response, while the
//! server notifies watchers.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | A list takes a seat for each 100 kB of objects that it holds in memory at the same time | `list` |
//! | A watch with initial events costs as much as a list until the initial objects are read | `list` |
//! | A write keeps a seat for 5 ms for each ten watchers, if ten or more watchers receive it | `mutating` |
//! | All other requests take one seat | `WorkEstimate` |

use std::time::Duration;

use crate::request::{Query, RequestInfo};

/// Number of bytes of objects in memory per seat of a list.
const BYTES_PER_SEAT: u64 = 100_000;
/// Maximum number of bytes that a list from memory holds at the same time, because the server encodes it while it sends
/// it.
const MAX_CACHED_LIST_BYTES: u64 = 1_000_000;
/// Size assumed for objects of unknown size: the maximum of an object in etcd.
const MAX_OBJECT_BYTES: u64 = 1_500_000;
/// Maximum number of seats of a list.
const MAX_LIST_SEATS: u64 = 100;
/// Maximum number of seats of a write.
const MAX_MUTATING_SEATS: u64 = 10;
/// Number of watchers that take one seat together.
const WATCHES_PER_SEAT: u64 = 10;
/// Time for which watchers occupy a seat per event.
const EVENT_ADDITIONAL_DURATION: Duration = Duration::from_millis(5);

/// Estimated work of a request, except its own duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WorkEstimate {
    /// Seats during the request.
    pub(crate) initial_seats: u64,
    /// Seats after the request, for `additional_latency`.
    pub(crate) final_seats: u64,
    /// Duration of the final seats. The response does not wait for it.
    pub(crate) additional_latency: Duration,
}

impl Default for WorkEstimate {
    fn default() -> Self {
        Self { initial_seats: 1, final_seats: 0, additional_latency: Duration::ZERO }
    }
}

impl WorkEstimate {
    /// Returns the maximum of the seats in both phases.
    pub(crate) fn max_seats(&self) -> usize {
        usize::try_from(self.initial_seats.max(self.final_seats)).unwrap_or(usize::MAX)
    }
}

/// Number of stored objects of a resource, and their average size in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ObjectStats {
    pub(crate) count: u64,
    pub(crate) average_size: u64,
}

/// Estimates a list or a watch. `stats` is `None` for a resource that is not stored. `max_seats` is the level's limit
/// for one request, or 0 without a limit.
///
/// Upstream: `listWorkEstimator`.
pub(crate) fn list(
    info: &RequestInfo<'_>,
    query: &Query,
    stats: Option<ObjectStats>,
    max_seats: u64,
) -> WorkEstimate {
    let max_seats = if max_seats == 0 { MAX_LIST_SEATS } else { max_seats.min(MAX_LIST_SEATS) };
    let seats = |seats: u64| WorkEstimate {
        initial_seats: seats.clamp(1, max_seats),
        ..WorkEstimate::default()
    };
    let version = query.get("resourceVersion");
    if info.verb == "watch" && !query.flag("sendInitialEvents") && !matches!(version, "" | "0") {
        return WorkEstimate::default();
    }
    let Ok(limit) = query.number("limit") else { return seats(max_seats) };
    let Some(stats) = stats else { return WorkEstimate::default() };
    let size = if stats.average_size == 0 { MAX_OBJECT_BYTES } else { stats.average_size };
    let page_size = match limit.and_then(|limit| u64::try_from(limit).ok()) {
        Some(limit) if limit > 0 => limit.min(stats.count),
        _ => stats.count,
    };
    let from_memory = info.verb == "watch" || !reads_history(query);
    let has_selector =
        !query.get("fieldSelector").is_empty() || !query.get("labelSelector").is_empty();
    let objects = if !info.name.is_empty() {
        1
    } else if has_selector && !from_memory {
        // To fill a page, the server also reads objects that do not match. The estimate is half of all objects.
        page_size.max(stats.count / 2)
    } else {
        page_size
    };
    let mut bytes = objects.saturating_mul(size);
    if from_memory {
        bytes = bytes.min(MAX_CACHED_LIST_BYTES);
    }
    seats(bytes.div_ceil(BYTES_PER_SEAT))
}

/// Returns whether a list reads an earlier revision.
///
/// Upstream: `ShouldDelegateListMeta`.
fn reads_history(query: &Query) -> bool {
    let version = query.get("resourceVersion");
    match query.get("resourceVersionMatch") {
        "NotOlderThan" => false,
        "" if !query.get("continue").is_empty() => true,
        "" => !query.get("limit").is_empty() && !matches!(version, "" | "0"),
        _ => true,
    }
}

/// Estimates a write that `watches` watchers receive.
///
/// Upstream: `mutatingWorkEstimator`.
pub(crate) fn mutating(info: &RequestInfo<'_>, watches: u64, max_seats: u64) -> WorkEstimate {
    let is_token_request = info.resource == "serviceaccounts" && info.subresource == "token";
    if is_token_request || watches < WATCHES_PER_SEAT {
        return WorkEstimate::default();
    }
    let max_seats =
        if max_seats == 0 { MAX_MUTATING_SEATS } else { max_seats.min(MAX_MUTATING_SEATS) };
    // Fewer seats for a longer time are the same work.
    let seats = watches.div_ceil(WATCHES_PER_SEAT);
    let final_seats = seats.min(max_seats);
    let latency =
        EVENT_ADDITIONAL_DURATION.as_nanos() * u128::from(seats) / u128::from(final_seats);
    WorkEstimate {
        final_seats,
        additional_latency: Duration::from_nanos(u64::try_from(latency).unwrap_or(u64::MAX)),
        ..WorkEstimate::default()
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    #[test]
    fn a_list_takes_seats_by_the_size_of_its_objects() {
        let stats = ObjectStats { count: 10_000, average_size: 5_000 };
        for (query, stats, max_seats, wanted) in [
            ("", Some(stats), 0, 10),
            ("", Some(stats), 4, 4),
            ("", None, 0, 1),
            ("", Some(ObjectStats::default()), 0, 1),
            ("limit=10", Some(stats), 0, 1),
            ("limit=100", Some(stats), 0, 5),
            ("limit=x", Some(stats), 7, 7),
            ("limit=500&continue=abc", Some(stats), 0, 25),
            ("limit=500&continue=abc&labelSelector=a", Some(stats), 0, 100),
            ("limit=500&resourceVersion=7", Some(stats), 0, 25),
            ("limit=500&resourceVersion=0", Some(stats), 0, 10),
            ("resourceVersion=7&resourceVersionMatch=Exact", Some(stats), 0, 100),
            ("resourceVersion=7&resourceVersionMatch=NotOlderThan", Some(stats), 0, 10),
            ("fieldSelector=metadata.name%3Dx", Some(stats), 0, 1),
            ("watch=1", Some(stats), 0, 10),
            ("watch=1&resourceVersion=0", Some(stats), 0, 10),
            ("watch=1&resourceVersion=7", Some(stats), 0, 1),
            ("watch=1&resourceVersion=7&sendInitialEvents=true", Some(stats), 0, 10),
        ] {
            let query = Query::parse(Some(query));
            let info = RequestInfo::of(&Method::GET, "/api/v1/pods", &query);
            let found = list(&info, &query, stats, max_seats);
            assert_eq!(found, WorkEstimate { initial_seats: wanted, ..found }, "{query:?}");
            assert_eq!((found.final_seats, found.additional_latency), (0, Duration::ZERO));
        }
    }

    #[test]
    fn a_write_takes_final_seats_by_the_number_of_its_watchers() {
        let query = Query::default();
        for (path, watches, max_seats, seats, millis) in [
            ("/api/v1/namespaces/a/pods", 0, 0, 0, 0),
            ("/api/v1/namespaces/a/pods", 9, 0, 0, 0),
            ("/api/v1/namespaces/a/pods", 10, 0, 1, 5),
            ("/api/v1/namespaces/a/pods", 95, 0, 10, 5),
            ("/api/v1/namespaces/a/pods", 1_000, 0, 10, 50),
            ("/api/v1/namespaces/a/pods", 95, 2, 2, 25),
            ("/api/v1/namespaces/a/serviceaccounts/b/token", 1_000, 0, 0, 0),
        ] {
            let info = RequestInfo::of(&Method::POST, path, &query);
            let found = mutating(&info, watches, max_seats);
            let latency = Duration::from_millis(millis);
            assert_eq!(
                (found.final_seats, found.additional_latency),
                (seats, latency),
                "{path} {watches}"
            );
            assert_eq!(found.initial_seats, 1);
        }
    }
}
