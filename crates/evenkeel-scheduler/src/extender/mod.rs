//! HTTP extenders: filter, prioritize, preempt and bind over webhooks.
//!
//! Upstream: `pkg/scheduler/extender.go`.

mod adapter;
mod config;
mod full_node;
#[cfg(test)]
mod tests;
mod tls;
mod wire;

pub use config::{ExtenderConfig, ExtenderManagedResource, ExtenderTlsConfig, GoDuration};

use crate::framework::{Candidate, MAX_NODE_SCORE, MetaVictims};
use evenkeel_api::views::{Container, Pod};
use evenkeel_runtime::{
    cache::{Cache, Caches},
    client::{ApiError, Client, ConnectError, full_text},
};
use full_node::FullNode;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http::{Request, StatusCode, header};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde::Serialize;
use serde_json::value::RawValue;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// Maximum number of victims that one preempt call reads concurrently from the API server.
const MAX_CONCURRENT_READS: usize = 16;

/// Default of `httpTimeout`.
///
/// Upstream: `DefaultExtenderTimeout`.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum score that an extender gives a node.
///
/// Upstream: `MaxExtenderPriority`.
const MAX_EXTENDER_PRIORITY: i64 = 10;

/// Factor that scales an extender's score to the range of plugin scores.
const SCORE_FACTOR: i64 = MAX_NODE_SCORE / MAX_EXTENDER_PRIORITY;

/// Invalid configuration of an extender.
#[derive(Debug, thiserror::Error)]
pub enum SetUpError {
    /// `urlPrefix` is not a URL.
    #[error("{0:?} is not a URL")]
    Address(String),
    /// A file cannot be read.
    #[error("{path}: {source}")]
    File {
        /// Path of the file.
        path: String,
        /// Error of the read.
        source: std::io::Error,
    },
    /// The root certificates are not valid PEM or base64.
    #[error("unable to load root certificates: {0}")]
    Certificate(String),
    /// Root certificates are set although `insecure` disables their verification.
    #[error("specifying a root certificates file with the insecure flag is not allowed")]
    InsecureWithRoots,
    /// The client certificate or key cannot be used.
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

/// Failure of a call to an extender.
#[derive(Debug, thiserror::Error)]
pub enum ExtenderError {
    /// The call timed out.
    #[error("{url}: no response in {timeout:?}")]
    Timeout {
        /// URL of the call.
        url: String,
        /// Timeout of the call.
        timeout: Duration,
    },
    /// The extender is unreachable.
    #[error("{url}: {error}")]
    Unreachable {
        /// URL of the call.
        url: String,
        /// Error of the connection, with its causes.
        error: String,
    },
    /// The HTTP status is not 200.
    #[error("failed {verb} with extender at URL {url}, code {code}")]
    Status {
        /// Verb of the call.
        verb: String,
        /// URL of the call.
        url: String,
        /// HTTP status code.
        code: u16,
    },
    /// The response is not the expected JSON.
    #[error("{url}: {error}")]
    InvalidResponse {
        /// URL of the call, or path on the API server.
        url: String,
        /// Error of the decoding.
        error: serde_json::Error,
    },
    /// The response contains an error message.
    #[error("{0}")]
    ErrorResponse(String),
    /// The response names a node that was not in the request.
    #[error(
        "extender {extender:?} claims a filtered node {node:?} which is not found in the input node list"
    )]
    UnknownNode {
        /// Name of the extender.
        extender: String,
        /// Name of the node.
        node: String,
    },
    /// The API server failed to return a pod for the request.
    #[error("{0}")]
    Api(#[from] ApiError),
}

/// Result of a filter call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FilteredNodes {
    /// Names of feasible nodes.
    pub nodes: Vec<Arc<str>>,
    /// Names of infeasible nodes, each with its reason.
    pub failed: BTreeMap<String, String>,
    /// Names of nodes where preemption cannot help, each with its reason. They take precedence over `failed`.
    pub unresolvable: BTreeMap<String, String>,
}

/// An HTTP extender.
///
/// Upstream: `HTTPExtender`.
pub struct Extender {
    config: ExtenderConfig,
    managed_resources: BTreeSet<String>,
    timeout: Duration,
    /// `urlPrefix` without its trailing slashes.
    url: String,
    connection: tls::Connection,
    /// Client that reads full pods for the requests.
    client: Client,
    /// Cache of full nodes, unless the extender is `nodeCacheCapable`.
    nodes: Option<Cache<FullNode>>,
}

impl std::fmt::Debug for Extender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Extender").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Builds the extenders. Ignorable extenders come last. Must be called before the caches are started.
///
/// # Errors
/// Fails if a URL, a certificate or a certificate file is invalid.
pub fn set_up(
    configs: &[ExtenderConfig],
    client: &Client,
    caches: &Caches,
) -> Result<Vec<Arc<Extender>>, SetUpError> {
    let mut extenders = configs
        .iter()
        .map(|config| Extender::new(config, client, caches).map(Arc::new))
        .collect::<Result<Vec<_>, _>>()?;
    extenders.sort_by_key(|extender| extender.config.ignorable);
    Ok(extenders)
}

impl Extender {
    fn new(config: &ExtenderConfig, client: &Client, caches: &Caches) -> Result<Self, SetUpError> {
        let receives_nodes = !config.filter_verb.is_empty() || !config.prioritize_verb.is_empty();
        let sends_nodes = receives_nodes && !config.node_cache_capable;
        Ok(Self {
            managed_resources: config
                .managed_resources
                .iter()
                .map(|resource| resource.name.clone())
                .collect(),
            timeout: Some(config.http_timeout.to_duration())
                .filter(|timeout| !timeout.is_zero())
                .unwrap_or(DEFAULT_TIMEOUT),
            url: config.url_prefix.trim_end_matches('/').to_owned(),
            connection: tls::Connection::new(config, client.clock().clone())?,
            client: client.clone(),
            nodes: sends_nodes.then(|| caches.of()),
            config: config.clone(),
        })
    }

    /// Returns the URL prefix, which names the extender.
    pub fn name(&self) -> &str {
        &self.config.url_prefix
    }

    /// Returns whether scheduling continues when the extender fails.
    pub fn is_ignorable(&self) -> bool {
        self.config.ignorable
    }

    /// Returns whether the extender filters nodes.
    pub fn is_filter(&self) -> bool {
        !self.config.filter_verb.is_empty()
    }

    /// Returns whether the extender scores nodes.
    pub fn is_prioritizer(&self) -> bool {
        !self.config.prioritize_verb.is_empty()
    }

    /// Returns whether the extender has a preempt verb.
    ///
    /// Upstream: `SupportsPreemption`.
    pub fn supports_preemption(&self) -> bool {
        !self.config.preempt_verb.is_empty()
    }

    /// Returns whether the extender binds pods.
    pub fn is_binder(&self) -> bool {
        !self.config.bind_verb.is_empty()
    }

    /// Returns whether the pod requests a resource that the extender manages. An extender without managed resources is
    /// interested in every pod.
    ///
    /// Upstream: `IsInterested`.
    pub fn is_interested(&self, pod: &Pod) -> bool {
        let requests_managed = |container: &Container| {
            let resources = &container.resources;
            let mut names = resources.requests.iter().chain(resources.limits.iter());
            names.any(|(name, _)| self.managed_resources.contains(name))
        };
        self.managed_resources.is_empty()
            || pod.spec.containers.iter().chain(&pod.spec.init_containers).any(requests_managed)
    }

    /// Returns the nodes that the extender accepts.
    ///
    /// # Errors
    /// Fails if the call fails, or the response names a node that was not in the request.
    pub async fn filter(
        &self,
        pod: &Pod,
        nodes: &[Arc<str>],
    ) -> Result<FilteredNodes, ExtenderError> {
        let body = self.arguments(pod, nodes).await?;
        let mut response: wire::FilterResult = self.call(&self.config.filter_verb, body).await?;
        if !response.error.is_empty() {
            return Err(ExtenderError::ErrorResponse(response.error));
        }
        let requested_node = |name: String| {
            let found = nodes.iter().find(|node| ***node == *name).cloned();
            found.ok_or_else(|| ExtenderError::UnknownNode {
                extender: self.name().to_owned(),
                node: name,
            })
        };
        let feasible = if self.config.node_cache_capable {
            response.take_node_names()
        } else {
            response.take_names_in_nodes()
        };
        Ok(FilteredNodes {
            nodes: feasible.into_iter().map(requested_node).collect::<Result<_, _>>()?,
            failed: response.failednodes,
            unresolvable: response.failedandunresolvablenodes,
        })
    }

    /// Returns the scores to add to the plugins' weighted scores, each with its node name.
    ///
    /// # Errors
    /// Fails if the call fails. The scheduler then ignores the extender's scores.
    pub async fn prioritize(
        &self,
        pod: &Pod,
        nodes: &[Arc<str>],
    ) -> Result<Vec<(String, i64)>, ExtenderError> {
        let body = self.arguments(pod, nodes).await?;
        let response: Option<Vec<wire::Priority>> =
            self.call(&self.config.prioritize_verb, body).await?;
        let weighted_score =
            |score: i64| score.saturating_mul(self.config.weight).saturating_mul(SCORE_FACTOR);
        Ok(response
            .into_iter()
            .flatten()
            .map(|priority| (priority.host, weighted_score(priority.score)))
            .collect())
    }

    /// Binds the pod to the node.
    ///
    /// # Errors
    /// Fails if the call fails or the extender reports an error.
    pub async fn bind(&self, pod: &Pod, node: &str) -> Result<(), ExtenderError> {
        let binding = wire::Binding {
            pod_name: &pod.meta.name,
            pod_namespace: &pod.meta.namespace,
            pod_uid: &pod.meta.uid,
            node,
        };
        let response: wire::BindingResult =
            self.call(&self.config.bind_verb, json(&binding)).await?;
        if response.error.is_empty() {
            Ok(())
        } else {
            Err(ExtenderError::ErrorResponse(response.error))
        }
    }

    /// Sends the candidates for preemption to the extender. Returns the candidate nodes that it accepts, with their
    /// victims.
    ///
    /// # Errors
    /// Fails if the call fails, or a pod cannot be read.
    pub async fn process_preemption(
        &self,
        pod: &Pod,
        candidates: &[Candidate],
    ) -> Result<Vec<MetaVictims>, ExtenderError> {
        let preemptor = self.read_pod(pod).await?;
        let mut request = wire::Preemption {
            pod: &preemptor,
            node_name_to_victims: None,
            node_name_to_meta_victims: None,
        };
        if self.config.node_cache_capable {
            request.node_name_to_meta_victims = Some(meta_victims(candidates));
        } else {
            request.node_name_to_victims = Some(self.read_victims(candidates).await?);
        }
        let response: wire::PreemptionResult =
            self.call(&self.config.preempt_verb, json(&request)).await?;
        let accepted =
            response.nodenametometavictims.into_iter().map(|(node, victims)| MetaVictims {
                node: node.into(),
                pods: victims.pods.into_iter().map(|pod| pod.uid.into()).collect(),
                num_pdb_violations: usize::try_from(victims.numpdbviolations).unwrap_or(0),
            });
        Ok(accepted.collect())
    }

    /// Returns the candidates' victims as full pods, by node name.
    async fn read_victims<'a>(
        &self,
        candidates: &'a [Candidate],
    ) -> Result<BTreeMap<&'a str, wire::Victims>, ExtenderError> {
        let reads: Vec<_> = candidates
            .iter()
            .flat_map(|candidate| &candidate.pods)
            .map(|pod| self.read_pod(pod))
            .collect();
        let pods: Vec<_> = stream::iter(reads).buffered(MAX_CONCURRENT_READS).try_collect().await?;
        // The pods are in the order of the candidates.
        let mut pods = pods.into_iter();
        let victims = candidates.iter().map(|candidate| {
            let victims = wire::Victims {
                pods: pods.by_ref().take(candidate.pods.len()).collect(),
                num_pdb_violations: num_pdb_violations(candidate),
            };
            (&*candidate.node, victims)
        });
        Ok(victims.collect())
    }

    /// Returns the request body of the filter and prioritize calls.
    async fn arguments(
        &self,
        pod: &Pod,
        node_names: &[Arc<str>],
    ) -> Result<Vec<u8>, ExtenderError> {
        let pod = self.read_pod(pod).await?;
        let nodes = self.nodes.as_ref().map(|cache| wire::NodeList {
            metadata: BTreeMap::new(),
            items: node_names
                .iter()
                .filter_map(|name| Some(Arc::clone(&cache.get("", name)?.json)))
                .collect(),
        });
        let node_names = nodes.is_none().then_some(node_names);
        Ok(json(&wire::Arguments { pod: &pod, nodes, node_names }))
    }

    /// Reads the full pod from the API server, because cached pods lack fields that the scheduler does not use.
    async fn read_pod(&self, pod: &Pod) -> Result<Box<RawValue>, ExtenderError> {
        let path = format!("/api/v1/namespaces/{}/pods/{}", pod.meta.namespace, pod.meta.name);
        let mut request = Request::new(bytes::Bytes::new());
        *request.uri_mut() = path.parse().unwrap_or_default();
        let accept = http::HeaderValue::from_static("application/json");
        request.headers_mut().insert(header::ACCEPT, accept);
        let body = self.client.raw(request).await?.into_body();
        serde_json::from_slice(&body)
            .map_err(|error| ExtenderError::InvalidResponse { url: path, error })
    }

    /// Sends a POST request for `verb` to the extender and decodes the response.
    async fn call<T: serde::de::DeserializeOwned>(
        &self,
        verb: &str,
        body: Vec<u8>,
    ) -> Result<T, ExtenderError> {
        let url = format!("{}/{verb}", self.url);
        let unreachable = |error: String| ExtenderError::Unreachable { url: url.clone(), error };
        let mut request = Request::new(Body::from(body));
        *request.method_mut() = http::Method::POST;
        // The connection adds the URL prefix.
        *request.uri_mut() = format!("/{verb}").parse().unwrap_or_default();
        let content_type = http::HeaderValue::from_static("application/json");
        request.headers_mut().insert(header::CONTENT_TYPE, content_type);
        let exchange = async {
            let response = self.connection.client().send(request).await;
            let response = response.map_err(|error| unreachable(full_text(&error)))?;
            let code = response.status();
            if code != StatusCode::OK {
                let verb = verb.to_owned();
                let url = url.clone();
                return Err(ExtenderError::Status { verb, url, code: code.as_u16() });
            }
            let body = response.into_body().collect().await;
            Ok(body.map_err(|error| unreachable(full_text(&error)))?.to_bytes())
        };
        let timed_out = |_| ExtenderError::Timeout { url: url.clone(), timeout: self.timeout };
        let body = tokio::time::timeout(self.timeout, exchange).await.map_err(timed_out)??;
        wire::decode_like_go(&body)
            .map_err(|error| ExtenderError::InvalidResponse { url: url.clone(), error })
    }
}

/// Returns the candidates' victims as uids, by node name.
fn meta_victims(candidates: &[Candidate]) -> BTreeMap<&str, wire::MetaVictims> {
    let uid = |pod: &Arc<Pod>| wire::MetaPod { uid: pod.meta.uid.to_string() };
    let victims = candidates.iter().map(|candidate| {
        let victims = wire::MetaVictims {
            pods: candidate.pods.iter().map(uid).collect(),
            num_pdb_violations: num_pdb_violations(candidate),
        };
        (&*candidate.node, victims)
    });
    victims.collect()
}

/// Returns the number of violated PodDisruptionBudgets in upstream's type.
fn num_pdb_violations(candidate: &Candidate) -> i64 {
    i64::try_from(candidate.num_pdb_violations).unwrap_or(i64::MAX)
}

/// Serializes a request. These types always serialize.
fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}
