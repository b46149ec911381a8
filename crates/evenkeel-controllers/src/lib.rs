//! The controllers of kube-controller-manager: decisions and their shells, a folder for each.

pub mod apps;
pub mod autoscaling;
pub mod batch;
pub mod bootstrap;
pub mod certificates;
pub mod core;
pub mod discovery;
pub mod machinery;
pub mod needs;
pub mod networking;
pub mod options;
pub mod policy;
pub mod rbac;
pub mod resource;
#[cfg(k8s_v1_37)]
pub mod scheduling;
pub mod storage;
pub mod wiring;

mod children;
mod claim;
mod client_go_error;
mod conditions;
mod disruption;
mod finalizers;
#[cfg(test)]
mod fixtures;
mod newer_kinds;
mod owned;
mod pod_deletion_ranking;
mod pods;
mod scale;
mod sweep;
mod wire;
mod words;
