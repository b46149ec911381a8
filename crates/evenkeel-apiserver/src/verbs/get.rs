//! GET of an object or of its subresource.

use http::{Response, StatusCode};

use super::{list, respond};
use crate::custom::codec;
use crate::request::RequestContext;
use crate::resource::key;
use crate::response::Body;
use evenkeel_apimachinery::status::StatusError;

/// Responds with the stored object in the negotiated format.
pub(super) async fn serve(request: &RequestContext<'_>) -> Result<Response<Body>, StatusError> {
    let format = request.format()?;
    wait_for_resource_version(request).await?;
    let resource = request.resource();
    let key = key(resource, request.target.namespace, request.target.name);
    let Some(entry) = request.api.store.get(&resource.resource_prefix, &key) else {
        return Err(StatusError::not_found(&resource.name, request.target.name));
    };
    let entry = codec::entry(request.api, resource, entry).await?;
    respond::with_entry(request, &format, &entry, StatusCode::OK)
}

/// Responds with a subresource: one with its own kind, such as `scale`, or the object itself.
pub(super) async fn serve_subresource(
    request: &RequestContext<'_>,
) -> Result<Response<Body>, StatusError> {
    request.format()?;
    wait_for_resource_version(request).await?;
    let resource = request.resource();
    let key = key(resource, request.target.namespace, request.target.name);
    let Some(entry) = request.api.store.get(&resource.resource_prefix, &key) else {
        return Err(StatusError::not_found(&resource.name, request.target.name));
    };
    let entry = codec::entry(request.api, resource, entry).await?;
    let object = codec::decode_read(resource, &entry)?;
    match resource.strategy.read_subresource(request.target.subresource, &object) {
        Some(subresource) => respond::with_value(request, StatusCode::OK, &subresource?),
        None => respond::with_entry(request, &request.format()?, &entry, StatusCode::OK),
    }
}

/// Waits until the store has reached the request's `resourceVersion`.
async fn wait_for_resource_version(request: &RequestContext<'_>) -> Result<(), StatusError> {
    match request.query.get("resourceVersion") {
        "" | "0" => Ok(()),
        text => {
            let parse = if list::is_uncached(request) {
                list::parse_list_version
            } else {
                list::parse_version
            };
            list::wait_until_revision(request, parse(text)?).await
        }
    }
}
