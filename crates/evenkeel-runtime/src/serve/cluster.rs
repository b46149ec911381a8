//! What a cluster says of whose certificates are believed: its ConfigMap `kube-system/extension-apiserver-authentication`.

use super::{
    passes::Passes,
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

/// What is looked up; what files say is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// The CA of clients.
    pub clients: bool,
    /// The CA of proxies, and what those may say.
    pub proxies: bool,
}

/// Why the cluster's word cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    /// It cannot be read.
    #[error("cannot read ConfigMap {NAMESPACE}/{NAME}")]
    Read(#[source] ApiError),
    /// It makes no sense.
    #[error("ConfigMap {NAMESPACE}/{NAME}: {field}: {reason}")]
    Field {
        /// Which key of its data.
        field: &'static str,
        /// What is wrong with it.
        reason: String,
    },
}

/// Looks up whose certificates are believed.
pub struct Lookup {
    client: Client,
    clock: Clock,
    wanted: Wanted,
    queues: Option<queue::Metrics>,
}

impl Lookup {
    /// Through this client, whose user must be allowed to read it (role `extension-apiserver-authentication-reader`).
    pub fn new(client: Client, clock: Clock, wanted: Wanted) -> Self {
        Self { client, clock, wanted, queues: None }
    }

    /// Counts in these how often what is said is looked at.
    #[must_use]
    pub fn counting(self, queues: &queue::Metrics) -> Self {
        Self { queues: Some(queues.clone()), ..self }
    }

    /// Asks once. A cluster without such a ConfigMap says nothing, and that is no error.
    ///
    /// # Errors
    /// When it cannot be read, or makes no sense.
    pub async fn once(&self, trust: &Trust) -> Result<(), LookupError> {
        match self.client.get::<Full<ConfigMap>>(NAMESPACE, NAME).await {
            Ok(map) => apply(&map, self.wanted, trust),
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(LookupError::Read(error)),
        }
    }

    /// Follows it for as long as `tasks` run. What makes no sense changes nothing; nor does its end.
    pub fn follow(&self, trust: &Trust, tasks: &Tasks) {
        // These are the server's own: counted among the program's caches they would be taken for its controllers'.
        let registry = Registry::new();
        let caches =
            Caches::in_namespace(self.client.clone(), self.clock.clone(), &registry, NAMESPACE);
        let maps = caches.selected::<Full<ConfigMap>>("", &format!("metadata.name={NAME}"));
        let Wanted { clients, proxies } = self.wanted;
        for (name, wanted) in [
            ("DynamicConfigMapCABundle-client-ca", Wanted { clients, proxies: false }),
            ("RequestHeaderAuthRequestController", Wanted { clients: false, proxies }),
        ] {
            if !wanted.clients && !wanted.proxies {
                continue;
            }
            let passes = Passes::new(name, self.queues.as_ref());
            let (asked, maps_now, trust) = (passes.clone(), maps.clone(), trust.clone());
            maps.subscribe(move |_| asked.ask());
            passes.ask();
            tasks.spawn_until_cancelled(name, async move {
                let trouble = "Whose certificates are believed stays as it was";
                let pass = || match maps_now.get(NAMESPACE, NAME) {
                    Some(map) => apply(&map, wanted, &trust),
                    None => Ok(()),
                };
                passes.work(trouble, pass).await;
            });
        }
        caches.start(tasks);
    }
}

fn apply(map: &ConfigMap, wanted: Wanted, trust: &Trust) -> Result<(), LookupError> {
    let empty = BTreeMap::new();
    let told = read(map.data.as_ref().unwrap_or(&empty), wanted)?;
    trust.change(|anchors| {
        if wanted.clients && told.clients.is_some() {
            anchors.clients = told.clients;
        }
        if wanted.proxies && told.proxies.is_some() {
            anchors.proxies = told.proxies;
        }
    });
    Ok(())
}

fn read(data: &BTreeMap<String, String>, wanted: Wanted) -> Result<Anchors, LookupError> {
    let authority = |field: &'static str| {
        let Some(pem) = data.get(field).filter(|pem| !pem.is_empty()) else { return Ok(None) };
        let authority = Authority::from_pem(pem.as_bytes());
        authority.map(Some).map_err(|error| LookupError::Field { field, reason: full_text(&error) })
    };
    let list = |field: &'static str| match data.get(field).filter(|text| !text.is_empty()) {
        None => Ok(Vec::new()),
        Some(text) => serde_json::from_str(text)
            .map_err(|error| LookupError::Field { field, reason: error.to_string() }),
    };
    let clients = if wanted.clients { authority("client-ca-file")? } else { None };
    let proxies = if wanted.proxies { authority("requestheader-client-ca-file")? } else { None };
    let Some(proxies) = proxies else { return Ok(Anchors { clients, proxies: None }) };
    let words = ProxyHeaders {
        allowed_names: list("requestheader-allowed-names")?,
        username: list("requestheader-username-headers")?,
        uid: list("requestheader-uid-headers")?,
        group: list("requestheader-group-headers")?,
        extra_prefix: list("requestheader-extra-headers-prefix")?,
    };
    Ok(Anchors { clients, proxies: Some((proxies, words)) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::{Answer, Script, Tail};

    const BOTH: Wanted = Wanted { clients: true, proxies: true };

    fn pem() -> String {
        rcgen::generate_simple_self_signed(["ca".to_owned()]).unwrap().cert.pem()
    }

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_config_map_says_whom_to_believe() {
        let (ca, front) = (pem(), pem());
        let data = map(&[
            ("client-ca-file", &ca),
            ("requestheader-client-ca-file", &front),
            ("requestheader-allowed-names", "[\"front-proxy-client\"]"),
            ("requestheader-username-headers", "[\"X-Remote-User\"]"),
            ("requestheader-group-headers", "[\"X-Remote-Group\"]"),
            ("requestheader-extra-headers-prefix", "[\"X-Remote-Extra-\"]"),
        ]);
        let told = read(&data, BOTH).unwrap();
        assert_eq!(told.clients, Some(Authority::from_pem(ca.as_bytes()).unwrap()));
        let (authority, words) = told.proxies.unwrap();
        assert_eq!(authority, Authority::from_pem(front.as_bytes()).unwrap());
        assert_eq!(words.allowed_names, ["front-proxy-client"]);
        assert_eq!(words.extra_prefix, ["X-Remote-Extra-"]);
        assert!(words.uid.is_empty());
        let clients = Wanted { clients: true, proxies: false };
        assert_eq!(read(&data, clients).unwrap().proxies, None, "what files say is not looked up");
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_cluster_says_is_followed_and_counted() {
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
        let lookup = Lookup::new(script.client(&clock), clock.clone(), BOTH)
            .counting(&queue::Metrics::register(&registry));
        lookup.follow(&trust, &tasks);
        clock.sleep(std::time::Duration::from_secs(1)).await;
        let now = trust.now();
        assert!(now.clients.is_some() && now.proxies.is_none(), "what makes no sense is left out");
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
    fn what_is_wrong_is_named() {
        let ca = pem();
        let table = [
            (map(&[("client-ca-file", "x")]), "client-ca-file"),
            (
                map(&[("requestheader-client-ca-file", &ca), ("requestheader-group-headers", "x")]),
                "requestheader-group-headers",
            ),
        ];
        for (data, wanted) in table {
            let text = read(&data, BOTH).unwrap_err().to_string();
            assert!(text.contains(wanted), "{text}");
        }
        assert_eq!(read(&map(&[]), BOTH).unwrap(), Anchors::default());
    }

    #[test]
    fn trust_tells_of_changes_alone() {
        let trust = Trust::default();
        let watched = trust.watch();
        let ca = pem();
        let map = ConfigMap { data: Some(map(&[("client-ca-file", &ca)])), ..ConfigMap::default() };
        apply(&map, BOTH, &trust).unwrap();
        assert!(watched.has_changed().unwrap());
        let mut watched = trust.watch();
        watched.mark_unchanged();
        apply(&map, BOTH, &trust).unwrap();
        assert!(!watched.has_changed().unwrap());
        apply(&ConfigMap::default(), BOTH, &trust).unwrap();
        assert!(trust.now().clients.is_some(), "an empty ConfigMap takes nothing away");
    }
}
