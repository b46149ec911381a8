//! Snapshot of the APIs that extension API servers serve. The controllers of this folder replace it; requests read it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use evenkeel_apimachinery::value::{flag, get, int, text};
use evenkeel_tasks::watch;
use evenkeel_x509::CertPool;
use rustls::ClientConfig;
use serde_json::Value;

use super::condition;
use crate::https::{ClientIdentity, Trust, client_config};
use crate::resource::Rows;
use crate::resource::document::Document;
use crate::streaming::StreamLimits;

/// Group of APIServices. This server always serves the group itself, even if an APIService names another server.
pub(crate) const GROUP: &str = "apiregistration.k8s.io";

/// Service of an extension API server.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ServiceReference {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) port: i64,
}

impl ServiceReference {
    /// Returns the name that the certificate of the server must have.
    pub(crate) fn host(&self) -> String {
        format!("{}.{}.svc", self.name, self.namespace)
    }
}

/// Version of an API group that an extension API server serves.
pub(crate) struct Remote {
    /// Name of the APIService: `VERSION.GROUP`.
    pub(crate) name: Arc<str>,
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) service: ServiceReference,
    /// TLS configuration for connections to the server, or the reason why it is invalid.
    pub(crate) tls: Result<Arc<ClientConfig>, String>,
    /// Whether the condition `Available` is true.
    pub(crate) is_available: bool,
    /// Path of the API's discovery document: `/api/VERSION` or `/apis/GROUP/VERSION`.
    path: String,
    /// Settings that `tls` was created from.
    trust: TrustSettings,
}

/// Fields of an APIService that determine which server certificates are accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
struct TrustSettings {
    /// `insecureSkipTLSVerify`: accepts every certificate.
    skips_verification: bool,
    /// `caBundle`: PEM of the certificate authorities, in base64.
    ca_bundle: String,
}

/// Properties of an API on which the results of its checks and fetches depend.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RemoteInputs {
    service: ServiceReference,
    trust: TrustSettings,
    is_available: bool,
}

impl Remote {
    /// Returns the properties on which the results of checks and fetches depend.
    pub(super) fn inputs(&self) -> RemoteInputs {
        RemoteInputs {
            service: self.service.clone(),
            trust: self.trust.clone(),
            is_available: self.is_available,
        }
    }

    /// Reads an APIService; returns `None` if this server serves the API itself. `previous` is the same APIService in
    /// the current snapshot.
    pub(super) fn new(
        object: &Value,
        identity: Option<&ClientIdentity>,
        previous: Option<&Self>,
    ) -> Option<Self> {
        let service = get(object, "spec.service")?;
        let group = text(object, "spec.group");
        if group == GROUP {
            return None;
        }
        let service = ServiceReference {
            namespace: text(service, "namespace").to_owned(),
            name: text(service, "name").to_owned(),
            port: int(service, "port").unwrap_or(443),
        };
        let trust = TrustSettings {
            skips_verification: flag(object, "spec.insecureSkipTLSVerify"),
            ca_bundle: text(object, "spec.caBundle").to_owned(),
        };
        // Keep the configuration while the settings are unchanged: it caches the TLS sessions that new connections
        // resume.
        let tls = match previous {
            Some(previous) if previous.trust == trust => previous.tls.clone(),
            _ => tls(&trust, identity),
        };
        let version = text(object, "spec.version");
        let path = match group {
            "" => format!("/api/{version}"),
            group => format!("/apis/{group}/{version}"),
        };
        Some(Self {
            name: text(object, "metadata.name").into(),
            group: group.to_owned(),
            version: version.to_owned(),
            path,
            service,
            tls,
            is_available: condition::is_available(object),
            trust,
        })
    }

    /// Returns the path of the API's discovery document.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Returns whether a request's path belongs to the API. An API of the core group gets all paths below `/api`.
    pub(crate) fn has_path(&self, path: &str) -> bool {
        let prefix = if self.group.is_empty() { "/api" } else { self.path() };
        path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// Creates the TLS configuration for connections to an extension API server.
///
/// Upstream: `BuildTransportConfig`.
fn tls(
    settings: &TrustSettings,
    identity: Option<&ClientIdentity>,
) -> Result<Arc<ClientConfig>, String> {
    let pem = BASE64_STANDARD.decode(&settings.ca_bundle).map_err(|error| error.to_string())?;
    let trust = if settings.skips_verification {
        Trust::Any
    } else if pem.is_empty() {
        Trust::Roots(CertPool::system())
    } else {
        let pool = CertPool::from_pem(&pem).map_err(|error| error.to_string())?;
        if pool.is_empty() {
            return Err(
                "unable to load root certificates: unable to parse bytes as PEM block".to_owned()
            );
        }
        Trust::Roots(pool)
    };
    client_config(trust, identity).map(Arc::new)
}

/// Priorities of an APIService, which order groups and versions in discovery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Priority {
    pub(crate) group: String,
    pub(crate) version: String,
    /// `groupPriorityMinimum`: the group with the highest value comes first.
    pub(crate) of_group: i64,
    /// `versionPriority`: the version with the highest value comes first.
    pub(crate) of_version: i64,
}

impl Priority {
    pub(super) fn new(object: &Value) -> Self {
        Self {
            group: text(object, "spec.group").to_owned(),
            version: text(object, "spec.version").to_owned(),
            of_group: int(object, "spec.groupPriorityMinimum").unwrap_or_default(),
            of_version: int(object, "spec.versionPriority").unwrap_or_default(),
        }
    }
}

/// Documents of an extension API server about one APIService.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Documents {
    /// Resources of the version: an `APIVersionDiscovery`. Null before the server's first response.
    pub(crate) discovery: Value,
    /// Paths of OpenAPI v3 with their URLs, such as `apis/example.com/v1`.
    pub(crate) openapi: BTreeMap<String, Value>,
}

/// Snapshot of the APIs of extension API servers.
#[derive(Default)]
pub(crate) struct Remotes {
    /// APIs by the name of their APIService.
    pub(crate) by_name: BTreeMap<Arc<str>, Arc<Remote>>,
    /// Priorities of all APIServices, including those of this server's own APIs.
    pub(crate) priorities: Vec<Priority>,
    /// Whether each APIService is available, by name.
    pub(crate) availability: BTreeMap<Arc<str>, bool>,
    documents: BTreeMap<Arc<str>, Arc<Documents>>,
    /// Cached aggregated discovery document.
    discovery: Mutex<Option<MergedDocument>>,
}

/// Discovery document that lists this server's own resources and the APIs of extension API servers.
struct MergedDocument {
    /// This server's resources that the document was built from.
    rows: Arc<Rows>,
    document: Arc<OnceLock<Document>>,
}

impl Remotes {
    /// Returns the API that a request's path belongs to.
    pub(crate) fn of_path(&self, path: &str) -> Option<&Arc<Remote>> {
        if self.by_name.is_empty() || !path.starts_with("/api") {
            return None;
        }
        self.by_name.values().find(|remote| remote.has_path(path))
    }

    /// Returns the API whose server serves the OpenAPI v3 document with this name, such as `apis/example.com/v1`.
    pub(crate) fn of_openapi(&self, name: &str) -> Option<&Arc<Remote>> {
        let mut documents = self.documents.iter();
        let (api, _) = documents.find(|(_, documents)| documents.openapi.contains_key(name))?;
        self.by_name.get(api)
    }

    /// Writes the metric of the availability of all APIServices.
    ///
    /// Upstream: `availabilityCollector`.
    pub(crate) fn render(&self, text: &mut String) {
        text.push_str(
            "# HELP aggregator_unavailable_apiservice [ALPHA] Gauge of APIServices which are marked as unavailable broken down by APIService name.\n# TYPE aggregator_unavailable_apiservice gauge\n",
        );
        for (name, is_available) in &self.availability {
            let value = u8::from(!is_available);
            let name = name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            // Writes to memory do not fail.
            let _ = writeln!(text, "aggregator_unavailable_apiservice{{name=\"{name}\"}} {value}");
        }
    }

    /// Returns the names and URLs of all OpenAPI v3 documents of extension API servers.
    pub(crate) fn openapi(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.documents.values().flat_map(|documents| &documents.openapi)
    }

    /// Returns the documents of an API; `None` before its server has sent them.
    pub(crate) fn documents(&self, name: &str) -> Option<&Documents> {
        self.documents.get(name).map(|documents| &**documents)
    }

    /// Returns the aggregated discovery document of these rows and the APIs. It is cached: `make` runs once for each
    /// `rows`.
    pub(crate) fn discovery(&self, rows: &Arc<Rows>, make: impl FnOnce() -> Document) -> Document {
        // The lock is released before `make` runs.
        let document = {
            let mut cached = self.discovery.lock().unwrap_or_else(PoisonError::into_inner);
            match &*cached {
                Some(merged) if Arc::ptr_eq(&merged.rows, rows) => merged.document.clone(),
                _ => {
                    let merged = MergedDocument { rows: rows.clone(), document: Arc::default() };
                    cached.insert(merged).document.clone()
                }
            }
        };
        document.get_or_init(make).clone()
    }
}

/// Shared state of aggregation: the current snapshot and the settings for requests to extension API servers.
pub(crate) struct Aggregation {
    current: RwLock<Arc<Remotes>>,
    /// Number of changes of the APIs, for the controllers to wait on.
    changed: watch::Sender<u64>,
    /// Certificate that identifies this server to extension API servers (`--proxy-client-cert-file`).
    pub(crate) identity: Option<ClientIdentity>,
    /// Whether redirects of extension API servers are refused (`--aggregator-reject-forwarding-redirect`).
    pub(crate) rejects_redirects: bool,
    /// Limits on requests in flight to extension API servers.
    pub(crate) connections: StreamLimits,
}

impl Aggregation {
    /// Creates the state without any API.
    pub(crate) fn new(identity: Option<ClientIdentity>, rejects_redirects: bool) -> Self {
        Self {
            current: RwLock::default(),
            changed: watch::Sender::new(0),
            identity,
            rejects_redirects,
            connections: StreamLimits::default(),
        }
    }

    /// Returns the current snapshot.
    pub(crate) fn current(&self) -> Arc<Remotes> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns a receiver that signals changes of the APIs, but not of their documents.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Reads an APIService; returns `None` if this server serves the API itself.
    pub(super) fn remote(&self, object: &Value) -> Option<Remote> {
        self.remote_after(&self.current(), object)
    }

    /// Parses an APIService, and reuses the state of the same APIService in the snapshot `current`.
    fn remote_after(&self, current: &Remotes, object: &Value) -> Option<Remote> {
        let previous = current.by_name.get(text(object, "metadata.name"));
        Remote::new(object, self.identity.as_ref(), previous.map(Arc::as_ref))
    }

    /// Replaces the APIs with the APIs of these APIServices. Keeps the documents of APIs that are in both sets.
    pub(crate) fn set_services(&self, objects: &[Value]) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let remotes = objects.iter().filter_map(|object| self.remote_after(&current, object));
        let by_name: BTreeMap<_, _> =
            remotes.map(|remote| (remote.name.clone(), Arc::new(remote))).collect();
        let available = |object: &Value| {
            (text(object, "metadata.name").into(), condition::is_available(object))
        };
        let documents = current
            .documents
            .iter()
            .filter(|(name, _)| by_name.contains_key(*name))
            .map(|(name, documents)| (name.clone(), documents.clone()))
            .collect();
        *current = Arc::new(Remotes {
            documents,
            priorities: objects.iter().map(Priority::new).collect(),
            availability: objects.iter().map(available).collect(),
            by_name,
            discovery: Mutex::default(),
        });
        drop(current);
        self.changed.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Sets the documents of an API if its APIService still exists.
    pub(super) fn set_documents(&self, name: &Arc<str>, documents: Documents) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if !current.by_name.contains_key(name) || current.documents(name) == Some(&documents) {
            return;
        }
        let mut all_documents = current.documents.clone();
        all_documents.insert(name.clone(), Arc::new(documents));
        *current = Arc::new(Remotes {
            by_name: current.by_name.clone(),
            priorities: current.priorities.clone(),
            availability: current.availability.clone(),
            documents: all_documents,
            discovery: Mutex::default(),
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service(name: &str, group: &str, version: &str, service: &Value) -> Value {
        json!({"metadata": {"name": name}, "spec": {"group": group, "version": version, "service": service}})
    }

    #[test]
    fn paths_belong_to_the_api_of_their_group_and_version() {
        let aggregation = Aggregation::new(None, true);
        let reference = json!({"namespace": "n", "name": "s"});
        aggregation.set_services(&[
            service("v1.a", "a", "v1", &reference),
            service("v1.b", "b", "v1", &Value::Null),
            service("v1.apiregistration.k8s.io", GROUP, "v1", &reference),
        ]);
        let current = aggregation.current();
        let of_path = |path: &str| current.of_path(path).map(|remote| remote.name.to_string());
        let a = Some("v1.a".to_owned());
        for (path, expected) in [
            ("/apis/a/v1", &a),
            ("/apis/a/v1/", &a),
            ("/apis/a/v1/things/x", &a),
            ("/apis/a/v1beta1", &None),
            ("/apis/a", &None),
            ("/apis/b/v1/things", &None),
            ("/apis/apiregistration.k8s.io/v1/apiservices", &None),
            ("/api/v1/pods", &None),
            ("/version", &None),
        ] {
            assert_eq!(of_path(path), *expected, "{path}");
        }
        aggregation.set_services(&[service("v1.", "", "v1", &reference)]);
        let current = aggregation.current();
        for (path, is_core) in [("/api", true), ("/api/v1/pods", true), ("/apis/a/v1", false)] {
            assert_eq!(current.of_path(path).is_some(), is_core, "{path}");
        }
        let core = current.of_path("/api").expect("the core group");
        assert_eq!((core.path(), core.service.port), ("/api/v1", 443));
    }

    #[test]
    fn documents_stay_as_long_as_their_api() {
        let aggregation = Aggregation::new(None, true);
        let one = service("v1.a", "a", "v1", &json!({"namespace": "n", "name": "s"}));
        let documents = Documents {
            openapi: [("apis/a/v1".to_owned(), json!({}))].into(),
            ..Documents::default()
        };
        aggregation.set_documents(&"v1.a".into(), documents.clone());
        assert!(aggregation.current().of_openapi("apis/a/v1").is_none());
        aggregation.set_services(std::slice::from_ref(&one));
        aggregation.set_documents(&"v1.a".into(), documents);
        aggregation.set_services(&[one]);
        assert!(aggregation.current().of_openapi("apis/a/v1").is_some());
        aggregation.set_services(&[]);
        assert!(aggregation.current().of_openapi("apis/a/v1").is_none());
    }
}
