//! The control plane in virtual time, with and without faults.

mod accounts;
mod alone;
mod autoscaling;
mod budgets;
mod claims;
mod cloud;
mod deletion;
mod devices;
mod fixtures;
mod identity;
mod jobs;
mod leaders;
mod nodes;
mod protection;
mod quotas;
mod repeat;
mod replicas;
mod rest;
mod rollout;
mod schedules;
mod scheduling;
mod services;
mod sets;
mod upkeep;
mod volumes;
mod writers;
