//! Requests for documents that this server sends to extension API servers on its own behalf.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use evenkeel_apimachinery::user::User;
use http::header::{ACCEPT, HOST};
use http::{HeaderValue, Request, Response};
use http_body_util::Full;
use rustls::ClientConfig;

use super::remotes::Remote;
use super::user;
use crate::api::Api;
use crate::backend;
use crate::https::{self, Address};

/// Maximum size of a fetched document in bytes.
const MAX_DOCUMENT_SIZE: usize = 3 * 1024 * 1024;

/// Extension API server at one of its addresses.
pub(super) struct Server {
    /// Address to connect to, and the name that the server's certificate must have.
    pub(super) address: Address,
    tls: Arc<ClientConfig>,
}

impl Server {
    /// Chooses an address of the server. An error has upstream's message.
    pub(super) fn of(api: &Api, remote: &Remote) -> Result<Self, String> {
        let service = &remote.service;
        let tls = remote.tls.clone()?;
        let address = backend::address(api, &service.namespace, &service.name, service.port)?;
        Ok(Self { address: Address { host: service.host(), address }, tls })
    }

    /// Returns the IP address or host name of the server, with its port.
    pub(super) fn authority(&self) -> &str {
        &self.address.address
    }

    /// Returns the TLS configuration for connections to the server.
    pub(super) fn tls(&self) -> Arc<ClientConfig> {
        self.tls.clone()
    }

    /// Returns the URL of a path, for messages.
    pub(super) fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.authority())
    }

    /// Gets a document over a new connection.
    pub(super) async fn get(
        &self,
        document: &DocumentRequest<'_>,
    ) -> Result<Response<Bytes>, String> {
        let mut request = Request::get(document.path);
        if let Some(headers) = request.headers_mut() {
            if let Ok(host) = HeaderValue::try_from(self.authority()) {
                headers.insert(HOST, host);
            }
            if !document.accept.is_empty() {
                headers.insert(ACCEPT, HeaderValue::from_static(document.accept));
            }
            user::put(headers, &document.user)?;
        }
        let request = request.body(Full::default()).map_err(|error| error.to_string())?;
        let exchange = https::exchange(&self.address, self.tls(), request, MAX_DOCUMENT_SIZE);
        tokio::time::timeout(document.timeout, exchange)
            .await
            .unwrap_or_else(|_| Err("context deadline exceeded".to_owned()))
    }
}

/// GET request for a document of an extension API server.
pub(super) struct DocumentRequest<'a> {
    pub(super) path: &'a str,
    /// Value of the header `Accept`; empty sends none.
    pub(super) accept: &'static str,
    pub(super) user: User,
    pub(super) timeout: Duration,
}

/// Returns the user of this server's own requests. The group `system:masters` has all permissions.
pub(super) fn aggregator() -> User {
    User {
        name: "system:kube-aggregator".into(),
        groups: ["system:masters".into()].into(),
        ..User::default()
    }
}
