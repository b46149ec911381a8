//! Exploration of an operator's behavior under faults.
//!
//! A run is a new cluster in virtual time. The operator and the cluster settle, one fault is armed at one of the operator's
//! writes, the user's steps follow, and everything settles again. Then these rules must hold:
//!
//! | rule | example of a violation |
//! |---|---|
//! | the asserts of the scenario hold | a panic or an error of the scenario |
//! | the end state is that of the run without a fault | an object or a field that differs, such as a status of old reads |
//! | the operator creates and deletes no more than without the fault | a generated name for each attempt |
//! | nothing is written for ten minutes | writes that trigger each other, or that change nothing |
//! | when the user's objects are deleted, nothing is left | a child without owner, a finalizer that stays |
//! | no program ends by itself, no task fails permanently | an error that ends the operator |
//!
//! **End states** are compared without managed fields, resource versions, generations and times. An `observedGeneration` is
//! the current one or not. Uids and generated names stand for the objects that have them. Addresses, node ports and nodes, which
//! the cluster chooses, are left out, as is the order of conditions, owners, finalizers, endpoints and taints.
//!
//! Objects that existed before the scenario and are unchanged at the end are left out: the server's own objects, and those that
//! an operator writes again when it restarts.
//!
//! **Creates and deletes** are compared within the limits of the fault. After a lost response or a repeated request,
//! the program may repeat deletes, and creates that fail with `AlreadyExists`. After a crash, a gap or stale reads, an
//! operator may do more than without: it has seen other states in between. Steps that follow each other without
//! [`User::settle`] may also be seen together. Deletes of whole collections do not count: they are repeated until
//! nothing is left.
//!
//! Environment variables select runs: `EVENKEEL_RUNS=5000` increases their number. `EVENKEEL_SEED` and `EVENKEEL_FAULT` repeat
//! the run that a failure names.

mod cluster;
mod diff;
mod driver;
mod end;
mod failure;
mod options;
mod plan;
mod run;
mod state;
mod target;
mod user;

pub use driver::max_runs;
pub use end::{Changes, EndState, objects_before};
pub use failure::{Explored, Failure};
pub use options::Exploration;
pub use plan::{KINDS, sample_faults};
pub use user::User;

use crate::{BoxError, Program};

/// Runs an operator and a scenario of its user repeatedly in virtual time, with another fault each time.
///
/// Faults are crashes before and after each write, lost requests, lost and repeated responses, refusals, late, broken and
/// expired watches, stale reads, disconnections, and lost leases. See [the module](self) for the rules that must hold at the
/// end. [`Exploration`] has options: definitions of kinds, controllers, nodes, replicas. Call it in an ordinary `#[test]`,
/// because each run has a runtime of its own.
///
/// ```
/// use evenkeel_runtime::prelude::*;
/// use evenkeel_test::explore;
/// use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// use kube::api::{Patch, PatchParams, PostParams};
/// use serde_json::json;
///
/// /// Keeps a Secret with the data of each ConfigMap.
/// async fn reconcile(map: Arc<ConfigMap>, cx: Context) -> Result<Outcome> {
///     let mut secret = Secret { string_data: map.data.clone(), ..Secret::default() };
///     secret.metadata.name = map.metadata.name.clone();
///     secret.controlled_by(&*map)?;
///     cx.apply(&secret).await?;
///     Ok(Outcome::Settled)
/// }
///
/// fn operator(kube: kube::Client, setup: Setup) -> anyhow::Result<Manager> {
///     let maps = CacheOptions::<ConfigMap>::in_namespace("default");
///     let manager = Manager::builder(kube).component("copier").setup(setup).cache(maps).build()?;
///     manager.controller::<ConfigMap>().owns::<Secret>().reconcile(reconcile);
///     Ok(manager)
/// }
///
/// # fn main() {
/// // In your tests: #[test].
/// let explored = explore(operator, async |user| {
///     let maps = user.api::<ConfigMap>();
///     let map = serde_json::from_value(json!({"metadata": {"name": "a"}, "data": {"k": "1"}}))?;
///     maps.create(&PostParams::default(), &map).await?;
///     user.settle().await;
///     let change = Patch::Merge(json!({"data": {"k": "2"}}));
///     maps.patch("a", &PatchParams::default(), &change).await?;
///     user.settle().await;
///     let secret = user.api::<Secret>().get("a").await?;
///     assert_eq!(secret.data.expect("data")["k"].0, b"2");
///     Ok(())
/// });
/// assert!(explored.runs > 20);
/// # }
/// ```
///
/// # Panics
/// Panics if a run fails. The message has the fault, the differences, the last requests, and the variables that repeat
/// the run.
pub fn explore<S>(operator: impl Program, scenario: S) -> Explored
where
    S: AsyncFn(User) -> Result<(), BoxError>,
{
    Exploration::new(operator).run(scenario)
}
