//! The control plane in virtual time, with and without faults.

mod deletion;
mod fixtures;
mod repeat;
mod replicas;
mod rest;
mod rollout;
