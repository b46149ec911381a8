//! Proxied request, as the service gets it.

use evenkeel_apimachinery::headers::text;
use evenkeel_apimachinery::status::StatusError;
use http::header::HOST;
use http::{Request, Uri};

use super::links::Links;
use super::location::Location;
use super::path;
use crate::proxy::{escaped, headers};
use crate::request::RequestContext;

/// Request to forward to a service.
pub(super) struct Exchange {
    pub(super) location: Location,
    /// Rewriting of the links in the response.
    pub(super) links: Links,
    /// Path and query that the service gets.
    target: Uri,
    /// Value of the header `X-Forwarded-Uri`.
    forwarded_uri: String,
}

impl Exchange {
    pub(super) fn new(
        request: &RequestContext<'_>,
        location: Location,
        path_behind_proxy: &str,
    ) -> Result<Self, StatusError> {
        let host_header = text(request.headers, HOST);
        let host = request.uri.authority().map_or(host_header, |authority| authority.as_str());
        let prefix = path::prefix(request.uri.path(), path_behind_proxy);
        let service_path =
            escaped(if path_behind_proxy.is_empty() { "/" } else { path_behind_proxy });
        let mut forwarded_uri = path::join(&escaped(&prefix), &service_path);
        if path_behind_proxy.ends_with('/') {
            forwarded_uri.push('/');
        }
        let target = match request.uri.query() {
            Some(query) => format!("{service_path}?{query}"),
            None => service_path,
        };
        let target = target.parse().map_err(|_| StatusError::bad_request("invalid path"))?;
        let links = Links { authority: location.authority(), host: host.to_owned(), prefix };
        Ok(Self { location, links, target, forwarded_uri })
    }

    /// Returns the request for the service.
    pub(super) fn request<T>(
        &self,
        request: &RequestContext<'_>,
        is_upgrade: bool,
        body: T,
    ) -> Result<Request<T>, StatusError> {
        let mut outgoing = Request::new(body);
        *outgoing.method_mut() = request.method.clone();
        *outgoing.uri_mut() = self.target.clone();
        let host = match &*self.links.host {
            "" => &self.links.authority,
            host => host,
        };
        headers::of_request(request.headers, host, &self.forwarded_uri, is_upgrade, &mut outgoing);
        Ok(outgoing)
    }
}
