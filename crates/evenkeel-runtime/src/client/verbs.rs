//! Typed requests by verb: get, list, create, update, patch, delete.

use super::{
    ApiError, Client, DeleteOptions, List, ListOptions, Metadata, negotiation,
    options::{APPLY_CONTENT_TYPE, Query, escape, patch_content_type},
    send::ApiRequest,
};
use crate::{
    discovery::{self, ServerResources},
    plan::{PatchType, Target},
};
use bytes::Bytes;
use evenkeel_api::{DecodeError, Encoding, Kind, View, list::ListMeta};
use http::{HeaderMap, Method, Request, Response};
use std::{sync::Arc, time::Duration};

/// Requests. `namespace` is empty for cluster-scoped kinds, and in lists for all namespaces. A write's type
/// parameter is the type of its response. Most use [`Metadata`], so that the server sends only the metadata.
impl Client {
    /// Gets an object.
    pub async fn get<V: View>(&self, namespace: &str, name: &str) -> Result<V, ApiError> {
        self.get_as(&V::kind(), namespace, name).await
    }

    /// Gets an object's metadata.
    pub async fn get_metadata(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
    ) -> Result<Metadata, ApiError> {
        self.get_as(kind, namespace, name).await
    }

    /// Gets an object of a kind that is known only at run time.
    pub(crate) async fn get_as<V: View>(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
    ) -> Result<V, ApiError> {
        let target = object_path(kind, namespace, name, "");
        self.exchange_object(ApiRequest::new(Method::GET, target, negotiation::accept::<V>())).await
    }

    /// Gets a sub-resource of an object, such as its `scale`.
    pub async fn get_subresource<V: View>(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        subresource: &str,
    ) -> Result<V, ApiError> {
        let target = object_path(kind, namespace, name, subresource);
        self.exchange_object(ApiRequest::new(Method::GET, target, negotiation::accept::<V>())).await
    }

    /// Lists a collection, or one page of it.
    pub async fn list<V: View>(
        &self,
        namespace: &str,
        options: &ListOptions,
    ) -> Result<List<V>, ApiError> {
        self.list_as(&V::kind(), namespace, options).await
    }

    /// Lists the metadata of a collection, or of one page of it.
    pub async fn list_metadata(
        &self,
        kind: &Kind,
        namespace: &str,
        options: &ListOptions,
    ) -> Result<List<Metadata>, ApiError> {
        self.list_as(kind, namespace, options).await
    }

    /// Lists a collection, or one page of it, and calls `each` with the encoded bytes of every item.
    pub(crate) async fn list_items(
        &self,
        kind: &Kind,
        namespace: &str,
        options: &ListOptions,
        accept: &'static str,
        each: &mut (dyn FnMut(&[u8], Encoding) + Send),
    ) -> Result<ListMeta, ApiError> {
        let target = kind.path(namespace) + options.query().as_str();
        let call = ApiRequest::new(Method::GET, target, accept).for_list(options.limit);
        let response = self.exchange(&call).await?;
        negotiation::for_each_item(response.headers(), response.body(), each)
            .map_err(|source| decode_error(&call, source))
    }

    /// Lists a collection of a kind that is known only at run time, or one page of it.
    pub(crate) async fn list_as<V: View>(
        &self,
        kind: &Kind,
        namespace: &str,
        options: &ListOptions,
    ) -> Result<List<V>, ApiError> {
        let target = kind.path(namespace) + options.query().as_str();
        let call = ApiRequest::new(Method::GET, target, negotiation::accept_list::<V>())
            .for_list(options.limit);
        let response = self.exchange(&call).await?;
        negotiation::decode_list(response.headers(), response.body())
            .map_err(|source| decode_error(&call, source))
    }

    /// Creates an object with POST. `body` is JSON.
    pub async fn create<R: View>(
        &self,
        kind: &Kind,
        namespace: &str,
        body: Bytes,
    ) -> Result<R, ApiError> {
        self.exchange_object(self.create_request::<R>(kind, namespace, body)).await
    }

    /// Returns the request of [`Client::create`].
    pub(crate) fn create_request<R: View>(
        &self,
        kind: &Kind,
        namespace: &str,
        body: Bytes,
    ) -> ApiRequest {
        let target = kind.path(namespace) + self.write_query().as_str();
        ApiRequest::new(Method::POST, target, negotiation::accept::<R>()).json(body)
    }

    /// Posts to a sub-resource, such as a pod's `binding` or `eviction`. `body` is JSON.
    pub async fn create_subresource<R: View>(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        subresource: &str,
        body: Bytes,
    ) -> Result<R, ApiError> {
        let target = object_path(kind, namespace, name, subresource);
        self.exchange_object(
            ApiRequest::new(Method::POST, target, negotiation::accept::<R>()).json(body),
        )
        .await
    }

    /// Replaces an object or one of its sub-resources with PUT. `body` is JSON. `subresource` is empty for the
    /// object itself.
    pub async fn update<R: View>(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        subresource: &str,
        body: Bytes,
    ) -> Result<R, ApiError> {
        self.exchange_object(self.update_request::<R>(kind, namespace, name, subresource, body))
            .await
    }

    /// Returns the request of [`Client::update`].
    pub(crate) fn update_request<R: View>(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        subresource: &str,
        body: Bytes,
    ) -> ApiRequest {
        let target = object_path(kind, namespace, name, subresource) + self.write_query().as_str();
        ApiRequest::new(Method::PUT, target, negotiation::accept::<R>()).json(body)
    }

    /// Patches an object or one of its sub-resources. `subresource` is empty for the object itself.
    pub async fn patch<R: View>(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        subresource: &str,
        form: PatchType,
        body: Bytes,
    ) -> Result<R, ApiError> {
        self.exchange_object(self.patch_request::<R>(
            kind,
            namespace,
            name,
            subresource,
            form,
            body,
        ))
        .await
    }

    /// Returns the request of [`Client::patch`].
    pub(crate) fn patch_request<R: View>(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        subresource: &str,
        form: PatchType,
        body: Bytes,
    ) -> ApiRequest {
        let mut target = object_path(kind, namespace, name, subresource);
        let query = match form {
            PatchType::Apply(manager) => apply_query(manager, true),
            PatchType::Json | PatchType::Merge | PatchType::Strategic => self.write_query(),
        };
        target.push_str(query.as_str());
        let call = ApiRequest::new(Method::PATCH, target, negotiation::accept::<R>());
        call.with_body(patch_content_type(form), body)
    }

    /// Applies an object (server-side apply) as this field manager. `target` names it, without a uid. Creates a missing
    /// object.
    pub async fn apply<R: View>(
        &self,
        target: &Target,
        field_manager: &str,
        force: bool,
        body: Bytes,
    ) -> Result<R, ApiError> {
        self.exchange_object(Self::apply_request::<R>(target, field_manager, force, body)).await
    }

    /// Returns the request of [`Client::apply`].
    pub(crate) fn apply_request<R: View>(
        target: &Target,
        field_manager: &str,
        force: bool,
        body: Bytes,
    ) -> ApiRequest {
        let mut path = object_path(&target.kind, &target.namespace, &target.name, "");
        path.push_str(apply_query(field_manager, force).as_str());
        let call = ApiRequest::new(Method::PATCH, path, negotiation::accept::<R>());
        call.with_body(APPLY_CONTENT_TYPE, body)
    }

    /// Deletes an object. Returns the object if it still exists, because of a grace period or a finalizer. Otherwise the result
    /// has an empty name, and the uid of the deleted object if the response contains it.
    pub async fn delete(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Metadata, ApiError> {
        let target = object_path(kind, namespace, name, "");
        let call = ApiRequest::new(Method::DELETE, target, negotiation::accept::<Metadata>());
        self.exchange_with(call.json(options.body().into()), negotiation::decode_deleted).await
    }

    /// Deletes the objects of a collection that `selection` selects.
    pub async fn delete_collection(
        &self,
        kind: &Kind,
        namespace: &str,
        options: &DeleteOptions,
        selection: &ListOptions,
    ) -> Result<(), ApiError> {
        let target = kind.path(namespace) + selection.query().as_str();
        let call = ApiRequest::new(Method::DELETE, target, negotiation::accept_list::<Metadata>())
            .for_list(0);
        self.exchange(&call.json(options.body().into())).await.map(drop)
    }

    /// Sends any request, with path and query relative to the server. Changes no header except the user agent. Returns
    /// an error status as an error.
    pub async fn raw(&self, request: Request<Bytes>) -> Result<Response<Bytes>, ApiError> {
        let (parts, body) = request.into_parts();
        let target = parts.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
        let mut call = ApiRequest::new(parts.method, target, "").for_list(0);
        call.headers = parts.headers;
        call.body = body;
        self.exchange(&call).await
    }

    /// Discovers all resources of the server. Returns the same value until the server reports a change.
    pub async fn api_resources(&self) -> Result<Arc<ServerResources>, ApiError> {
        discovery::discover(self, &self.shared.discovery).await
    }

    /// Like [`Client::api_resources`], but sends no request if the last discovery is less than `max_age` ago.
    pub async fn recent_api_resources(
        &self,
        max_age: Duration,
    ) -> Result<Arc<ServerResources>, ApiError> {
        match discovery::recent(&self.shared.discovery, self.clock().now(), max_age) {
            Some(resources) => Ok(resources),
            None => self.api_resources().await,
        }
    }

    /// Returns the query of a write other than an apply.
    fn write_query(&self) -> Query {
        let mut query = Query::default();
        query.add("fieldManager", self.field_manager.as_deref().unwrap_or_default());
        query
    }

    /// Sends a request, and decodes the object in its response.
    async fn exchange_object<R: View>(&self, call: ApiRequest) -> Result<R, ApiError> {
        self.exchange_with(call, negotiation::decode_object).await
    }

    /// Sends a request, and decodes its response with `decode`, which gets the headers and the body.
    pub(crate) async fn exchange_with<R>(
        &self,
        call: ApiRequest,
        decode: impl FnOnce(&HeaderMap, &[u8]) -> Result<R, DecodeError>,
    ) -> Result<R, ApiError> {
        let response = self.exchange(&call).await?;
        decode(response.headers(), response.body()).map_err(|source| decode_error(&call, source))
    }
}

/// Returns the query of a server-side apply.
fn apply_query(field_manager: &str, force: bool) -> Query {
    let mut query = Query::default();
    query.add("fieldManager", field_manager);
    query.add("force", if force { "true" } else { "" });
    query
}

fn decode_error(call: &ApiRequest, source: DecodeError) -> ApiError {
    ApiError::Decode { method: call.method.clone(), path: call.path().into(), source }
}

pub(super) fn object_path(kind: &Kind, namespace: &str, name: &str, subresource: &str) -> String {
    let mut path = kind.path(namespace);
    path.push('/');
    escape(&mut path, name);
    if !subresource.is_empty() {
        path.push('/');
        path.push_str(subresource);
    }
    path
}
