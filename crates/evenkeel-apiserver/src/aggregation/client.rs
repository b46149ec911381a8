//! Requests of this server itself to extension API servers.

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

/// Extension API server at one of its addresses.
#[derive(Clone)]
pub(super) struct Server {
    pub(super) address: String,
    host: String,
    tls: Arc<ClientConfig>,
}

impl Server {
    /// Chooses an address of the server. The error is upstream's.
    pub(super) fn of(api: &Api, remote: &Remote) -> Result<Self, String> {
        let service = &remote.service;
        let tls = remote.tls.clone()?;
        let address = backend::address(api, &service.namespace, &service.name, service.port)?;
        Ok(Self { address, host: service.host(), tls })
    }

    /// Returns the address and the name that its certificate must have.
    pub(super) fn https_address(&self) -> Address {
        Address { host: self.host.clone(), address: self.address.clone() }
    }

    /// Returns the TLS configuration of its clients.
    pub(super) fn tls(&self) -> Arc<ClientConfig> {
        self.tls.clone()
    }

    /// Returns the URL of a path, for messages.
    pub(super) fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }

    /// Gets a document over a new connection.
    pub(super) async fn get(
        &self,
        question: &DocumentRequest<'_>,
    ) -> Result<Response<Bytes>, String> {
        let mut request = Request::get(question.path);
        if let Some(headers) = request.headers_mut() {
            if let Ok(host) = HeaderValue::try_from(&*self.address) {
                headers.insert(HOST, host);
            }
            if !question.accept.is_empty() {
                headers.insert(ACCEPT, HeaderValue::from_static(question.accept));
            }
            user::put(headers, &question.user)?;
        }
        let request = request.body(Full::default()).map_err(|error| error.to_string())?;
        let address = self.https_address();
        let answer = https::exchange(&address, self.tls(), request, question.limit);
        tokio::time::timeout(question.timeout, answer)
            .await
            .unwrap_or_else(|_| Err("context deadline exceeded".to_owned()))
    }
}

/// Request for a document.
pub(super) struct DocumentRequest<'a> {
    pub(super) path: &'a str,
    pub(super) accept: &'static str,
    pub(super) user: User,
    pub(super) timeout: Duration,
    /// Maximum size of the document in bytes.
    pub(super) limit: usize,
}

/// Returns the user of this server's requests, with the rights of an administrator.
pub(super) fn aggregator() -> User {
    User {
        name: "system:kube-aggregator".into(),
        groups: ["system:masters".into()].into(),
        ..User::default()
    }
}
