//! Follows the ConfigMap `kube-system/extension-apiserver-authentication`, which contains the CAs of clients
//! and of the front proxy.
//!
//! Upstream: `RequestHeaderAuthRequestController`, `ConfigMapCAController`.

use super::{
    sync_queue::SyncQueue,
    trust::{Anchors, Authority, ProxyHeaders, Trust},
};
use crate::{
    cache::{Caches, Full},
    client::{ApiError, Client, full_text},
    clock::Clock,
    queue,
    tasks::Tasks,
};
use k8s_openapi::api::core::v1::ConfigMap;
use prometheus::Registry;
use std::collections::BTreeMap;

const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";

/// CAs to read from the ConfigMap. Flags set the CAs that are not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientCaSources {
    /// Whether to read the CA of client certificates.
    pub clients: bool,
    /// Whether to read the CA and the header names of the front proxy.
    pub proxies: bool,
}

/// Error from reading the ConfigMap.
#[derive(Debug, thiserror::Error)]
pub enum ClusterAuthenticationError {
    /// The request failed.
    #[error("cannot read ConfigMap {NAMESPACE}/{NAME}")]
    Read(#[source] ApiError),
    /// A field is invalid.
    #[error("ConfigMap {NAMESPACE}/{NAME}: {field}: {reason}")]
    Field {
        /// Key in the ConfigMap's data.
        field: &'static str,
        /// Reason of the parse error.
        reason: String,
    },
}

/// Reads and watches the ConfigMap with the CAs.
pub struct ClusterAuthentication {
    client: Client,
    clock: Clock,
    sources: ClientCaSources,
    queues: Option<queue::Metrics>,
}

impl ClusterAuthentication {
    /// Creates a reader that uses `client`. Its user needs the role
    /// `extension-apiserver-authentication-reader`.
    pub fn new(client: Client, clock: Clock, sources: ClientCaSources) -> Self {
        Self { client, clock, sources, queues: None }
    }

    /// Counts syncs in these metrics of queues.
    #[must_use]
    pub fn with_metrics(self, queues: &queue::Metrics) -> Self {
        Self { queues: Some(queues.clone()), ..self }
    }

    /// Reads the ConfigMap once. A missing ConfigMap is not an error.
    ///
    /// # Errors
    /// Fails if the request fails or a field is invalid.
    pub async fn read_once(&self, trust: &Trust) -> Result<(), ClusterAuthenticationError> {
        match self.client.get::<Full<ConfigMap>>(NAMESPACE, NAME).await {
            Ok(map) => apply(&map, self.sources, trust),
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(ClusterAuthenticationError::Read(error)),
        }
    }

    /// Watches the ConfigMap while `tasks` run. Invalid data and a deletion keep the last CAs.
    pub fn follow(&self, trust: &Trust, tasks: &Tasks) {
        // These caches have a registry of their own. In the program's registry they would count as the controllers'
        // caches.
        let registry = Registry::new();
        let caches =
            Caches::in_namespaces(self.client.clone(), self.clock.clone(), &registry, [NAMESPACE]);
        let maps = caches.selected::<Full<ConfigMap>>("", &format!("metadata.name={NAME}"));
        let ClientCaSources { clients, proxies } = self.sources;
        for (name, sources) in [
            ("DynamicConfigMapCABundle-client-ca", ClientCaSources { clients, proxies: false }),
            ("RequestHeaderAuthRequestController", ClientCaSources { clients: false, proxies }),
        ] {
            if !sources.clients && !sources.proxies {
                continue;
            }
            let syncs = SyncQueue::new(name, self.queues.as_ref(), &self.clock);
            let (syncs_on_change, maps, trust) = (syncs.clone(), maps.clone(), trust.clone());
            maps.subscribe(move |_| syncs_on_change.enqueue());
            syncs.enqueue();
            tasks.spawn_restarting_until_cancelled(name, move || {
                let (syncs, maps, trust) = (syncs.clone(), maps.clone(), trust.clone());
                async move {
                    let message = "The ConfigMap with the CAs is invalid; the last CAs stay in use";
                    let sync = || match maps.get(NAMESPACE, NAME) {
                        Some(map) => apply(&map, sources, &trust),
                        None => Ok(()),
                    };
                    syncs.work(message, sync).await;
                }
            });
        }
        caches.start(tasks);
    }
}

/// Applies the CAs of the ConfigMap. CAs that the ConfigMap lacks stay as they are.
fn apply(
    map: &ConfigMap,
    sources: ClientCaSources,
    trust: &Trust,
) -> Result<(), ClusterAuthenticationError> {
    let empty = BTreeMap::new();
    let read_anchors = parse(map.data.as_ref().unwrap_or(&empty), sources)?;
    trust.change(|anchors| {
        if sources.clients && read_anchors.clients.is_some() {
            anchors.clients = read_anchors.clients;
        }
        if sources.proxies && read_anchors.proxies.is_some() {
            anchors.proxies = read_anchors.proxies;
        }
    });
    Ok(())
}

/// Parses the CAs in the data of the ConfigMap.
fn parse(
    data: &BTreeMap<String, String>,
    sources: ClientCaSources,
) -> Result<Anchors, ClusterAuthenticationError> {
    let parse_authority = |field: &'static str| {
        let Some(pem) = data.get(field).filter(|pem| !pem.is_empty()) else { return Ok(None) };
        let authority = Authority::from_pem(pem.as_bytes());
        authority
            .map(Some)
            .map_err(|error| ClusterAuthenticationError::Field { field, reason: full_text(&error) })
    };
    let parse_list = |field: &'static str| match data.get(field).filter(|text| !text.is_empty()) {
        None => Ok(Vec::new()),
        Some(text) => serde_json::from_str(text).map_err(|error| {
            ClusterAuthenticationError::Field { field, reason: error.to_string() }
        }),
    };
    let clients = if sources.clients { parse_authority("client-ca-file")? } else { None };
    let proxies =
        if sources.proxies { parse_authority("requestheader-client-ca-file")? } else { None };
    let Some(proxies) = proxies else { return Ok(Anchors { clients, proxies: None }) };
    let header_names = ProxyHeaders {
        allowed_names: parse_list("requestheader-allowed-names")?,
        username: parse_list("requestheader-username-headers")?,
        uid: parse_list("requestheader-uid-headers")?,
        group: parse_list("requestheader-group-headers")?,
        extra_prefix: parse_list("requestheader-extra-headers-prefix")?,
    };
    Ok(Anchors { clients, proxies: Some((proxies, header_names)) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::{Answer, Script, Tail};
    use futures::FutureExt as _;

    const BOTH: ClientCaSources = ClientCaSources { clients: true, proxies: true };

    fn pem() -> String {
        rcgen::generate_simple_self_signed(["ca".to_owned()]).unwrap().cert.pem()
    }

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn the_config_map_contains_the_trusted_cas() {
        let (ca, front) = (pem(), pem());
        let data = map(&[
            ("client-ca-file", &ca),
            ("requestheader-client-ca-file", &front),
            ("requestheader-allowed-names", "[\"front-proxy-client\"]"),
            ("requestheader-username-headers", "[\"X-Remote-User\"]"),
            ("requestheader-group-headers", "[\"X-Remote-Group\"]"),
            ("requestheader-extra-headers-prefix", "[\"X-Remote-Extra-\"]"),
        ]);
        let read_anchors = parse(&data, BOTH).unwrap();
        assert_eq!(read_anchors.clients, Some(Authority::from_pem(ca.as_bytes()).unwrap()));
        let (authority, header_names) = read_anchors.proxies.unwrap();
        assert_eq!(authority, Authority::from_pem(front.as_bytes()).unwrap());
        assert_eq!(header_names.allowed_names, ["front-proxy-client"]);
        assert_eq!(header_names.extra_prefix, ["X-Remote-Extra-"]);
        assert!(header_names.uid.is_empty());
        let clients = ClientCaSources { clients: true, proxies: false };
        assert_eq!(
            parse(&data, clients).unwrap().proxies,
            None,
            "the proxies' CA is not read from the ConfigMap"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_config_map_is_followed_and_syncs_are_counted() {
        let map = serde_json::json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": NAME, "namespace": NAMESPACE, "uid": "u", "resourceVersion": "5"},
            "data": {"client-ca-file": pem(), "requestheader-client-ca-file": "x"},
        });
        let end = serde_json::json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata":
            {"resourceVersion": "5", "annotations": {"k8s.io/initial-events-end": "true"}},
        });
        let event = |kind: &str, object| serde_json::json!({"type": kind, "object": object});
        let events = [event("ADDED", map), event("BOOKMARK", end)];
        let script = Script::new([Answer::events(&events, Tail::Hang)]);
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        let (registry, tasks, trust) = (Registry::new(), Tasks::new(), Trust::default());
        let lookup = ClusterAuthentication::new(script.client(&clock), clock.clone(), BOTH)
            .with_metrics(&queue::Metrics::register(&registry));
        lookup.follow(&trust, &tasks);
        clock.sleep(std::time::Duration::from_secs(1)).await;
        let now = trust.current();
        assert!(
            now.clients.is_some() && now.proxies.is_none(),
            "the invalid CA of proxies is left out"
        );
        let counted = |metric: &str| {
            let families = registry.gather();
            let family = families.iter().find(|family| family.name() == metric).unwrap();
            let value = |one: &prometheus::proto::Metric| one.get_counter().get_value() as u64;
            let name = |one: &prometheus::proto::Metric| one.get_label()[0].value().to_owned();
            let all = family.get_metric().iter();
            all.map(|one| (name(one), value(one))).collect::<BTreeMap<_, _>>()
        };
        let (adds, retries) = (counted("workqueue_adds_total"), counted("workqueue_retries_total"));
        assert_eq!(adds["DynamicConfigMapCABundle-client-ca"], 2, "at first, and with the map");
        assert_eq!(retries["DynamicConfigMapCABundle-client-ca"], 0);
        assert!(retries["RequestHeaderAuthRequestController"] > 0);
        tasks.token().cancel();
    }

    #[test]
    fn error_names_the_invalid_field() {
        let ca = pem();
        let table = [
            (map(&[("client-ca-file", "x")]), "client-ca-file"),
            (
                map(&[("requestheader-client-ca-file", &ca), ("requestheader-group-headers", "x")]),
                "requestheader-group-headers",
            ),
        ];
        for (data, message) in table {
            let text = parse(&data, BOTH).unwrap_err().to_string();
            assert!(text.contains(message), "{text}");
        }
        assert_eq!(parse(&map(&[]), BOTH).unwrap(), Anchors::default());
    }

    #[test]
    fn trust_only_reports_changes() {
        let trust = Trust::default();
        let mut watched = trust.watch();
        let ca = pem();
        let map = ConfigMap { data: Some(map(&[("client-ca-file", &ca)])), ..ConfigMap::default() };
        apply(&map, BOTH, &trust).unwrap();
        assert_eq!(watched.changed().now_or_never(), Some(Ok(())));
        apply(&map, BOTH, &trust).unwrap();
        assert_eq!(watched.changed().now_or_never(), None);
        apply(&ConfigMap::default(), BOTH, &trust).unwrap();
        assert!(trust.current().clients.is_some(), "an empty ConfigMap keeps the last CAs");
    }
}
