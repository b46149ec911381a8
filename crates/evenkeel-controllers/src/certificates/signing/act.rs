//! Signs, or says why not.

use super::{
    authority::Authority,
    plan::{self, Signer, Step},
};
use crate::{certificates::SigningRequest, wire};
use evenkeel_runtime::{
    cache::Cache,
    client::Metadata,
    controller::{Context, Error, Outcome},
    plan::Key,
};
use std::time::Duration;

/// The controller's eyes and its keys.
pub(super) struct Signing {
    pub(super) requests: Cache<SigningRequest>,
    /// Those that have a key.
    pub(super) signers: Vec<Signer>,
    pub(super) authorities: Vec<(Signer, Authority)>,
    pub(super) longest: Duration,
}

impl Signing {
    pub(super) async fn reconcile(&self, key: &Key, context: &Context) -> Result<Outcome, Error> {
        let Some(request) = self.requests.get("", &key.name) else { return Ok(Outcome::Settled) };
        let now = context.env.clock.now();
        let written = match plan::plan(&request, &self.signers)? {
            Step::Nothing => return Ok(Outcome::Settled),
            Step::Refuse(words) => plan::refused(&request, &words, now),
            Step::Sign(signer, content) => {
                let found = self.authorities.iter().find(|(one, _)| *one == signer);
                let Some((_, authority)) = found else { return Ok(Outcome::Settled) };
                let usages = request.spec.usages.as_deref().unwrap_or_default();
                let lifetime = plan::lifetime(request.spec.expiration_seconds, self.longest);
                let certificate = authority.current().sign(&content, usages, lifetime, now)?;
                plan::with_certificate(&request, certificate)
            }
        };
        let (kind, body) = (self.requests.kind(), wire::json(&written));
        let client = &context.env.client;
        let made = client.update::<Metadata>(kind, "", &key.name, "status", body).await?;
        context.wrote(key, kind, &made.meta.resource_version);
        Ok(Outcome::Settled)
    }
}
