//! Execution of a plan's actions in order.

use super::{barrier::Barrier, rewrite::rewrite, slow_start::slow_start};
use crate::{
    client::{ApiError, Client, DeleteOptions, LeaderFence, ListOptions, Metadata},
    events::EventRecorder,
    plan::{
        Action, BURST_LIMIT, Create, Delete, DeleteCollection, EventRecord, Failure, Key, LiveRead,
        Local, OnError, Outcome, Outcomes, Patch, ReadRequest, Rewrite, Target, Update,
    },
};
use evenkeel_api::{Kind, Text};
use futures::{StreamExt as _, future::BoxFuture};
use std::{collections::HashSet, sync::Arc};

/// Limit on the concurrent requests of one pass.
const MAX_CONCURRENT_REQUESTS: usize = BURST_LIMIT as usize;

/// Executor of one controller's actions.
#[derive(Clone)]
pub(super) struct Executor {
    pub(super) client: Client,
    /// The program's client, which fills the caches.
    pub(super) shared_client: Client,
    pub(super) events: EventRecorder,
    pub(super) barrier: Arc<Barrier>,
    /// Executes [`Local`] actions.
    pub(super) local_work: Option<LocalWork>,
}

/// Function that executes local work. It returns the reason of a failure.
pub(super) type LocalWork =
    Arc<dyn Fn(&Local) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// Results of actions.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) outcomes: Outcomes,
    /// First failure that requires a retry.
    pub(super) failure: Option<Failure>,
    /// Whether the pass ends after these actions.
    pub(super) is_incomplete: bool,
    /// Whether the rest of the plan is skipped.
    skips_rest: bool,
    /// Parts of the plan whose remaining actions are skipped.
    skipped_parts: Vec<u32>,
}

impl Report {
    fn add(&mut self, outcome: Outcome, on_error: OnError) {
        if let Some(failure) = &outcome.error {
            // Creating an object in a terminating namespace cannot succeed, so it is not retried.
            let needs_retry = on_error != OnError::Ignore && !failure.namespace_terminating;
            if needs_retry && self.failure.is_none() {
                self.failure = Some(failure.clone());
            }
            self.is_incomplete |= on_error == OnError::Abort;
            self.skips_rest |= on_error == OnError::SkipRest;
            if let OnError::SkipPart(part) = on_error {
                self.skipped_parts.push(part);
            }
        }
        self.outcomes.0.push(outcome);
    }

    /// Returns whether the pass ends without a further step.
    pub(super) fn ends_steps(&self) -> bool {
        self.is_incomplete || self.skips_rest
    }

    /// Returns whether the action is skipped because an earlier action of its part failed.
    fn skips(&self, action: &Action) -> bool {
        action.part().is_some_and(|part| self.skipped_parts.contains(&part))
    }
}

/// Owners that this pass has read live. The value is the reason why the owner must not adopt, or `None` if it may.
type LiveOwners = Vec<(Target, Option<Failure>)>;

impl Executor {
    /// Returns an executor that writes only while `fence` is open.
    pub(super) fn fenced(&self, fence: &LeaderFence) -> Self {
        let client = self.client.also_fenced(fence);
        let shared_client = self.shared_client.also_fenced(fence);
        Self { client, shared_client, ..self.clone() }
    }

    /// Executes `actions` for `key` until one of them ends the pass.
    pub(super) fn run<'a>(&'a self, key: &'a Key, actions: &'a [Action]) -> BoxFuture<'a, Report> {
        Box::pin(self.run_in_order(key, actions))
    }

    async fn run_in_order(&self, key: &Key, actions: &[Action]) -> Report {
        let (mut report, mut live_owners) = (Report::default(), LiveOwners::new());
        let mut rest = actions;
        while let Some((first, others)) = rest.split_first() {
            if report.skips(first) {
                report.outcomes.0.push(Outcome::default());
                rest = others;
                continue;
            }
            let mut patched = HashSet::new();
            // Number of actions that run concurrently with the first one, including itself.
            let concurrent = rest
                .iter()
                .take_while(|next| !report.skips(next) && run_together(first, next, &mut patched))
                .count();
            let (now, later) = rest.split_at(concurrent);
            match first {
                Action::Read(_) => self.read_all(now, &mut report).await,
                Action::Create(_) => self.create_all(key, now, &mut report).await,
                Action::Delete(_) => self.delete_all(key, now, &mut report).await,
                Action::DeleteCollection(delete) => {
                    let outcome = self.delete_collection(delete).await;
                    report.add(outcome, delete.on_error);
                }
                Action::Patch(_) => self.patch_all(key, now, &mut live_owners, &mut report).await,
                Action::Update(update) => self.update(key, update, &mut report).await,
                Action::Rewrite(change) => self.rewrite(key, change, &mut report).await,
                Action::Local(local) => report.add(self.run_local(local).await, local.on_error),
                Action::Event(event) => {
                    self.events.record(event);
                    report.add(Outcome::success(), OnError::Ignore);
                }
            }
            if report.ends_steps() {
                break;
            }
            rest = later;
        }
        report
    }

    async fn read_all(&self, actions: &[Action], report: &mut Report) {
        let reads: Vec<&LiveRead> = actions.iter().filter_map(as_read).collect();
        let outcomes = run_concurrently(reads.iter().map(|read| self.read(read)).collect()).await;
        for (read, outcome) in reads.into_iter().zip(outcomes) {
            let is_gone = outcome.error.as_ref().is_some_and(Failure::is_not_found);
            report.add(outcome, if is_gone { OnError::Ignore } else { read.on_error });
        }
    }

    async fn read(&self, read: &LiveRead) -> Outcome {
        let started = self.client.clock().instant();
        let client = match read.request {
            ReadRequest::GetShared { .. } => &self.shared_client,
            ReadRequest::Get { .. }
            | ReadRequest::Review { .. }
            | ReadRequest::Discovery { .. } => &self.client,
        };
        let outcome = match client.live_read(read).await {
            Ok(reply) => Outcome { reply: Some(reply), ..Outcome::success() },
            Err(error) => Outcome::failure(error.into()),
        };
        Outcome { took: started.elapsed(), ..outcome }
    }

    async fn create_all(&self, key: &Key, actions: &[Action], report: &mut Report) {
        let creates: Vec<&Create> = actions.iter().filter_map(as_create).collect();
        // Each element is one request. It is the index of its action in `creates`.
        let requests: Vec<usize> = (0..creates.len())
            .flat_map(|index| vec![index; creates[index].count as usize])
            .collect();
        let (creates_ref, requests_ref) = (&creates, &requests);
        let send = |request: usize| async move {
            self.create(key, creates_ref[requests_ref[request]]).await
        };
        // As upstream, slow start continues if the namespace is terminating.
        let may_continue = |answer: &Result<Text, Failure>| match answer {
            Ok(_) => true,
            Err(failure) => failure.namespace_terminating,
        };
        let answers = slow_start(requests.len(), send, may_continue).await;
        let mut outcomes = vec![Outcome::default(); creates.len()];
        for (index, answer) in requests.into_iter().zip(answers) {
            let outcome = &mut outcomes[index];
            match answer {
                Ok(name) => {
                    outcome.succeeded += 1;
                    outcome.created = Some(name);
                }
                // Keep the first error, but prefer an error that needs a retry.
                Err(failure)
                    if outcome.error.as_ref().is_none_or(|first| first.namespace_terminating) =>
                {
                    outcome.error = Some(failure);
                }
                Err(_) => {}
            }
        }
        for (create, outcome) in creates.into_iter().zip(outcomes) {
            report.add(outcome, create.on_error);
        }
    }

    /// Creates one object and returns its name.
    async fn create(&self, key: &Key, create: &Create) -> Result<Text, Failure> {
        match self
            .client
            .create::<Metadata>(&create.kind, &create.namespace, create.body.clone())
            .await
        {
            Ok(written) => {
                self.record_write(key, &create.kind, &written);
                self.record_event(create.done.as_ref(), "{name}", &written.meta.name);
                Ok(written.meta.name)
            }
            Err(error) => Err(self.handle_failure(create.failed.as_ref(), error)),
        }
    }

    async fn delete_all(&self, key: &Key, actions: &[Action], report: &mut Report) {
        let deletes: Vec<&Delete> = actions.iter().filter_map(as_delete).collect();
        let outcomes =
            run_concurrently(deletes.iter().map(|delete| self.delete(key, delete)).collect()).await;
        for (delete, outcome) in deletes.into_iter().zip(outcomes) {
            report.add(outcome, delete.on_error);
        }
    }

    async fn delete(&self, key: &Key, delete: &Delete) -> Outcome {
        let Target { kind, namespace, name, uid } = &delete.target;
        let options = DeleteOptions {
            uid: uid.to_string(),
            resource_version: delete.resource_version.as_deref().unwrap_or_default().to_owned(),
            grace_seconds: delete.grace_seconds,
            propagation: delete.propagation,
        };
        let mut awaited = self.barrier.identified(&delete.target);
        match self.client.delete(kind, namespace, name, &options).await {
            Ok(deleted) => {
                if awaited.uid.is_empty() {
                    // The caches may not show an object that this key has created.
                    awaited.uid = Arc::from(&*deleted.meta.uid);
                }
                self.barrier.deleted(key, &awaited);
                self.record_event(delete.done.as_ref(), "{name}", name);
                Outcome::success()
            }
            // The object no longer exists, or another object has its name, and the cache does not show that yet.
            Err(error) if error.is_not_found_or_replaced() => {
                self.barrier.deleted(key, &delete.target);
                Outcome::success()
            }
            Err(error) if delete.tolerates.contains(&error.code()) => Outcome::default(),
            Err(error) => Outcome::failure(self.handle_failure(delete.failed.as_ref(), error)),
        }
    }

    async fn delete_collection(&self, delete: &DeleteCollection) -> Outcome {
        let DeleteCollection { kind, namespace, propagation, .. } = delete;
        let options = DeleteOptions { propagation: *propagation, ..DeleteOptions::default() };
        let all = ListOptions::default();
        match self.client.delete_collection(kind, namespace, &options, &all).await {
            Ok(()) => Outcome::success(),
            Err(error) => Outcome::failure(error.into()),
        }
    }

    async fn run_local(&self, local: &Local) -> Outcome {
        let result = match &self.local_work {
            Some(work) => work(local).await,
            None => Err(format!("the controller cannot {} anything", local.work)),
        };
        match result {
            Ok(()) => Outcome::success(),
            Err(reason) => Outcome::failure(Failure::local(reason)),
        }
    }

    async fn patch_all(
        &self,
        key: &Key,
        actions: &[Action],
        live_owners: &mut LiveOwners,
        report: &mut Report,
    ) {
        let patches: Vec<&Patch> = actions.iter().filter_map(as_patch).collect();
        if let [Patch { if_live: Some(owner), .. }] = &patches[..]
            && let Some(failure) = self.adoption_failure(owner, live_owners).await
        {
            report.add(Outcome::failure(failure), OnError::Abort);
            return;
        }
        let outcomes =
            run_concurrently(patches.iter().map(|patch| self.patch(key, patch)).collect()).await;
        for (patch, outcome) in patches.into_iter().zip(outcomes) {
            report.add(outcome, patch.on_error);
        }
    }

    async fn patch(&self, key: &Key, patch: &Patch) -> Outcome {
        let Target { kind, namespace, name, .. } = &patch.target;
        let Patch { subresource, form, body, .. } = patch;
        let answer = self
            .client
            .patch::<Metadata>(kind, namespace, name, subresource, *form, body.clone())
            .await;
        match answer {
            Err(error)
                if (error.is_not_found() && !patch.fails_if_missing)
                    || patch.tolerates.contains(&error.code()) =>
            {
                Outcome::success()
            }
            answer => {
                let answer =
                    answer.map_err(|error| self.handle_failure(patch.failed.as_ref(), error));
                self.change_outcome(key, &patch.target, patch.done.as_ref(), answer)
            }
        }
    }

    async fn update(&self, key: &Key, update: &Update, report: &mut Report) {
        let Target { kind, namespace, name, .. } = &update.target;
        let answer = self
            .client
            .update::<Metadata>(kind, namespace, name, update.subresource, update.body.clone())
            .await;
        let answer = answer.map_err(|error| self.handle_failure(update.failed.as_ref(), error));
        let outcome = self.change_outcome(key, &update.target, update.done.as_ref(), answer);
        report.add(outcome, update.on_error);
    }

    async fn rewrite(&self, key: &Key, change: &Rewrite, report: &mut Report) {
        let answer = rewrite(&self.client, change).await;
        if let (Err(failure), Some(event)) = (&answer, &change.failed)
            && !(change.retries_on_conflict && failure.is_conflict())
        {
            self.record_event(Some(event), "{error}", &failure.message);
        }
        let outcome = self.change_outcome(key, &change.target, change.done.as_ref(), answer);
        report.add(outcome, change.on_error);
    }

    /// Returns the outcome of a change to one object.
    fn change_outcome(
        &self,
        key: &Key,
        target: &Target,
        done: Option<&EventRecord>,
        answer: Result<Metadata, Failure>,
    ) -> Outcome {
        match answer {
            Ok(written) => {
                self.record_write(key, &target.kind, &written);
                self.record_event(done, "{name}", &target.name);
                let resource_version = Some(written.meta.resource_version);
                Outcome { resource_version, ..Outcome::success() }
            }
            Err(failure) => Outcome::failure(failure),
        }
    }

    /// Returns the reason why `owner` must not adopt; `None` if it may. Reads the owner live, once per pass.
    async fn adoption_failure(
        &self,
        owner: &Target,
        live_owners: &mut LiveOwners,
    ) -> Option<Failure> {
        if let Some((_, known_failure)) = live_owners.iter().find(|(target, _)| target == owner) {
            return known_failure.clone();
        }
        let failure =
            match self.client.get_metadata(&owner.kind, &owner.namespace, &owner.name).await {
                Err(error) => Some(Failure::from(&error)),
                Ok(found) if *found.meta.uid != *owner.uid => Some(Failure::local(format!(
                    "original {} {}/{} is gone: got uid {}, wanted {}",
                    owner.kind.kind, owner.namespace, owner.name, found.meta.uid, owner.uid
                ))),
                Ok(found) => found.meta.deletion.map(|since| {
                    Failure::local(format!(
                        "{}/{} has just been deleted at {since}",
                        owner.namespace, owner.name
                    ))
                }),
            };
        live_owners.push((owner.clone(), failure.clone()));
        failure
    }

    /// Records in the barrier that this key wrote an object.
    fn record_write(&self, key: &Key, kind: &Kind, written: &Metadata) {
        self.barrier.wrote(key, kind, &written.meta);
    }

    /// Converts the error of a write, and records the action's event about the failure, unless the namespace is
    /// terminating.
    fn handle_failure(&self, event: Option<&EventRecord>, error: ApiError) -> Failure {
        let failure = Failure::from(error);
        if !failure.namespace_terminating {
            self.record_event(event, "{error}", &failure.message);
        }
        failure
    }

    /// Records an action's event, if it has one, and replaces the placeholder in its message with `text`.
    fn record_event(&self, event: Option<&EventRecord>, placeholder: &str, text: &str) {
        match event {
            None => {}
            Some(event) if event.message.contains(placeholder) => {
                let message = event.message.replace(placeholder, text);
                self.events.record(&EventRecord { message, ..event.clone() });
            }
            Some(event) => self.events.record(event),
        }
    }
}

/// Returns whether `next` runs concurrently with `first`. Only these actions do: reads, creates in one part of the
/// plan, deletes, and patches of different objects that need no live read of their owner. `patched` contains the
/// objects patched so far.
fn run_together<'a>(first: &Action, next: &'a Action, patched: &mut HashSet<&'a Target>) -> bool {
    match first {
        Action::Read(_) => matches!(next, Action::Read(_)),
        Action::Create(_) => {
            first.part() == next.part()
                && matches!(next, Action::Create(create) if !create.waits_for_earlier_creates || std::ptr::eq(first, next))
        }
        Action::Delete(_) => matches!(next, Action::Delete(_)),
        Action::Patch(Patch { if_live: None, .. }) => match next {
            Action::Patch(next) => next.if_live.is_none() && patched.insert(&next.target),
            _ => false,
        },
        Action::Patch(_)
        | Action::Update(_)
        | Action::Rewrite(_)
        | Action::DeleteCollection(_)
        | Action::Local(_)
        | Action::Event(_) => std::ptr::eq(first, next),
    }
}

/// Awaits the calls concurrently, and returns their outcomes in order.
async fn run_concurrently(calls: Vec<impl Future<Output = Outcome>>) -> Vec<Outcome> {
    futures::stream::iter(calls).buffered(MAX_CONCURRENT_REQUESTS).collect().await
}

fn as_read(action: &Action) -> Option<&LiveRead> {
    match action {
        Action::Read(read) => Some(read),
        _ => None,
    }
}

fn as_create(action: &Action) -> Option<&Create> {
    match action {
        Action::Create(create) => Some(create),
        _ => None,
    }
}

fn as_patch(action: &Action) -> Option<&Patch> {
    match action {
        Action::Patch(patch) => Some(patch),
        _ => None,
    }
}

fn as_delete(action: &Action) -> Option<&Delete> {
    match action {
        Action::Delete(delete) => Some(delete),
        _ => None,
    }
}
