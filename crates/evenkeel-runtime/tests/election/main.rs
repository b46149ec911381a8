//! Leader election and sharding, run by seed in virtual time, among pauses, cut links, lost and late requests, crashes and restarts.
//!
//! `EVENKEEL_ELECTION_RUNS` and `EVENKEEL_SHARDING_RUNS` are the numbers of runs, `EVENKEEL_ELECTION_SEED` and
//! `EVENKEEL_SHARDING_SEED` the one seed to repeat.

#![expect(clippy::unwrap_used, reason = "the whole binary is tests")]

mod leaders;
mod network;
mod seeds;
mod shards;
mod store;
mod world;
