//! Stage controller: reads an object, decides which Stage it follows, and performs the steps of the Stage. Upstream: KWOK's
//! `StageController`.

use evenkeel_api::{
    Kind, Text, View,
    time::Timestamp,
    views::{Node, Pod},
};
use evenkeel_runtime::{
    client::{ApiError, Client, DeleteOptions, Metadata},
    clock::Clock,
    events::EventRecorder,
    plan::{EventRecord, Key, PatchType, Target},
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
    plan::{Memory, initial_phase_patch, plan},
    refusal::{Refusal, classify},
    spec::{Event, Form, ResourceRef},
    steps::Action,
};
use crate::{NodeOptions, template::Environment};

/// Reason of the event about an object that cannot follow a Stage.
const INVALID_STAGE: &str = "InvalidStage";

/// Port of a simulated kubelet.
const KUBELET_PORT: u16 = 10250;

/// Applies the Stages of the cluster to simulated nodes and their pods.
pub(crate) struct StageController {
    client: Client,
    clock: Clock,
    recorder: EventRecorder,
    pub(crate) stages: Stages,
    /// Start of the simulated kubelets.
    start: Timestamp,
    /// Memory of each object, with its UID.
    memory_by_object: Mutex<HashMap<(ResourceRef, Key), (Text, Memory)>>,
}

/// State of an object after its due Stages.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PlayResult {
    /// The object exists. Its next Stage is due after this delay; `None` if none is pending.
    NextIn(Option<Duration>),
    /// The object does not exist.
    Gone,
}

/// Failed request of a step.
struct Failure {
    /// Index of the step.
    step: usize,
    error: ApiError,
    /// Resource version of the object after the earlier steps; `None` if they changed nothing.
    version: Option<String>,
}

/// An object that follows Stages.
pub(crate) struct StagedObject<'a> {
    pub(crate) resource: ResourceRef,
    pub(crate) key: &'a Key,
    pub(crate) uid: &'a Text,
    /// Resource version of the object in the cache.
    pub(crate) version: &'a str,
    pub(crate) node: &'a NodeOptions,
    /// IP of the pod; `None` for a node.
    pub(crate) pod_ip: Option<Ipv4Addr>,
}

impl StageController {
    pub(crate) fn new(
        client: Client,
        clock: Clock,
        recorder: EventRecorder,
        stages: Stages,
    ) -> Self {
        let start = clock.now();
        Self { client, clock, recorder, stages, start, memory_by_object: Mutex::default() }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Removes the memory of a deleted object.
    pub(crate) fn forget(&self, resource: ResourceRef, key: &Key) {
        self.lock().remove(&(resource, key.clone()));
    }

    /// Chooses a Stage for an object if none is pending, and performs the steps of a Stage that is due. Upstream: KWOK's
    /// `preprocess`, `playStage`.
    ///
    /// # Errors
    /// Fails if a request failed that may succeed later.
    pub(crate) async fn play_stage(
        &self,
        staged: &StagedObject<'_>,
    ) -> Result<PlayResult, ApiError> {
        let id = (staged.resource, staged.key.clone());
        let stored = self.lock().get(&id).filter(|(uid, _)| uid == staged.uid).cloned();
        let memory = stored.map(|(_, memory)| memory).unwrap_or_default();
        let now = self.clock.now();
        if let Some(delay) = self.delay_if_unchanged(staged, &memory, now) {
            return Ok(PlayResult::NextIn(delay));
        }
        let Some(object) = self.read(staged).await? else { return Ok(PlayResult::Gone) };
        if object["metadata"]["uid"] != **staged.uid {
            // Another object has the name now. Its watch event causes the next sync.
            return Ok(PlayResult::Gone);
        }
        if staged.resource == ResourceRef::Node
            && let Some(patch) = initial_phase_patch(&object)
        {
            let patched = self.patch(staged, "status", Form::Merge, patch).await;
            match patched.map_err(|error| (classify(&error, &staged.key.name), error)) {
                Ok(_) => {}
                Err((Refusal::Gone, _)) => return Ok(PlayResult::Gone),
                Err((Refusal::Later, error)) => return Err(error),
                Err((Refusal::Never, error)) => {
                    self.report(staged, format!("phase for Stages: {error}"));
                }
            }
        }
        let stages = self.stages.of(staged.resource);
        let node_ip = staged.node.ip.to_string();
        let pod_ip = staged.pod_ip.map(|ip| ip.to_string()).unwrap_or_default();
        let environment = Environment {
            now,
            start: self.start,
            node_name: &staged.node.name,
            node_ip: &node_ip,
            pod_ip: &pod_ip,
            node_port: KUBELET_PORT,
            draws: 0,
        };
        let decision = plan(&object, &stages, &memory, &environment);
        let mut memory = decision.memory;
        decision.errors.into_iter().for_each(|why| self.report(staged, why));
        let result = self.perform(staged, decision.actions).await;
        match (result, decision.performed) {
            (Err(Failure { step, error, version }), Some(performed)) => {
                match classify(&error, &staged.key.name) {
                    Refusal::Gone => return Ok(PlayResult::Gone),
                    Refusal::Later => {
                        memory.resume(performed, step, version);
                        self.lock().insert(id, (staged.uid.clone(), memory));
                        return Err(error);
                    }
                    // The object does not follow the Stage again until the object or the Stages change.
                    Refusal::Never => {
                        let stage = &performed.stage.name;
                        self.report(staged, format!("Stage {stage}: step {step}: {error}"));
                    }
                }
            }
            _ => decision.failure.into_iter().for_each(|why| self.report(staged, why)),
        }
        self.lock().insert(id, (staged.uid.clone(), memory));
        let until = |time: Timestamp| {
            Duration::try_from(time.duration_since(self.clock.now())).unwrap_or_default()
        };
        Ok(PlayResult::NextIn(decision.wake.map(until)))
    }

    /// Returns the delay until the pending Stage is due, if neither the object nor the Stages changed since the last
    /// decision. The inner `None` means that no Stage is pending, and the outer `None` that a decision is necessary.
    fn delay_if_unchanged(
        &self,
        staged: &StagedObject<'_>,
        memory: &Memory,
        now: Timestamp,
    ) -> Option<Option<Duration>> {
        let (version, generation) = memory.chosen_for.as_ref()?;
        if version != staged.version || *generation != self.stages.generation(staged.resource) {
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
    async fn read(&self, staged: &StagedObject<'_>) -> Result<Option<Value>, ApiError> {
        let path = staged.resource.path(staged.key);
        let request = http::Request::get(path).header("accept", "application/json");
        let Ok(request) = request.body(Default::default()) else { return Ok(None) };
        match self.client.raw(request).await {
            Ok(response) => Ok(serde_json::from_slice(response.body()).ok()),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Performs actions in their order.
    async fn perform(
        &self,
        staged: &StagedObject<'_>,
        actions: Vec<(usize, Action)>,
    ) -> Result<(), Failure> {
        let mut version = None;
        for (step, action) in actions {
            let result = match action {
                Action::Event(event) => {
                    self.record(staged, event);
                    continue;
                }
                Action::Patch { subresource, form, body } => {
                    self.patch(staged, &subresource, form, body).await.map(Some)
                }
                Action::Delete => self.delete(staged).await.map(|()| None),
            };
            match result {
                Ok(new_version) => version = new_version.or(version),
                Err(error) => return Err(Failure { step, error, version }),
            }
        }
        Ok(())
    }

    /// Patches the object. Returns its new resource version.
    async fn patch(
        &self,
        staged: &StagedObject<'_>,
        subresource: &str,
        form: Form,
        body: String,
    ) -> Result<String, ApiError> {
        let form = match form {
            Form::Json => PatchType::Json,
            Form::Merge => PatchType::Merge,
            Form::Strategic => PatchType::Strategic,
        };
        let Key { namespace, name } = staged.key;
        let kind = staged.resource.kind();
        let patched = self
            .client
            .patch::<Metadata>(&kind, namespace, name, subresource, form, body.into())
            .await?;
        Ok(patched.meta.resource_version.to_string())
    }

    async fn delete(&self, staged: &StagedObject<'_>) -> Result<(), ApiError> {
        let options = DeleteOptions {
            uid: staged.uid.to_string(),
            grace_seconds: Some(0),
            ..DeleteOptions::default()
        };
        let Key { namespace, name } = staged.key;
        self.client.delete(&staged.resource.kind(), namespace, name, &options).await.map(drop)
    }

    /// Records an event with the reason why the object cannot follow a Stage.
    fn report(&self, staged: &StagedObject<'_>, message: String) {
        self.record(staged, Event { warning: true, reason: INVALID_STAGE.to_owned(), message });
    }

    fn record(&self, staged: &StagedObject<'_>, event: Event) {
        let Key { namespace, name } = staged.key.clone();
        let uid = Arc::from(&**staged.uid);
        self.recorder.record(&EventRecord {
            regarding: Target { kind: staged.resource.kind(), namespace, name, uid },
            warning: event.warning,
            reason: event.reason.into(),
            message: event.message,
        });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(ResourceRef, Key), (Text, Memory)>> {
        self.memory_by_object.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ResourceRef {
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
