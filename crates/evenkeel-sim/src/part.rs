//! Parts of the control plane, each with its own wire and lifetime.

use evenkeel_test::simulation::Part;

/// All controllers, in one process.
pub const CONTROLLERS: Part = Part::new("controllers");

/// One controller beside the others, in a process of its own.
pub const ALONE: Part = Part::new("alone");

/// Cloud controller manager, in a process of its own.
pub const CLOUD: Part = Part::new("cloud");

/// Scheduler, in its own process.
pub const SCHEDULER: Part = Part::new("scheduler");

/// All simulated nodes.
pub const NODES: Part = Part::new("nodes");

/// One of several controller managers with leader election: only the leader is active.
pub const REPLICA: Part = Part::new("replica");
