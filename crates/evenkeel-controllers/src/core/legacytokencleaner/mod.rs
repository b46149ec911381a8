//! Legacy service account token cleaner: marks unused auto-generated tokens as invalid, and deletes them a period later
//! (KEP-2799). Upstream: `pkg/controller/serviceaccount/legacy_serviceaccount_token_cleaner.go`.

mod options;
mod plan;
mod token;

pub use options::Options;

use super::serviceaccounttoken::token_secrets;
use crate::wiring::descriptor::{ControllerContext, Descriptor, StartError, Started};
use evenkeel_api::{View as _, time::Timestamp, views::ServiceAccount};
use evenkeel_runtime::{
    cache::{Cache, Full},
    controller::Periodic,
    plan::{Key, Outcomes, Plan, Planner},
};
use k8s_openapi::api::core::v1::Secret;
use plan::{Observed, Token};
use std::{sync::Arc, time::Duration};

/// Interval between two runs. Upstream: `syncInterval`.
const SYNC_INTERVAL: Duration = Duration::from_secs(24 * 3600);

/// The legacy token cleaner. Upstream: `newLegacyServiceAccountTokenCleanerControllerDescriptor`.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "legacy-serviceaccount-token-cleaner-controller",
    aliases: &["legacy-service-account-token-cleaner"],
    client: "legacy-service-account-token-cleaner",
    start,
    ..Descriptor::DEFAULTS
};

fn start(context: &ControllerContext) -> Result<Started, StartError> {
    let period = context.options.legacytokencleaner.clean_up_period;
    if period.is_zero() {
        let reason = "--legacy-service-account-token-clean-up-period must be above zero".to_owned();
        return Err(StartError { controller: DESCRIPTOR.name, reason });
    }
    let secrets = token_secrets(&context.env.caches);
    let accounts = context.env.caches.of::<ServiceAccount>();
    let passes = Periodic::new(&context.env, DESCRIPTOR.name).reads(&secrets).reads(&accounts);
    let passes = passes.client(context.client(&DESCRIPTOR));
    passes.planned(&context.tasks, SYNC_INTERVAL, Cleaner { secrets, accounts, period }, ());
    Ok(Started::Yes)
}

/// Planner that marks and deletes unused tokens.
struct Cleaner {
    secrets: Cache<Full<Secret>>,
    accounts: Cache<ServiceAccount>,
    /// Time without use after which a token is marked, and after the same time deleted.
    period: Duration,
}

impl Planner for Cleaner {
    type Observed = Observed;
    type Memory = ();

    fn observe(&self, _: &Key, (): &()) -> Option<Observed> {
        let token = |secret: Arc<Full<Secret>>| {
            let meta = secret.meta();
            let account_name = meta.annotations.get("kubernetes.io/service-account.name");
            let account = account_name.and_then(|name| self.accounts.get(&meta.namespace, name));
            Token { secret, account }
        };
        let tokens = self.secrets.list().into_iter().map(token).collect();
        Some(Observed { tokens, period: self.period })
    }

    fn plan(&self, _: &Observed, (): &(), _: Timestamp) -> (Plan, ()) {
        (plan::plan(), ())
    }

    fn next(&self, observed: &Observed, (): &(), done: &Outcomes, now: Timestamp) -> Option<Plan> {
        plan::next(observed, done, now)
    }
}
