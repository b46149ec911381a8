//! API servers and clusters for tests, in the test's own process.
//!
//! A [`TestServer`] is a fresh API server. Its clients call it directly: there is no socket, no file and no other program.
//!
//! ```
//! use evenkeel_test::TestServer;
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::api::PostParams;
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> anyhow::Result<()> {
//!     let server = TestServer::start().await?;
//!     let maps = server.api::<ConfigMap>();
//!     let map = serde_json::from_value(serde_json::json!({"metadata": {"name": "settings"}}))?;
//!     let created = maps.create(&PostParams::default(), &map).await?;
//!     assert!(created.metadata.uid.is_some());
//!     Ok(())
//! }
//! ```
//!
//! A [`TestCluster`] also runs controllers, the scheduler and simulated nodes, so that a Deployment becomes ready. In a
//! runtime whose time is paused, hours pass in milliseconds:
//!
//! ```
//! use evenkeel_test::{TestCluster, eventually};
//! use k8s_openapi::api::apps::v1::Deployment;
//! use kube::api::PostParams;
//! use serde_json::json;
//!
//! #[tokio::main(flavor = "current_thread", start_paused = true)]
//! async fn main() -> anyhow::Result<()> {
//!     let cluster = TestCluster::start().await?;
//!     let deployments = cluster.api::<Deployment>();
//!     let web = serde_json::from_value(json!({
//!         "metadata": {"name": "web"},
//!         "spec": {
//!             "replicas": 3,
//!             "selector": {"matchLabels": {"app": "web"}},
//!             "template": {
//!                 "metadata": {"labels": {"app": "web"}},
//!                 "spec": {"containers": [{"name": "web", "image": "nginx"}]},
//!             },
//!         },
//!     }))?;
//!     deployments.create(&PostParams::default(), &web).await?;
//!     let ready = |web: &Deployment| {
//!         web.status.as_ref().and_then(|status| status.ready_replicas) == Some(3)
//!     };
//!     eventually(&deployments, "web", ready).await?;
//!     Ok(())
//! }
//! ```
//!
//! [`eventually`] and its siblings wait for a condition with a watch. They fail after a minute with the last observed objects.
//!
//! Use the same versions of `kube` and `k8s-openapi` as this crate. It re-exports both, and all other types of its signatures.
//! The test's package chooses the version of Kubernetes' types by a feature of `k8s-openapi`, from `v1_33` on. The server
//! always implements v1.37.

#[cfg(feature = "cluster")]
mod cluster;
mod crds;
#[cfg(feature = "explore")]
#[doc(hidden)]
pub mod example;
#[cfg(feature = "explore")]
pub mod explore;
mod interceptor;
mod kubeconfig;
mod program;
mod server;
#[cfg(feature = "explore")]
pub mod simulation;
mod wait;

#[cfg(feature = "cluster")]
pub use cluster::{ClusterError, DEPLOYMENT_CONTROLLERS, TestCluster, TestClusterBuilder};
pub use crds::CrdError;
// Types of these crates are in this crate's signatures. The re-exports have the right versions.
pub use evenkeel_apiserver::{BuildError, Builder, Server};
#[cfg(feature = "cluster")]
pub use evenkeel_cloud::ip_pool::ConfigError as LoadBalancerError;
#[cfg(feature = "cluster")]
pub use evenkeel_controllers::wiring::descriptor::StartError as ControllerError;
#[cfg(feature = "cluster")]
pub use evenkeel_plane::Plane;
pub use evenkeel_runtime::{
    api, bytes,
    clock::Clock,
    http, k8s_openapi, kube,
    manager::{Manager, Setup},
    serde_json,
};
#[cfg(feature = "explore")]
pub use explore::{Exploration, Explored, Failure, User, explore};
pub use futures::future::BoxFuture;
pub use interceptor::Funcs;
pub use kubeconfig::KubeconfigError;
pub use program::{BoxError, Program, Running};
pub use server::{StartError, TestServer, TestServerBuilder};
pub use tokio_util::sync::CancellationToken;
pub use wait::{TIMEOUT, Wait, WaitError, Watched, eventually, eventually_all, eventually_gone};

/// Examples of the page on testing, which run as doctests.
#[cfg(doctest)]
#[doc = include_str!("../docs/testing.md")]
struct TestingPage;
