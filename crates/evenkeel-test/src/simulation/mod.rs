//! Deterministic simulation: an API server and programs around it, on one thread in virtual time.
//!
//! Each program has its own wire to the server, which records every write and injects the faults of [`Faults`]. A seed
//! reproduces a run exactly.

mod faults;
mod network;
mod part;
mod record;
mod requests;
mod stale;
mod watches;
mod wire;
mod world;

pub use faults::{Fault, FaultKind, Faults, InvalidFault};
pub use network::Settling;
pub use part::{OBSERVER, Part, USER};
pub use record::{Log, Outcome, Write};
pub use requests::Requests;
pub use world::{Exit, PartOptions, Simulation, SimulationOptions, each_write, in_virtual_time};
