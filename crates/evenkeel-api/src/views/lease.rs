//! Leases.

use crate::Meta;
use crate::decode::{message, view};
use crate::text::Text;
use crate::time::Timestamp;

message! {
    /// Lock of a leader election, or a node's heartbeat (`coordination.k8s.io/v1`).
    pub struct Lease("k8s.io.api.coordination.v1.Lease") {
        /// Metadata.
        meta: Meta = 1 "metadata",
        /// Holder and duration of the lease.
        spec: LeaseSpec = 2 "spec",
    }
}

view!(Lease, "coordination.k8s.io", "v1", "Lease", "leases", true);

message! {
    /// Holder and duration of the lease.
    pub struct LeaseSpec("k8s.io.api.coordination.v1.LeaseSpec") {
        /// Identity of the holder; empty when the lease is free.
        holder_identity: Text = 1 "holderIdentity",
        /// How long after a renewal others wait.
        lease_duration_seconds: Option<i32> = 2 "leaseDurationSeconds",
        /// When it was taken.
        acquire_time: Option<Timestamp> = 3 "acquireTime",
        /// When it was last renewed.
        renew_time: Option<Timestamp> = 4 "renewTime",
        /// How often it changed hands.
        lease_transitions: Option<i32> = 5 "leaseTransitions",
        /// How its holder is chosen.
        strategy: Text = 6 "strategy",
        /// Preferred holder.
        preferred_holder: Text = 7 "preferredHolder",
    }
}
