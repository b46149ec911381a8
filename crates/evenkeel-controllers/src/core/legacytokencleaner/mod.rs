//! Legacy service account token cleaner: marks unused auto-generated tokens as invalid, and deletes them a period later
//! (KEP-2799). Upstream: `pkg/controller/serviceaccount/legacy_serviceaccount_token_cleaner.go`.

mod act;
mod options;
mod plan;

pub use options::Options;

use super::serviceaccounttoken::token_secrets;
use crate::wiring::descriptor::{ControllerContext, Descriptor, StartError};
use act::Cleaner;
use evenkeel_api::views::ServiceAccount;
use evenkeel_runtime::controller::Periodic;
use std::sync::Arc;

/// The legacy token cleaner. Upstream: `newLegacyServiceAccountTokenCleanerControllerDescriptor`.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "legacy-serviceaccount-token-cleaner-controller",
    aliases: &["legacy-service-account-token-cleaner"],
    client: "legacy-service-account-token-cleaner",
    start,
    ..Descriptor::ORDINARY
};

fn start(context: &ControllerContext) -> Result<(), StartError> {
    let period = context.options.legacytokencleaner.clean_up_period;
    if period.is_zero() {
        let reason = "--legacy-service-account-token-clean-up-period must be above zero".to_owned();
        return Err(StartError { controller: DESCRIPTOR.name, reason });
    }
    let cleaner = Cleaner {
        secrets: token_secrets(&context.env.caches),
        accounts: context.env.caches.of::<ServiceAccount>(),
        client: context.client(&DESCRIPTOR),
        reader: context.env.client.clone(),
        clock: context.env.clock.clone(),
        period,
    };
    let passes = Periodic::new(&context.env, DESCRIPTOR.name);
    let passes = passes.reads(&cleaner.secrets).reads(&cleaner.accounts);
    let cleaner = Arc::new(cleaner);
    passes.every(&context.tasks, act::ROUND, move || {
        let cleaner = Arc::clone(&cleaner);
        async move { cleaner.pass().await }
    });
    Ok(())
}
