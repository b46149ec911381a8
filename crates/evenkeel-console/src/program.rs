//! The console of a drop-in program: the same pages as for a cluster, if the program has their data.
//!
//! All users log in with a bearer token of the API. Before that, the console shows nothing of the cluster. Objects are read
//! with the user's token. Objects in the program's memory are shown only if the API server allows the user to read them
//! (`permissions`). Pages never start a watch of the program, and metrics are sampled only while the console is viewed.

use crate::{
    Console, Parts, Planners,
    permissions::Permission,
    scheduler::Scheduling,
    session::Session,
    source::PageError,
    view::standing::{Holder, Standing},
};
use anyhow::Context as _;
use evenkeel_api::{View as _, views::Lease};
use evenkeel_component::{
    flags::{Flags, Reader},
    options::ServingOptions,
    process::Process,
};
use evenkeel_nodes::NodeFaults;
use evenkeel_runtime::{
    cache::Caches, leaderelection::LeaderElector, manager::RunnableGroup, secure_serving::listen,
};
use std::{net::SocketAddr, sync::Arc};
use tokio::runtime::Handle;

/// Table of the flag with which a program serves its console, in the form of the programs' tables of flags.
const FLAGS: &str = "section\tflag\ttype\tdefault\nMisc\tconsole-bind-address\tstring\t\n";

/// Description of the flag of [`FLAGS`].
const WORDS: &str = "console-bind-address\tServe the console in the browser at this IP:PORT over TLS, such as \
    127.0.0.1:10261; empty serves none. Users log in with a bearer token of the API and see what RBAC allows them; the console only reads.\n";

/// Name of the flag of [`FLAGS`].
const FLAG: &str = "console-bind-address";

/// Adds the console's flag to those of a program.
pub fn with_flags(flags: Flags) -> Flags {
    flags.with_own(FLAGS, WORDS)
}

/// Returns the address of the console. `None` serves none.
pub fn address(read: &Reader) -> Option<SocketAddr> {
    read.socket_address(FLAG)
}

/// Content of a program's console besides its controllers and metrics.
pub struct Contents {
    /// Name of the program.
    pub name: &'static str,
    /// Caches that the program reads. The console reads only existing caches, and never creates one.
    pub caches: Caches,
    /// Dry runs of the program's scheduler. `None` for a program that schedules no pods.
    pub scheduling: Option<Scheduling>,
    /// Planners of the program's controllers, for previews of edits. `None` for a program without controllers.
    pub planners: Option<Arc<dyn Planners>>,
}

/// Serves the console of a program from its manager, at the address of its flag. It serves before the program becomes the
/// leader. `serving` are the options of the program's secure port. The console uses the same certificate.
///
/// # Errors
/// Fails if the address is not available, or a certificate cannot be read.
pub fn serve(
    process: &Process,
    serving: &ServingOptions,
    address: SocketAddr,
    shown: Contents,
) -> anyhow::Result<()> {
    // Users' requests need a connection without credentials. The flag makes the program open one.
    let Some(anonymous) = process.connection.anonymous() else { return Ok(()) };
    let tls = Arc::new(process.browser_tls(serving)?);
    // The port is bound immediately, so that a port in use is reported at the start.
    let listener = listen(address, false, false)
        .with_context(|| format!("--{FLAG}: failed to listen on {address}"))?;
    let address = listener.local_addr().context("the console's listener has no address")?;
    let console = Console::of_program(process, anonymous, shown);
    tracing::info!(%address, "Serving the console");
    process.manager.add(RunnableGroup::HttpServers, "console", move |running| async move {
        running.ready();
        console.serve_tls(listener, tls, running.token()).await;
        Ok(())
    });
    Ok(())
}

/// Leader election of a program.
pub(crate) struct Election {
    /// The elector, which knows the leader.
    elector: Arc<LeaderElector>,
    /// Namespace of the Lease.
    namespace: String,
    /// Name of the Lease.
    name: String,
}

/// The program that a console shows.
pub(crate) struct Program {
    pub(crate) election: Option<Election>,
}

impl Program {
    /// Returns the program's role in its leader election. `None` without leader election. The holder of the lease is shown to
    /// users who may read the Lease.
    pub(crate) async fn standing(&self, session: &Session) -> Result<Option<Standing>, PageError> {
        let Some(Election { elector, namespace, name }) = &self.election else { return Ok(None) };
        let lease = format!("{namespace}/{name}");
        if elector.is_leader() {
            return Ok(Some(Standing { lease, holder: Holder::This }));
        }
        let permission = Permission::on("get", &Lease::kind(), namespace, name);
        let holder = match elector.leader() {
            holder if holder.is_empty() => Holder::Unknown,
            holder if session.check(&permission, &mut Vec::new()).await? => Holder::Other(holder),
            _ => Holder::Hidden,
        };
        Ok(Some(Standing { lease, holder }))
    }
}

impl Console {
    /// Creates the console of a program. It reads nothing until it is viewed.
    fn of_program(process: &Process, anonymous: kube::Client, shown: Contents) -> Arc<Self> {
        let manager = &process.manager;
        let election = manager.elector().zip(process.election());
        let election = election.map(|(elector, lease)| Election {
            elector: elector.clone(),
            namespace: lease.namespace.clone(),
            name: lease.name.clone(),
        });
        Self::of_parts(Parts {
            cluster: shown.name.to_owned(),
            program: Some(Program { election }),
            keys: None,
            administrator: None,
            anonymous,
            cluster_clock: process.clock.clone(),
            clock: process.clock.clone(),
            runtime: Handle::current(),
            caches: shown.caches,
            introspection: manager.env().introspection.clone(),
            registries: vec![process.registry.clone()],
            scheduling: shown.scheduling,
            planners: shown.planners,
            what_if: None,
            time_control: None,
            node_faults: NodeFaults::default(),
            allows_writes: false,
        })
    }
}
