//! The controllers of workloads over the embedded API server, in one process and in virtual time.

mod deployment;
mod sets;
mod world;
