//! What-ifs: simulations of a change on a copy of the cluster, in virtual time.
//!
//! One runs at a time, on its own thread, with limits on its objects and its duration. The reports of the last runs
//! stay in memory. The program passes in the simulator of `evenkeel what-if` ([`WhatIf`]), so that programs without
//! what-ifs do not link it.

use crate::{
    Console,
    pages::Content,
    permissions::Permission,
    session::Session,
    source::PageError,
    view::{
        Link,
        ago::Ago,
        whatif::{ChosenNode, RunRow, RunState, WhatIfForm, WhatIfPage},
    },
};
use bytes::Bytes;
use evenkeel_api::{
    time::{SignedDuration, Timestamp},
    views::Node,
};
use evenkeel_runtime::client::Client;
use futures::future::BoxFuture;
use http::StatusCode;
use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of listed runs, with their reports.
const MAX_RUNS: usize = 5;
/// Maximum number of objects of a copy.
pub(crate) const MAX_OBJECTS: usize = 50_000;
/// Maximum duration of a run, in the time of the process.
pub(crate) const MAX_DURATION: Duration = Duration::from_mins(10);
/// Interval between updates of the pages while a run continues.
const UPDATE_INTERVAL: SignedDuration = SignedDuration::from_secs(1);
/// Maximum number of nodes that the form offers.
const MAX_NODES: usize = 60;
/// Label of a node's zone.
const ZONE: &str = "topology.kubernetes.io/zone";

/// A change to simulate, as the form has it. The values have the syntax of the flags of `evenkeel what-if`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WhatIfChange {
    /// Nodes to drain: names, `zone/NAME` or label selectors.
    pub drain: Vec<String>,
    /// Nodes to remove without a drain, in the same forms.
    pub remove: Vec<String>,
    /// Number of nodes to add. Empty for none.
    pub add_nodes: String,
    /// Node that is the model of the added nodes.
    pub like: String,
    /// Nodes that lose their connection. Empty for none.
    pub outage: String,
    /// Length of the outage. Empty for the rest of the run.
    pub outage_for: String,
    /// Objects to apply, as YAML. Empty for none.
    pub apply: String,
    /// Virtual time to run after the change.
    pub duration: String,
}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhatIfProgress {
    /// The objects are loaded.
    Loading,
    /// The unchanged cluster has run for this virtual time.
    Settling(Duration),
    /// This virtual time of the whole has passed since the change.
    Changed(Duration, Duration),
}

/// Report of a run that has ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WhatIfReport {
    /// A self-contained page. Its content security policy is in a `meta` element.
    pub html: String,
    /// Summary in one sentence.
    pub summary: String,
}

/// Simulator of changes.
pub trait WhatIf: Send + Sync {
    /// Copies the cluster as the client shows it, without the data of Secrets, and checks the change.
    ///
    /// # Errors
    /// Returns the reason why the change cannot run, for the user who made it.
    fn prepare<'a>(
        &'a self,
        client: &'a Client,
        change: WhatIfChange,
    ) -> BoxFuture<'a, Result<Box<dyn PreparedWhatIf>, String>>;
}

/// Reports the progress of a run, and returns whether the run may continue.
pub type Proceed<'a> = &'a dyn Fn(WhatIfProgress) -> bool;

/// A run that can start.
pub trait PreparedWhatIf: Send {
    /// Returns the number of objects of the copy.
    fn objects(&self) -> usize;

    /// Runs the simulation on this thread. Returns `None` if `proceed` returns false.
    ///
    /// # Errors
    /// Returns the reason of a failure.
    fn run(self: Box<Self>, proceed: Proceed<'_>) -> Result<Option<WhatIfReport>, String>;
}

/// What-ifs of a console.
pub(crate) struct WhatIfs {
    simulator: Arc<dyn WhatIf>,
    /// One run at a time.
    busy: Arc<Semaphore>,
    runs: Mutex<VecDeque<Arc<Run>>>,
}

/// Running or finished simulation.
struct Run {
    id: u64,
    /// Name of the user. Empty for the administrator.
    user: String,
    /// The change in words.
    change: String,
    /// Time of the process at the start.
    started: Timestamp,
    /// Time of the cluster at the start, which pages show.
    started_in_cluster: Timestamp,
    objects: usize,
    is_cancelled: AtomicBool,
    state: Mutex<State>,
}

/// State of a simulation.
enum State {
    Running(WhatIfProgress),
    Done {
        html: Bytes,
        summary: String,
    },
    /// The run failed, or was stopped, for this reason.
    Ended(String),
}

impl Run {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_running(&self) -> bool {
        matches!(*self.state(), State::Running(_))
    }

    fn row(&self, now: Timestamp) -> RunRow {
        let state = match &*self.state() {
            State::Running(progress) => {
                RunState::Running { words: words(*progress), percent: percent(*progress) }
            }
            State::Done { summary, .. } => RunState::Done {
                report: Link::new("Report", format!("/what-if/{}", self.id)),
                summary: summary.clone(),
            },
            State::Ended(reason) => RunState::Ended(reason.clone()),
        };
        RunRow {
            id: self.id,
            change: self.change.clone(),
            user: self.user.clone(),
            objects: self.objects,
            started: Ago::new(now, self.started_in_cluster),
            state,
        }
    }
}

/// Returns the progress of a run, in words.
fn words(progress: WhatIfProgress) -> String {
    let time = |time: Duration| {
        let seconds = time.as_secs();
        format!("{}h{:02}m{:02}s", seconds / 3600, seconds / 60 % 60, seconds % 60)
    };
    match progress {
        WhatIfProgress::Loading => "The copy is loaded.".to_owned(),
        WhatIfProgress::Settling(passed) => {
            format!("The copy settles before the change: {} simulated.", time(passed))
        }
        WhatIfProgress::Changed(passed, whole) => {
            format!("{} of {} simulated.", time(passed), time(whole))
        }
    }
}

/// Returns the elapsed part of the time after the change, in percent.
fn percent(progress: WhatIfProgress) -> u64 {
    match progress {
        WhatIfProgress::Loading | WhatIfProgress::Settling(_) => 0,
        WhatIfProgress::Changed(passed, whole) => {
            let (passed, whole) = (passed.as_secs(), whole.as_secs().max(1));
            (passed * 100 / whole).min(100)
        }
    }
}

impl WhatIfChange {
    /// Returns the change in words, without the time.
    pub(crate) fn words(&self) -> String {
        let mut parts = Vec::new();
        if !self.apply.trim().is_empty() {
            parts.push("apply objects".to_owned());
        }
        if !self.add_nodes.is_empty() {
            parts.push(format!("add {} like {}", nodes(&self.add_nodes), self.like));
        }
        if !self.drain.is_empty() {
            parts.push(format!("drain {}", self.drain.join(", ")));
        }
        if !self.remove.is_empty() {
            parts.push(format!("remove {}", self.remove.join(", ")));
        }
        if !self.outage.is_empty() {
            let length = match &*self.outage_for {
                "" => String::new(),
                length => format!(" for {length}"),
            };
            parts.push(format!("outage of {}{length}", self.outage));
        }
        match parts.is_empty() {
            true => "no change".to_owned(),
            false => parts.join("; "),
        }
    }
}

fn nodes(count: &str) -> String {
    if count == "1" { "1 node".to_owned() } else { format!("{count} nodes") }
}

impl WhatIfs {
    pub(crate) fn new(simulator: Arc<dyn WhatIf>) -> Self {
        Self { simulator, busy: Arc::new(Semaphore::new(1)), runs: Mutex::default() }
    }

    fn runs(&self) -> MutexGuard<'_, VecDeque<Arc<Run>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, id: u64) -> Option<Arc<Run>> {
        self.runs().iter().find(|run| run.id == id).cloned()
    }

    /// Adds a run at the front, and removes the oldest run if there are more than [`MAX_RUNS`].
    fn add(&self, run: impl FnOnce(u64) -> Run) -> Arc<Run> {
        let mut runs = self.runs();
        let id = runs.front().map_or(1, |run| run.id + 1);
        let run = Arc::new(run(id));
        runs.push_front(Arc::clone(&run));
        runs.truncate(MAX_RUNS);
        run
    }

    /// Stops all runs.
    pub(crate) fn cancel(&self) {
        for run in self.runs().iter() {
            run.is_cancelled.store(true, Ordering::Release);
        }
    }
}

impl Console {
    fn what_ifs(&self) -> Result<&WhatIfs, PageError> {
        self.what_if.as_ref().ok_or_else(|| PageError::not_found("There is no page /what-if."))
    }

    /// Returns the page of what-ifs. `form` has the fields, and `error` is the reason why they cannot run.
    pub(crate) async fn what_if_page(
        &self,
        session: &Session,
        form: WhatIfForm,
        error: &str,
    ) -> Result<Content, PageError> {
        let what_ifs = self.what_ifs()?;
        // The copy contains all objects of the cluster, and so do its reports.
        session.require(&Permission::everything()).await?;
        let nodes = self.cached::<Node>().map(|nodes| nodes.list()).unwrap_or_default();
        let mut names: Vec<ChosenNode> = nodes
            .iter()
            .map(|node| ChosenNode {
                name: node.meta.name.to_string(),
                zone: node.meta.labels.get(ZONE).unwrap_or_default().to_owned(),
                is_chosen: form.drain.iter().any(|name| **name == *node.meta.name),
            })
            .collect();
        names.sort_by(|a, b| a.name.cmp(&b.name));
        let mut zones: Vec<String> =
            names.iter().map(|node| node.zone.clone()).filter(|zone| !zone.is_empty()).collect();
        zones.sort();
        zones.dedup();
        let page = WhatIfPage {
            form_token: session.form_token().to_owned(),
            error: error.to_owned(),
            more_nodes: names.len().saturating_sub(MAX_NODES),
            nodes: names.into_iter().take(MAX_NODES).collect(),
            zones,
            form,
            runs: self.runs_of(what_ifs),
            max_objects: MAX_OBJECTS,
            max_minutes: MAX_DURATION.as_secs() / 60,
        };
        Content::render("What if", &page)
    }

    fn runs_of(&self, what_ifs: &WhatIfs) -> Vec<RunRow> {
        let now = self.time.now();
        what_ifs.runs().iter().map(|run| run.row(now)).collect()
    }

    /// Copies the cluster and starts a run. If the change cannot run, returns the page with the reason.
    pub(crate) async fn start_what_if(
        self: &Arc<Self>,
        session: &Session,
        form: &str,
    ) -> Result<Option<Content>, PageError> {
        let what_ifs = self.what_ifs()?;
        session.require(&Permission::everything()).await?;
        let form = WhatIfForm::of(form);
        let change = form.change();
        let Ok(permit) = Arc::clone(&what_ifs.busy).try_acquire_owned() else {
            let error = "Another what-if runs. Wait for its end, or cancel it.";
            return self.what_if_page(session, form, error).await.map(Some);
        };
        let prepared = what_ifs.simulator.prepare(session.source.client(), change.clone()).await;
        let prepared = prepared.and_then(|prepared| match prepared.objects() {
            objects if objects > MAX_OBJECTS => Err(format!(
                "The cluster has {objects} objects; the console copies at most {MAX_OBJECTS}. Use evenkeel clone and evenkeel what-if."
            )),
            _ => Ok(prepared),
        });
        let prepared = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return self.what_if_page(session, form, &error).await.map(Some),
        };
        let (started, started_in_cluster) = (self.clock.now(), self.time.now());
        let run = what_ifs.add(|id| Run {
            id,
            user: session.user().unwrap_or_default().to_owned(),
            change: format!("{}; {}", change.words(), change.duration),
            started,
            started_in_cluster,
            objects: prepared.objects(),
            is_cancelled: AtomicBool::new(false),
            state: Mutex::new(State::Running(WhatIfProgress::Loading)),
        });
        let console = Arc::clone(self);
        let of_thread = Arc::clone(&run);
        let thread = std::thread::Builder::new().name("what-if".to_owned());
        let spawned = thread.spawn(move || console.run_what_if(prepared, &of_thread, permit));
        if let Err(error) = spawned {
            *run.state() = State::Ended(format!("Its thread cannot start: {error}"));
        }
        Ok(None)
    }

    fn run_what_if(
        &self,
        prepared: Box<dyn PreparedWhatIf>,
        run: &Run,
        _permit: OwnedSemaphorePermit,
    ) {
        let updated = Mutex::new(run.started);
        let is_late = AtomicBool::new(false);
        let limit = SignedDuration::try_from(MAX_DURATION).unwrap_or(SignedDuration::MAX);
        let proceed = |progress| {
            let now = self.clock.now();
            if now.duration_since(run.started) > limit {
                is_late.store(true, Ordering::Release);
            }
            if run.is_cancelled.load(Ordering::Acquire) || is_late.load(Ordering::Acquire) {
                return false;
            }
            *run.state() = State::Running(progress);
            let mut updated = updated.lock().unwrap_or_else(PoisonError::into_inner);
            if now.duration_since(*updated) >= UPDATE_INTERVAL {
                *updated = now;
                self.tick();
            }
            true
        };
        let ended = match prepared.run(&proceed) {
            Ok(Some(WhatIfReport { html, summary })) => State::Done { html: html.into(), summary },
            Ok(None) if is_late.load(Ordering::Acquire) => State::Ended(format!(
                "It was stopped after {} minutes. Simulate a shorter time, or use evenkeel what-if.",
                MAX_DURATION.as_secs() / 60
            )),
            Ok(None) => State::Ended("It was cancelled.".to_owned()),
            Err(error) => State::Ended(format!("It failed: {error}")),
        };
        *run.state() = ended;
        self.tick();
    }

    /// Stops a run.
    pub(crate) async fn cancel_what_if(
        &self,
        session: &Session,
        id: &str,
    ) -> Result<(), PageError> {
        let what_ifs = self.what_ifs()?;
        session.require(&Permission::everything()).await?;
        let run = id.parse().ok().and_then(|id| what_ifs.find(id)).filter(|run| run.is_running());
        let run = run.ok_or_else(|| PageError {
            status: StatusCode::CONFLICT,
            message: "The what-if no longer runs.".to_owned(),
        })?;
        run.is_cancelled.store(true, Ordering::Release);
        Ok(())
    }

    /// Returns the report of a run: a whole page.
    pub(crate) async fn what_if_report(
        &self,
        session: &Session,
        id: u64,
    ) -> Result<Bytes, PageError> {
        let what_ifs = self.what_ifs()?;
        session.require(&Permission::everything()).await?;
        let run = what_ifs.find(id);
        let html = run.and_then(|run| match &*run.state() {
            State::Done { html, .. } => Some(html.clone()),
            _ => None,
        });
        html.ok_or_else(|| {
            PageError::not_found(format!(
                "There is no report of a what-if {id}: the last {MAX_RUNS} are kept until the cluster stops."
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_described_in_its_order() {
        let change = WhatIfChange {
            drain: vec!["node-1".to_owned(), "zone/a".to_owned()],
            add_nodes: "1".to_owned(),
            like: "node-2".to_owned(),
            outage: "zone/b".to_owned(),
            outage_for: "10m".to_owned(),
            apply: "kind: Pod".to_owned(),
            duration: "1h".to_owned(),
            ..WhatIfChange::default()
        };
        assert_eq!(
            change.words(),
            "apply objects; add 1 node like node-2; drain node-1, zone/a; outage of zone/b for 10m"
        );
        assert_eq!(WhatIfChange::default().words(), "no change");
    }

    #[test]
    fn progress_has_words_and_a_percentage() {
        let hour = Duration::from_hours(1);
        for (progress, percentage, text) in [
            (WhatIfProgress::Loading, 0, "The copy is loaded."),
            (
                WhatIfProgress::Settling(Duration::from_secs(70)),
                0,
                "The copy settles before the change: 0h01m10s simulated.",
            ),
            (WhatIfProgress::Changed(hour / 4, hour), 25, "0h15m00s of 1h00m00s simulated."),
            (WhatIfProgress::Changed(hour * 2, hour), 100, "2h00m00s of 1h00m00s simulated."),
        ] {
            assert_eq!((percent(progress), &*words(progress)), (percentage, text));
        }
    }
}
