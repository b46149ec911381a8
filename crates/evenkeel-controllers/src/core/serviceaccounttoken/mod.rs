//! Token controller: fills token Secrets of service accounts, and deletes token Secrets whose account does not exist.
//! It starts before the other controllers, with the credentials of the controller manager. Upstream:
//! `pkg/controller/serviceaccount/tokens_controller.go`.

mod options;
mod plan;
mod sign;
mod token_secret;

pub use options::{Options, SigningKey};
pub(super) use token_secret::AccountRef;

use crate::wiring::descriptor::{ControllerContext, Descriptor, StartError, Started};
use evenkeel_api::{View, time::Timestamp, views::ServiceAccount};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent, Caches, Full, Index},
    plan::{Key, Outcomes, Plan, Planner},
};
use k8s_openapi::api::core::v1::Secret;
use plan::{DataSources, Observed};
use sign::Signer;
use std::{path::Path, sync::Arc};

/// The token controller. Upstream: `newServiceAccountTokenControllerDescriptor`.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "serviceaccount-token-controller",
    aliases: &["serviceaccount-token"],
    queue: "serviceaccount_tokens_service",
    client: "tokens-controller",
    start,
    ..Descriptor::DEFAULTS
};

/// Maximum number of retries of a failing Secret. Upstream: `maxRetries`.
const MAX_RETRIES: u32 = 10;

/// Returns the cache of token Secrets.
pub(super) fn token_secrets(caches: &Caches) -> Cache<Full<Secret>> {
    caches.selected("", &format!("type={}", token_secret::SECRET_TYPE))
}

fn start(context: &ControllerContext) -> Result<Started, StartError> {
    let options = &context.options.serviceaccounttoken;
    let Some(key) = &options.key else {
        return Ok(Started::No("there is no private key; set --service-account-private-key-file"));
    };
    let start_error = |error: &dyn std::fmt::Display| StartError {
        controller: DESCRIPTOR.name,
        reason: format!("--service-account-private-key-file {key:?}: {error}"),
    };
    let pem = match key {
        SigningKey::File(path) => {
            std::fs::read(Path::new(path)).map_err(|error| start_error(&error))?
        }
        SigningKey::Text(pem) => pem.clone().into_bytes(),
    };
    let signer = Signer::from_pem(&pem).map_err(|error| start_error(&error))?;

    let caches = &context.env.caches;
    let secrets = token_secrets(caches);
    let accounts = caches.of::<ServiceAccount>();
    let secrets_by_account = secrets.index("account", |secret, key| {
        if let Some(reference) = AccountRef::of(secret) {
            key(&index_key(&secret.meta().namespace, reference.account));
        }
    });
    let accounts_by_secret = accounts.index("secret", |account, key| {
        for secret in &account.secrets {
            key(&index_key(&account.meta.namespace, &secret.name));
        }
    });
    let builder = context
        .builder(&DESCRIPTOR, &secrets)
        .workers(options.concurrent_syncs)
        .max_retries(MAX_RETRIES)
        .watches(&accounts, move |event, enqueue| {
            let CacheEvent::Deleted(account) = event else { return };
            let key = index_key(&account.meta.namespace, &account.meta.name);
            for secret in secrets_by_account.get(&key) {
                enqueue.add(Key::of(secret.meta()));
            }
        });
    let ca = context.options.rootcacertpublisher.ca.clone();
    let sources = DataSources { ca, signer };
    context.run(builder.planned(Tokens { secrets, accounts, accounts_by_secret, sources }));
    Ok(Started::Yes)
}

/// Decides the data of a service account's token Secret, or its deletion.
struct Tokens {
    secrets: Cache<Full<Secret>>,
    accounts: Cache<ServiceAccount>,
    /// Service accounts by the Secrets that they refer to.
    accounts_by_secret: Index<ServiceAccount>,
    sources: DataSources,
}

impl Planner for Tokens {
    type Observed = Observed;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<Observed> {
        let Key { namespace, name } = key;
        let Some(secret) = self.secrets.get(namespace, name) else {
            let referrers = self.accounts_by_secret.get(&index_key(namespace, name));
            if referrers.is_empty() {
                return None;
            }
            return Some(Observed::Gone { name: Arc::clone(name), referrers });
        };
        let account = AccountRef::of(&secret).and_then(|reference| {
            let account = self.accounts.get(namespace, reference.account);
            account.filter(|account| reference.is_for(account))
        });
        Some(Observed::Secret { secret, account })
    }

    fn plan(&self, observed: &Observed, (): &(), _: Timestamp) -> (Plan, ()) {
        (plan::plan(observed, &self.sources), ())
    }

    fn next(&self, observed: &Observed, (): &(), done: &Outcomes, _: Timestamp) -> Option<Plan> {
        plan::next(observed, &self.sources, done)
    }
}

/// Returns the key of a Secret or service account in the indexes.
fn index_key(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}
