//! Environment of a program: its clock, its identity, and whether it opens ports.

use crate::clock::Clock;
use std::{fs, io};

/// File with the namespace of the pod's service account.
///
/// Upstream: `inClusterNamespacePath` of controller-runtime.
const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// Environment of a manager. A test replaces the environment of the process with a simulated one, and runs the same program.
///
/// ```
/// use evenkeel_runtime::{clock::Clock, prelude::*};
///
/// let setup = Setup::of_process()?;
/// assert!(setup.opens_ports() && !setup.identity().is_empty());
/// let simulated = Setup::simulated(Clock::system(), "replica-1");
/// assert!(!simulated.opens_ports() && simulated.namespace() == Some("default"));
/// # Ok::<_, std::io::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Setup {
    pub(super) clock: Clock,
    pub(super) identity: String,
    pub(super) namespace: Option<String>,
    pub(super) opens_ports: bool,
}

impl Setup {
    /// Returns the environment of this process: the system's clock, the host's name with a random suffix as identity, and the
    /// pod's namespace, if it runs in a pod.
    ///
    /// # Errors
    /// Fails if the host's name cannot be read.
    ///
    /// Upstream: the defaults of `leaderelection.NewResourceLock` of controller-runtime.
    pub fn of_process() -> io::Result<Self> {
        let host = fs::read_to_string("/proc/sys/kernel/hostname")?;
        let namespace = fs::read_to_string(NAMESPACE_FILE).ok().map(|text| text.trim().to_owned());
        Ok(Self {
            clock: Clock::system(),
            identity: format!("{}_{:032x}", host.trim(), rand::random::<u128>()),
            namespace: namespace.filter(|namespace| !namespace.is_empty()),
            opens_ports: true,
        })
    }

    /// Returns a simulated environment: this clock and identity, the namespace `default`, and no ports.
    pub fn simulated(clock: Clock, identity: &str) -> Self {
        Self {
            clock,
            identity: identity.to_owned(),
            namespace: Some("default".to_owned()),
            opens_ports: false,
        }
    }

    /// Returns the clock of the program.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Returns the identity of this process in leader election.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Returns the namespace in which the program runs, or `None` outside a pod.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Returns whether the program opens ports.
    pub fn opens_ports(&self) -> bool {
        self.opens_ports
    }
}
