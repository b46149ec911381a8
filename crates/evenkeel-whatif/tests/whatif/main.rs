//! Simulations of small clusters in virtual time, and copies of an embedded server's objects.

mod behaviors;
mod clones;

mod drains;
mod fixtures;
mod outages;
mod pages;
mod schedulers;
