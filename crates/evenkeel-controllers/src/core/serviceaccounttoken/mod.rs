//! Token controller: fills token Secrets of service accounts, and deletes token Secrets whose account does not exist.
//! It starts first, with the program's own credentials. Upstream:
//! `pkg/controller/serviceaccount/tokens_controller.go`.

mod options;
mod plan;
mod sign;
mod token_secret;

pub use options::{Options, SigningKey};
pub(super) use token_secret::Claim;

use crate::wiring::descriptor::{ControllerContext, Descriptor, StartError};
use evenkeel_api::{View, time::Timestamp, views::ServiceAccount};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent, Caches, Full, Index},
    plan::{Key, Outcomes, Plan, Planner},
};
use k8s_openapi::api::core::v1::Secret;
use plan::{Filling, Observed};
use sign::Signer;
use std::{path::Path, sync::Arc};

/// The token controller. Upstream: `newServiceAccountTokenControllerDescriptor`.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "serviceaccount-token-controller",
    aliases: &["serviceaccount-token"],
    queue: "serviceaccount_tokens_service",
    client: "tokens-controller",
    start,
    ..Descriptor::ORDINARY
};

/// Maximum number of retries of a failing Secret. Upstream: `maxRetries`.
const RETRIES: u32 = 10;

/// Returns the cache of token Secrets.
pub(super) fn token_secrets(caches: &Caches) -> Cache<Full<Secret>> {
    caches.selected("", &format!("type={}", token_secret::TYPE))
}

fn start(context: &ControllerContext) -> Result<(), StartError> {
    let options = &context.options.serviceaccounttoken;
    let Some(key) = &options.key else {
        tracing::info!(
            controller = DESCRIPTOR.name,
            "Controller is disabled because there is no private key"
        );
        return Ok(());
    };
    let refused = |error: &dyn std::fmt::Display| StartError {
        controller: DESCRIPTOR.name,
        reason: format!("--service-account-private-key-file {key:?}: {error}"),
    };
    let pem = match key {
        SigningKey::File(path) => std::fs::read(Path::new(path)).map_err(|e| refused(&e))?,
        SigningKey::Text(pem) => pem.clone().into_bytes(),
    };
    let signer = Signer::from_pem(&pem).map_err(|error| refused(&error))?;

    let caches = &context.env.caches;
    let (secrets, accounts) = (token_secrets(caches), caches.of::<ServiceAccount>());
    let of_account = secrets.index("account", |secret, key| {
        if let Some(claim) = Claim::of(secret) {
            key(&index_key(&secret.meta().namespace, claim.account));
        }
    });
    let with_secret = accounts.index("secret", |account, key| {
        for secret in &account.secrets {
            key(&index_key(&account.meta.namespace, &secret.name));
        }
    });
    let builder = context
        .builder(&DESCRIPTOR, &secrets)
        .workers(options.concurrent_syncs)
        .max_retries(RETRIES)
        .watches(&accounts, move |event, enqueue| {
            let CacheEvent::Deleted(account) = event else { return };
            let secrets_of_account =
                of_account.get(&index_key(&account.meta.namespace, &account.meta.name));
            secrets_of_account.iter().for_each(|secret| enqueue.add(Key::of(secret.meta())));
        });
    let ca = context.options.rootcacertpublisher.ca.clone();
    let filling = Filling { ca, signer };
    context.run(builder.planned(Tokens { secrets, accounts, with_secret, filling }));
    Ok(())
}

/// Caches and signing key of the token controller.
struct Tokens {
    secrets: Cache<Full<Secret>>,
    accounts: Cache<ServiceAccount>,
    /// Service accounts by the Secrets that they refer to.
    with_secret: Index<ServiceAccount>,
    filling: Filling,
}

impl Planner for Tokens {
    type Observed = Observed;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<Observed> {
        let Key { namespace, name } = key;
        let Some(secret) = self.secrets.get(namespace, name) else {
            let referrers = self.with_secret.get(&index_key(namespace, name));
            let is_referred_to = !referrers.is_empty();
            return is_referred_to.then(|| Observed::Gone { name: Arc::clone(name), referrers });
        };
        let account = Claim::of(&secret).and_then(|claim| {
            let account = self.accounts.get(namespace, claim.account);
            account.filter(|account| claim.is_for(account))
        });
        Some(Observed::Secret { secret, account })
    }

    fn plan(&self, observed: &Observed, (): &(), _: Timestamp) -> (Plan, ()) {
        (plan::plan(observed, &self.filling), ())
    }

    fn next(&self, observed: &Observed, (): &(), done: &Outcomes, _: Timestamp) -> Option<Plan> {
        plan::next(observed, &self.filling, done)
    }
}

fn index_key(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}
