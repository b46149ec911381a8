//! Reads and writes the Lease.

use super::{Config, election::Record};
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

/// A Lease, as last seen: what this program does not know of it is written back as it was.
pub(super) struct Lock {
    client: Client,
    namespace: String,
    name: String,
    labels: BTreeMap<String, String>,
    /// How long one request may take.
    patience: Duration,
    lease: Mutex<Option<Lease>>,
}

/// Why the lease could not be read or written.
#[derive(Debug, thiserror::Error)]
pub(super) enum LockError {
    #[error("{0}")]
    Api(#[from] ApiError),
    #[error("no answer within {0:?}")]
    Late(Duration),
    #[error("the lease has not been read yet")]
    Unread,
    #[error("the lease cannot be written as JSON: {0}")]
    Encode(#[from] serde_json::Error),
}

impl LockError {
    pub(super) fn is_conflict(&self) -> bool {
        matches!(self, Self::Api(error) if error.is_conflict())
    }
}

impl Lock {
    pub(super) fn new(client: Client, config: &Config) -> Self {
        Self {
            client,
            namespace: config.namespace.clone(),
            name: config.name.clone(),
            labels: config.labels.clone(),
            patience: config.patience(),
            lease: Mutex::new(None),
        }
    }

    /// What events about it regard.
    pub(super) fn target(&self) -> Target {
        let uid =
            self.lease().as_ref().and_then(|lease| lease.metadata.uid.clone()).unwrap_or_default();
        Target::new(LEASES.clone(), &self.namespace, &self.name, &uid)
    }

    /// `None` when there is no such lease.
    pub(super) async fn read(&self) -> Result<Option<Record>, LockError> {
        let request = self.client.get::<Full<Lease>>(&self.namespace, &self.name);
        match self.in_time(request).await {
            Ok(lease) => Ok(Some(self.keep(lease))),
            Err(LockError::Api(error)) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn create(&self, record: &Record) -> Result<(), LockError> {
        let metadata = ObjectMeta {
            name: Some(self.name.clone()),
            namespace: Some(self.namespace.clone()),
            labels: (!self.labels.is_empty()).then(|| self.labels.clone()),
            ..ObjectMeta::default()
        };
        let lease = Lease { metadata, spec: Some(spec(record, None)) };
        let body = serde_json::to_vec(&lease)?.into();
        let made =
            self.in_time(self.client.create::<Full<Lease>>(&LEASES, &self.namespace, body)).await?;
        self.keep(made);
        Ok(())
    }

    /// Writes over the lease as it was last read or written; a conflict if it is no longer that.
    pub(super) async fn update(&self, record: &Record) -> Result<(), LockError> {
        let mut lease = self.lease().clone().ok_or(LockError::Unread)?;
        lease.spec = Some(spec(record, lease.spec.take()));
        if !self.labels.is_empty() {
            lease.metadata.labels.get_or_insert_default().extend(self.labels.clone());
        }
        let body = serde_json::to_vec(&lease)?.into();
        let request =
            self.client.update::<Full<Lease>>(&LEASES, &self.namespace, &self.name, "", body);
        let made = self.in_time(request).await?;
        self.keep(made);
        Ok(())
    }

    fn keep(&self, lease: Full<Lease>) -> Record {
        let lease = lease.into_inner();
        let found = record(lease.spec.as_ref());
        *self.lease() = Some(lease);
        found
    }

    async fn in_time<T>(
        &self,
        request: impl Future<Output = Result<T, ApiError>>,
    ) -> Result<T, LockError> {
        Ok(timeout(self.patience, request).await.map_err(|_| LockError::Late(self.patience))??)
    }

    fn lease(&self) -> MutexGuard<'_, Option<Lease>> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn record(spec: Option<&LeaseSpec>) -> Record {
    let Some(spec) = spec else { return Record::default() };
    Record {
        holder: spec.holder_identity.clone().unwrap_or_default(),
        lease_seconds: spec.lease_duration_seconds.unwrap_or_default(),
        acquired: spec.acquire_time.as_ref().map(|time| time.0),
        renewed: spec.renew_time.as_ref().map(|time| time.0),
        transitions: spec.lease_transitions.unwrap_or_default(),
        preferred: spec.preferred_holder.clone().unwrap_or_default(),
    }
}

/// As upstream, which writes these five and no other field of its own.
fn spec(record: &Record, present: Option<LeaseSpec>) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(record.holder.clone()),
        lease_duration_seconds: Some(record.lease_seconds),
        acquire_time: record.acquired.map(MicroTime),
        renew_time: record.renewed.map(MicroTime),
        lease_transitions: Some(record.transitions),
        ..present.unwrap_or_default()
    }
}
