//! Start of a cluster, its life, and its end in order.

use super::{
    access,
    bind::bind,
    config::{Equipment, Outage, USER_LABEL, User},
    console::{self, Clients, Clocks},
    equip::Equipper,
    failures,
    messages::Event,
    options,
    options::Args,
    plane,
    progress::Progress,
    prune::prune,
    remote, server, status,
};
use crate::{
    behaviors,
    clusters::{Clusters, cluster_of_context, load_objects, load_paths},
    command::counted,
    control::{self, Lifecycle, LifecycleRequest, Served},
    kubeconfig::{self, Kubeconfigs},
    server::local_url,
    time::TimeThread,
};
use anyhow::{Context, Result, bail};
use evenkeel::explain;
use evenkeel_api::{Kind, views::Node};
use evenkeel_apiserver::{Server, snapshot};
use evenkeel_plane::Plane;
use evenkeel_runtime::{
    client::Client,
    clock::Clock,
    tasks::{Tasks, watch},
};
use futures::FutureExt as _;
use serde_json::Value;
use std::{collections::BTreeMap, path::Path, time::Duration};

/// Time that open requests have to complete when the server stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// How a cluster ended that did not fail.
pub(super) enum Ending {
    Stopped,
    /// It is to start again, without its objects, on this port.
    Restart(u16),
}

/// What a configuration adds to a cluster that is ready.
struct Extras {
    /// Devices and images by node.
    equipment: BTreeMap<String, Equipment>,
    outages: Vec<Outage>,
}

impl Extras {
    fn of(args: &Args) -> Result<Self> {
        Ok(Self { equipment: plane::equipment(args)?, outages: plane::planned_outages(args)? })
    }
}

/// A cluster that is being started.
pub(super) struct Start<'a> {
    pub(super) args: &'a Args,
    pub(super) clock: &'a Clock,
    pub(super) progress: &'a Progress,
    pub(super) clusters: &'a Clusters,
}

impl Start<'_> {
    /// Runs the API server in this process, with controllers, scheduler and nodes.
    pub(super) async fn embedded(
        &self,
        kubeconfigs: Kubeconfigs,
        shutdown: impl Future<Output = ()>,
    ) -> Result<Ending> {
        let Self { args, progress, .. } = self;
        progress.begin("API server", Vec::new);
        if let (Some(_), Some(folder)) = (args.restarted_on, &args.data_dir) {
            snapshot::discard(folder)?;
        }
        let users = access::with_tokens(&args.components.users)?;
        let extras = Extras::of(args)?;
        let listener = bind(args, self.clock).await?;
        let address = listener.local_addr().context("the listener has no address")?;
        let url = local_url(address);
        tokio::pin!(shutdown);
        // It ends after all that runs on it.
        let thread = args.speed.map(|speed| TimeThread::start(self.clock.now(), speed)).transpose();
        let thread = thread.context("the thread of the cluster's time cannot start")?;
        let time = thread.as_ref().map(|thread| thread.time().clone());
        let server = tokio::select! {
            server = server::build(args, address, &users, time) => server?,
            () = &mut shutdown => return Ok(Ending::Stopped),
        };
        let serving = Tasks::new();
        let (listening_server, stop) = (server.clone(), serving.token());
        serving.spawn("API server", async move {
            if let Err(error) = listening_server.serve(listener, stop.cancelled_owned()).await {
                tracing::error!(%error, "API server stopped");
            }
        });
        self.write_kubeconfigs(&kubeconfigs, &server, &url)?;
        let (own, context) = (&kubeconfigs.own, &kubeconfigs.context);
        access::write_kubeconfigs(&users, own, context, &server.kubeconfig(&url))?;
        let state = match &args.data_dir {
            Some(folder) => format!("state in {}", folder.display()),
            None => "state in memory".to_owned(),
        };
        progress.done(format!("{url}, {state}"));
        let (renewed, renewed_url, paths) = (server.clone(), url.clone(), kubeconfigs.clone());
        serving.spawn_restarting_until_cancelled("kubeconfigs", move || {
            paths.clone().keep_renewed(renewed.clone(), renewed_url.clone())
        });
        let kube = kube::Client::new(server.service(), "default");
        let mut options = plane::options(args)?.of_server(&server);
        (options.nodes.behaviors, options.nodes.stages) = (true, true);
        let client = Client::builder(kube.clone(), self.clock.clone()).qps(-1.0).build();
        behaviors::install(&client).await?;
        let plane = match &thread {
            None => Plane::start(&kube, self.clock, options)?,
            Some(thread) => {
                let components = thread.client(server.service());
                let _context = thread.enter();
                Plane::start(&components, thread.clock(), options)?
            }
        };
        plane.connect(&server).await.context("the metrics API cannot be served")?;
        let place = (&*kubeconfigs.own, &*url, Some(&server));
        let nobody = server.service_as(evenkeel_apiserver::User::anonymous());
        let anonymous = kube::Client::new(nobody, "default");
        let clients = Clients { own: kube, anonymous };
        let ended = self.serve(&plane, clients, &serving, place, extras, thread.as_ref());
        let ended: Result<Option<LifecycleRequest>> = tokio::select! {
            ended = ended => ended,
            () = shutdown => Ok(None),
            failure = server.failed() => Err(failure.into()),
        };
        if let Some(thread) = &thread {
            // Components that wait for their time do so while they stop, too.
            thread.time().set_speed(1.0);
        }
        match self.stop(plane, &serving, ended).await? {
            Some(LifecycleRequest::Reset) => Ok(Ending::Restart(address.port())),
            Some(LifecycleRequest::Stop) | None => Ok(Ending::Stopped),
        }
    }

    /// Runs controllers, scheduler and nodes for another API server.
    pub(super) async fn on_remote(
        &self,
        own: &Path,
        shutdown: impl Future<Output = ()>,
    ) -> Result<Ending> {
        let Self { args, progress, .. } = self;
        progress.begin("API server", Vec::new);
        tokio::pin!(shutdown);
        let remote = tokio::select! {
            remote = remote::connect(args, self.clock) => remote?,
            () = &mut shutdown => return Ok(Ending::Stopped),
        };
        progress.record(|record| record.url = Some(remote.url.clone()));
        progress.done(format!("{} ({})", remote.url, remote.version));
        let extras = Extras::of(args)?;
        let mut options = plane::options(args)?;
        if let Some(ca) = &remote.ca {
            options = options.with_ca(ca);
        }
        let plane = Plane::start(&remote.kube, self.clock, options)?;
        let serving = Tasks::new();
        let place = (own, &*remote.url, None);
        let clients = Clients { own: remote.kube, anonymous: remote.anonymous };
        let ended = self.serve(&plane, clients, &serving, place, extras, None);
        let ended: Result<Option<LifecycleRequest>> = tokio::select! {
            ended = ended => ended,
            () = shutdown => Ok(None),
        };
        self.stop(plane, &serving, ended).await?;
        Ok(Ending::Stopped)
    }

    /// Writes the kubeconfigs, and records what was current in the user's before.
    fn write_kubeconfigs(&self, paths: &Kubeconfigs, server: &Server, url: &str) -> Result<()> {
        self.progress.record(|record| {
            record.url = Some(url.to_owned());
            // Before the change, so that a crash in between is cleaned.
            record.merged_into = paths.user.as_ref().map(|user| user.path.clone());
        });
        let previous =
            paths.write(&server.kubeconfig(url)).context("the cluster was not started")?;
        // The context may be another cluster's, which knows the ones before it.
        let other = previous.as_deref().and_then(cluster_of_context);
        let other = other.and_then(|name| self.clusters.find(name).ok().flatten()?.record);
        let previous =
            options::previous_contexts(&paths.context, previous.as_deref(), other.iter());
        self.progress.record(|record| record.previous_contexts = previous);
        Ok(())
    }

    /// Waits until the cluster is ready, then until a client of the control socket asks for its end, or a task fails.
    async fn serve(
        &self,
        plane: &Plane,
        clients: Clients,
        tasks: &Tasks,
        (kubeconfig, url, server): (&Path, &str, Option<&Server>),
        extras: Extras,
        thread: Option<&TimeThread>,
    ) -> Result<Option<LifecycleRequest>> {
        let time = thread.map_or(self.clock, TimeThread::clock);
        let clocks = Clocks { process: self.clock, cluster: time };
        let console = console::start(self.args, plane, &clients, clocks, tasks).await?;
        self.progress.record(|record| record.console = console);
        let client = Client::builder(clients.own, self.clock.clone()).qps(-1.0).build();
        let (requests, mut requested) = watch::channel(None);
        let caches = plane.caches().clone();
        let report = move || {
            let caches = caches.clone();
            async move { status::report(&caches) }
        };
        let lifecycle = Lifecycle {
            requests,
            status: Box::new(move || Box::pin(report())),
            is_resettable: server.is_some(),
        };
        let served = Served {
            url: url.to_owned(),
            introspection: Some((plane.introspection().clone(), plane.runtime().clone())),
            time: thread.map(|thread| thread.time().clone()),
            server: server.cloned(),
            lifecycle: Some(lifecycle),
        };
        let socket = explain::socket_beside(kubeconfig);
        let folder = kubeconfig::make_private_folder(socket.parent().unwrap_or(&socket));
        let _control = or_warn(folder.and_then(|()| control::start(&socket, served, tasks)));
        tokio::select! {
            failed = async {
                let equipper = self.become_ready(plane, &client, time, extras.equipment).await?;
                if !equipper.is_empty() {
                    tasks.spawn_until_cancelled("devices", equipper.keep());
                }
                if !extras.outages.is_empty() {
                    begin_failures(extras.outages, &client, server.zip(thread), tasks);
                }
                std::future::pending::<Result<Option<LifecycleRequest>>>().await
            } => failed,
            // A start that waits for something can be stopped, too.
            request = async {
                // Without a socket, its sender is dropped, and nobody asks for anything.
                if requested.wait_for(Option::is_some).await.is_err() {
                    std::future::pending::<()>().await;
                }
                *requested.borrow()
            } => Ok(request),
            failure = plane.failed() => Err(failure.into()),
            failure = tasks.supervisor().failed() => Err(failure.into()),
        }
    }

    /// Waits until the cluster is ready, and creates what it is to have from the start. `time` is the cluster's. Returns what
    /// equips nodes later.
    async fn become_ready(
        &self,
        plane: &Plane,
        client: &Client,
        time: &Clock,
        equipment: BTreeMap<String, Equipment>,
    ) -> Result<Equipper> {
        let Self { args, progress, .. } = self;
        let caches = plane.caches().clone();
        progress.begin("components", move || status::unsynced(&caches));
        let synced = async {
            plane.synced().await;
            status::until_pods_are_admitted(plane, self.clock).await;
        };
        tokio::select! {
            () = synced => {}
            missing = status::never_served(plane.caches(), client) => bail!(
                "the components need what the API server does not serve: {}; disable the feature gates or the controllers that \
                 need them",
                missing.join(", ")
            ),
        }
        progress.done(components(args));
        let names = plane::node_names(args)?;
        let reconnected = failures::end_former(client, plane.caches(), &names).await;
        if let Some(limit) = args.wait {
            let makes_accounts = status::makes_accounts(plane);
            let awaited = status::Awaited { names, reconnected, makes_accounts };
            let (caches, time) = (plane.caches().clone(), time.clone());
            let pending = move || status::pending(&caches, &awaited, time.now());
            progress.begin("nodes", pending.clone());
            let ready = status::until_none_is_pending(&pending, self.clock);
            tokio::select! {
                () = ready => {
                    let nodes = plane.caches().of::<Node>().len();
                    progress.done(format!("{nodes} Ready"));
                }
                () = self.clock.sleep(limit) => {
                    bail!(
                        "not ready after --wait={}: {}; allow more time, or see with -v what happens",
                        evenkeel_component::flags::duration::print(limit),
                        pending().join(", ")
                    )
                }
            }
        }
        let equipper = Equipper::new(client.clone(), plane.caches().clone(), equipment);
        if args.data_dir.is_some() {
            equipper.clear(&plane::group_nodes(args)?).await?;
        }
        if !equipper.is_empty() {
            let waiting = equipper.clone();
            progress.begin("devices", move || waiting.pending());
            let nodes = equipper.start().await?;
            progress.done(format!("devices and images of {}", counted(nodes, "node")));
        }
        let users = &args.components.users;
        let bindings: Vec<Value> = users.iter().flat_map(User::bindings).collect();
        if args.data_dir.is_some() {
            prune(client, USER_LABEL, &binding_kinds(), &bindings).await.context("users")?;
        }
        if !args.is_remote() && !users.is_empty() {
            progress.begin("users", Vec::new);
            load_objects(client, "users", bindings, |_| {}).await?;
            let names: Vec<&str> = users.iter().map(|user| &*user.name).collect();
            progress.done(format!(
                "{}; each has a kubeconfig-NAME beside the cluster's",
                names.join(", ")
            ));
        }
        if !args.load.is_empty() {
            progress.begin("manifests", Vec::new);
            let report = |line: &str| tracing::info!("{line}");
            let loaded = load_paths(client, &args.load, report).await.context("--load")?;
            progress.done(format!("{} created, {} applied", loaded.created, loaded.changed));
        }
        progress.ready();
        Ok(equipper)
    }

    /// Stops the components in order. Returns what was asked for.
    async fn stop(
        &self,
        plane: Plane,
        serving: &Tasks,
        ended: Result<Option<LifecycleRequest>>,
    ) -> Result<Option<LifecycleRequest>> {
        // After a failure nobody waits for the end: its reason comes next.
        if ended.is_ok() {
            self.progress.print(&Event::Stopping);
        }
        let mut late = plane.stop().await;
        late.extend(serving.shut_down(SHUTDOWN_TIMEOUT).await.into_iter().map(String::from));
        let request = ended?;
        require_stopped(&late)?;
        Ok(request)
    }
}

/// Begins the failures by plan, in the cluster's time.
fn begin_failures(
    outages: Vec<Outage>,
    client: &Client,
    own_time: Option<(&Server, &TimeThread)>,
    tasks: &Tasks,
) {
    let (client, _context) = match own_time {
        None => (client.clone(), None),
        Some((server, thread)) => {
            let kube = thread.client(server.service());
            let client = Client::builder(kube, thread.clock().clone()).qps(-1.0).build();
            (client, Some(thread.enter()))
        }
    };
    let failures = failures::run(client, outages);
    let failures = tasks.token().run_until_cancelled_owned(failures);
    tasks.spawn_finite("failures", failures.map(drop));
}

/// Returns the kinds of objects that give users their roles.
fn binding_kinds() -> [Kind; 2] {
    let kind = |kind, plural, namespaced| {
        Kind::new("rbac.authorization.k8s.io", "v1", kind, plural, namespaced)
    };
    [
        kind("ClusterRoleBinding", "clusterrolebindings", false),
        kind("RoleBinding", "rolebindings", true),
    ]
}

/// Logs an error of the control socket. `up` continues without it.
fn or_warn(control: Result<control::ControlSocket>) -> Option<control::ControlSocket> {
    control.inspect_err(|error| tracing::warn!("the control socket cannot be opened, so evenkeel explain, status, reset and snapshot cannot ask this process: {error:#}")).ok()
}

/// Describes the components that were started.
fn components(args: &Args) -> String {
    let file = &args.components;
    let has_controllers = file.controllers.as_ref().is_none_or(|names| !names.is_empty());
    let parts = [
        ("controllers", has_controllers && !args.no_controllers),
        ("scheduler", !file.scheduler.disabled && !args.no_scheduler),
    ];
    let mut names: Vec<String> =
        parts.iter().filter(|(_, runs)| *runs).map(|(name, _)| (*name).to_owned()).collect();
    names.push(counted(usize::try_from(args.node_count()).unwrap_or(usize::MAX), "simulated node"));
    names.join(", ")
}

/// Fails if tasks had to be aborted. `late` are their names.
fn require_stopped(late: &[String]) -> Result<()> {
    if late.is_empty() {
        Ok(())
    } else {
        bail!(
            "these tasks did not stop within {} s and were aborted: {}; what was acknowledged is stored",
            SHUTDOWN_TIMEOUT.as_secs(),
            late.join(", ")
        )
    }
}
