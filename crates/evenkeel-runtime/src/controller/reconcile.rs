//! What an async reconcile function is given, and what it returns.

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

/// What is to be reconciled.
#[derive(Debug, Clone)]
pub struct Request {
    /// Key of the object to reconcile.
    pub key: Key,
    /// 0 for the first time, then how often it failed in a row.
    pub attempt: u32,
    /// Number of this reconciliation within the process, as in its log lines.
    pub reconcile_id: u64,
}

/// What a reconciliation may use.
#[derive(Clone)]
pub struct Context {
    /// Client (with the controller's user agent), caches, clock.
    pub env: Env,
    /// Events in the controller's name.
    pub events: EventRecorder,
    pub(super) barrier: Arc<Barrier>,
}

impl Context {
    /// Says that this key wrote an object of this kind, and which `metadata.resourceVersion` was returned: the key is
    /// not reconciled again before the controller's cache of that kind has seen it.
    pub fn wrote(&self, key: &Key, kind: &Kind, resource_version: &str) {
        self.barrier.wrote(key, kind, resource_version.parse().unwrap_or(0));
    }

    /// Carries out a plan for this key, as the shell of a planner does, and says how its actions went; `requeue` is left
    /// to the caller.
    ///
    /// # Errors
    /// The first failure that the plan does not tell to ignore.
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

    /// Says that this key had an object deleted: it is not reconciled again before the controller's cache shows that.
    pub fn deleted(&self, key: &Key, target: &Target) {
        self.barrier.deleted(key, target);
    }
}

/// How a reconciliation that did not fail ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Outcome {
    /// Nothing to do until something changes.
    #[default]
    Settled,
    /// To be looked at again after this time, or when something changes.
    Again(Duration),
}

impl Outcome {
    /// To be looked at again after this time.
    pub fn again(after: Duration) -> Self {
        Self::Again(after)
    }
}

/// Why a reconciliation failed. Made from any error by `?`; it is retried with back-off unless it is
/// [terminal](Error::terminal).
#[derive(Debug)]
pub struct Error {
    pub(super) source: Box<dyn std::error::Error + Send + Sync>,
    pub(super) terminal: bool,
}

impl Error {
    /// A failure that trying again cannot mend: it is logged and counted, and the key waits for the next change.
    pub fn terminal(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { source: source.into(), terminal: true }
    }

    /// A failure to be retried, from a text.
    pub fn message(text: impl Into<String>) -> Self {
        Self { source: text.into().into(), terminal: false }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

/// As anyhow has it: since `Error` is not itself a `std::error::Error`, this cannot overlap with the reflexive conversion.
impl<E: std::error::Error + Send + Sync + 'static> From<E> for Error {
    fn from(source: E) -> Self {
        Self { source: Box::new(source), terminal: false }
    }
}

/// A planner's error ends a pass as it says.
pub(super) fn planner_failed(PlanError { message, terminal }: PlanError) -> Error {
    Error { source: message.into(), terminal }
}

/// How one pass over a key ended, whoever made it.
pub(super) type Passed = Result<Option<Duration>, Error>;

/// What a key would be planned to, in words.
#[derive(Debug, Default)]
pub(super) struct Explanation {
    /// What is seen, why it waits, what it keeps.
    pub(super) description: Description,
    /// Actions, one a line.
    pub(super) would: Vec<String>,
    /// Whether the reconciler cannot tell its next actions without carrying them out.
    pub(super) actions_unknown: bool,
    /// When it would be planned again.
    pub(super) requeue: Option<Duration>,
}

/// Says what an async function sees of a key; `None` when there is nothing at it.
pub(super) type Explain =
    Arc<dyn Fn(&Key, Timestamp) -> Option<(Description, Vec<String>)> + Send + Sync>;

/// What a worker calls with a key.
pub(super) trait Reconcile: Send + Sync {
    /// One pass; what it writes is noted in `recorded`.
    fn reconcile<'a>(
        &'a self,
        request: Request,
        recorded: &'a mut RecordedActions,
    ) -> BoxFuture<'a, Passed>;
    /// What a pass would do now, without doing it. `None` when there is nothing at the key.
    fn explain(&self, key: &Key, now: Timestamp) -> Option<Explanation>;
}

/// An author's async function.
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

/// A failed write ends a pass with a failure that is retried.
pub(super) fn failed(failure: Failure) -> Error {
    Error::from(failure)
}
