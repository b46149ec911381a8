//! Follows Stages: reads an object, decides, and carries out the decision.

use evenkeel_api::{
    Kind, Text, View,
    time::Timestamp,
    views::{Node, Pod},
};
use evenkeel_runtime::{
    client::{ApiError, Client, DeleteOptions, Metadata},
    clock::Clock,
    events::EventRecorder,
    plan::{EventRecord, Key, PatchForm, Target},
};
use serde_json::Value;
use std::{
    collections::HashMap,
    net::Ipv4Addr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{
    Stages,
    plan::{Memory, adoption, plan},
    refusal::{Refusal, judge},
    spec::{Event, Form, Governed},
    steps::Action,
};
use crate::{NodeOptions, template::Environment};

/// Reason of the event that says why an object can't follow a Stage.
const INVALID_STAGE: &str = "InvalidStage";

/// Port of a simulated kubelet.
const KUBELET_PORT: u16 = 10250;

/// Follows the Stages of the cluster for simulated nodes and their pods.
pub(crate) struct Player {
    client: Client,
    clock: Clock,
    recorder: EventRecorder,
    pub(crate) stages: Stages,
    start: Timestamp,
    memories: Mutex<HashMap<(Governed, Key), (Text, Memory)>>,
}

/// What became of an object.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Played {
    /// The object exists. It changes by itself after this time.
    Next(Option<Duration>),
    /// The object does not exist.
    Gone,
}

/// A request of a step that failed.
struct Failure {
    step: usize,
    error: ApiError,
    /// Resource version of the object after the steps before; `None` if these changed nothing.
    version: Option<String>,
}

/// An object that follows Stages.
pub(crate) struct Subject<'a> {
    pub(crate) kind: Governed,
    pub(crate) key: &'a Key,
    pub(crate) uid: &'a Text,
    /// Resource version of the object in the cache.
    pub(crate) version: &'a str,
    pub(crate) node: &'a NodeOptions,
    /// Address of the pod; `None` for a node.
    pub(crate) pod_ip: Option<Ipv4Addr>,
}

impl Player {
    pub(crate) fn new(
        client: Client,
        clock: Clock,
        recorder: EventRecorder,
        stages: Stages,
    ) -> Self {
        let start = clock.now();
        Self { client, clock, recorder, stages, start, memories: Mutex::default() }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Forgets a deleted object.
    pub(crate) fn forget(&self, kind: Governed, key: &Key) {
        self.lock().remove(&(kind, key.clone()));
    }

    /// Decides for an object, and carries out the decision.
    ///
    /// # Errors
    /// A request failed that may succeed later.
    pub(crate) async fn play(&self, subject: &Subject<'_>) -> Result<Played, ApiError> {
        let id = (subject.kind, subject.key.clone());
        let known = self.lock().get(&id).filter(|(uid, _)| uid == subject.uid).cloned();
        let memory = known.map(|(_, memory)| memory).unwrap_or_default();
        let now = self.clock.now();
        if let Some(wait) = self.unchanged(subject, &memory, now) {
            return Ok(Played::Next(wait));
        }
        let Some(object) = self.read(subject).await? else { return Ok(Played::Gone) };
        if object["metadata"]["uid"] != **subject.uid {
            // The cache has the new object soon.
            return Ok(Played::Gone);
        }
        if subject.kind == Governed::Node
            && let Some(patch) = adoption(&object)
        {
            let patched = self.patch(subject, "status", Form::Merge, patch).await;
            match patched.map_err(|error| (judge(&error, &subject.key.name), error)) {
                Ok(_) => {}
                Err((Refusal::Gone, _)) => return Ok(Played::Gone),
                Err((Refusal::Later, error)) => return Err(error),
                Err((Refusal::Never, error)) => {
                    self.report(subject, format!("phase for Stages: {error}"));
                }
            }
        }
        let set = self.stages.of(subject.kind);
        let node_ip = subject.node.ip.to_string();
        let pod_ip = subject.pod_ip.map(|ip| ip.to_string()).unwrap_or_default();
        let environment = Environment {
            now,
            start: self.start,
            node_name: &subject.node.name,
            node_ip: &node_ip,
            pod_ip: &pod_ip,
            node_port: KUBELET_PORT,
            draws: 0,
        };
        let decision = plan(&object, &set, &memory, &environment);
        let mut memory = decision.memory;
        decision.errors.into_iter().for_each(|why| self.report(subject, why));
        let done = self.carry_out(subject, decision.actions).await;
        match (done, decision.acted) {
            (Err(Failure { step, error, version }), Some(acted)) => {
                match judge(&error, &subject.key.name) {
                    Refusal::Gone => return Ok(Played::Gone),
                    Refusal::Later => {
                        memory.resume(acted, step, version);
                        self.lock().insert(id, (subject.uid.clone(), memory));
                        return Err(error);
                    }
                    // The Stage is dropped until the object or the Stages change.
                    Refusal::Never => {
                        let stage = &acted.stage.name;
                        self.report(subject, format!("Stage {stage}: step {step}: {error}"));
                    }
                }
            }
            _ => decision.failure.into_iter().for_each(|why| self.report(subject, why)),
        }
        self.lock().insert(id, (subject.uid.clone(), memory));
        let until = |time: Timestamp| {
            Duration::try_from(time.duration_since(self.clock.now())).unwrap_or_default()
        };
        Ok(Played::Next(decision.wake.map(until)))
    }

    /// Returns the time until the pending Stage is due if nothing changed since the last decision; `None` if there is
    /// something to decide.
    fn unchanged(
        &self,
        subject: &Subject<'_>,
        memory: &Memory,
        now: Timestamp,
    ) -> Option<Option<Duration>> {
        let (version, generation) = memory.chosen_for.as_ref()?;
        if version != subject.version || *generation != self.stages.generation(subject.kind) {
            return None;
        }
        match &memory.pending {
            None => Some(None),
            Some(pending) if pending.due > now => {
                Some(Duration::try_from(pending.due.duration_since(now)).ok())
            }
            Some(_) => None,
        }
    }

    /// Reads the whole object; `None` if it does not exist.
    async fn read(&self, subject: &Subject<'_>) -> Result<Option<Value>, ApiError> {
        let path = subject.kind.path(subject.key);
        let request = http::Request::get(path).header("accept", "application/json");
        let Ok(request) = request.body(Default::default()) else { return Ok(None) };
        match self.client.raw(request).await {
            Ok(response) => Ok(serde_json::from_slice(response.body()).ok()),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Carries out actions in their order.
    async fn carry_out(
        &self,
        subject: &Subject<'_>,
        actions: Vec<(usize, Action)>,
    ) -> Result<(), Failure> {
        let mut version = None;
        for (step, action) in actions {
            let done = match action {
                Action::Event(event) => {
                    self.record(subject, event);
                    continue;
                }
                Action::Patch { subresource, form, body } => {
                    self.patch(subject, &subresource, form, body).await.map(Some)
                }
                Action::Delete => self.delete(subject).await.map(|()| None),
            };
            match done {
                Ok(changed) => version = changed.or(version),
                Err(error) => return Err(Failure { step, error, version }),
            }
        }
        Ok(())
    }

    /// Patches the object. Returns its resource version.
    async fn patch(
        &self,
        subject: &Subject<'_>,
        subresource: &str,
        form: Form,
        body: String,
    ) -> Result<String, ApiError> {
        let form = match form {
            Form::Json => PatchForm::Json,
            Form::Merge => PatchForm::Merge,
            Form::Strategic => PatchForm::Strategic,
        };
        let Key { namespace, name } = subject.key;
        let kind = subject.kind.kind();
        let patched = self
            .client
            .patch::<Metadata>(&kind, namespace, name, subresource, form, body.into())
            .await?;
        Ok(patched.meta.resource_version.to_string())
    }

    async fn delete(&self, subject: &Subject<'_>) -> Result<(), ApiError> {
        let options = DeleteOptions {
            uid: subject.uid.to_string(),
            grace_seconds: Some(0),
            ..DeleteOptions::default()
        };
        let Key { namespace, name } = subject.key;
        self.client.delete(&subject.kind.kind(), namespace, name, &options).await.map(drop)
    }

    /// Sends an event that says why an object can't follow a Stage.
    fn report(&self, subject: &Subject<'_>, message: String) {
        self.record(subject, Event { warning: true, reason: INVALID_STAGE.to_owned(), message });
    }

    fn record(&self, subject: &Subject<'_>, event: Event) {
        let Key { namespace, name } = subject.key.clone();
        let uid = Arc::from(&**subject.uid);
        self.recorder.record(&EventRecord {
            regarding: Target { kind: subject.kind.kind(), namespace, name, uid },
            warning: event.warning,
            reason: event.reason.into(),
            message: event.message,
        });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(Governed, Key), (Text, Memory)>> {
        self.memories.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Governed {
    fn kind(self) -> Kind {
        match self {
            Self::Pod => Pod::kind(),
            Self::Node => Node::kind(),
        }
    }

    /// Returns the path of an object.
    fn path(self, key: &Key) -> String {
        match self {
            Self::Pod => format!("/api/v1/namespaces/{}/pods/{}", key.namespace, key.name),
            Self::Node => format!("/api/v1/nodes/{}", key.name),
        }
    }
}
