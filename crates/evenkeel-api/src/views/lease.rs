//! Leases: holder, duration, renewals, and the fields of coordinated leader election.

use crate::Meta;
use crate::decode::{message, view};
use crate::text::Text;
use crate::time::Timestamp;

message! {
    /// Lock of a leader election, or heartbeat of a node (`coordination.k8s.io/v1`).
    pub struct Lease("k8s.io.api.coordination.v1.Lease") {
        /// Metadata; the lease of a node has the node's name and is in `kube-node-lease`.
        meta: Meta = 1 "metadata",
        /// Holder and duration of the lease.
        spec: LeaseSpec = 2 "spec",
    }
}

view!(Lease, "coordination.k8s.io", "v1", "Lease", "leases", namespaced);

message! {
    /// Holder and duration of the lease.
    pub struct LeaseSpec("k8s.io.api.coordination.v1.LeaseSpec") {
        /// Identity of the holder; empty if the lease is free.
        holder_identity: Text = 1 "holderIdentity",
        /// Seconds after the last renewal before other candidates may acquire the lease.
        lease_duration_seconds: Option<i32> = 2 "leaseDurationSeconds",
        /// Time at which the holder acquired the lease.
        acquire_time: Option<Timestamp> = 3 "acquireTime",
        /// Time at which the holder last renewed the lease.
        renew_time: Option<Timestamp> = 4 "renewTime",
        /// Number of times that the holder has changed.
        lease_transitions: Option<i32> = 5 "leaseTransitions",
        /// Strategy of coordinated leader election, such as `OldestEmulationVersion`; empty without one.
        strategy: Text = 6 "strategy",
        /// Identity that the holder should yield the lease to, set by coordinated leader election.
        preferred_holder: Text = 7 "preferredHolder",
    }
}
