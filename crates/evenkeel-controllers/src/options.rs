//! What controllers can be told on the command line.

use crate::{apps, core};

/// The options of all controllers, each as its controller's folder has it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Options {
    /// Of the deployment controller.
    pub deployment: apps::deployment::Options,
    /// Of the garbage collector.
    pub garbage_collector: core::garbage_collector::Options,
    /// Of the namespace controller.
    pub namespace: core::namespace::Options,
    /// Of the replicaset controller.
    pub replicaset: apps::replicaset::Options,
    /// Of the replicationcontroller controller.
    pub replicationcontroller: apps::replicationcontroller::Options,
    /// Of the publisher of the cluster's CA.
    pub root_ca: core::root_ca::Options,
}
