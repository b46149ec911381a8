//! Token cleaner: deletes expired bootstrap tokens. Upstream: `pkg/controller/bootstrap/tokencleaner.go`.

mod plan;

use super::token::{NAMESPACE, TokenSecret, token_secrets};
use crate::wiring::descriptor::{ControllerContext, Descriptor, StartError, Started};
use evenkeel_api::{View as _, time::Timestamp};
use evenkeel_runtime::{
    cache::Cache,
    plan::{Key, Plan, Planner},
};
use std::sync::Arc;

/// The token cleaner. Upstream: `newTokenCleanerControllerDescriptor`.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "token-cleaner-controller",
    aliases: &["tokencleaner"],
    queue: "token_cleaner",
    client: "token-cleaner",
    on_by_default: false,
    start,
    ..Descriptor::DEFAULTS
};

fn start(context: &ControllerContext) -> Result<Started, StartError> {
    let tokens = token_secrets(&context.env.caches);
    let builder = context.builder_watching(&DESCRIPTOR, &tokens, |event, enqueue| {
        let meta = event.object().meta();
        if &*meta.namespace == NAMESPACE {
            enqueue.add(Key::of(meta));
        }
    });
    context.run(builder.planned(Cleaner { tokens }));
    Ok(Started::Yes)
}

/// Planner that deletes expired bootstrap tokens.
struct Cleaner {
    tokens: Cache<TokenSecret>,
}

impl Planner for Cleaner {
    type Observed = Arc<TokenSecret>;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<Arc<TokenSecret>> {
        self.tokens.get(&key.namespace, &key.name)
    }

    fn plan(&self, token: &Arc<TokenSecret>, (): &(), now: Timestamp) -> (Plan, ()) {
        (plan::plan(token, now), ())
    }
}
