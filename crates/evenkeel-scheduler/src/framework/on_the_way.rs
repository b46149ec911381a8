//! Pods between the choice of their node and their binding: those that wait for permission, and those whose node is prepared.

use evenkeel_api::time::Timestamp;
use evenkeel_runtime::clock::Clock;
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::pod::PodInfo;

/// Which pods are on their way; clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct OnTheWay(Arc<Stages>);

#[derive(Debug, Default)]
struct Stages {
    of: Mutex<HashMap<Box<str>, Stage>>,
    prepared: Notify,
}

#[derive(Debug, Clone)]
enum Stage {
    Waiting(WaitingPod),
    Preparing(Preparing),
}

impl OnTheWay {
    fn stages(&self) -> MutexGuard<'_, HashMap<Box<str>, Stage>> {
        self.0.of.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pod waits for these plugins, for each so long at most.
    pub(crate) fn wait(
        &self,
        pod: PodInfo,
        node: Arc<str>,
        plugins: Vec<(&'static str, Duration)>,
        now: Timestamp,
    ) -> WaitingPod {
        let pending = plugins.into_iter().map(|(plugin, limit)| {
            (plugin, (now.saturating_add(limit).unwrap_or(Timestamp::MAX), limit))
        });
        let uid = pod.uid().into();
        let waiting = WaitingPod(Arc::new(Waiting {
            pod,
            node,
            pending: Mutex::new(Open { plugins: pending.collect(), answer: None }),
            changed: Notify::new(),
        }));
        self.stages().insert(uid, Stage::Waiting(waiting.clone()));
        waiting
    }

    /// The pod's node is prepared; it can still be called back.
    pub(crate) fn prepare(&self, uid: &str) -> Preparing {
        let preparing = Preparing::default();
        self.stages().insert(uid.into(), Stage::Preparing(preparing.clone()));
        self.0.prepared.notify_one();
        preparing
    }

    /// Waits until a node is being prepared that was not when this was last asked.
    pub(crate) async fn prepared(&self) {
        self.0.prepared.notified().await;
    }

    pub(crate) fn forget(&self, uid: &str) {
        self.stages().remove(uid);
    }

    pub(crate) fn waiting(&self, uid: &str) -> Option<WaitingPod> {
        match self.stages().get(uid)? {
            Stage::Waiting(waiting) => Some(waiting.clone()),
            Stage::Preparing(_) => None,
        }
    }

    /// How many pods wait for permission, or have their nodes prepared.
    pub(crate) fn len(&self) -> usize {
        self.stages().len()
    }

    pub(crate) fn all_waiting(&self) -> Vec<WaitingPod> {
        let stages = self.stages();
        let waiting = stages.values().filter_map(|stage| match stage {
            Stage::Waiting(waiting) => Some(waiting.clone()),
            Stage::Preparing(_) => None,
        });
        waiting.collect()
    }

    /// Calls a pod back for the sake of another; whether that was in time. Then it need not be deleted.
    pub(crate) fn preempt(&self, uid: &str, plugin: &'static str) -> bool {
        let stage = self.stages().get(uid).cloned();
        match stage {
            Some(Stage::Waiting(waiting)) => waiting.preempt(plugin, "preempted"),
            Some(Stage::Preparing(preparing)) => {
                preparing.call_back(&format!("preempted by {plugin}"))
            }
            None => false,
        }
    }
}

/// A pod that plugins made wait ([`PermitResult::Wait`](super::Permitted::Wait)).
#[derive(Debug, Clone)]
pub struct WaitingPod(Arc<Waiting>);

#[derive(Debug)]
struct Waiting {
    pod: PodInfo,
    node: Arc<str>,
    pending: Mutex<Open>,
    changed: Notify,
}

#[derive(Debug)]
struct Open {
    /// Until when each plugin lets it wait, and for how long that is.
    plugins: BTreeMap<&'static str, (Timestamp, Duration)>,
    answer: Option<Answer>,
}

/// How the waiting ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Allowed,
    Rejected(&'static str, String),
    Preempted(String),
}

impl WaitingPod {
    /// The pod.
    pub fn pod(&self) -> &PodInfo {
        &self.0.pod
    }

    /// The node it is to run on.
    pub fn node(&self) -> &str {
        &self.0.node
    }

    /// The plugins that have not allowed it yet.
    pub fn pending_plugins(&self) -> Vec<&'static str> {
        self.open().plugins.keys().copied().collect()
    }

    /// The plugin no longer keeps it waiting; when none does, it is bound.
    pub fn allow(&self, plugin: &str) {
        let mut open = self.open();
        open.plugins.remove(plugin);
        if open.plugins.is_empty() {
            open.answer.get_or_insert(Answer::Allowed);
        }
        drop(open);
        self.0.changed.notify_one();
    }

    /// It cannot run there; whether that came in time.
    pub fn reject(&self, plugin: &'static str, why: &str) -> bool {
        self.end(Answer::Rejected(plugin, why.to_owned()))
    }

    /// It must yield to another pod, and is tried again; whether that came in time.
    pub fn preempt(&self, plugin: &'static str, why: &str) -> bool {
        let _ = plugin;
        self.end(Answer::Preempted(why.to_owned()))
    }

    fn end(&self, answer: Answer) -> bool {
        let mut open = self.open();
        let first = open.answer.is_none();
        open.answer.get_or_insert(answer);
        drop(open);
        self.0.changed.notify_one();
        first
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the answer; the first plugin whose time is over rejects.
    pub(crate) async fn answer(&self, clock: &Clock) -> Answer {
        loop {
            let (answer, next) = {
                let open = self.open();
                let next = open.plugins.iter().min_by_key(|(_, (until, _))| *until);
                (open.answer.clone(), next.map(|(plugin, times)| (*plugin, *times)))
            };
            if let Some(answer) = answer {
                return answer;
            }
            let Some((plugin, (until, limit))) = next else { return Answer::Allowed };
            let left = Duration::try_from(until.duration_since(clock.now()));
            tokio::select! {
                biased;
                () = self.0.changed.notified() => {}
                () = clock.sleep(left.unwrap_or_default()) => {
                    let limit = go_duration(limit);
                    let why =
                        format!("rejected due to timeout after waiting {limit} at plugin {plugin}");
                    self.reject(plugin, &why);
                }
            }
        }
    }
}

/// As Go prints durations of whole milliseconds: `15m0s`, `1.5s`.
fn go_duration(duration: Duration) -> String {
    let (seconds, millis) = (duration.as_secs(), duration.subsec_millis());
    if seconds == 0 {
        return if millis == 0 { "0s".to_owned() } else { format!("{millis}ms") };
    }
    let fraction = match millis {
        0 => String::new(),
        millis => format!(".{millis:03}").trim_end_matches('0').to_owned(),
    };
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}{fraction}s"),
        (0, minutes) => format!("{minutes}m{seconds}{fraction}s"),
        (hours, minutes) => format!("{hours}h{minutes}m{seconds}{fraction}s"),
    }
}

/// A pod whose node is prepared.
#[derive(Debug, Clone, Default)]
pub(crate) struct Preparing {
    pub(crate) called_back: CancellationToken,
    state: Arc<Mutex<Prepared>>,
}

#[derive(Debug, Default)]
enum Prepared {
    #[default]
    Running,
    Done,
    CalledBack(String),
}

impl Preparing {
    fn state(&self) -> MutexGuard<'_, Prepared> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call_back(&self, why: &str) -> bool {
        let mut state = self.state();
        match &*state {
            Prepared::Running => {
                *state = Prepared::CalledBack(why.to_owned());
                self.called_back.cancel();
                true
            }
            Prepared::CalledBack(_) => true,
            Prepared::Done => false,
        }
    }

    /// From now on it is too late to call it back; why it was, if it was before.
    pub(crate) fn finish(&self) -> Result<(), String> {
        let mut state = self.state();
        match &*state {
            Prepared::CalledBack(why) => Err(why.clone()),
            Prepared::Running | Prepared::Done => {
                *state = Prepared::Done;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{at, info};
    use futures::FutureExt as _;
    use serde_json::json;

    fn waiting(way: &OnTheWay) -> WaitingPod {
        let plugins = vec![("A", Duration::from_secs(10)), ("B", Duration::from_secs(90))];
        way.wait(info("p", &json!({})), "n".into(), plugins, at(0))
    }

    #[tokio::test(start_paused = true)]
    async fn every_plugin_must_allow() {
        let (way, clock) = (OnTheWay::default(), Clock::starting_at(at(0)));
        let pod = waiting(&way);
        pod.allow("A");
        assert_eq!(pod.pending_plugins(), ["B"]);
        pod.allow("B");
        assert_eq!(pod.answer(&clock).await, Answer::Allowed);
        assert!(!pod.reject("B", "too late"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_plugin_whose_time_is_over_rejects() {
        let (way, clock) = (OnTheWay::default(), Clock::starting_at(at(0)));
        let pod = waiting(&way);
        pod.allow("A");
        let why = "rejected due to timeout after waiting 1m30s at plugin B".to_owned();
        assert_eq!(pod.answer(&clock).await, Answer::Rejected("B", why));
    }

    #[test]
    fn pods_are_called_back_while_that_is_possible() {
        let way = OnTheWay::default();
        waiting(&way);
        assert!(way.waiting("p").is_some() && way.preempt("p", "X"));
        let preparing = way.prepare("q");
        assert!(way.preempt("q", "X"));
        assert_eq!(preparing.finish(), Err("preempted by X".to_owned()));
        let preparing = way.prepare("q");
        assert_eq!(preparing.finish(), Ok(()));
        assert!(!way.preempt("q", "X"));
        way.forget("q");
        assert!(!way.preempt("q", "X"));
    }

    #[tokio::test]
    async fn who_waits_for_room_hears_of_it() {
        let way = OnTheWay::default();
        waiting(&way);
        assert!(way.prepared().now_or_never().is_none());
        way.prepare("q");
        way.prepared().await;
        assert_eq!(way.len(), 2);
        way.forget("q");
        assert_eq!(way.len(), 1);
    }

    #[test]
    fn durations_as_go_prints_them() {
        for (millis, want) in
            [(0, "0s"), (20, "20ms"), (1500, "1.5s"), (90_000, "1m30s"), (3_600_000, "1h0m0s")]
        {
            assert_eq!(go_duration(Duration::from_millis(millis)), want);
        }
    }
}
