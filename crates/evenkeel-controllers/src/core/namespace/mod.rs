//! Namespace controller: deletes the content of terminating namespaces, then finalizes them. Upstream:
//! `pkg/controller/namespace`.

mod act;
mod describe;
mod plan;

use crate::{
    options::Periodic,
    wiring::descriptor::{ControllerContext, Descriptor, StartError},
};
use act::Content;
use bytes::Bytes;
use evenkeel_api::{
    Kind, View,
    time::Timestamp,
    views::{Metadata, Namespace},
};
use evenkeel_runtime::{
    cache::Cache,
    client::{ApiError, Client},
    controller::{Context, Error, Outcome},
    queue::Backoff,
};
use http::{Request, header};
use plan::Next;
use serde_json::Value;
use std::time::Duration;

/// Delay after the deletion timestamp: an API server may still admit objects. Upstream: `namespaceDeletionGracePeriod`.
const GRACE: Duration = Duration::from_secs(5);

/// Retries of a write after conflicts.
const CONFLICTS: usize = 5;

/// Backoff of failed namespaces; upstream's maximum is shorter than other controllers'. Upstream:
/// `nsControllerRateLimiter`.
const BACKOFF: Backoff = Backoff {
    base_delay: Duration::from_millis(5),
    max_delay: Duration::from_mins(1),
    bucket: true,
};

/// Number of namespaces processed concurrently, default 10, and the maximum delay before a waiting namespace is
/// processed again, unlimited if zero.
pub type Options = Periodic<10>;

/// Names of the two flags.
pub(crate) const FLAGS: [&str; 2] = ["concurrent-namespace-syncs", "namespace-sync-period"];

/// The controller of namespaces.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "namespace-controller",
    aliases: &["namespace"],
    queue: "namespace",
    client: "namespace-controller",
    start,
    ..Descriptor::ORDINARY
};

fn start(context: &ControllerContext) -> Result<(), StartError> {
    let namespaces = context.env.caches.of::<Namespace>();
    let Options { concurrent_syncs, sync_period } = context.options.namespace;
    let builder =
        context.builder(&DESCRIPTOR, &namespaces).workers(concurrent_syncs).backoff(BACKOFF);
    let seen = namespaces.clone();
    let builder = builder
        .explains(move |key, now| Some(describe::describe(&*seen.get("", &key.name)?, GRACE, now)));
    context.run(builder.reconcile(move |request, context: Context| {
        let namespaces = namespaces.clone();
        async move { reconcile(&namespaces, &context, &request.key.name, sync_period).await }
    }));
    Ok(())
}

async fn reconcile(
    namespaces: &Cache<Namespace>,
    context: &Context,
    name: &str,
    sync_period: Duration,
) -> Result<Outcome, Error> {
    let Some(deletion) = namespaces.get("", name).and_then(|namespace| namespace.meta.deletion)
    else {
        return Ok(Outcome::Settled);
    };
    let client = &context.env.client;
    let waited = context.env.clock.now().duration_since(deletion);
    if let Some(left) =
        Duration::try_from(waited).ok().map_or(Some(GRACE), |waited| GRACE.checked_sub(waited))
        && !left.is_zero()
    {
        return Ok(Outcome::again(left));
    }
    match empty(client, name, sync_period).await {
        Ok(outcome) => Ok(outcome),
        Err(Failed::Replaced) => Ok(Outcome::Settled),
        Err(Failed::Api(error)) if error.is_not_found() => Ok(Outcome::Settled),
        Err(Failed::Api(error)) => Err(error.into()),
        Err(Failed::Content(text)) => Err(Error::message(text)),
    }
}

#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error("{0}")]
    Api(#[from] ApiError),
    #[error("{0}")]
    Content(String),
    #[error("the namespace is gone, and another one has its name")]
    Replaced,
}

async fn empty(client: &Client, name: &str, sync_period: Duration) -> Result<Outcome, Failed> {
    let namespace = live(client, name).await?;
    let Some(deleted_at) = deletion(&namespace) else { return Ok(Outcome::Settled) };
    let namespace = write(client, namespace, "status", plan::terminating).await?;
    if deletion(&namespace).is_none() || plan::is_finalized(&namespace) {
        return Ok(Outcome::Settled);
    }
    let discovered = client.api_resources().await?;
    let findings = Content { client, namespace: name, deleted_at }.delete(&discovered).await;
    let now = client.clock().now();
    if let Err(error) =
        write(client, namespace.clone(), "status", |seen| findings.with_conditions(seen, now)).await
    {
        // The conditions are informative; finalization does not depend on them.
        tracing::warn!(namespace = name, error = %error, "Failed to write the conditions of the namespace");
    }
    match findings.next() {
        Next::Finalize => {
            let change = |seen: &Value| (!plan::is_finalized(seen)).then(|| plan::finalized(seen));
            write(client, namespace, "finalize", change).await?;
            Ok(Outcome::Settled)
        }
        Next::Wait(time) => Ok(Outcome::again(plan::within(time, sync_period))),
        Next::Failed(error) => Err(Failed::Content(error)),
    }
}

fn deletion(namespace: &Value) -> Option<Timestamp> {
    namespace["metadata"]["deletionTimestamp"].as_str()?.parse().ok()
}

/// Reads the whole namespace, because an update must have every field.
async fn live(client: &Client, name: &str) -> Result<Value, ApiError> {
    let mut request = Request::new(Bytes::new());
    let path = format!("{}/{name}", kind().path(""));
    *request.uri_mut() = path.parse().unwrap_or_default();
    request
        .headers_mut()
        .insert(header::ACCEPT, header::HeaderValue::from_static("application/json"));
    let answer = client.raw(request).await?;
    Ok(serde_json::from_slice(answer.body()).unwrap_or_default())
}

fn kind() -> Kind {
    Namespace::kind()
}

/// Updates the namespace by `change`, again after a conflict. A new namespace of the name is left alone. Upstream:
/// `retryOnConflictError`.
async fn write(
    client: &Client,
    mut namespace: Value,
    subresource: &str,
    change: impl Fn(&Value) -> Option<Value>,
) -> Result<Value, Failed> {
    let name = namespace["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    for attempt in 0.. {
        let Some(changed) = change(&namespace) else { break };
        let body = Bytes::from(changed.to_string());
        match client.update::<Metadata>(&kind(), "", &name, subresource, body).await {
            Ok(written) => {
                namespace = changed;
                namespace["metadata"]["resourceVersion"] = (*written.meta.resource_version).into();
                break;
            }
            Err(error) if error.is_conflict() && attempt < CONFLICTS => {
                let now = live(client, &name).await?;
                if now["metadata"]["uid"] != namespace["metadata"]["uid"] {
                    return Err(Failed::Replaced);
                }
                namespace = now;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(namespace)
}
