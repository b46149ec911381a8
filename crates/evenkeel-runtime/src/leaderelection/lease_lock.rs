//! Reads and writes of the Lease of an election.
//!
//! Upstream: `resourcelock.LeaseLock`.

use super::{Config, elector_state::LeaderElectionRecord};
use crate::{
    cache::Full,
    client::{ApiError, Client},
    plan::Target,
};
use evenkeel_api::Kind;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::time::timeout;

static LEASES: Kind = Kind::new("coordination.k8s.io", "v1", "Lease", "leases", true);

/// Lease of an election, as last read or written. Updates keep the fields that this program does not set.
pub(super) struct LeaseLock {
    client: Client,
    namespace: String,
    name: String,
    labels: BTreeMap<String, String>,
    request_timeout: Duration,
    lease: Mutex<Option<Lease>>,
}

/// Error from reading or writing the lease.
#[derive(Debug, thiserror::Error)]
pub(super) enum LockError {
    #[error("{0}")]
    Api(#[from] ApiError),
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    #[error("the lease has not been read yet")]
    NotRead,
    #[error("the lease cannot be written as JSON: {0}")]
    Encode(#[from] serde_json::Error),
}

impl LockError {
    pub(super) fn is_conflict(&self) -> bool {
        matches!(self, Self::Api(error) if error.is_conflict())
    }
}

impl LeaseLock {
    pub(super) fn new(client: Client, config: &Config) -> Self {
        Self {
            client,
            namespace: config.namespace.clone(),
            name: config.name.clone(),
            labels: config.labels.clone(),
            request_timeout: config.request_timeout(),
            lease: Mutex::new(None),
        }
    }

    /// Returns the Lease as the object of events about this election.
    pub(super) fn target(&self) -> Target {
        let uid =
            self.lease().as_ref().and_then(|lease| lease.metadata.uid.clone()).unwrap_or_default();
        Target::new(LEASES.clone(), &self.namespace, &self.name, &uid)
    }

    /// Reads the lease. Returns `None` if it does not exist.
    pub(super) async fn read(&self) -> Result<Option<LeaderElectionRecord>, LockError> {
        let request = self.client.get::<Full<Lease>>(&self.namespace, &self.name);
        match self.with_timeout(request).await {
            Ok(lease) => Ok(Some(self.store(lease))),
            Err(LockError::Api(error)) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn create(&self, record: &LeaderElectionRecord) -> Result<(), LockError> {
        let metadata = ObjectMeta {
            name: Some(self.name.clone()),
            namespace: Some(self.namespace.clone()),
            labels: (!self.labels.is_empty()).then(|| self.labels.clone()),
            ..ObjectMeta::default()
        };
        let lease = Lease { metadata, spec: Some(to_spec(record, None)) };
        let body = serde_json::to_vec(&lease)?.into();
        let created = self
            .with_timeout(self.client.create::<Full<Lease>>(&LEASES, &self.namespace, body))
            .await?;
        self.store(created);
        Ok(())
    }

    /// Updates the lease. The precondition is the resourceVersion that was last read or written.
    pub(super) async fn update(&self, record: &LeaderElectionRecord) -> Result<(), LockError> {
        let mut lease = self.lease().clone().ok_or(LockError::NotRead)?;
        lease.spec = Some(to_spec(record, lease.spec.take()));
        if !self.labels.is_empty() {
            lease.metadata.labels.get_or_insert_default().extend(self.labels.clone());
        }
        let body = serde_json::to_vec(&lease)?.into();
        let request =
            self.client.update::<Full<Lease>>(&LEASES, &self.namespace, &self.name, "", body);
        let updated = self.with_timeout(request).await?;
        self.store(updated);
        Ok(())
    }

    /// Stores a lease that was read or written, and returns its record.
    fn store(&self, lease: Full<Lease>) -> LeaderElectionRecord {
        let lease = lease.into_inner();
        let record = to_record(lease.spec.as_ref());
        *self.lease() = Some(lease);
        record
    }

    async fn with_timeout<T>(
        &self,
        request: impl Future<Output = Result<T, ApiError>>,
    ) -> Result<T, LockError> {
        Ok(timeout(self.request_timeout, request)
            .await
            .map_err(|_| LockError::TimedOut(self.request_timeout))??)
    }

    fn lease(&self) -> MutexGuard<'_, Option<Lease>> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn to_record(spec: Option<&LeaseSpec>) -> LeaderElectionRecord {
    let Some(spec) = spec else { return LeaderElectionRecord::default() };
    LeaderElectionRecord {
        holder_identity: spec.holder_identity.clone().unwrap_or_default(),
        lease_duration_seconds: spec.lease_duration_seconds.unwrap_or_default(),
        acquire_time: spec.acquire_time.as_ref().map(|time| time.0),
        renew_time: spec.renew_time.as_ref().map(|time| time.0),
        leader_transitions: spec.lease_transitions.unwrap_or_default(),
        preferred_holder: spec.preferred_holder.clone().unwrap_or_default(),
    }
}

/// Returns the spec to write. Upstream sets these five fields and keeps the others.
///
/// Upstream: `LeaderElectionRecordToLeaseSpec`.
fn to_spec(record: &LeaderElectionRecord, current: Option<LeaseSpec>) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(record.holder_identity.clone()),
        lease_duration_seconds: Some(record.lease_duration_seconds),
        acquire_time: record.acquire_time.map(MicroTime),
        renew_time: record.renew_time.map(MicroTime),
        lease_transitions: Some(record.leader_transitions),
        ..current.unwrap_or_default()
    }
}
