//! Capacity of an Endpoints object: 1000 addresses. Upstream: `truncateEndpoints`.

use evenkeel_api::views::{EndpointAddress, EndpointSubset};

/// Maximum number of addresses in Endpoints. Upstream: `maxCapacity`.
pub(super) const MAX_CAPACITY: usize = 1000;
/// Annotation of truncated Endpoints. Upstream: `EndpointsOverCapacity`.
pub(super) const OVER_CAPACITY_ANNOTATION: &str = "endpoints.kubernetes.io/over-capacity";
/// Value of the annotation.
pub(super) const TRUNCATED: &str = "truncated";

/// Truncates the subsets to the capacity, and returns whether they exceeded it. Ready addresses take precedence. Each
/// subset keeps a proportional number, rounded up while capacity remains. Upstream: `truncateEndpoints`.
pub(super) fn truncate(subsets: &mut [EndpointSubset]) -> bool {
    let ready: usize = subsets.iter().map(|subset| subset.addresses.len()).sum();
    let unready: usize = subsets.iter().map(|subset| subset.not_ready_addresses.len()).sum();
    if ready + unready <= MAX_CAPACITY {
        return false;
    }
    if ready > MAX_CAPACITY {
        subsets.iter_mut().for_each(|subset| subset.not_ready_addresses = Box::default());
        truncate_proportionally(
            subsets.iter_mut().map(|subset| &mut subset.addresses),
            ready,
            MAX_CAPACITY,
        );
    } else {
        let subsets = subsets.iter_mut().map(|subset| &mut subset.not_ready_addresses);
        truncate_proportionally(subsets, unready, MAX_CAPACITY - ready);
    }
    true
}

/// Truncates lists of `total` addresses together to `capacity` addresses, in proportion to their lengths.
fn truncate_proportionally<'a>(
    lists: impl Iterator<Item = &'a mut Box<[EndpointAddress]>>,
    total: usize,
    capacity: usize,
) {
    let mut remaining = capacity;
    for list in lists {
        let size = (list.len() * capacity).div_ceil(total).min(remaining).min(list.len());
        remaining -= size;
        if size < list.len() {
            let mut addresses = std::mem::take(list).into_vec();
            addresses.truncate(size);
            *list = addresses.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subset(ready: usize, unready: usize) -> EndpointSubset {
        let addresses = |n| vec![EndpointAddress::default(); n].into();
        EndpointSubset {
            addresses: addresses(ready),
            not_ready_addresses: addresses(unready),
            ports: Box::default(),
        }
    }

    #[test]
    fn truncation_keeps_ready_addresses_and_is_proportional() {
        type Sizes = &'static [(usize, usize)];
        // Ready and unready addresses of each subset, whether some are removed, and the numbers that remain.
        let table: [(Sizes, bool, Sizes); 6] = [
            (&[(1000, 0)], false, &[(1000, 0)]),
            (&[(0, 0)], false, &[(0, 0)]),
            (&[(1000, 1)], true, &[(1000, 0)]),
            (&[(400, 900)], true, &[(400, 600)]),
            (&[(900, 7), (900, 7), (1, 0)], true, &[(500, 0), (500, 0), (0, 0)]),
            (&[(100, 300), (100, 1100)], true, &[(100, 172), (100, 628)]),
        ];
        for (before, is_truncated, after) in table {
            let mut subsets: Vec<_> =
                before.iter().map(|(ready, unready)| subset(*ready, *unready)).collect();
            assert_eq!(truncate(&mut subsets), is_truncated, "{before:?}");
            let sizes: Vec<_> =
                subsets.iter().map(|s| (s.addresses.len(), s.not_ready_addresses.len())).collect();
            assert_eq!(sizes, after, "{before:?}");
        }
    }
}
