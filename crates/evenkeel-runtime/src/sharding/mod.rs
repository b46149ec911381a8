//! Sharding: several active replicas of one operator split its objects.
//!
//! A key belongs to one of a fixed number of shards, by a hash of its namespace or of its whole name. Each replica (member)
//! renews its own Lease. Each shard has a Lease that names its holder. A shard's Lease does not expire: its holder is alive as
//! long as the holder's own Lease is valid. All members list all Leases, and each executes its part of the same balanced
//! assignment, so there is no coordinator.
//!
//! | rule | implemented in |
//! |---|---|
//! | members get equally many shards, and few move | `assign` |
//! | a member whose Lease does not change counts as dead after a lease duration | `decide::classify` |
//! | a shard is acquired by compare-and-swap if it is free or its holder is dead | `decide`, `leases` |
//! | a member's terms end the renew deadline after it *sent* the last confirmed renewal | `terms` |
//! | a term that has ended does not begin again | `terms` |
//! | a shard is released once no pass is in progress, at the latest after a renew deadline | `terms::drained` |
//! | members with another number of shards wait until the old members have left | `decide` |
//!
//! A controller enqueues only keys that this process serves. Each pass (one reconcile) runs under the term of its shard: its
//! client refuses writes once the term has ended, and the pass is dropped. At the beginning of a term, controllers handle all
//! cached objects as if they were new, and enqueue the keys of the shard.
//!
//! Caches hold all objects, except those of [`Sharding::sharded_watch`]. Such a cache lists again when a term begins, and the
//! process serves the shard once the list is complete (`coverage`). It drops the objects of a term that has ended.
//!
//! # Guarantees
//!
//! Two processes never work on the same key at the same time: all writes of one process are sent before the first pass
//! of the other. A request may still arrive after later requests; a resourceVersion as precondition then makes the
//! server refuse it. The conditions are the same as for [leader election](crate::leaderelection): the fastest clock
//! runs less than `lease_duration / renew_deadline` times (1.5 by default) as fast as the slowest, identities are
//! unique, and no other client writes the Leases.
//!
//! Without further faults, a shard whose holder crashed is served again after the lease duration and a few requests. A shard
//! whose holder releases it is served again about a second after the running passes have ended.
//!
//! Upstream has no equivalent. KEP-5866 lets servers filter lists and watches by ranges of a hash of the namespace or of the
//! uid, but assigns no ranges. Shards are not assigned by uid: an object that is created again has another uid, so two
//! processes could work on its key at the same time.

mod assign;
mod config;
mod coverage;
mod decide;
mod defect;
mod layout;
mod leases;
mod member;
mod metrics;
mod sharded_cache;
mod shards;
mod terms;

pub use config::{MAX_SHARDS, Sharding, ShardingError};
pub(crate) use coverage::HeldTerms;
#[doc(hidden)]
pub use defect::Defect;
pub use layout::ShardBy;
pub(crate) use member::Member;
pub(crate) use sharded_cache::ShardedCache;
pub(crate) use shards::Admission;
pub use shards::Shards;
