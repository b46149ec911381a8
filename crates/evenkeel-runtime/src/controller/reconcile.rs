//! Arguments and result of an async reconcile function.

use super::{Env, barrier::Barrier, execute::Executor};
use crate::{
    events::EventRecorder,
    introspect::{Description, RecordedActions},
    plan::{Failure, Key, Outcomes, Plan, PlanError, Target},
    queue::{Priority, Queue},
};
use evenkeel_api::{Kind, time::Timestamp};
use futures::future::BoxFuture;
use std::{fmt, sync::Arc, time::Duration};

/// Key to reconcile.
#[derive(Debug, Clone)]
pub struct Request {
    /// Key of the object to reconcile.
    pub key: Key,
    /// Number of failures in a row before this attempt.
    pub attempt: u32,
    /// Number of this reconciliation within the process, as in its log lines.
    pub reconcile_id: u64,
}

/// Access of a reconcile function to the cluster.
#[derive(Clone)]
pub struct Context {
    /// Client with the controller's user agent, caches and clock.
    pub env: Env,
    /// Records events in the controller's name.
    pub events: EventRecorder,
    pub(super) barrier: Arc<Barrier>,
}

impl Context {
    /// Records a write of this key, with the `metadata.resourceVersion` that the server returned. The key is not reconciled
    /// again before the controller's cache of the kind shows that version.
    pub fn wrote(&self, key: &Key, kind: &Kind, resource_version: &str) {
        self.barrier.wrote(key, kind, resource_version.parse().unwrap_or(0));
    }

    /// Carries out a plan for this key, as the shell of a planner does, and returns the outcomes. `Plan::requeue` has no effect.
    ///
    /// # Errors
    /// The first failure of an action without [`OnError::Ignore`](crate::plan::OnError::Ignore).
    pub async fn act(&self, key: &Key, plan: &Plan) -> Result<Outcomes, Failure> {
        let executor = Executor {
            client: self.env.client.clone(),
            shared: self.env.client.clone(),
            events: self.events.clone(),
            barrier: Arc::clone(&self.barrier),
            local: None,
        };
        let report = executor.run(key, &plan.actions).await;
        report.failure.map_or(Ok(report.outcomes), Err)
    }

    /// Records that this key deleted an object. The key is not reconciled again before the controller's cache shows that.
    pub fn deleted(&self, key: &Key, target: &Target) {
        self.barrier.deleted(key, target);
    }
}

/// Result of a reconciliation that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Outcome {
    /// The key is reconciled again on its next event.
    #[default]
    Settled,
    /// The key is reconciled again after this time, or on its next event.
    Again(Duration),
}

impl Outcome {
    /// Returns the outcome that reconciles the key again after this time.
    pub fn again(after: Duration) -> Self {
        Self::Again(after)
    }
}

/// Why a reconciliation failed. `?` makes it from any error. The key is retried with backoff, unless the error is
/// [terminal](Error::terminal).
#[derive(Debug)]
pub struct Error {
    pub(super) source: Box<dyn std::error::Error + Send + Sync>,
    pub(super) terminal: bool,
}

impl Error {
    /// Returns an error that a retry cannot mend: it is logged and counted, and the key waits for its next event.
    pub fn terminal(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { source: source.into(), terminal: true }
    }

    /// Returns an error with this text; the key is retried with backoff.
    pub fn message(text: impl Into<String>) -> Self {
        Self { source: text.into().into(), terminal: false }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

/// As in anyhow: `Error` is no `std::error::Error`, so this does not overlap with the reflexive conversion.
impl<E: std::error::Error + Send + Sync + 'static> From<E> for Error {
    fn from(source: E) -> Self {
        Self { source: Box::new(source), terminal: false }
    }
}

/// Returns the error of a pass whose plan has an error.
pub(super) fn planner_failed(PlanError { message, terminal }: PlanError) -> Error {
    Error { source: message.into(), terminal }
}

/// Result of one pass over a key: the time after which it is due again, if any.
pub(super) type Passed = Result<Option<Duration>, Error>;

/// Report on a key: what the controller observes, and its next actions.
#[derive(Debug, Default)]
pub(super) struct Explanation {
    /// What the controller observes, what it waits for, and what it keeps.
    pub(super) description: Description,
    /// Next actions, one per line.
    pub(super) would: Vec<String>,
    /// Whether the next actions are unknown, because the reconciler is an async function.
    pub(super) actions_unknown: bool,
    /// Time after which the key would be planned again.
    pub(super) requeue: Option<Duration>,
}

/// Returns what an async function observes of a key, and its next actions; `None` if there is nothing at the key.
pub(super) type Explain =
    Arc<dyn Fn(&Key, Timestamp) -> Option<(Description, Vec<String>)> + Send + Sync>;

/// Work on one key, by a planner or an async function.
pub(super) trait Reconcile: Send + Sync {
    /// Makes one pass, and adds its actions to `recorded`.
    fn reconcile<'a>(
        &'a self,
        request: Request,
        recorded: &'a mut RecordedActions,
    ) -> BoxFuture<'a, Passed>;
    /// Returns what a pass would do now, without doing it; `None` if there is nothing at the key.
    fn explain(&self, key: &Key, now: Timestamp) -> Option<Explanation>;
}

/// An async function of the controller's author.
pub(super) struct Function<F> {
    pub(super) function: F,
    pub(super) context: Context,
    pub(super) explain: Option<Explain>,
}

impl<F, Fut> Reconcile for Function<F>
where
    F: Fn(Request, Context) -> Fut + Send + Sync,
    Fut: Future<Output = Result<Outcome, Error>> + Send + 'static,
{
    fn reconcile<'a>(
        &'a self,
        request: Request,
        _: &'a mut RecordedActions,
    ) -> BoxFuture<'a, Passed> {
        let work = (self.function)(request, self.context.clone());
        Box::pin(async move {
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
}

/// Enqueues keys of another controller.
pub(super) struct Enqueuer<F> {
    pub(super) map: F,
    pub(super) queue: Queue<Key>,
}

impl<F: Fn(&Key, &mut dyn FnMut(Key)) + Send + Sync> Reconcile for Enqueuer<F> {
    fn reconcile<'a>(
        &'a self,
        request: Request,
        _: &'a mut RecordedActions,
    ) -> BoxFuture<'a, Passed> {
        (self.map)(&request.key, &mut |key| self.queue.add(key, Priority::NORMAL));
        Box::pin(async { Ok(None) })
    }

    fn explain(&self, key: &Key, _: Timestamp) -> Option<Explanation> {
        let mut would = Vec::new();
        (self.map)(key, &mut |key| would.push(format!("enqueue {key}")));
        Some(Explanation { would, ..Explanation::default() })
    }
}

/// Returns the error of a pass in which an action failed; the key is retried.
pub(super) fn failed(failure: Failure) -> Error {
    Error::from(failure)
}
