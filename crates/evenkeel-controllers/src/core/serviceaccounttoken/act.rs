//! Live reads and writes of the token controller.

use super::{
    plan::{self, Claim, Lacks, Step},
    sign::Signer,
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use evenkeel_api::{Kind, View, views::ServiceAccount};
use evenkeel_runtime::{
    cache::{Cache, Full, Index},
    client::{ApiError, Client, DeleteOptions, Metadata},
    controller::{Context, Error, Outcome},
    plan::Key,
};
use http::{Request, header::ACCEPT};
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Map, Value};
use std::sync::Arc;

/// Caches and signing key of the token controller.
pub(super) struct Tokens {
    pub(super) secrets: Cache<Full<Secret>>,
    pub(super) accounts: Cache<ServiceAccount>,
    /// Service accounts by the Secrets that they refer to.
    pub(super) with_secret: Index<ServiceAccount>,
    pub(super) ca: Option<Arc<str>>,
    pub(super) signer: Signer,
}

impl Tokens {
    pub(super) async fn reconcile(&self, key: &Key, context: &Context) -> Result<Outcome, Error> {
        let client = &context.env.client;
        let Some(secret) = self.secrets.get(&key.namespace, &key.name) else {
            return self.forget(client, key).await;
        };
        let Some(claim) = Claim::of(&secret) else { return Ok(Outcome::Settled) };
        let account = self.account(client, &key.namespace, claim).await?;
        match plan::plan(&secret, account.as_deref(), self.ca.as_deref()) {
            Step::Nothing => {}
            Step::Delete => {
                let uid = secret.meta().uid.to_string();
                let options = DeleteOptions { uid, ..DeleteOptions::default() };
                let kind = self.secrets.kind();
                quiet(client.delete(kind, &key.namespace, &key.name, &options).await)?;
            }
            Step::Fill(lacks) => {
                if let Some(account) = &account {
                    self.fill(context, key, &secret, account, lacks).await?;
                }
            }
        }
        Ok(Outcome::Settled)
    }

    /// Returns the service account of a Secret; reads it live if the cache lacks it.
    async fn account(
        &self,
        client: &Client,
        namespace: &str,
        claim: Claim<'_>,
    ) -> Result<Option<Arc<ServiceAccount>>, ApiError> {
        let meant = |account: &Arc<ServiceAccount>| claim.means(account);
        if let Some(account) = self.accounts.get(namespace, claim.account).filter(meant) {
            return Ok(Some(account));
        }
        match client.get::<ServiceAccount>(namespace, claim.account).await {
            Ok(account) => Ok(Some(Arc::new(account)).filter(meant)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn fill(
        &self,
        context: &Context,
        key: &Key,
        secret: &Full<Secret>,
        account: &ServiceAccount,
        lacks: Lacks,
    ) -> Result<(), Error> {
        let (client, kind) = (&context.env.client, self.secrets.kind());
        let Some(mut live) = live(client, kind, key).await? else { return Ok(()) };
        if version(&live) != &*secret.meta().resource_version {
            // The event of that change will enqueue the Secret.
            return Ok(());
        }
        let token = if lacks.token {
            Some(self.signer.sign(&plan::claims(secret, account))?)
        } else {
            None
        };
        let encode = |text: &str| BASE64_STANDARD.encode(text);
        let change = plan::change(account, lacks, self.ca.as_deref(), token.as_deref(), encode);
        merge(&mut live, &change);
        let body = live.to_string().into();
        let written = client.update::<Metadata>(kind, &key.namespace, &key.name, "", body).await;
        if let Some(made) = quiet(written)? {
            context.wrote(key, kind, &made.meta.resource_version);
        }
        Ok(())
    }

    /// Removes references to a deleted Secret. Upstream: `removeSecretReference`.
    async fn forget(&self, client: &Client, key: &Key) -> Result<Outcome, Error> {
        for account in self.with_secret.get(&super::by_account(&key.namespace, &key.name)) {
            let (kind, of) = (self.accounts.kind(), Key::of(&account.meta));
            let Some(mut live) = live(client, kind, &of).await? else { continue };
            let Some(Value::Array(secrets)) = live.get_mut("secrets") else { continue };
            let before = secrets.len();
            secrets.retain(|one| one.get("name").and_then(Value::as_str) != Some(&*key.name));
            if secrets.len() < before {
                let body = live.to_string().into();
                match client.update::<Metadata>(kind, &of.namespace, &of.name, "", body).await {
                    Err(error) if !error.is_not_found() => return Err(error.into()),
                    _ => {}
                }
            }
        }
        Ok(Outcome::Settled)
    }
}

/// Reads an object live; `None` if it is deleted.
async fn live(client: &Client, kind: &Kind, key: &Key) -> Result<Option<Value>, Error> {
    let path = format!("{}/{}", kind.path(&key.namespace), key.name);
    let request = Request::get(path).header(ACCEPT, "application/json").body(Bytes::new())?;
    match client.raw(request).await {
        Ok(answer) => Ok(Some(serde_json::from_slice(answer.body())?)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn version(object: &Value) -> &str {
    object.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default()
}

/// Merges JSON objects recursively; other values are replaced.
fn merge(object: &mut Value, change: &Value) {
    let Value::Object(change) = change else { return object.clone_from(change) };
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let Value::Object(fields) = object else { return };
    for (name, change) in change {
        merge(fields.entry(name.as_str()).or_insert(Value::Null), change);
    }
}

/// Ignores conflicts and NotFound, which an event follows.
fn quiet<T>(answer: Result<T, ApiError>) -> Result<Option<T>, ApiError> {
    match answer {
        Ok(made) => Ok(Some(made)),
        Err(error) if error.is_not_found() || error.is_conflict() => Ok(None),
        Err(error) => Err(error),
    }
}
