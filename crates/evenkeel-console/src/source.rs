//! Reads objects of the cluster for pages. Only [`Source::change`] writes.

use crate::{
    permissions::Permission,
    route::{ObjectPath, encode},
    view::switches::Change,
};
use bytes::Bytes;
use evenkeel_api::{
    Kind, View as _,
    time::Timestamp,
    views::{Node, Pod},
};
use evenkeel_explain::{Cause, Explained, Objects, causes, owners, read};
use evenkeel_runtime::{
    client::{Client, dry_run},
    clock::Clock,
    discovery::ServerResources,
    introspect::Subject,
};
use http::{HeaderValue, Method, Request, StatusCode, header};
use serde_json::Value;
use std::{fmt::Display, sync::Arc, time::Duration};

/// Time for which the result of discovery is reused.
const DISCOVERY_AGE: Duration = Duration::from_secs(10);
/// Maximum number of objects whose causes a page shows.
const MAX_EXPLAINED: usize = 30;
/// Maximum number of events that are read for a page.
const MAX_EVENTS: usize = 5000;
/// Number of events in one response.
const EVENTS_PAGE: usize = 500;
/// Maximum number of events that are read of one object.
const MAX_OBJECT_EVENTS: usize = 500;

const JSON: &str = "application/json";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io, application/json";

/// Reason why there is no page.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct PageError {
    /// Status code of the response.
    pub(crate) status: StatusCode,
    /// Reason, with the next step.
    pub(crate) message: String,
}

impl PageError {
    /// Returns an error of a page that does not exist.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self { status: StatusCode::NOT_FOUND, message: message.into() }
    }
}

impl From<http::Error> for PageError {
    fn from(error: http::Error) -> Self {
        Self { status: StatusCode::BAD_REQUEST, message: format!("No such request: {error}") }
    }
}

/// Response of the API server to a dry run of an update.
pub(crate) enum Rehearsed {
    /// It would store this object.
    Admitted(Value),
    /// It would refuse the object.
    Refused {
        /// Reason that the server gives.
        message: String,
        /// Fields with their errors.
        causes: Vec<(String, String)>,
    },
}

/// Reads and writes with the permissions of one user.
pub(crate) struct Source {
    /// Name of the user. `None` is the cluster's administrator.
    user: Option<String>,
    /// Client for reads.
    client: Client,
    /// Transport of the client for reads.
    reads: kube::Client,
    /// Client whose writes are all dry runs of the API server ([`Source::rehearse`]).
    rehearsals: Client,
    /// Client of the switches, if they are allowed.
    writer: Option<Client>,
}

impl Source {
    /// Creates the clients. `kube` has the credentials of `user`, or of the cluster's administrator if `user` is `None`.
    pub(crate) fn new(
        kube: &kube::Client,
        clock: &Clock,
        user: Option<&str>,
        allows_writes: bool,
    ) -> Self {
        let client = |kube: kube::Client| {
            Client::builder(kube, clock.clone()).qps(-1.0).user_agent("evenkeel-console").build()
        };
        let writer = allows_writes.then(|| client(kube.clone()));
        let user = user.map(str::to_owned);
        let reads = dry_run(kube.clone()).0;
        Self {
            user,
            client: client(reads.clone()),
            reads,
            rehearsals: client(kube.clone()),
            writer,
        }
    }

    /// Returns a client that sends only reads.
    pub(crate) fn reads(&self) -> kube::Client {
        self.reads.clone()
    }

    /// Returns the client for reads.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Sends an update to the API server as a dry run (`dryRun=All`), which stores nothing.
    ///
    /// # Errors
    /// Fails if the user may not update the object, or the API server does not respond. A refusal of the object is not an
    /// error.
    pub(crate) async fn rehearse(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        object: &Value,
    ) -> Result<Rehearsed, PageError> {
        let target = target(kind, namespace, name);
        let request = Request::builder()
            .method(Method::PUT)
            .uri(format!(
                "{target}?dryRun=All&fieldManager=evenkeel-console&fieldValidation=Strict"
            ))
            .header(header::CONTENT_TYPE, HeaderValue::from_static(JSON))
            .header(header::ACCEPT, HeaderValue::from_static(JSON))
            .body(Bytes::from(object.to_string()))?;
        let permission = Permission::on("update", kind, namespace, name);
        match self.rehearsals.raw(request).await {
            Ok(answer) => match serde_json::from_slice(answer.body()) {
                Ok(admitted @ Value::Object(_)) => Ok(Rehearsed::Admitted(admitted)),
                Ok(_) => Err(unreadable(&target, &"it is not an object")),
                Err(error) => Err(unreadable(&target, &error)),
            },
            Err(error) => match error.status() {
                Some(status) if matches!(status.code, 400 | 409 | 413 | 422) => {
                    let causes = status.causes.iter();
                    Ok(Rehearsed::Refused {
                        message: status.message.to_string(),
                        causes: causes
                            .filter(|cause| !cause.field.is_empty())
                            .map(|cause| (cause.field.to_string(), cause.message.to_string()))
                            .collect(),
                    })
                }
                // A webhook refuses, or RBAC.
                Some(status)
                    if status.code == 403 && status.message.starts_with("admission webhook") =>
                {
                    let message = status.message.to_string();
                    Ok(Rehearsed::Refused { message, causes: Vec::new() })
                }
                _ => Err(permission.error(self.user.as_deref(), &error)),
            },
        }
    }

    async fn read(
        &self,
        target: &str,
        accept: &'static str,
        permission: &Permission,
    ) -> Result<Value, PageError> {
        let request = Request::get(target).header(header::ACCEPT, accept).body(Bytes::new())?;
        let answer = self.client.raw(request).await;
        let answer = answer.map_err(|error| permission.error(self.user.as_deref(), &error))?;
        serde_json::from_slice(answer.body()).map_err(|error| unreadable(target, &error))
    }

    /// Returns the resources that the API server serves.
    pub(crate) async fn resources(&self) -> Result<Arc<ServerResources>, PageError> {
        let resources = self.client.recent_api_resources(DISCOVERY_AGE).await;
        resources.map_err(|error| Permission::Path("/apis").error(self.user.as_deref(), &error))
    }

    /// Returns an object.
    pub(crate) async fn object(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
    ) -> Result<Value, PageError> {
        let permission = Permission::on("get", kind, namespace, name);
        let target = target(kind, namespace, name);
        match self.read(&target, JSON, &permission).await? {
            object @ Value::Object(_) => Ok(object),
            _ => Err(unreadable(&target, &"it is not an object")),
        }
    }

    /// Returns objects as a `Table` (`meta.k8s.io/v1`).
    pub(crate) async fn table(
        &self,
        kind: &Kind,
        namespace: &str,
        labels: &str,
        (limit, after): (usize, &str),
    ) -> Result<Value, PageError> {
        let mut target = format!("{}?limit={limit}", kind.path(&encode(namespace)));
        for (name, value) in [("labelSelector", labels), ("continue", after)] {
            if !value.is_empty() {
                target.push_str(&format!("&{name}={}", encode(value)));
            }
        }
        self.read(&target, TABLE, &Permission::list(kind, namespace)).await
    }

    /// Returns the owner of an object, the owner's owner, and so on, until one does not exist.
    pub(crate) async fn owners(&self, resources: &ServerResources, object: &Value) -> Vec<Subject> {
        let owners = owners(&self.client, resources, object).await;
        owners.into_iter().map(|owner| owner.subject).collect()
    }

    /// Returns the reasons why an object and its dependents are not as desired, from their own status and events. `schedulers`
    /// are the names of the profiles of the cluster's schedulers; `None` if they are unknown.
    pub(crate) async fn causes(
        &self,
        resources: &ServerResources,
        explained: &Explained,
        schedulers: Option<&[String]>,
        now: Timestamp,
    ) -> Result<Vec<Cause>, PageError> {
        let found = read(&self.client, resources, explained, MAX_EXPLAINED).await;
        let found = found.map_err(|error| PageError::not_found(error.to_string()))?;
        let schedulers = schedulers.map(<[String]>::to_vec);
        Ok(causes(&Objects { schedulers, ..found }, now))
    }

    /// Returns the events of an object, unsorted.
    pub(crate) async fn events_of(
        &self,
        kind: &Kind,
        path: &ObjectPath,
    ) -> Result<Vec<Value>, PageError> {
        let selector =
            format!("involvedObject.kind={},involvedObject.name={}", kind.kind, path.name);
        let target = format!(
            "{}?limit={MAX_OBJECT_EVENTS}&fieldSelector={}",
            EVENTS.path(&encode(&path.namespace)),
            encode(&selector)
        );
        let permission = Permission::list(&EVENTS, &path.namespace);
        let mut events = items_of(self.read(&target, JSON, &permission).await?, &target)?;
        events.retain(|event| {
            let of = &event["involvedObject"]["apiVersion"];
            of.is_null() || *of == *kind.api_version()
        });
        Ok(events)
    }

    /// Returns events of a namespace or of all, unsorted, and whether there are more.
    pub(crate) async fn events(&self, namespace: &str) -> Result<(Vec<Value>, bool), PageError> {
        let (mut events, mut after) = (Vec::new(), String::new());
        loop {
            let mut target = format!("{}?limit={EVENTS_PAGE}", EVENTS.path(&encode(namespace)));
            if !after.is_empty() {
                target.push_str(&format!("&continue={}", encode(&after)));
            }
            let list = self.read(&target, JSON, &Permission::list(&EVENTS, namespace)).await?;
            after = list["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
            events.extend(items_of(list, &target)?);
            if after.is_empty() || events.len() >= MAX_EVENTS {
                return Ok((events, !after.is_empty()));
            }
        }
    }

    /// Returns some warnings of all namespaces, unsorted, and whether there are more.
    ///
    /// # Errors
    /// Fails if the user may not list events of all namespaces, or the API server does not respond.
    pub(crate) async fn warnings(&self) -> Result<(Vec<Value>, bool), PageError> {
        let (path, selector) = (EVENTS.path(""), encode("type=Warning"));
        let target = format!("{path}?limit={EVENTS_PAGE}&fieldSelector={selector}");
        let list = self.read(&target, JSON, &Permission::list(&EVENTS, "")).await?;
        let more = list["metadata"]["continue"].as_str().is_some_and(|after| !after.is_empty());
        Ok((items_of(list, &target)?, more))
    }

    /// Sets or removes an annotation. Returns the page of its object.
    pub(crate) async fn change(&self, change: &Change) -> Result<ObjectPath, PageError> {
        let kind = if change.kind == "Node" { Node::kind() } else { Pod::kind() };
        self.patch(&kind, &change.namespace, &change.name, &change.patch()).await?;
        Ok(ObjectPath::of(&kind, &change.namespace, &change.name))
    }

    /// Changes an object by a merge patch (RFC 7396).
    ///
    /// # Errors
    /// Fails if this console is read-only, or the API server rejects the change.
    pub(crate) async fn patch(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<(), PageError> {
        let Some(writer) = &self.writer else {
            let message = "This console only reads. Start the cluster with --console-writes to switch the simulation.";
            return Err(PageError { status: StatusCode::FORBIDDEN, message: message.to_owned() });
        };
        let request = Request::builder()
            .method(Method::PATCH)
            .uri(target(kind, namespace, name))
            .header(header::CONTENT_TYPE, HeaderValue::from_static("application/merge-patch+json"))
            .header(header::ACCEPT, HeaderValue::from_static(JSON))
            .body(Bytes::from(patch.to_string()))?;
        let answer = writer.raw(request).await;
        answer.map_err(|error| {
            Permission::on("patch", kind, namespace, name).error(self.user.as_deref(), &error)
        })?;
        Ok(())
    }

    /// Returns the Behaviors of the cluster. `None` without their CustomResourceDefinition.
    ///
    /// # Errors
    /// Fails if the user may not list them, or the API server does not respond.
    pub(crate) async fn behaviors(&self) -> Result<Option<Vec<Value>>, PageError> {
        let target = BEHAVIORS.path("");
        match self.read(&target, JSON, &Permission::list(&BEHAVIORS, "")).await {
            Ok(list) => items_of(list, &target).map(Some),
            Err(error) if error.status == StatusCode::NOT_FOUND => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Behaviors of the simulation.
pub(crate) const BEHAVIORS: Kind =
    Kind::new("sim.evenkeel.dev", "v1alpha1", "Behavior", "behaviors", false);

/// Events in the core group, which have all fields of those in `events.k8s.io`.
pub(crate) const EVENTS: Kind = Kind::new("", "v1", "Event", "events", true);

/// Returns the error for a response that violates the API conventions: an aggregated API server may return anything.
fn unreadable(target: &str, why: &dyn Display) -> PageError {
    let message = format!("The answer of the API server to {target} cannot be read: {why}");
    PageError { status: StatusCode::BAD_GATEWAY, message }
}

/// Returns the items of a list. A list whose `items` is null has none.
fn items_of(mut list: Value, target: &str) -> Result<Vec<Value>, PageError> {
    let Some(list) = list.as_object_mut() else {
        return Err(unreadable(target, &"it is not a list"));
    };
    match list.remove("items") {
        Some(Value::Array(items)) => Ok(items),
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(_) => Err(unreadable(target, &"its items are no list")),
    }
}

/// Returns the target of requests for an object.
fn target(kind: &Kind, namespace: &str, name: &str) -> String {
    format!("{}/{}", kind.path(&encode(namespace)), encode(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_answer_that_is_no_list_is_an_error() {
        for (answer, want) in [
            (json!({"items": [1, 2]}), Some(2)),
            (json!({"items": null}), Some(0)),
            (json!({}), Some(0)),
            (json!({"items": "no"}), None),
            (json!([]), None),
            (json!("no"), None),
            (json!(null), None),
        ] {
            let items = items_of(answer.clone(), "/x");
            let number = items.as_ref().ok().map(Vec::len);
            assert_eq!(number, want, "{answer}");
            if let Err(error) = items {
                assert_eq!(error.status, StatusCode::BAD_GATEWAY);
                assert!(error.message.contains("answer of the API server to /x cannot be read"));
            }
        }
    }
}
