//! Stands for a coordinated election: keeps this process's LeaseCandidate fresh, by which the server chooses who leads.
//!
//! Upstream: KEP-4355, `tools/leaderelection/leasecandidate.go`.

use crate::{
    cache::Full,
    client::{ApiError, Client},
};
use evenkeel_api::Kind;
use k8s_openapi::{
    api::coordination::v1beta1::{LeaseCandidate, LeaseCandidateSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use std::time::Duration;

static CANDIDATES: Kind =
    Kind::new("coordination.k8s.io", "v1beta1", "LeaseCandidate", "leasecandidates", true);

/// How often it is looked whether the server asks for a sign of life. It waits five seconds for one.
const LOOK: Duration = Duration::from_secs(2);

/// How often a sign of life is given unasked. The server forgets a candidate after half an hour.
const RENEWAL: Duration = Duration::from_secs(300);

/// A candidacy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidacy {
    /// Namespace of the LeaseCandidate and of the Lease.
    pub namespace: String,
    /// The contender's identity, which is the LeaseCandidate's name.
    pub identity: String,
    /// Name of the Lease.
    pub lease: String,
    /// What the program is, as `1.37.0`.
    pub binary_version: String,
    /// What it behaves as, as `1.37.0`.
    pub emulation_version: String,
    /// How the server is to choose, such as `OldestEmulationVersion`.
    pub strategy: String,
}

/// Keeps a LeaseCandidate there and fresh; see [`Candidate::run`].
pub struct Candidate {
    client: Client,
    candidacy: Candidacy,
}

impl Candidate {
    /// A candidate that writes with `client`.
    pub fn new(client: &Client, candidacy: Candidacy) -> Self {
        Self { client: client.with_user_agent("leader-election"), candidacy }
    }

    /// Stands until it is dropped. What fails is told and tried again.
    pub async fn run(self) {
        let clock = self.client.clock().clone();
        loop {
            if let Err(error) = self.keep().await {
                let name = &self.candidacy.identity;
                tracing::warn!(%name, %error, "lease candidate not renewed");
            }
            clock.sleep(LOOK).await;
        }
    }

    async fn keep(&self) -> Result<(), ApiError> {
        let Candidacy { namespace, identity, .. } = &self.candidacy;
        let now = self.client.clock().now();
        match self.client.get::<Full<LeaseCandidate>>(namespace, identity).await {
            Ok(found) => {
                let mut found = found.into_inner();
                let spec = &mut found.spec;
                let renewed = spec.renew_time.as_ref().map(|time| time.0);
                let asked = spec.ping_time.as_ref().map(|time| time.0) > renewed;
                let stale = renewed.is_none_or(|at| {
                    Duration::try_from(now.duration_since(at)).is_ok_and(|age| age >= RENEWAL)
                });
                if asked || stale {
                    spec.renew_time = Some(MicroTime(now));
                    let body = body(&found)?;
                    self.client
                        .update::<Full<LeaseCandidate>>(&CANDIDATES, namespace, identity, "", body)
                        .await?;
                }
                Ok(())
            }
            Err(error) if error.is_not_found() => {
                let body = body(&self.fresh(MicroTime(now)))?;
                self.client.create::<Full<LeaseCandidate>>(&CANDIDATES, namespace, body).await?;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn fresh(&self, now: MicroTime) -> LeaseCandidate {
        let Candidacy { namespace, identity, lease, binary_version, emulation_version, strategy } =
            self.candidacy.clone();
        let metadata = ObjectMeta {
            name: Some(identity),
            namespace: Some(namespace),
            ..ObjectMeta::default()
        };
        let spec = LeaseCandidateSpec {
            binary_version,
            emulation_version: Some(emulation_version),
            lease_name: lease,
            ping_time: None,
            renew_time: Some(now),
            strategy,
        };
        LeaseCandidate { metadata, spec }
    }
}

fn body(candidate: &LeaseCandidate) -> Result<bytes::Bytes, ApiError> {
    let body = serde_json::to_vec(candidate).map_err(|error| ApiError::Request {
        path: CANDIDATES.path("").into(),
        reason: error.to_string().into(),
    })?;
    Ok(body.into())
}
