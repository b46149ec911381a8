//! Daily pass over all legacy tokens. Upstream: `evaluateSATokens`.

use super::plan::{self, Age, INVALID_SINCE, Step};
use evenkeel_api::{
    Kind, Text, View,
    views::{ConfigMap, ServiceAccount},
};
use evenkeel_runtime::{
    cache::{Cache, Full},
    client::{ApiError, Client, DeleteOptions, Metadata, full_text},
    clock::Clock,
    plan::PatchForm,
};
use http::{Request, header::ACCEPT};
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// Period of the passes. Upstream: `syncInterval`.
pub(super) const ROUND: Duration = Duration::from_secs(24 * 3600);

/// ConfigMap and key with the date since when the API server tracks the use of tokens.
const TRACKING: (&str, &str) =
    ("kube-system", "kube-apiserver-legacy-service-account-token-tracking");

/// Caches and clients of the cleaner.
pub(super) struct Cleaner {
    pub(super) secrets: Cache<Full<Secret>>,
    pub(super) accounts: Cache<ServiceAccount>,
    pub(super) client: Client,
    /// Client that reads pods, which the cleaner's role does not permit.
    pub(super) reader: Client,
    pub(super) clock: Clock,
    pub(super) period: Duration,
}

impl Cleaner {
    /// Marks and deletes tokens. After an error, the rest waits for the next pass.
    pub(super) async fn pass(&self) {
        if let Err(error) = self.round().await {
            tracing::warn!(error, "Skipping the pass over legacy tokens");
        }
    }

    async fn round(&self) -> Result<(), String> {
        let tracking = self.client.get::<ConfigMap>(TRACKING.0, TRACKING.1).await;
        let tracking = tracking.map_err(|error| full_text(&error))?;
        let since =
            tracking.data.get("since").ok_or("the server does not say since when it tracks")?;
        let Some(age) = Age::new(self.clock.now(), self.period, since)? else { return Ok(()) };
        for (namespace, secrets) in self.candidates(&age) {
            let mounted = self.mounted(&namespace).await.map_err(|error| full_text(&error))?;
            for secret in secrets.iter().filter(|one| !mounted.contains(&*one.meta().name)) {
                if let Some(step) = plan::plan(secret, &age)
                    && let Err(error) = self.act(secret, &step).await
                {
                    let name = &*secret.meta().name;
                    tracing::warn!(%namespace, name, %error, "Failed to mark or delete the legacy token");
                }
            }
        }
        Ok(())
    }

    /// Returns the unused tokens by namespace.
    fn candidates(&self, age: &Age) -> BTreeMap<Text, Vec<Arc<Full<Secret>>>> {
        let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for secret in self.secrets.list() {
            let meta = secret.meta();
            let account = meta.annotations.get("kubernetes.io/service-account.name");
            let account = account.and_then(|name| self.accounts.get(&meta.namespace, name));
            if plan::is_candidate(&secret, account.as_ref(), age) {
                all.entry(meta.namespace.clone()).or_default().push(secret);
            }
        }
        all
    }

    /// Returns the Secrets that pods of a namespace use, by a live list, as it is needed once a day. Upstream:
    /// `getMountedSecretNames`.
    async fn mounted(&self, namespace: &str) -> Result<BTreeSet<String>, ApiError> {
        let pods = Kind::new("", "v1", "Pod", "pods", true);
        let request = Request::get(pods.path(namespace)).header(ACCEPT, "application/json");
        let request = request.body(bytes::Bytes::new()).map_err(|error| ApiError::Request {
            path: namespace.into(),
            reason: error.to_string().into(),
        })?;
        let answer = self.reader.raw(request).await?;
        let list: Value =
            serde_json::from_slice(answer.body()).map_err(|error| ApiError::Request {
                path: namespace.into(),
                reason: format!("the list of pods cannot be read: {error}").into(),
            })?;
        let mut names = BTreeSet::new();
        plan::secrets_of(&list, &mut |name| {
            names.insert(name.to_owned());
        });
        Ok(names)
    }

    async fn act(&self, secret: &Full<Secret>, step: &Step) -> Result<(), ApiError> {
        let (meta, kind) = (secret.meta(), self.secrets.kind());
        let (namespace, name) = (&*meta.namespace, &*meta.name);
        let answer = match step {
            Step::Mark(day) => {
                tracing::info!(
                    namespace,
                    name,
                    "Mark the auto-generated service account token as invalid"
                );
                let labels = json!({INVALID_SINCE: day.to_string()});
                let body = json!({"metadata": {"uid": &*meta.uid, "labels": labels}}).to_string();
                let form = PatchForm::Merge;
                self.client.patch::<Metadata>(kind, namespace, name, "", form, body.into()).await
            }
            Step::Delete => {
                tracing::info!(namespace, name, "Delete auto-generated service account token");
                let resource_version = meta.resource_version.to_string();
                let options = DeleteOptions { resource_version, ..DeleteOptions::default() };
                self.client.delete(kind, namespace, name, &options).await
            }
        };
        match answer {
            Err(error) if !error.is_not_found() && !error.is_conflict() => Err(error),
            _ => Ok(()),
        }
    }
}
