//! Allocator of pod IP addresses. It counts upwards from the first address and skips addresses in use.

use std::{collections::HashSet, net::Ipv4Addr};

/// Pod addresses in use, and the next candidate.
#[derive(Debug)]
pub(crate) struct Addresses {
    next: u32,
    in_use: HashSet<u32>,
}

impl Addresses {
    /// Returns an allocator that begins with `first`.
    pub(crate) fn new(first: Ipv4Addr) -> Self {
        Self { next: first.into(), in_use: HashSet::new() }
    }

    /// Allocates the next address that no pod uses.
    pub(crate) fn allocate(&mut self) -> Ipv4Addr {
        while !self.in_use.insert(self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let address = self.next;
        self.next = self.next.wrapping_add(1);
        address.into()
    }

    /// Marks an address as in use. An earlier process allocated it to the pod.
    pub(crate) fn mark_in_use(&mut self, address: Ipv4Addr) {
        self.in_use.insert(address.into());
    }

    /// Returns how many addresses are in use.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.in_use.len()
    }

    /// Returns an address of a deleted pod to the allocator.
    pub(crate) fn release(&mut self, address: Ipv4Addr) {
        self.in_use.remove(&address.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_in_use_are_not_allocated() {
        let mut addresses = Addresses::new(Ipv4Addr::new(10, 0, 0, 1));
        addresses.mark_in_use(Ipv4Addr::new(10, 0, 0, 2));
        assert_eq!(addresses.allocate(), Ipv4Addr::new(10, 0, 0, 1));
        assert_eq!(addresses.allocate(), Ipv4Addr::new(10, 0, 0, 3));
        addresses.release(Ipv4Addr::new(10, 0, 0, 1));
        assert_eq!(
            addresses.allocate(),
            Ipv4Addr::new(10, 0, 0, 4),
            "a released address is not reused at once"
        );
    }
}
