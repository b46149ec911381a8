//! Names of the parts of a simulation.

use std::fmt;

/// User of the API: the test itself.
pub const USER: Part = Part::new("user");

/// Client of the test's observer, which only reads.
pub const OBSERVER: Part = Part::new("observer");

/// Part of a simulation, with its own wire and lifetime: a program, or one of its replicas.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Part {
    name: &'static str,
    /// Number of the replica; 0 for a program without replicas.
    replica: u8,
}

impl Part {
    /// Returns the part of this name.
    pub const fn new(name: &'static str) -> Self {
        Self { name, replica: 0 }
    }

    /// Returns a replica of this part, counted from 1.
    #[must_use]
    pub const fn replica(self, number: u8) -> Self {
        Self { replica: number, ..self }
    }

    /// Returns the name, which replicas share.
    pub const fn name(self) -> &'static str {
        self.name
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.replica {
            0 => f.write_str(self.name),
            number => write!(f, "{}-{number}", self.name),
        }
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
