//! An API server with controllers, scheduler and simulated nodes.

use crate::{StartError, TestServer, TestServerBuilder};
use evenkeel_apiserver::BuildError;
use evenkeel_cloud::ip_pool::{Config, ConfigError, IpPool};
use evenkeel_controllers::wiring::descriptor::{self, Descriptor, descriptors};
use evenkeel_plane::{Plane, PlaneOptions, behavior_definition, stage_definition};
use std::{ops::Deref, sync::Arc, time::Duration};

/// Addresses of load balancers, of the range that RFC 2544 reserves for benchmarks.
const LOAD_BALANCER_POOL: &str = "198.18.0.0/15";

/// Timeout for a cluster's caches to sync and its nodes to be registered.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Controllers that a Deployment needs until its pods are ready, by upstream's names.
///
/// Without `node-lifecycle-controller`, which removes the taint `node.kubernetes.io/not-ready` of new nodes, no pod is
/// scheduled. Without `serviceaccount-controller`, the server refuses pods, because their service account does not exist.
pub const DEPLOYMENT_CONTROLLERS: [&str; 4] = [
    "deployment-controller",
    "node-lifecycle-controller",
    "replicaset-controller",
    "serviceaccount-controller",
];

/// Error of starting a [`TestCluster`].
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The API server cannot start.
    #[error(transparent)]
    Server(#[from] StartError),
    /// No controller has this name.
    #[error("there is no controller {0:?}; the controllers are {1}")]
    UnknownController(String, String),
    /// The addresses of load balancers are invalid.
    #[error("load balancers: {0}")]
    LoadBalancers(#[from] ConfigError),
    /// A controller cannot start.
    #[error(transparent)]
    Controller(#[from] descriptor::StartError),
    /// A task of the cluster failed.
    #[error("the cluster failed as it started: {0}")]
    Failed(String),
    /// Caches do not sync or nodes are not registered, for example because the server refuses them.
    #[error("the cluster is not ready after {START_TIMEOUT:?}: it waits for {0}")]
    NotReady(String),
    /// The server cannot serve the usage of nodes and pods.
    #[error("metrics.k8s.io cannot be served: {0}")]
    Metrics(BuildError),
}

/// A [`TestServer`] with controllers, scheduler and simulated nodes. Dropping it aborts them.
///
/// By default it has three nodes, the scheduler and all controllers. Services of type `LoadBalancer` get addresses of
/// `198.18.0.0/15`, and volumes are provisioned on the nodes. No container runs: the nodes report pods as running and
/// ready, interpret simple commands, and follow the annotations of [`evenkeel_plane`]'s simulated nodes.
pub struct TestCluster {
    server: TestServer,
    plane: Plane,
}

impl TestCluster {
    /// Starts a cluster with default options.
    ///
    /// # Errors
    /// Fails as [`TestClusterBuilder::start`] does.
    pub async fn start() -> Result<Self, ClusterError> {
        Self::builder().start().await
    }

    /// Returns a builder with default options.
    pub fn builder() -> TestClusterBuilder {
        TestClusterBuilder::default()
    }

    /// Returns the running controllers, scheduler and nodes.
    pub fn plane(&self) -> &Plane {
        &self.plane
    }

    /// Stops controllers, scheduler and nodes, then the server. Returns the names of the tasks that had to be aborted.
    pub async fn stop(self) -> Vec<String> {
        let late = self.plane.stop().await;
        self.server.stop().await;
        late
    }
}

impl Deref for TestCluster {
    type Target = TestServer;

    fn deref(&self) -> &TestServer {
        &self.server
    }
}

/// Options of a [`TestCluster`].
#[derive(Debug)]
#[must_use = "a builder does nothing until it is started"]
pub struct TestClusterBuilder {
    server: TestServerBuilder,
    /// Names of the controllers; `None` for all.
    controllers: Option<Vec<String>>,
    scheduler: bool,
    nodes: u32,
    behaviors: bool,
    stages: bool,
}

impl Default for TestClusterBuilder {
    fn default() -> Self {
        Self {
            server: TestServer::builder().enable_admission_plugin("ServiceAccount"),
            controllers: None,
            scheduler: true,
            nodes: 3,
            behaviors: false,
            stages: false,
        }
    }
}

impl TestClusterBuilder {
    /// Changes the options of the API server.
    pub fn server(mut self, change: impl FnOnce(TestServerBuilder) -> TestServerBuilder) -> Self {
        self.server = change(self.server);
        self
    }

    /// Runs exactly these controllers, by upstream's names, and no load balancers. Default: all.
    ///
    /// A test starts faster with few controllers, such as [`DEPLOYMENT_CONTROLLERS`].
    pub fn controllers<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.controllers = Some(names.into_iter().map(str::to_owned).collect());
        self
    }

    /// Runs no scheduler: pods stay pending unless they name their node.
    pub fn without_scheduler(mut self) -> Self {
        self.scheduler = false;
        self
    }

    /// Sets the number of simulated nodes, `node-0` and following. Default: 3.
    pub fn nodes(mut self, count: u32) -> Self {
        self.nodes = count;
        self
    }

    /// Installs the CustomResourceDefinition of Behaviors (`behaviors.sim.evenkeel.dev`), which steer simulated pods by label.
    pub fn behaviors(mut self) -> Self {
        self.behaviors = true;
        self
    }

    /// Installs the CustomResourceDefinition of KWOK's Stages (`stages.kwok.x-k8s.io`), which simulated pods and nodes follow
    /// if any exist.
    pub fn stages(mut self) -> Self {
        self.stages = true;
        self
    }

    /// Starts the cluster, and waits until the caches of its components have synced and its nodes are registered.
    ///
    /// # Errors
    /// Fails if the server cannot start, or a controller is unknown or cannot start.
    pub async fn start(self) -> Result<TestCluster, ClusterError> {
        let descriptors = find_descriptors(self.controllers.as_deref())?;
        let pool = match self.controllers {
            None => Some(IpPool::new(&Config::of_addresses(LOAD_BALANCER_POOL))?),
            Some(_) => None,
        };
        let server = match self.behaviors {
            true => self.server.crd_value(&behavior_definition()),
            false => self.server,
        };
        let server = match self.stages {
            true => server.crd_value(&stage_definition()),
            false => server,
        };
        let server = server.start().await?;
        let api = server.server();
        let mut options = PlaneOptions::all(self.nodes).of_server(api);
        options.controllers = descriptors;
        options.nodes.behaviors = self.behaviors;
        options.nodes.stages = self.stages;
        if let Some(pool) = pool {
            options.cloud = Some(Arc::new(pool));
        }
        if !self.scheduler {
            options.scheduler = None;
        }
        let plane = Plane::start(&server.client(), server.clock(), options)?;
        let ready = async {
            plane.synced().await;
            plane.nodes_registered().await;
        };
        tokio::select! {
            biased;
            () = ready => {}
            failure = plane.failed() => return Err(ClusterError::Failed(failure.to_string())),
            () = server.clock().sleep(START_TIMEOUT) => {
                return Err(ClusterError::NotReady(waits_for(&plane)));
            }
        }
        plane.connect(api).await.map_err(ClusterError::Metrics)?;
        Ok(TestCluster { server, plane })
    }
}

/// Names the conditions that a cluster waits for as it starts.
fn waits_for(plane: &Plane) -> String {
    let caches = plane.unsynced().into_iter().map(|kind| format!("the cache of {}", kind.plural));
    let nodes = plane.unregistered_nodes().into_iter().map(|name| format!("node {name}"));
    caches.chain(nodes).collect::<Vec<_>>().join(", ")
}

/// Returns the controllers of these names, or all controllers.
pub(crate) fn find_descriptors(names: Option<&[String]>) -> Result<Vec<Descriptor>, ClusterError> {
    let all = descriptors();
    let Some(names) = names else { return Ok(all) };
    let find = |name: &String| {
        let found = all.iter().find(|controller| controller.name == name);
        found.copied().ok_or_else(|| {
            let known: Vec<_> = all.iter().map(|controller| controller.name).collect();
            ClusterError::UnknownController(name.clone(), known.join(", "))
        })
    };
    names.iter().map(find).collect()
}
