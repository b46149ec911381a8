//! Arguments and result of an async reconcile function, and the trait of all reconcilers.

use super::{Env, barrier::Barrier, execute::Executor};
use crate::{
    client::LeaderFence,
    events::{EventRecorder, SeriesEventRecorder},
    introspect::{Description, RecordedActions},
    plan::{Failure, Key, Outcomes, Plan, PlanError, Target},
    queue::{Priority, Queue},
};
use evenkeel_api::{Kind, Meta, time::Timestamp};
use futures::future::BoxFuture;
use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Request to reconcile a key.
///
/// ```
/// # use evenkeel_runtime::prelude::*;
/// # use evenkeel_test::example::reconcile;
/// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// # evenkeel_test::example::starts(|manager| {
/// manager.controller::<ConfigMap>().reconcile_requests(async |request: Request, _: Context| {
///     println!("{}, attempt {}", request.key, request.attempt);
///     Ok(Outcome::Settled)
/// });
/// # });
/// ```
#[derive(Debug, Clone)]
pub struct Request {
    /// Key of the object to reconcile.
    pub key: Key,
    /// Number of consecutive earlier passes (reconciles) that failed, or requested another one immediately.
    pub attempt: u32,
    /// Number of this reconciliation, unique in the process. Its log lines contain it.
    pub reconcile_id: u64,
    /// Name of the key's cluster. Empty for the program's own cluster.
    pub cluster: Arc<str>,
}

/// Access of a reconcile function to the cluster.
#[derive(Clone)]
pub struct Context {
    /// Client with the controller's user agent, caches, clock and metrics.
    pub env: Env,
    /// Records events on behalf of the controller.
    pub events: EventRecorder,
    /// Records events in events.k8s.io, if the controller was built with [`super::Builder::series_events`].
    pub series: Option<SeriesEventRecorder>,
    pub(super) barrier: Arc<Barrier>,
    /// Writes of the pass, for reports.
    pub(super) recorded: Arc<Mutex<RecordedActions>>,
}

impl Context {
    /// Records this key's write of an object, with the metadata that the server returned. The key is not reconciled again
    /// until the controller's cache of the kind shows that version.
    pub fn wrote(&self, key: &Key, kind: &Kind, written: &Meta) {
        self.barrier.wrote(key, kind, written);
    }

    /// Returns whether the caches show all writes of this key. At the start of a pass, they do.
    pub(crate) fn caches_show_writes(&self, key: &Key) -> bool {
        self.barrier.shows_writes(key)
    }

    /// Executes a plan for this key like a planner's pass, and returns the outcomes. `Plan::requeue` has no effect.
    ///
    /// # Errors
    /// Returns the first failure of an action without [`OnError::Ignore`](crate::plan::OnError::Ignore).
    pub async fn act(&self, key: &Key, plan: &Plan) -> Result<Outcomes, Failure> {
        let executor = Executor {
            client: self.env.client.clone(),
            shared_client: self.env.client.clone(),
            events: self.events.clone(),
            barrier: Arc::clone(&self.barrier),
            local_work: None,
        };
        let report = executor.run(key, &plan.actions).await;
        self.recorded().add(&plan.actions, &report.outcomes);
        report.failure.map_or(Ok(report.outcomes), Err)
    }

    /// Records the result of a write for reports.
    pub(crate) fn record<T, E>(
        &self,
        verb: &'static str,
        target: &Target,
        subresource: &'static str,
        result: Result<T, E>,
    ) -> Result<T, E> {
        self.recorded().add_write(verb, target, subresource, result.is_err());
        result
    }

    fn recorded(&self) -> MutexGuard<'_, RecordedActions> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// If the target has no uid, returns it with the uid of the object that a cache shows. For [`Context::deleted`], call this
    /// before the request: afterwards, a cache may show another object of the name.
    pub(crate) fn identified(&self, target: &Target) -> Target {
        self.barrier.identified(target)
    }

    /// Records that this key deleted an object. The key is not reconciled again until the controller's cache shows the
    /// deletion. The deletion of a target without a uid is not awaited, because another object may have its name by then.
    pub fn deleted(&self, key: &Key, target: &Target) {
        self.barrier.deleted(key, target);
    }
}

/// Result of a successful reconciliation.
///
/// ```
/// # use evenkeel_runtime::prelude::*;
/// assert_eq!(Outcome::default(), Outcome::Settled);
/// assert_eq!(Outcome::again(Duration::from_secs(60)), Outcome::Again(Duration::from_secs(60)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Outcome {
    /// The key is reconciled again on its next event.
    #[default]
    Settled,
    /// The key is reconciled again after this time, or on its next event. Without a time (zero), it is reconciled again with
    /// the backoff of failed keys, as with controller-runtime's `Requeue`, so that a waiting key does not occupy a worker.
    Again(Duration),
}

impl Outcome {
    /// Returns the outcome that reconciles the key again after this time, or with backoff if it is zero.
    pub fn again(after: Duration) -> Self {
        Self::Again(after)
    }
}

/// Error of a reconciliation. `?` converts any error. The key is retried with backoff, unless the error is
/// [terminal](Error::terminal).
///
/// ```
/// # use evenkeel_runtime::prelude::*;
/// fn replicas(text: &str) -> Result<i32> {
///     let replicas: i32 = text.parse()?; // retried with backoff
///     if replicas > 100 {
///         return Err(Error::terminal(format!("{replicas} are too many"))); // waits for an event
///     }
///     Ok(replicas)
/// }
///
/// assert_eq!(replicas("3").unwrap(), 3);
/// assert_eq!(replicas("101").unwrap_err().to_string(), "101 are too many");
/// ```
#[derive(Debug)]
pub struct Error {
    pub(super) source: Box<dyn std::error::Error + Send + Sync>,
    pub(super) terminal: bool,
}

impl Error {
    /// Returns an error that a retry cannot resolve. It is logged and counted, and the key waits for its next event.
    pub fn terminal(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { source: source.into(), terminal: true }
    }

    /// Returns an error with this message. The key is retried with backoff.
    pub fn message(text: impl Into<String>) -> Self {
        Self { source: text.into().into(), terminal: false }
    }

    /// Returns the error that was converted into this one, if it is of this type.
    pub fn downcast_ref<E: std::error::Error + 'static>(&self) -> Option<&E> {
        self.source.downcast_ref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

/// As in anyhow, `Error` does not implement `std::error::Error`, so this does not overlap with the reflexive
/// conversion.
impl<E: std::error::Error + Send + Sync + 'static> From<E> for Error {
    fn from(source: E) -> Self {
        Self { source: Box::new(source), terminal: false }
    }
}

/// Converts a plan's error into the pass's error.
pub(super) fn plan_error(PlanError { message, terminal }: PlanError) -> Error {
    Error { source: message.into(), terminal }
}

/// Result of one pass over a key: the delay after which to requeue it, if any.
pub(super) type PassResult = Result<Option<Duration>, PassError>;

/// Failure of a pass.
#[derive(Debug)]
pub(super) struct PassError {
    pub(super) error: Error,
    /// Delay after which the pass requeues the key even if its backoff is longer, such as until a Job's
    /// `activeDeadlineSeconds`. Upstream's controllers call `AddAfter` before the write that then fails.
    pub(super) requeue: Option<Duration>,
}

impl From<Error> for PassError {
    fn from(error: Error) -> Self {
        Self { error, requeue: None }
    }
}

/// Report on a key: the controller's observations and next actions.
#[derive(Debug, Default)]
pub(super) struct Explanation {
    /// Observations, and the reasons why the controller waits.
    pub(super) description: Description,
    /// Next actions, one per line.
    pub(super) would: Vec<String>,
    /// Whether the next actions are unknown, because the reconciler is an async function.
    pub(super) actions_unknown: bool,
    /// Time after which the plan would requeue the key.
    pub(super) requeue: Option<Duration>,
}

/// Function that returns an async function's observations of a key and its next actions, or `None` if no object exists
/// at the key.
pub(super) type Explain =
    Arc<dyn Fn(&Key, Timestamp) -> Option<(Description, Vec<String>)> + Send + Sync>;

/// Work on one key, by a planner or an async function.
pub(super) trait Reconcile: Send + Sync {
    /// Runs one pass and adds its actions to `recorded`. The pass writes only while `fence` is open.
    fn reconcile<'a>(
        &'a self,
        request: Request,
        fence: Option<&'a LeaderFence>,
        recorded: &'a mut RecordedActions,
    ) -> BoxFuture<'a, PassResult>;
    /// Returns the report on a key, without executing actions. Returns `None` if no object exists at the key.
    fn explain(&self, key: &Key, now: Timestamp) -> Option<Explanation>;
    /// Returns whether the next actions are not known before a pass, so that reports show the last pass instead.
    fn is_function(&self) -> bool {
        false
    }
    /// Forgets the memory of keys for which `keep` returns false.
    fn retain(&self, keep: &dyn Fn(&Key) -> bool) {
        let _ = keep;
    }
}

/// Moves the writes of a pass to where the worker reads them, even if the pass panics.
struct Collect<'a> {
    from: Arc<Mutex<RecordedActions>>,
    to: &'a mut RecordedActions,
}

impl Drop for Collect<'_> {
    fn drop(&mut self) {
        let mut from = self.from.lock().unwrap_or_else(PoisonError::into_inner);
        *self.to = std::mem::take(&mut *from);
    }
}

/// Reconciler that runs an async function.
pub(super) struct FunctionReconciler<F> {
    pub(super) function: F,
    pub(super) context: Context,
    pub(super) explain: Option<Explain>,
}

impl<F, Fut> Reconcile for FunctionReconciler<F>
where
    F: Fn(Request, Context) -> Fut + Send + Sync,
    Fut: Future<Output = Result<Outcome, Error>> + Send + 'static,
{
    fn reconcile<'a>(
        &'a self,
        request: Request,
        fence: Option<&'a LeaderFence>,
        recorded: &'a mut RecordedActions,
    ) -> BoxFuture<'a, PassResult> {
        let mut context = Context { recorded: Arc::default(), ..self.context.clone() };
        if let Some(fence) = fence {
            context.env.client = context.env.client.also_fenced(fence);
        }
        let collect = Collect { from: Arc::clone(&context.recorded), to: recorded };
        let work = (self.function)(request, context);
        Box::pin(async move {
            let _collect = collect;
            match work.await? {
                Outcome::Settled => Ok(None),
                Outcome::Again(after) => Ok(Some(after)),
            }
        })
    }

    fn explain(&self, key: &Key, now: Timestamp) -> Option<Explanation> {
        let Some(explain) = &self.explain else {
            return Some(Explanation { actions_unknown: true, ..Explanation::default() });
        };
        let (description, would) = explain(key, now)?;
        Some(Explanation { description, would, ..Explanation::default() })
    }

    fn is_function(&self) -> bool {
        true
    }
}

/// Reconciler that enqueues keys of another controller.
pub(super) struct EnqueueReconciler<F> {
    pub(super) map: F,
    pub(super) queue: Queue<Key>,
}

impl<F: Fn(&Key, &mut dyn FnMut(Key)) + Send + Sync> Reconcile for EnqueueReconciler<F> {
    fn reconcile<'a>(
        &'a self,
        request: Request,
        _: Option<&'a LeaderFence>,
        _: &'a mut RecordedActions,
    ) -> BoxFuture<'a, PassResult> {
        (self.map)(&request.key, &mut |key| self.queue.add(key, Priority::NORMAL));
        Box::pin(async { Ok(None) })
    }

    fn explain(&self, key: &Key, _: Timestamp) -> Option<Explanation> {
        let mut would = Vec::new();
        (self.map)(key, &mut |key| would.push(format!("enqueue {key}")));
        Some(Explanation { would, ..Explanation::default() })
    }
}

/// Converts an action's failure into the pass's error, which is not terminal.
pub(super) fn action_error(failure: Failure) -> Error {
    Error::from(failure)
}
