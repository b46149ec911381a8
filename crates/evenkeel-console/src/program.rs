//! The console of a drop-in program: the same pages as of a cluster, as far as the program has their data.
//!
//! Everybody logs in with a bearer token of the API, and nothing of the cluster is shown before. Objects are read with the
//! user's token. What the program has in memory is shown after the API server has allowed the user to read the same there
//! (`rights`). Pages never start a watch of the program, and nothing is sampled while nobody looks.

use crate::{
    Console, Parts,
    rights::Right,
    scheduler::Scheduling,
    session::Session,
    source::PageError,
    view::standing::{Holder, Standing},
};
use evenkeel_api::{View as _, views::Lease};
use evenkeel_nodes::NodeFaults;
use evenkeel_runtime::{
    cache::Caches,
    clock::Clock,
    introspect::Introspection,
    leaderelection::LeaderElector,
    manager::{Manager, RunnableGroup},
    secure_serving::{Tls, listen},
};
use prometheus::Registry;
use std::{io, net::SocketAddr, sync::Arc};
use tokio::runtime::Handle;

/// Table of the flag with which a program serves its console, in the form of the programs' tables of flags.
pub const FLAGS: &str = "section\tflag\ttype\tdefault\nMisc\tconsole-bind-address\tstring\t\n";

/// Description of the flag of [`FLAGS`].
pub const WORDS: &str = "console-bind-address\tServe the console in the browser at this IP:PORT over TLS, such as \
    127.0.0.1:10261; empty serves none. Users log in with a bearer token of the API and see what RBAC allows them; the console only reads.\n";

/// Name of the flag of [`FLAGS`].
pub const FLAG: &str = "console-bind-address";

/// What the console of a program shows.
pub struct ProgramOptions {
    /// Name of the program.
    pub name: &'static str,
    /// Client without credentials of its own, to which the console adds the bearer token of a user who has logged in.
    pub anonymous: kube::Client,
    /// Clock of the process.
    pub clock: Clock,
    /// Caches that the program reads. The console reads those that exist, and never makes another one.
    pub caches: Caches,
    /// Controllers of the program.
    pub introspection: Introspection,
    /// Metrics of the program.
    pub registry: Registry,
    /// Dry runs of the program's scheduler. `None` for a program that schedules no pods.
    pub scheduling: Option<Scheduling>,
    /// Leader election of the program, if it has one.
    pub election: Option<Election>,
}

/// Leader election of a program.
pub struct Election {
    /// The elector, which knows the leader.
    pub elector: Arc<LeaderElector>,
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
}

/// Where a program serves its console.
pub struct Binding {
    /// Address and port.
    pub address: SocketAddr,
    /// TLS of the port, which requests no client certificates and offers only HTTP/1.1.
    pub tls: Tls,
}

/// The program that a console shows.
pub(crate) struct Program {
    pub(crate) election: Option<Election>,
}

impl Program {
    /// Returns what the program does in its leader election. `None` without one. The holder of the lease is shown to users who
    /// may read the Lease.
    pub(crate) async fn standing(&self, session: &Session) -> Result<Option<Standing>, PageError> {
        let Some(Election { elector, namespace, name }) = &self.election else { return Ok(None) };
        let lease = format!("{namespace}/{name}");
        if elector.is_leader() {
            return Ok(Some(Standing { lease, holder: Holder::This }));
        }
        let right = Right::on("get", &Lease::kind(), namespace, name);
        let holder = match elector.leader() {
            holder if holder.is_empty() => Holder::Unknown,
            holder if session.check(&right, &mut Vec::new()).await? => Holder::Other(holder),
            _ => Holder::Hidden,
        };
        Ok(Some(Standing { lease, holder }))
    }
}

impl Console {
    /// Creates the console of a program. Nothing is read until somebody looks.
    pub fn of_program(options: ProgramOptions) -> Arc<Self> {
        let ProgramOptions {
            name,
            anonymous,
            clock,
            caches,
            introspection,
            registry,
            scheduling,
            election,
        } = options;
        Self::of_parts(Parts {
            cluster: name.to_owned(),
            program: Some(Program { election }),
            keys: None,
            administrator: None,
            anonymous,
            cluster_clock: clock.clone(),
            clock,
            runtime: Handle::current(),
            caches,
            introspection,
            registries: vec![registry],
            scheduling,
            node_faults: NodeFaults::default(),
            allows_writes: false,
        })
    }

    /// Adds the console to the manager of its program. The port is bound at once, so that a port in use is reported at the
    /// start. It serves before the program becomes the leader.
    ///
    /// # Errors
    /// When the address is not available.
    pub fn add_to(self: Arc<Self>, manager: &Manager, binding: Binding) -> io::Result<SocketAddr> {
        let Binding { address, tls } = binding;
        let listener = listen(address, false, false)?;
        let address = listener.local_addr()?;
        tracing::info!(%address, "Serving the console");
        manager.add(RunnableGroup::HttpServers, "console", move |running| async move {
            running.ready();
            self.serve_tls(listener, Arc::new(tls), running.token()).await;
            Ok(())
        });
        Ok(address)
    }
}
