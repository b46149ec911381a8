//! Leader election, run by seed in virtual time, among pauses, cut links, lost and late requests, crashes and restarts.
//!
//! `EVENKEEL_ELECTION_RUNS` is the number of runs, `EVENKEEL_ELECTION_SEED` the one seed to repeat.

#![expect(clippy::unwrap_used, reason = "the whole binary is tests")]

mod leaders;
mod network;
mod seeds;
mod store;
mod world;
