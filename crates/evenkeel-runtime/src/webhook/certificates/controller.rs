//! Maintains the certificates of a Service in its Secret, and the `caBundle`s of its callers.
//!
//! It has its own caches, which start before those of the manager, because a cache of custom objects may need the conversion
//! webhook.

use super::{
    Served, Watches,
    inject::{Caller, Calls, Conversions, Injection, Mutating, Validating},
    issue,
    material::{self, Material, Names},
    plan::{Decision, Renewal, decide},
};
use crate::{
    cache::{Cache, Caches, Full},
    client::{ApiError, Client, Metadata},
    controller::{Builder, Context, Controller, Enqueue, Env, Error, Outcome},
    plan::{Key, PatchType},
    queue::Priority,
    tasks::Tasks,
};
use evenkeel_api::{View, time::Timestamp};
use k8s_openapi::api::core::v1::Secret;
use serde_json::json;
use std::{sync::Arc, time::Duration};

/// Name of the controller.
const NAME: &str = "webhook-certificates";
/// Delay before the retry of a write that lost a conflict, unless an event comes first.
const CONFLICT_DELAY: Duration = Duration::from_secs(5);
/// Maximum time between two checks of the certificates.
const MAX_CHECK_INTERVAL: Duration = Duration::from_secs(12 * 60 * 60);

/// State that the passes (reconciles) of the controller share.
struct Shared {
    names: Names,
    served: Arc<Served>,
    secrets: Cache<Full<Secret>>,
    mutating: Option<Cache<Calls<Mutating>>>,
    validating: Option<Cache<Calls<Validating>>>,
    conversions: Option<Cache<Calls<Conversions>>>,
}

/// Starts the controller and its caches.
pub(super) fn start(
    names: Names,
    env: &Env,
    watches: Watches,
    served: &Arc<Served>,
    tasks: &Tasks,
) {
    // Metrics of these caches would collide with the metrics of the manager's caches.
    let registry = prometheus::Registry::new();
    let caches = Caches::in_namespaces(
        env.client.clone(),
        env.clock.clone(),
        &registry,
        [&*names.namespace],
    );
    let shared = Arc::new(Shared {
        secrets: caches.selected("", &format!("metadata.name={}", names.secret)),
        mutating: watches.mutating.then(|| caches.of()),
        validating: watches.validating.then(|| caches.of()),
        conversions: watches.conversions.then(|| caches.of()),
        names,
        served: Arc::clone(served),
    });
    let env = Env { caches: caches.clone(), ..env.clone() };
    let key = Key::new(&shared.names.namespace, &shared.names.secret);
    let controller = shared.controller(&env, &key);
    // Without a Secret, there is no event.
    controller.queue().add(key, Priority::NORMAL);
    caches.start(tasks);
    let token = tasks.token();
    tasks.spawn(NAME, async move { controller.run(token).await });
}

impl Shared {
    fn controller(self: &Arc<Self>, env: &Env, key: &Key) -> Controller {
        let mut builder = Builder::new(env, NAME, &self.secrets);
        builder = watch(builder, self.mutating.as_ref(), key);
        builder = watch(builder, self.validating.as_ref(), key);
        builder = watch(builder, self.conversions.as_ref(), key);
        let shared = Arc::clone(self);
        builder.reconcile(move |request, context| {
            let shared = Arc::clone(&shared);
            async move { shared.pass(&request.key, &context).await }
        })
    }

    /// Serves the Secret's certificate, renews certificates that are due, and sets `caBundle` of webhooks and CRDs.
    async fn pass(&self, key: &Key, context: &Context) -> Result<Outcome, Error> {
        let now = context.env.clock.now();
        let secret = self.secrets.get(&self.names.namespace, &self.names.secret);
        let material = secret.as_deref().map(|secret| Material::of(secret));
        let decision = decide(material.as_ref(), &self.names, now);
        if let Some(material) = &material {
            self.serve(material);
        }
        let due = match decision {
            Decision::Keep(until) => until,
            Decision::Renew(renewal, reason) => {
                let new = self.renew(renewal, &reason, material.as_ref(), now)?;
                let written = self.write(secret.as_deref(), &new, &context.env.client).await;
                if written.as_ref().is_ok_and(|written| written.meta.version() == 0) {
                    // A dry run stores nothing, so no cache will ever show the Secret.
                    self.serve(&new);
                    return Ok(Outcome::again(MAX_CHECK_INTERVAL));
                }
                return self.settle(written, key, context);
            }
        };
        let Some(material) = material else { return Ok(Outcome::Settled) };
        let mut conflicts = false;
        for injection in self.injections(&material.authorities) {
            match inject(&injection, &context.env.client).await {
                Ok(written) => {
                    tracing::info!(kind = %injection.kind.kind, name = injection.name, "caBundle set");
                    context.wrote(key, &injection.kind, &written.meta);
                }
                Err(error) if error.is_conflict() || error.is_not_found() => conflicts = true,
                Err(error) => return Err(error.into()),
            }
        }
        let until_due = u64::try_from(due.duration_since(now).as_secs()).unwrap_or_default();
        let until_due = Duration::from_secs(until_due.saturating_add(1));
        let delay = if conflicts { CONFLICT_DELAY } else { MAX_CHECK_INTERVAL };
        Ok(Outcome::again(until_due.min(delay)))
    }

    /// Serves a certificate if it is valid. A certificate that is due for renewal is better than none.
    fn serve(&self, material: &Material) {
        match material::certified_key(&material.certificate, &material.key) {
            Ok(key) => {
                if self.served.set(Arc::new(key)) {
                    tracing::info!(
                        secret = self.names.secret,
                        "serving the certificate of the Secret"
                    );
                }
            }
            Err(reason) => {
                tracing::warn!(
                    secret = self.names.secret,
                    reason,
                    "the certificate cannot be served"
                );
            }
        }
    }

    /// Issues the certificates that are due for renewal.
    fn renew(
        &self,
        renewal: Renewal,
        reason: &str,
        material: Option<&Material>,
        now: Timestamp,
    ) -> Result<Material, Error> {
        tracing::info!(secret = self.names.secret, ?renewal, reason, "renewing certificates");
        let new = issue::issue(renewal, material, &self.names, now)?;
        // Without this check, a wrong certificate would be renewed forever.
        match decide(Some(&new), &self.names, now) {
            Decision::Renew(again, reason) if again == renewal => {
                Err(Error::message(format!("the new certificates cannot be used: {reason}")))
            }
            _ => Ok(new),
        }
    }

    /// Writes the Secret, unless it has changed since it was read.
    async fn write(
        &self,
        secret: Option<&Full<Secret>>,
        material: &Material,
        client: &Client,
    ) -> Result<Metadata, ApiError> {
        let (kind, Names { namespace, secret: name, .. }) = (Full::<Secret>::kind(), &self.names);
        match secret {
            None => {
                let body = json!({
                    "apiVersion": "v1",
                    "kind": "Secret",
                    "type": "kubernetes.io/tls",
                    "metadata": {"name": name, "namespace": namespace},
                    "data": material.data(),
                });
                client.create(&kind, namespace, body.to_string().into()).await
            }
            Some(secret) => {
                let version = &*secret.meta().resource_version;
                let body =
                    json!({"metadata": {"resourceVersion": version}, "data": material.data()});
                let body = body.to_string().into();
                client.patch(&kind, namespace, name, "", PatchType::Merge, body).await
            }
        }
    }

    /// Returns the outcome of a write of the Secret. If another replica wrote first, its Secret is used.
    fn settle(
        &self,
        written: Result<Metadata, ApiError>,
        key: &Key,
        context: &Context,
    ) -> Result<Outcome, Error> {
        match written {
            Ok(written) => {
                let kind = Full::<Secret>::kind();
                context.wrote(key, &kind, &written.meta);
                Ok(Outcome::again(Duration::ZERO))
            }
            Err(error)
                if error.is_conflict() || error.is_already_exists() || error.is_not_found() =>
            {
                Ok(Outcome::again(CONFLICT_DELAY))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn injections(&self, bundle: &[u8]) -> Vec<Injection> {
        let mut found = injections(self.mutating.as_ref(), &self.names, bundle);
        found.extend(injections(self.validating.as_ref(), &self.names, bundle));
        found.extend(injections(self.conversions.as_ref(), &self.names, bundle));
        found.sort_by(|left, right| {
            (&left.kind.kind, &left.name).cmp(&(&right.kind.kind, &right.name))
        });
        found
    }
}

fn watch<C: Caller>(builder: Builder, cache: Option<&Cache<Calls<C>>>, key: &Key) -> Builder {
    let (Some(cache), key) = (cache, key.clone()) else { return builder };
    builder.watches(cache, move |_, enqueue: &Enqueue| enqueue.add(key.clone()))
}

fn injections<C: Caller>(
    cache: Option<&Cache<Calls<C>>>,
    names: &Names,
    bundle: &[u8],
) -> Vec<Injection> {
    let objects = cache.into_iter().flat_map(Cache::list);
    objects.filter_map(|calls| calls.injection(names, bundle)).collect()
}

async fn inject(injection: &Injection, client: &Client) -> Result<Metadata, ApiError> {
    let Injection { kind, name, form, body } = injection;
    client.patch(kind, "", name, "", *form, body.clone().into()).await
}
