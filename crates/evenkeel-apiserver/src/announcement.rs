//! Announcement of a server that shares its store: its address has a lease, and the endpoints of the Service `kubernetes`
//! have the addresses with a lease.
//!
//! Upstream: `leaseEndpointReconciler`.

use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::api::Api;
use crate::etcd_layout::MASTER_LEASES;
use crate::loopback;
use crate::service_network::ServiceNetwork;
use crate::store::{Encoded, Expect, SelectionAttributes, WriteError};
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::value::int;

/// Interval of the announcements. Upstream: `DefaultEndpointReconcilerInterval`.
const INTERVAL: Duration = Duration::from_secs(10);

/// Announces the server until it shuts down.
pub(crate) async fn run(api: Weak<Api>, network: Arc<ServiceNetwork>) {
    loop {
        let Some(api) = api.upgrade() else { return };
        if let Err(error) = announce(&api, &network).await {
            tracing::warn!(%error, "the server's address cannot be announced; trying again");
        }
        drop(api);
        sleep(INTERVAL).await;
    }
}

async fn announce(api: &Arc<Api>, network: &ServiceNetwork) -> Result<(), StatusError> {
    renew(api, network.advertised_address()).await?;
    let addresses = sorted(api.store.all(MASTER_LEASES).iter().map(|entry| &*entry.key));
    let (endpoints, slice) = (network.endpoints(&addresses), network.endpoint_slice(&addresses));
    update(api, "v1", "endpoints", &endpoints, &["subsets"]).await?;
    update(api, "discovery.k8s.io/v1", "endpointslices", &slice, &["endpoints", "ports"]).await
}

/// Writes the server's address with a new lease.
///
/// Upstream: `storageLeases.UpdateLease`.
async fn renew(api: &Api, address: IpAddr) -> Result<(), StatusError> {
    let key = address.to_string();
    let stored = api.store.get(MASTER_LEASES, &key);
    let object = stored.as_ref().and_then(|entry| entry.decode().ok()).unwrap_or_default();
    let generation = int(&object, "metadata.generation").unwrap_or(0).wrapping_add(1);
    let object = json!({
        "kind": "Endpoints",
        "apiVersion": "v1",
        "metadata": {"generation": generation},
        "subsets": [{"addresses": [{"ip": key}]}],
    });
    let expect = stored.map_or(Expect::Absent, |entry| Expect::At(entry.revision));
    let encoded = Encoded::new(&object, SelectionAttributes::default());
    match api.store.put(&MASTER_LEASES.into(), &key, expect, encoded).await {
        // The lease ended in the meantime, or another server has the same address.
        Ok(_) | Err(WriteError::Mismatch { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Sets fields of an object of the Service `kubernetes` unless they are as desired. Creates the object if it is missing.
async fn update(
    api: &Arc<Api>,
    api_version: &str,
    resource: &str,
    desired: &Value,
    fields: &[&str],
) -> Result<(), StatusError> {
    let (namespace, name) = ("default", "kubernetes");
    let Some(resource_type) = api.table.get(api_version, resource) else { return Ok(()) };
    let Some(stored) = loopback::get(api, api_version, resource, namespace, name)? else {
        let now = evenkeel_apimachinery::time::seconds(api.clock.now());
        let add = |transaction: &mut _| {
            loopback::create_if_absent(api, &resource_type, desired.clone(), &now, transaction);
            Ok(())
        };
        return loopback::commit_missing(api, add).await;
    };
    if fields.iter().all(|field| stored.get(field) == desired.get(field)) {
        return Ok(());
    }
    let edit = |object: &mut Value| {
        for field in fields {
            object[field] = desired[field].clone();
        }
        Ok(())
    };
    loopback::change_managed(api, &resource_type, namespace, name, "", false, edit).await.map(drop)
}

/// Returns the addresses in order, because equal endpoints must not be written again.
fn sorted<'a>(keys: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut addresses: Vec<IpAddr> = keys.filter_map(|key| key.parse().ok()).collect();
    addresses.sort_unstable();
    addresses.iter().map(ToString::to_string).collect()
}
