//! What a cluster says of whose certificates are believed: its ConfigMap `kube-system/extension-apiserver-authentication`.

use super::trust::{Anchors, Authority, ProxyHeaders, Trust};
use crate::{
    cache::{Caches, Full},
    client::{ApiError, Client, full_text},
    clock::Clock,
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
}

impl Lookup {
    /// Through this client, whose user must be allowed to read it (role `extension-apiserver-authentication-reader`).
    pub fn new(client: Client, clock: Clock, wanted: Wanted) -> Self {
        Self { client, clock, wanted }
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
        let (trust, wanted) = (trust.clone(), self.wanted);
        maps.subscribe(move |event| {
            if let Err(error) = apply(event.object(), wanted, &trust) {
                tracing::error!(
                    error = full_text(&error),
                    "Whose certificates are believed stays as it was"
                );
            }
        });
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
