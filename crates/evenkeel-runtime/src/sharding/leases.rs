//! Reads and writes of the Leases of members and shards.

use super::{
    config::Sharding,
    decide::{Listed, Observed},
    defect::Defect,
    layout::hash,
};
use crate::{
    cache::Full,
    client::{ApiError, Client, DeleteOptions, ListOptions},
    clock::Clock,
};
use evenkeel_api::Kind;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};
use tokio::time::timeout;

static LEASES: Kind = Kind::new("coordination.k8s.io", "v1", "Lease", "leases", true);

/// Label of all Leases of a sharded operator. Its value is the operator's id.
const ID_LABEL: &str = "evenkeel.dev/sharding";

/// Annotation with the layout of a member, or of a shard's last holder.
const LAYOUT_ANNOTATION: &str = "evenkeel.dev/sharding-layout";

/// Layout of a member that is about to leave, which gets no shards.
pub(super) const LEAVING: &str = "leaving";

/// Error from reading or writing a Lease.
#[derive(Debug, thiserror::Error)]
pub(super) enum LeaseError {
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    #[error("the list of Leases is incomplete")]
    Incomplete,
    #[error("the Lease cannot be written as JSON")]
    Encode(#[from] serde_json::Error),
}

impl LeaseError {
    fn api(&self) -> Option<&ApiError> {
        if let Self::Api(error) = self { Some(error) } else { None }
    }

    pub(super) fn is_not_found(&self) -> bool {
        self.api().is_some_and(ApiError::is_not_found)
    }

    /// Returns whether another client has changed or created the Lease.
    pub(super) fn is_conflict(&self) -> bool {
        self.api().is_some_and(|error| error.is_conflict() || error.is_already_exists())
    }
}

/// Access of one member to the Leases of an operator.
pub(super) struct Leases {
    client: Client,
    clock: Clock,
    namespace: String,
    id: String,
    identity: String,
    /// Name of this member's Lease.
    name: String,
    layout: String,
    duration: Duration,
    /// Divisor of the other members' lease durations. A planted defect makes it greater than 1.
    divisor: u32,
    request_timeout: Duration,
}

/// One list of all Leases, with the objects to write.
pub(super) struct Found {
    pub(super) observed: Observed,
    leases: HashMap<String, Lease>,
}

impl Leases {
    pub(super) fn new(
        client: &Client,
        clock: &Clock,
        sharding: &Sharding,
        namespace: &str,
        identity: &str,
    ) -> Self {
        let id = sharding.id.clone();
        Self {
            client: client.with_user_agent("sharding"),
            clock: clock.clone(),
            namespace: namespace.to_owned(),
            name: format!("{id}-member-{:016x}", hash(identity)),
            id,
            identity: identity.to_owned(),
            layout: sharding.layout.text(),
            duration: sharding.lease_duration,
            divisor: if sharding.has(Defect::EarlyTakeover) { 5 } else { 1 },
            request_timeout: sharding.request_timeout(),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn layout(&self) -> &str {
        &self.layout
    }

    pub(super) fn identity(&self) -> &str {
        &self.identity
    }

    fn shard_name(&self, shard: u32) -> String {
        format!("{}-shard-{shard}", self.id)
    }

    /// Lists all Leases of the operator in their state when the server executes the request.
    pub(super) async fn list(&self) -> Result<Found, LeaseError> {
        let labels = format!("{ID_LABEL}={}", self.id);
        let options = ListOptions { labels, ..ListOptions::default() };
        let sent = self.clock.instant();
        let list =
            self.with_timeout(self.client.list::<Full<Lease>>(&self.namespace, &options)).await?;
        let received = self.clock.instant();
        // A missing member would count as dead.
        if !list.skipped.is_empty() || !list.continue_.is_empty() {
            return Err(LeaseError::Incomplete);
        }
        let (mut members, mut shards) = (BTreeMap::new(), BTreeMap::new());
        let (member, shard) = (format!("{}-member-", self.id), format!("{}-shard-", self.id));
        let mut leases = HashMap::new();
        for lease in list.items.into_iter().map(Full::into_inner) {
            let name = lease.metadata.name.clone().unwrap_or_default();
            if name.starts_with(&member) {
                members.insert(name.clone(), self.listed(&lease));
            } else if let Some(shard) =
                name.strip_prefix(&shard).and_then(|number| number.parse().ok())
            {
                shards.insert(shard, self.listed(&lease));
            }
            leases.insert(name, lease);
        }
        Ok(Found { observed: Observed { members, shards, sent, received }, leases })
    }

    fn listed(&self, lease: &Lease) -> Listed {
        let spec = lease.spec.as_ref();
        let seconds = spec.and_then(|spec| spec.lease_duration_seconds);
        let seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok());
        Listed {
            version: lease.metadata.resource_version.clone().unwrap_or_default(),
            holder: spec.and_then(|spec| spec.holder_identity.clone()).unwrap_or_default(),
            layout: lease
                .metadata
                .annotations
                .as_ref()
                .and_then(|annotations| annotations.get(LAYOUT_ANNOTATION).cloned())
                .unwrap_or_default(),
            duration: seconds.map_or(self.duration, Duration::from_secs) / self.divisor,
        }
    }

    /// Creates this member's Lease, or renews `known`, which it created or read before.
    pub(super) async fn renew(
        &self,
        known: Option<Lease>,
        is_leaving: bool,
    ) -> Result<Lease, LeaseError> {
        let acquired = known.as_ref().and_then(|lease| lease.spec.as_ref()?.acquire_time.clone());
        let now = MicroTime(self.clock.now());
        let seconds = i32::try_from(self.duration.as_secs()).unwrap_or(i32::MAX);
        let spec = LeaseSpec {
            lease_duration_seconds: Some(seconds),
            acquire_time: Some(acquired.unwrap_or_else(|| now.clone())),
            renew_time: Some(now),
            ..self.spec(known.as_ref(), &self.identity)
        };
        let layout = if is_leaving { LEAVING } else { &self.layout };
        self.write(&self.name, known, spec, layout).await
    }

    /// Reads this member's Lease.
    pub(super) async fn read(&self) -> Result<Option<Lease>, LeaseError> {
        match self.with_timeout(self.client.get::<Full<Lease>>(&self.namespace, &self.name)).await {
            Ok(lease) => Ok(Some(lease.into_inner())),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes the holder and the layout of a shard, with the listed version as a precondition. An empty holder frees the shard.
    /// Returns the new version.
    pub(super) async fn hold(
        &self,
        shard: u32,
        found: &Found,
        holder: &str,
    ) -> Result<String, LeaseError> {
        let name = self.shard_name(shard);
        let known = found.leases.get(&name).cloned();
        let transitions = known.as_ref().and_then(|lease| lease.spec.as_ref()?.lease_transitions);
        let now = (!holder.is_empty()).then(|| MicroTime(self.clock.now()));
        let spec = LeaseSpec {
            acquire_time: now.clone(),
            renew_time: now,
            lease_transitions: Some(match known {
                Some(_) => transitions.unwrap_or_default().saturating_add(1),
                None => 0,
            }),
            ..self.spec(known.as_ref(), holder)
        };
        let written = self.write(&name, known, spec, &self.layout).await?;
        Ok(written.metadata.resource_version.unwrap_or_default())
    }

    /// Returns a spec with this holder, and the fields that this program does not set.
    fn spec(&self, known: Option<&Lease>, holder: &str) -> LeaseSpec {
        let known = known.and_then(|lease| lease.spec.clone()).unwrap_or_default();
        LeaseSpec { holder_identity: Some(holder.to_owned()), ..known }
    }

    /// Creates a Lease, or updates `known` with its resource version as a precondition.
    async fn write(
        &self,
        name: &str,
        known: Option<Lease>,
        spec: LeaseSpec,
        layout: &str,
    ) -> Result<Lease, LeaseError> {
        let is_new = known.is_none();
        let mut lease = known.unwrap_or_else(|| Lease {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some(self.namespace.clone()),
                ..ObjectMeta::default()
            },
            spec: None,
        });
        lease.spec = Some(spec);
        let metadata = &mut lease.metadata;
        metadata.labels.get_or_insert_default().insert(ID_LABEL.to_owned(), self.id.clone());
        let annotations = metadata.annotations.get_or_insert_default();
        annotations.insert(LAYOUT_ANNOTATION.to_owned(), layout.to_owned());
        let body = serde_json::to_vec(&lease)?.into();
        let written = if is_new {
            self.with_timeout(self.client.create::<Full<Lease>>(&LEASES, &self.namespace, body))
                .await?
        } else {
            let request =
                self.client.update::<Full<Lease>>(&LEASES, &self.namespace, name, "", body);
            self.with_timeout(request).await?
        };
        Ok(written.into_inner())
    }

    /// Deletes the Lease of a member, unless it was renewed since.
    pub(super) async fn delete(&self, name: &str, version: &str) -> Result<(), LeaseError> {
        let options =
            DeleteOptions { resource_version: version.to_owned(), ..DeleteOptions::default() };
        let request = self.client.delete(&LEASES, &self.namespace, name, &options);
        match self.with_timeout(request).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Deletes this member's Lease, so that its shards are free. The precondition protects a later process with the same
    /// identity from a delayed request.
    pub(super) async fn withdraw(&self) -> Result<(), LeaseError> {
        let Some(lease) = self.read().await? else { return Ok(()) };
        self.delete(&self.name, &self.listed(&lease).version).await
    }

    async fn with_timeout<T>(
        &self,
        request: impl Future<Output = Result<T, ApiError>>,
    ) -> Result<T, LeaseError> {
        Ok(timeout(self.request_timeout, request)
            .await
            .map_err(|_| LeaseError::TimedOut(self.request_timeout))??)
    }
}
