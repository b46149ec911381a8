//! Controllers over the embedded API server, in one process and in virtual time.
#![expect(clippy::unwrap_used, reason = "the whole binary is tests")]

mod deletion;
mod deployment;
mod devices;
mod machinery;
mod selinux;
mod sets;
mod world;
