//! Candidate of a coordinated election, which renews this process's LeaseCandidate. The server chooses a leader among
//! the candidates.
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

/// Interval at which the candidate checks its LeaseCandidate for a ping. The server waits five seconds for the renewal.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Interval of renewals without a ping. The server deletes a candidate that is not renewed for half an hour.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(300);

/// Content of a LeaseCandidate: the candidate's identity and versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CandidateConfig {
    /// Namespace of the LeaseCandidate.
    pub namespace: String,
    /// Identity of the elector, which is the LeaseCandidate's name.
    pub identity: String,
    /// Name of the Lease.
    pub lease: String,
    /// Version of the program, such as `1.37.0`.
    pub binary_version: String,
    /// Version that the program emulates (KEP-4330), such as `1.37.0`.
    pub emulation_version: String,
    /// Strategy for the server's choice, such as `OldestEmulationVersion`.
    pub strategy: String,
}

/// Creates and renews a LeaseCandidate. See [`Candidate::run`].
pub struct Candidate {
    client: Client,
    config: CandidateConfig,
}

impl Candidate {
    /// Creates a candidate that writes with `client`.
    pub fn new(client: &Client, config: CandidateConfig) -> Self {
        Self { client: client.with_user_agent("leader-election"), config }
    }

    /// Renews the LeaseCandidate until the future is dropped. Failures are logged and retried.
    pub async fn run(self) {
        let clock = self.client.clock().clone();
        loop {
            if let Err(error) = self.ensure_lease().await {
                let name = &self.config.identity;
                tracing::warn!(%name, %error, "lease candidate not renewed");
            }
            clock.sleep(POLL_INTERVAL).await;
        }
    }

    /// Creates the LeaseCandidate, or renews it if the server pinged it or the renewal is due. An earlier process with the same
    /// identity may have left a LeaseCandidate with other versions, which are corrected.
    ///
    /// Upstream: `ensureLease`, which corrects nothing.
    async fn ensure_lease(&self) -> Result<(), ApiError> {
        let CandidateConfig { namespace, identity, .. } = &self.config;
        let now = self.client.clock().now();
        match self.client.get::<Full<LeaseCandidate>>(namespace, identity).await {
            Ok(found) => {
                let LeaseCandidate { metadata, spec } = found.into_inner();
                let spec: Option<LeaseCandidateSpec> = spec.into();
                let mut spec = spec.unwrap_or_default();
                let renewed = spec.renew_time.as_ref().map(|time| time.0);
                let is_pinged = spec.ping_time.as_ref().map(|time| time.0) > renewed;
                let is_due = renewed.is_none_or(|renewed| {
                    Duration::try_from(now.duration_since(renewed))
                        .is_ok_and(|age| age >= RENEWAL_INTERVAL)
                });
                if self.update_spec(&mut spec) || is_pinged || is_due {
                    spec.renew_time = Some(MicroTime(now));
                    let body = encode(&candidate(metadata, spec))?;
                    self.client
                        .update::<Full<LeaseCandidate>>(&CANDIDATES, namespace, identity, "", body)
                        .await?;
                }
                Ok(())
            }
            Err(error) if error.is_not_found() => {
                let body = encode(&self.new_candidate(MicroTime(now)))?;
                self.client.create::<Full<LeaseCandidate>>(&CANDIDATES, namespace, body).await?;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Gives a spec the content of the configuration. Returns whether it differed. The server refuses another lease name with
    /// an error, which means that two programs have the same identity.
    fn update_spec(&self, spec: &mut LeaseCandidateSpec) -> bool {
        let CandidateConfig { lease, binary_version, emulation_version, strategy, .. } =
            &self.config;
        let is_same = spec.lease_name == *lease
            && spec.binary_version == *binary_version
            && spec.emulation_version.as_deref().unwrap_or_default() == *emulation_version
            && spec.strategy == *strategy;
        if !is_same {
            spec.lease_name.clone_from(lease);
            spec.binary_version.clone_from(binary_version);
            spec.emulation_version = Some(emulation_version.clone());
            spec.strategy.clone_from(strategy);
        }
        !is_same
    }

    fn new_candidate(&self, now: MicroTime) -> LeaseCandidate {
        let CandidateConfig {
            namespace,
            identity,
            lease,
            binary_version,
            emulation_version,
            strategy,
        } = self.config.clone();
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
        candidate(metadata, spec)
    }
}

/// Returns a LeaseCandidate. The types of Kubernetes before v1.36 have its spec as an option.
#[allow(clippy::useless_conversion, reason = "of no use with the newer types alone")]
fn candidate(metadata: ObjectMeta, spec: LeaseCandidateSpec) -> LeaseCandidate {
    LeaseCandidate { metadata, spec: spec.into() }
}

fn encode(candidate: &LeaseCandidate) -> Result<bytes::Bytes, ApiError> {
    let body = serde_json::to_vec(candidate).map_err(|error| ApiError::Request {
        path: CANDIDATES.path("").into(),
        reason: error.to_string().into(),
    })?;
    Ok(body.into())
}
