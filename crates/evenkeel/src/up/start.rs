//! Starts a cluster, runs it, and stops its components in order.

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
    control::{self, Lifecycle, LifecycleRequest, Served},
    kubeconfig::{self, Kubeconfigs},
    server::local_url,
    time::TimeThread,
};
use anyhow::{Context, Result, bail};
use evenkeel::explain;
use evenkeel_api::{Kind, views::Node};
use evenkeel_apiserver::{Server, snapshot};
use evenkeel_component::count::counted;
use evenkeel_plane::{NodeOptions, Plane};
use evenkeel_runtime::{
    client::{Client, ListOptions},
    clock::Clock,
    tasks::{Tasks, watch},
};
use futures::FutureExt as _;
use serde_json::Value;
use std::{collections::BTreeMap, path::Path, time::Duration};

/// Timeout for open requests to complete when the server stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Reason why a cluster ended without a failure.
pub(super) enum Ending {
    Stopped,
    /// The process must start the cluster again on this port, without its objects.
    Restart(u16),
}

/// Nodes of a cluster, and the devices, images and outages that a configuration adds when the cluster is ready.
struct Extras {
    nodes: Vec<NodeOptions>,
    /// Devices and images by node.
    equipment: BTreeMap<String, Equipment>,
    outages: Vec<Outage>,
}

impl Extras {
    /// Returns the extras of a cluster with these copied nodes.
    fn of(args: &Args, copied: Vec<NodeOptions>) -> Result<Self> {
        let nodes = plane::all_nodes(args, copied)?;
        let outages = plane::planned_outages(args, &nodes)?;
        Ok(Self { nodes, equipment: plane::equipment(args)?, outages })
    }

    fn node_names(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.name.clone()).collect()
    }
}

/// Context of a cluster's start.
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
        progress.start_stage("API server", Vec::new);
        if let (Some(_), Some(folder)) = (args.restarted_on, &args.data_dir) {
            snapshot::discard(folder)?;
        }
        let users = access::with_tokens(&args.components.users)?;
        // The nodes of a copy are known when the server has its objects.
        let extras = (!args.is_copy).then(|| Extras::of(args, Vec::new())).transpose()?;
        let listener = bind(args, self.clock).await?;
        let address = listener.local_addr().context("the listener has no address")?;
        let url = local_url(address);
        tokio::pin!(shutdown);
        // The thread ends after all components that run on it.
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
        progress.complete_stage(format!("{url}, {state}"));
        let (renewed, renewed_url, paths) = (server.clone(), url.clone(), kubeconfigs.clone());
        serving.spawn_restarting_until_cancelled("kubeconfigs", move || {
            paths.clone().keep_renewed(renewed.clone(), renewed_url.clone())
        });
        let kube = kube::Client::new(server.service(), "default");
        let client = Client::builder(kube.clone(), self.clock.clone()).qps(-1.0).build();
        let extras = match extras {
            Some(extras) => extras,
            None => Extras::of(args, existing_nodes(&client).await?)?,
        };
        let mut options = plane::options(args)?.of_server(&server);
        options.nodes.nodes.clone_from(&extras.nodes);
        (options.nodes.behaviors, options.nodes.stages) = (true, true);
        behaviors::install(&client).await?;
        let plane = match &thread {
            None => plane::start(args, &kube, self.clock, options)?,
            Some(thread) => {
                let components = thread.client(server.service());
                let _context = thread.enter();
                plane::start(args, &components, thread.clock(), options)?
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
            // Components also wait for the cluster's time while they stop.
            thread.time().set_speed(1.0);
        }
        match self.stop(plane, &serving, ended).await? {
            Some(LifecycleRequest::Reset) => Ok(Ending::Restart(address.port())),
            Some(LifecycleRequest::Stop) | None => Ok(Ending::Stopped),
        }
    }

    /// Runs controllers, scheduler and nodes against a remote API server.
    pub(super) async fn on_remote(
        &self,
        own: &Path,
        shutdown: impl Future<Output = ()>,
    ) -> Result<Ending> {
        let Self { args, progress, .. } = self;
        progress.start_stage("API server", Vec::new);
        tokio::pin!(shutdown);
        let remote = tokio::select! {
            remote = remote::connect(args, self.clock) => remote?,
            () = &mut shutdown => return Ok(Ending::Stopped),
        };
        progress.update_record(|record| record.url = Some(remote.url.clone()));
        progress.complete_stage(format!("{} ({})", remote.url, remote.version));
        let extras = Extras::of(args, Vec::new())?;
        let mut options = plane::options(args)?;
        if let Some(ca) = &remote.ca {
            options = options.with_ca(ca);
        }
        let plane = plane::start(args, &remote.kube, self.clock, options)?;
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

    /// Writes the kubeconfigs, and records the previous current context of the user's kubeconfig.
    fn write_kubeconfigs(&self, paths: &Kubeconfigs, server: &Server, url: &str) -> Result<()> {
        self.progress.update_record(|record| {
            record.url = Some(url.to_owned());
            // Record the change before it is made, so that the next command can undo it after a crash.
            record.merged_into = paths.user.as_ref().map(|user| user.path.clone());
        });
        let previous =
            paths.write(&server.kubeconfig(url)).context("the cluster was not started")?;
        // The context may belong to another cluster, whose record has the contexts before it.
        let other = previous.as_deref().and_then(cluster_of_context);
        let other = other.and_then(|name| self.clusters.find(name).ok().flatten()?.record);
        let previous =
            options::previous_contexts(&paths.context, previous.as_deref(), other.iter());
        self.progress.update_record(|record| record.previous_contexts = previous);
        Ok(())
    }

    /// Waits until the cluster is ready, then until a client of the control socket requests a stop or a reset, or a task fails.
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
        let own_time = thread.map(TimeThread::time);
        let clocks = Clocks { process: self.clock, cluster: time, time: own_time };
        let console = console::start(self.args, plane, &clients, clocks, tasks).await?;
        self.progress.update_record(|record| record.console = console);
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
            schedulers: Some(plane::schedulers(self.args)),
            time: thread.map(|thread| thread.time().clone()),
            server: server.cloned(),
            lifecycle: Some(lifecycle),
        };
        let socket = explain::socket_beside(kubeconfig);
        let folder = kubeconfig::make_private_folder(socket.parent().unwrap_or(&socket));
        let _control = or_warn(folder.and_then(|()| control::start(&socket, served, tasks)));
        tokio::select! {
            failed = async {
                let equipper = self.become_ready(plane, &client, time, &extras).await?;
                if !equipper.is_empty() {
                    tasks.spawn_until_cancelled("devices", equipper.run());
                }
                if !extras.outages.is_empty() {
                    start_failures(extras.outages, &client, server.zip(thread), tasks);
                }
                std::future::pending::<Result<Option<LifecycleRequest>>>().await
            } => failed,
            // A cluster can also be stopped while it is starting.
            request = async {
                // Without a socket, the sender is dropped, and there are no requests.
                if requested.wait_for(Option::is_some).await.is_err() {
                    std::future::pending::<()>().await;
                }
                *requested.borrow()
            } => Ok(request),
            failure = plane.failed() => Err(failure.into()),
            failure = tasks.supervisor().failed() => Err(failure.into()),
        }
    }

    /// Waits until the cluster is ready, and creates the objects of the configuration and of `--load`. `time` is the cluster's
    /// clock. Returns the equipper, which equips nodes that register later.
    async fn become_ready(
        &self,
        plane: &Plane,
        client: &Client,
        time: &Clock,
        extras: &Extras,
    ) -> Result<Equipper> {
        let Self { args, progress, .. } = self;
        let caches = plane.caches().clone();
        progress.start_stage("components", move || status::unsynced(&caches));
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
        progress.complete_stage(components(args, extras.nodes.len()));
        let names = extras.node_names();
        let reconnected = failures::end_previous(client, plane.caches(), &names).await;
        if let Some(limit) = args.wait {
            let makes_accounts = status::makes_accounts(plane);
            let faults = plane.node_faults().clone();
            let awaited = status::Awaited { names, reconnected, faults, makes_accounts };
            let (caches, time) = (plane.caches().clone(), time.clone());
            let pending = move || status::pending(&caches, &awaited, time.now());
            progress.start_stage("nodes", pending.clone());
            let ready = status::until_none_is_pending(&pending, self.clock);
            tokio::select! {
                () = ready => {
                    let nodes = plane.caches().of::<Node>().len();
                    progress.complete_stage(format!("{nodes} Ready"));
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
        let equipper =
            Equipper::new(client.clone(), plane.caches().clone(), extras.equipment.clone());
        if args.data_dir.is_some() {
            equipper.clear(&plane::group_nodes(args)?).await?;
        }
        if !equipper.is_empty() {
            let waiting = equipper.clone();
            progress.start_stage("devices", move || waiting.pending());
            let nodes = equipper.start().await?;
            progress.complete_stage(format!("devices and images of {}", counted(nodes, "node")));
        }
        let users = &args.components.users;
        let bindings: Vec<Value> = users.iter().flat_map(User::bindings).collect();
        if args.data_dir.is_some() {
            prune(client, USER_LABEL, &binding_kinds(), &bindings).await.context("users")?;
        }
        if !args.is_remote() && !users.is_empty() {
            progress.start_stage("users", Vec::new);
            load_objects(client, "users", bindings, |_| {}).await?;
            let names: Vec<&str> = users.iter().map(|user| &*user.name).collect();
            progress.complete_stage(format!(
                "{}; each has a kubeconfig-NAME beside the cluster's",
                names.join(", ")
            ));
        }
        if !args.load.is_empty() {
            progress.start_stage("manifests", Vec::new);
            let report = |line: &str| tracing::info!("{line}");
            let loaded = load_paths(client, &args.load, report).await.context("--load")?;
            progress
                .complete_stage(format!("{} created, {} applied", loaded.created, loaded.changed));
        }
        progress.ready();
        Ok(equipper)
    }

    /// Stops the components in order. Returns the requested ending.
    async fn stop(
        &self,
        plane: Plane,
        serving: &Tasks,
        ended: Result<Option<LifecycleRequest>>,
    ) -> Result<Option<LifecycleRequest>> {
        // After a failure, the error is reported next, so do not report the stop.
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

/// Starts the task of the planned failures, in the cluster's time.
fn start_failures(
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

/// Returns the kinds of bindings that grant roles to the users of the configuration.
fn binding_kinds() -> [Kind; 2] {
    let kind = |kind, plural, namespaced| {
        Kind::new("rbac.authorization.k8s.io", "v1", kind, plural, namespaced)
    };
    [
        kind("ClusterRoleBinding", "clusterrolebindings", false),
        kind("RoleBinding", "rolebindings", true),
    ]
}

/// Logs the error if the control socket cannot be opened. `up` continues without it.
fn or_warn(control: Result<control::ControlSocket>) -> Option<control::ControlSocket> {
    control.inspect_err(|error| tracing::warn!("the control socket cannot be opened, so evenkeel explain, status, reset and snapshot cannot ask this process: {error:#}")).ok()
}

/// Returns the existing nodes of the API server, which stay unchanged.
async fn existing_nodes(client: &Client) -> Result<Vec<NodeOptions>> {
    let nodes = client.list::<Node>("", &ListOptions::default()).await;
    let nodes = nodes.context("the nodes of the data folder cannot be read")?;
    Ok(nodes.items.iter().map(NodeOptions::of_existing).collect())
}

/// Describes the components that were started.
fn components(args: &Args, node_count: usize) -> String {
    let file = &args.components;
    let schedulers = match plane::schedulers(args).configs.len() {
        0 => None,
        1 => Some("scheduler".to_owned()),
        several => Some(format!("{several} schedulers")),
    };
    let has_controllers = file.controllers.as_ref().is_none_or(|names| !names.is_empty());
    let controllers = (has_controllers && !args.no_controllers).then(|| "controllers".to_owned());
    let mut names: Vec<String> = controllers.into_iter().chain(schedulers).collect();
    names.push(counted(node_count, "simulated node"));
    names.join(", ")
}

/// Returns an error if tasks had to be aborted. `late` has their names.
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
