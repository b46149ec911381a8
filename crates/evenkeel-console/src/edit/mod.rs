//! Preview of an edit: the object that the API server would store, and the actions of the controllers and the scheduler before
//! and after. Nothing is written: the API server performs the update as a dry run, and the planners read a copy (`copy`) that
//! contains the edited object.
//!
//! All requests have the token of the user, so that the preview shows only what the user may see.

mod copy;

use crate::{
    Console,
    pages::Content,
    permissions::Permission,
    planners::Preview,
    route::ObjectPath,
    session::Session,
    source::{PageError, Rehearsed},
    view::edit::{
        Compared, EditPage, Outcome, Refused, SchedulerPair, compared, editable, merged, pairs,
        rows,
    },
};
use copy::{Copy, Edit};
use evenkeel_api::{
    Encoding, Kind, View as _,
    views::{Node, Pod},
};
use evenkeel_explain::{Explained, Limits, explain};
use evenkeel_runtime::{
    clock::Clock,
    discovery::{Resource, ServerResources},
    introspect::Subject,
};
use http::StatusCode;
use serde_json::Value;
use std::{sync::Arc, time::Duration};

/// Maximum number of concurrent previews. Each copies the objects that the planners read.
pub(crate) const MAX_PREVIEWS: usize = 2;
/// Limit on the time of a preview.
const TIMEOUT: Duration = Duration::from_secs(60);

fn bad_request(message: impl Into<String>) -> PageError {
    PageError { status: StatusCode::BAD_REQUEST, message: message.into() }
}

impl Console {
    /// Returns whether pages can preview an edit of this object. Values of Secrets are never shown, so they cannot be edited.
    pub(crate) fn previews(&self, resource: &Resource) -> bool {
        let is_secret = resource.kind.group.is_empty() && resource.kind.kind == "Secret";
        self.planners.is_some() && resource.supports_verb("update") && !is_secret
    }

    /// Returns the page of an edit: the form, and the preview if `text` of a submitted form is given.
    pub(crate) async fn edit(
        &self,
        session: &Session,
        path: &ObjectPath,
        text: Option<String>,
    ) -> Result<Content, PageError> {
        let resources = session.source.resources().await?;
        let resource = Self::resource_at(&resources, path)?;
        let kind = &resource.kind;
        if !self.previews(resource) {
            return Err(PageError::not_found(format!(
                "Edits of {} are not previewed here.",
                kind.plural
            )));
        }
        let live = session.source.object(kind, &path.namespace, &path.name).await?;
        let mut page = EditPage {
            kind: kind.kind.to_string(),
            namespace: path.namespace.clone(),
            name: path.name.clone(),
            object: path.href(),
            action: path.edit_href(),
            form_token: session.form_token().to_owned(),
            text: String::new(),
            what_if: if self.what_if.is_some() { "/what-if" } else { "" },
            outcome: None,
        };
        let Some(text) = text else {
            page.text = editable(&live).ok_or_else(|| {
                bad_request("The object is too large to be edited here. Use kubectl diff -f FILE.")
            })?;
            return Content::render(format!("Edit {} {}", page.kind, page.name), &page);
        };
        page.outcome = Some(self.outcome(session, &resources, kind, &live, &text).await?);
        page.text = text;
        Content::render(format!("Edit of {} {}", page.kind, page.name), &page)
    }

    /// Previews an edit.
    async fn outcome(
        &self,
        session: &Session,
        resources: &Arc<ServerResources>,
        kind: &Kind,
        live: &Value,
        text: &str,
    ) -> Result<Outcome, PageError> {
        let edited = match serde_saphyr::from_str::<Value>(text) {
            Ok(edited) => edited,
            Err(error) => return Ok(Outcome::refused(format!("This is no YAML: {error}"))),
        };
        let edited = match merged(edited, live) {
            Ok(edited) => edited,
            Err(error) => return Ok(Outcome::refused(error)),
        };
        let text = |field: &str| live["metadata"][field].as_str().unwrap_or_default();
        let (namespace, name) = (text("namespace"), text("name"));
        let admitted = match session.source.rehearse(kind, namespace, name, &edited).await? {
            Rehearsed::Admitted(admitted) => admitted,
            Rehearsed::Refused { message, causes } => {
                return Ok(Outcome::Refused(Refused { message, causes }));
            }
        };
        let rows = rows(live, &edited, &admitted);
        if rows.is_empty() {
            return Ok(Outcome::Unchanged);
        }
        let Ok(_permit) = self.previewing.try_acquire() else {
            let message = "Other previews are running. Compare again in a moment.".to_owned();
            return Err(PageError { status: StatusCode::SERVICE_UNAVAILABLE, message });
        };
        let preview = self.compare(session, resources, kind, live, &admitted);
        let compared = tokio::time::timeout(TIMEOUT, preview).await;
        let compared = compared.unwrap_or_else(|_| {
            let message = format!("The preview has not ended after {} s.", TIMEOUT.as_secs());
            Err(PageError { status: StatusCode::GATEWAY_TIMEOUT, message })
        });
        // The diff is useful even without the comparison.
        let (compared, error) = match compared {
            Ok(compared) => (compared, String::new()),
            Err(error) if error.status == StatusCode::UNAUTHORIZED => return Err(error),
            Err(error) => (Compared::default(), error.message),
        };
        Ok(Outcome::Admitted { rows, compared, error })
    }

    /// Compares the planned actions of the controllers, and the result of a pod's scheduler, before and after an edit.
    async fn compare(
        &self,
        session: &Session,
        resources: &Arc<ServerResources>,
        kind: &Kind,
        live: &Value,
        admitted: &Value,
    ) -> Result<Compared, PageError> {
        let text = |field: &str| live["metadata"][field].as_str().unwrap_or_default();
        let (namespace, name) = (text("namespace"), text("name"));
        let subject = Subject::new(&kind.group, &kind.kind, namespace, name);
        // Both cases share the reads, so that other clients' changes do not appear as differences.
        let copy = Copy::of(session.source.reads());
        let object = |object: &Value| Edit::new(kind, namespace, name, object.clone());
        let before = self.preview(copy.client(object(live)), resources, &subject).await?;
        let after = self.preview(copy.client(object(admitted)), resources, &subject).await?;
        let href = |subject: &Subject| {
            let mut kinds = resources.preferred().map(|resource| &resource.kind);
            let kind = kinds.find(|k| *k.group == *subject.group && *k.kind == *subject.kind);
            kind.map(|kind| ObjectPath::of(kind, &subject.namespace, &subject.name).href())
                .unwrap_or_default()
        };
        let mut compared = compared(pairs(&before, &after), href);
        if (&*kind.group, &*kind.kind) == ("", "Pod") {
            compared.scheduler = self.compare_scheduling(session, live, admitted).await?;
        }
        Ok(compared)
    }

    async fn preview(
        &self,
        kube: kube::Client,
        resources: &Arc<ServerResources>,
        subject: &Subject,
    ) -> Result<Explained, PageError> {
        let failed = |message| PageError { status: StatusCode::BAD_GATEWAY, message };
        let Some(planners) = &self.planners else { return Ok(Explained::default()) };
        // The planners run in this process's time, starting at the cluster's time.
        let clock = Clock::starting_at(self.time.now());
        let started = planners.start(kube, &clock, Arc::clone(resources), subject).await;
        let source = Preview(started.map_err(failed)?);
        let explained = explain(&source, subject.clone(), String::new(), Limits::PAGE).await;
        source.0.stop().await;
        explained.map_err(failed)
    }

    /// Compares the scheduling of a pod before and after an edit. `None` if the user may not see nodes and pods, or the process
    /// schedules no pods.
    async fn compare_scheduling(
        &self,
        session: &Session,
        live: &Value,
        admitted: &Value,
    ) -> Result<Option<SchedulerPair>, PageError> {
        let Some(scheduling) = &self.scheduling else { return Ok(None) };
        for kind in [Node::kind(), Pod::kind()] {
            if !session.check(&Permission::list(&kind, ""), &mut Vec::new()).await? {
                return Ok(None);
            }
        }
        let decoded = |object: &Value| {
            let pod = Pod::decode(object.to_string().as_bytes(), Encoding::Json);
            pod.map(Arc::new).map_err(|error| {
                bad_request(format!("The API server's response is not a pod: {error}"))
            })
        };
        let before = scheduling.explain_pod(decoded(live)?).await;
        let after = scheduling.explain_pod(decoded(admitted)?).await;
        let is_placed = live["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
        Ok(Some(SchedulerPair::of(before.ok().as_ref(), after.ok().as_ref(), is_placed)))
    }
}
