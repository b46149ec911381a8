//! Leader election and sharding, in seeded runs in virtual time, with pauses, cut links, lost and late requests, crashes and
//! restarts.
//!
//! `EVENKEEL_ELECTION_RUNS` and `EVENKEEL_SHARDING_RUNS` are the numbers of runs. `EVENKEEL_ELECTION_SEED` and
//! `EVENKEEL_SHARDING_SEED` are a single seed to repeat.

#![expect(clippy::unwrap_used, reason = "the whole binary is tests")]

mod leaders;
mod network;
mod seeds;
mod shards;
mod store;
mod world;
