//! Deterministic simulation: the whole control plane on one thread in virtual time.
