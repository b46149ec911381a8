//! Client of etcd's gRPC API.

use std::time::Duration;

use futures::channel::mpsc::UnboundedReceiver;
use http::uri::PathAndQuery;
use tonic::client::Grpc;
use tonic::metadata::MetadataValue;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::options::EtcdOptions;
use super::wire::{
    CompactionRequest, CompactionResponse, LeaseGrantRequest, LeaseGrantResponse, RangeRequest,
    RangeResponse, TxnRequest, TxnResponse, WatchRequest, WatchResponse,
};

/// Time to establish a connection. Upstream: `dialTimeout`.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// Interval of pings on a connection. Upstream: `keepaliveTime`.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(30);
/// Maximum time until the response to a ping. Upstream: `keepaliveTimeout`.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time of a call, equal to that of a request without a timeout. Upstream: `RequestTimeout`.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum size in bytes of a response: the limit of etcd's own client.
const MAX_RESPONSE_BYTES: usize = i32::MAX as usize;

pub(super) type CallError = Box<Status>;

/// Client of one etcd cluster. Clones are cheap.
#[derive(Clone)]
pub(super) struct Client(Grpc<Channel>);

impl Client {
    /// Creates a client, which connects at its first call.
    ///
    /// # Errors
    /// Fails if a URL or a certificate is invalid.
    pub(super) fn new(options: &EtcdOptions) -> Result<Self, String> {
        let endpoints = options.servers.iter().map(|server| endpoint(server, options));
        let endpoints = endpoints.collect::<Result<Vec<_>, _>>()?;
        let channel = match <[Endpoint; 1]>::try_from(endpoints) {
            Ok([endpoint]) => endpoint.connect_lazy(),
            Err(endpoints) => Channel::balance_list(endpoints.into_iter()),
        };
        Ok(Self(Grpc::new(channel).max_decoding_message_size(MAX_RESPONSE_BYTES)))
    }

    /// Reads a range of keys, linearizably.
    pub(super) async fn range(&self, request: RangeRequest) -> Result<RangeResponse, CallError> {
        self.call("/etcdserverpb.KV/Range", request).await
    }

    /// Commits a transaction. After an error, the transaction may be committed nevertheless.
    pub(super) async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, CallError> {
        self.call("/etcdserverpb.KV/Txn", request).await
    }

    /// Removes the history up to a revision.
    pub(super) async fn compact(
        &self,
        request: CompactionRequest,
    ) -> Result<CompactionResponse, CallError> {
        self.call("/etcdserverpb.KV/Compact", request).await
    }

    pub(super) async fn grant_lease(
        &self,
        request: LeaseGrantRequest,
    ) -> Result<LeaseGrantResponse, CallError> {
        self.call("/etcdserverpb.Lease/LeaseGrant", request).await
    }

    /// Opens a stream of watches. The server ends it when it has no leader.
    pub(super) async fn watch(
        &self,
        requests: UnboundedReceiver<WatchRequest>,
    ) -> Result<Streaming<WatchResponse>, CallError> {
        let mut grpc = self.ready().await?;
        let mut request = Request::new(requests);
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
        let response = grpc.streaming(request, path, ProstCodec::default()).await;
        response.map(tonic::Response::into_inner).map_err(Box::new)
    }

    async fn call<Q, R>(&self, path: &'static str, request: Q) -> Result<R, CallError>
    where
        Q: prost::Message + Send + Sync + 'static,
        R: prost::Message + Default + Send + Sync + 'static,
    {
        let call = async {
            let mut grpc = self.ready().await?;
            let path = PathAndQuery::from_static(path);
            let response = grpc.unary(Request::new(request), path, ProstCodec::default()).await;
            response.map(tonic::Response::into_inner).map_err(Box::new)
        };
        let timed_out = |_| Box::new(Status::deadline_exceeded("context deadline exceeded"));
        tokio::time::timeout(CALL_TIMEOUT, call).await.map_err(timed_out)?
    }

    async fn ready(&self) -> Result<Grpc<Channel>, CallError> {
        let mut grpc = self.0.clone();
        let ready = grpc.ready().await;
        ready.map_err(|error| Box::new(Status::unavailable(error.to_string())))?;
        Ok(grpc)
    }
}

/// Returns whether a call failed because etcd cannot be reached or has no leader, so that a later call may succeed.
pub(super) fn is_temporary(error: &Status) -> bool {
    matches!(
        error.code(),
        Code::Unavailable
            | Code::DeadlineExceeded
            | Code::Cancelled
            | Code::Aborted
            | Code::Internal
            | Code::Unknown
    )
}

/// Returns the endpoint of a URL, or of a host and port without TLS.
fn endpoint(server: &str, options: &EtcdOptions) -> Result<Endpoint, String> {
    let url = if server.contains("://") { server.to_owned() } else { format!("http://{server}") };
    if !["http://", "https://"].iter().any(|scheme| url.starts_with(scheme)) {
        return Err(format!("{server:?}: the URL must begin with http:// or https://"));
    }
    let invalid = |error: tonic::transport::Error| format!("{server:?}: {error}");
    let mut endpoint = Endpoint::from_shared(url.clone())
        .map_err(invalid)?
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .keep_alive_while_idle(true);
    if url.starts_with("https://") {
        let mut tls = ClientTlsConfig::new();
        if let Some(ca) = &options.ca {
            tls = tls.ca_certificate(Certificate::from_pem(ca));
        }
        if let Some([certificate, key]) = &options.client {
            tls = tls.identity(Identity::from_pem(certificate, key));
        }
        endpoint = endpoint.tls_config(tls).map_err(invalid)?;
    }
    Ok(endpoint)
}
