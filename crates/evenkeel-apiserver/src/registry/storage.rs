//! Writes that involve more than one object: a Service is committed together with the IPAddresses of its cluster IPs.

use serde_json::Value;

use super::service;
use crate::api::{Api, Context};
use crate::resource::ResourceType;
use crate::store::{IndexedResources, Transaction};
use evenkeel_apimachinery::status::StatusError;

/// Resources with an index of values in the store.
pub(crate) const INDEXED_RESOURCES: IndexedResources =
    &[(service::RESOURCE_PREFIX, service::index)];

fn is_service(resource: &ResourceType) -> bool {
    &*resource.resource_prefix == service::RESOURCE_PREFIX
}

/// Allocates the cluster IPs and node ports of a Service. Does nothing for other resources. `old` is `None` for a
/// create.
///
/// Upstream: `Allocators` of `registry/core/service/storage`.
pub(crate) fn allocate(
    cx: &Context<'_>,
    object: &mut Value,
    old: Option<&Value>,
) -> Result<(), StatusError> {
    if !is_service(cx.resource) {
        return Ok(());
    }
    match old {
        None => service::create(cx, object),
        Some(old) if cx.subresource.is_empty() => service::update(cx, object, old),
        Some(_) => Ok(()),
    }
}

/// Adds the writes to a transaction that precede the write of the object, and the values that must be unique. `old` is
/// `None` for a create.
///
/// Upstream: `BeginCreate` and `BeginUpdate` of `registry/generic/registry`'s `Store`.
pub(crate) fn begin_write(
    api: &Api,
    resource: &ResourceType,
    object: &Value,
    old: Option<&Value>,
    transaction: &mut Transaction,
) {
    if is_service(resource) {
        service::begin_write(api, object, old, transaction);
    }
}

/// Adds the writes to a transaction that follow the write of the object. `object` is `None` for a deletion.
///
/// Upstream: `FinishFunc` and `AfterDelete` of `registry/generic/registry`'s `Store`.
pub(crate) fn finish_write(
    api: &Api,
    resource: &ResourceType,
    object: Option<&Value>,
    old: &Value,
    transaction: &mut Transaction,
) {
    if is_service(resource) {
        service::finish_write(api, object, old, transaction);
    }
}
