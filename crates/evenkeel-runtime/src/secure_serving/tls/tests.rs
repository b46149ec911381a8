use super::*;
use crate::clock::Clock;
use rustls::{
    SignatureScheme,
    client::ResolvesClientCert,
    pki_types::{CertificateDer, pem::PemObject as _},
    sign::CertifiedKey,
};
use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

fn write(folder: &Path, name: &str, hosts: &str) {
    let made = rcgen::generate_simple_self_signed([hosts.to_owned()]).unwrap();
    std::fs::write(folder.join(format!("{name}.crt")), made.cert.pem()).unwrap();
    std::fs::write(folder.join(format!("{name}.key")), made.signing_key.serialize_pem()).unwrap();
}

fn tls(folder: &Path, trust: &Trust) -> Result<Tls, TlsError> {
    let identity =
        Identity::Files { certificate: folder.join("own.crt"), key: folder.join("own.key") };
    let named = NamedFiles {
        certificate: folder.join("named.crt"),
        key: folder.join("named.key"),
        names: vec!["10.0.0.1".to_owned()],
    };
    let files = TrustFiles { clients: Some(folder.join("ca.crt")), proxies: None };
    Tls::new(TlsSettings::default(), identity, vec![named], files, trust.clone())
}

#[tokio::test(start_paused = true)]
async fn files_that_change_are_read_again() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["own", "named", "ca"] {
        write(folder.path(), name, name);
    }
    let trust = Trust::default();
    let tls = Arc::new(tls(folder.path(), &trust).unwrap());
    assert!(!tls.refresh().unwrap(), "nothing has changed");
    let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
    let first = tls.config(true, None);
    let keeping = async {
        let mut now = first.clone();
        for name in ["own", "named"] {
            write(folder.path(), name, "other");
            clock.sleep(REREAD + Duration::from_secs(1)).await;
            let before = std::mem::replace(&mut now, tls.config(true, None));
            assert!(!Arc::ptr_eq(&before, &now), "{name}");
        }
        let before = trust.current();
        write(folder.path(), "ca", "other");
        clock.sleep(REREAD + Duration::from_secs(1)).await;
        assert!(before.clients != trust.current().clients);
        // A key that does not match its certificate, as while the files are being written.
        let (key, text) = (folder.path().join("own.key"), folder.path().join("named.key"));
        let before = std::fs::read(&key).unwrap();
        std::fs::copy(text, &key).unwrap();
        clock.sleep(REREAD * 3).await;
        assert!(Arc::ptr_eq(&now, &tls.config(true, None)), "invalid files change nothing");
        std::fs::write(&key, before).unwrap();
        std::fs::write(folder.path().join("ca.crt"), "nonsense").unwrap();
        clock.sleep(REREAD * 3).await;
        assert!(trust.current().clients.is_some());
        // CAs from the cluster apply immediately.
        let proxies = rcgen::generate_simple_self_signed(["proxies".to_owned()]).unwrap();
        write(folder.path(), "ca", "again");
        trust.change(|anchors| {
            let authority = Authority::from_pem(proxies.cert.pem().as_bytes()).unwrap();
            anchors.proxies = Some((authority, ProxyHeaders::default()));
        });
        clock.sleep(Duration::from_millis(1)).await;
        assert!(!Arc::ptr_eq(&now, &tls.config(true, None)));
    };
    tokio::select! {
        () = tls.keep_reloaded(&clock) => {}
        () = keeping => {}
    }
}

#[tokio::test(start_paused = true)]
async fn syncs_are_counted_under_upstreams_queue_names() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["own", "named", "ca"] {
        write(folder.path(), name, name);
    }
    let registry = prometheus::Registry::new();
    let trust = Trust::default();
    let tls =
        tls(folder.path(), &trust).unwrap().with_metrics(&queue::Metrics::register(&registry));
    let counted = |metric: &str| {
        let families = registry.gather();
        let family = families.iter().find(|family| family.name() == metric).unwrap();
        let value = |name: &str| {
            let mut all = family.get_metric().iter();
            let one = all.find(|one| one.get_label()[0].value() == name);
            one.unwrap().get_counter().get_value() as u64
        };
        ["DynamicCABundle-serving-cert", "DynamicServingCertificateController"].map(value)
    };
    let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
    let watching = async {
        clock.sleep(Duration::from_secs(65)).await;
        assert_eq!(counted("workqueue_adds_total"), [7, 2], "every ten seconds, every minute");
        write(folder.path(), "own", "other");
        clock.sleep(REREAD).await;
        assert_eq!(counted("workqueue_adds_total"), [8, 3], "something has changed");
        trust.change(|anchors| anchors.clients = None);
        clock.sleep(Duration::from_millis(1)).await;
        assert_eq!(counted("workqueue_adds_total"), [8, 4]);
        assert_eq!(counted("workqueue_retries_total"), [0, 0]);
        std::fs::remove_file(folder.path().join("own.crt")).unwrap();
        clock.sleep(REREAD).await;
        let [read, made] = counted("workqueue_retries_total");
        assert!(read > 0 && made == 0, "a failed reread is retried");
    };
    tokio::select! {
        () = tls.keep_reloaded(&clock) => {}
        () = watching => {}
    }
}

#[test]
fn clients_without_a_server_name_get_the_certificate_of_the_address() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["own", "named", "ca"] {
        write(folder.path(), name, name);
    }
    let tls = tls(folder.path(), &Trust::default()).unwrap();
    let config = |named: bool, address: &str| tls.config(named, address.parse().ok());
    let own = config(true, "10.0.0.1");
    assert!(Arc::ptr_eq(&own, &config(false, "10.0.0.2")));
    assert!(!Arc::ptr_eq(&own, &config(false, "10.0.0.1")));
    assert!(!Arc::ptr_eq(&own, &config(false, "::ffff:10.0.0.1")));
}

#[test]
fn error_names_the_missing_file() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["own", "named"] {
        write(folder.path(), name, name);
    }
    let error = tls(folder.path(), &Trust::default()).err().unwrap();
    assert!(error.to_string().contains("ca.crt"), "{error}");
}

/// A client without a certificate, which records whether the server requested one.
#[derive(Debug, Default)]
struct WithoutCertificate(AtomicBool);

impl ResolvesClientCert for WithoutCertificate {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.0.store(true, Ordering::Relaxed);
        None
    }

    fn has_certs(&self) -> bool {
        true
    }
}

fn asks_for_a_certificate(folder: &Path, settings: TlsSettings) -> bool {
    let certificate = folder.join("own.crt");
    let pem = std::fs::read(&certificate).unwrap();
    let identity = Identity::Files { certificate, key: folder.join("own.key") };
    let (files, trust) = (TrustFiles::default(), Trust::default());
    let tls = Tls::new(settings, identity, Vec::new(), files, trust).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&pem).unwrap()).unwrap();
    let asked = Arc::new(WithoutCertificate::default());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_cert_resolver(asked.clone());
    let name = "own".try_into().unwrap();
    let mut client = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let mut server = rustls::ServerConnection::new(tls.config(true, None)).unwrap();
    for _ in 0..10 {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        if !bytes.is_empty() {
            server.read_tls(&mut &*bytes).unwrap();
            server.process_new_packets().unwrap();
        }
        bytes.clear();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        if !bytes.is_empty() {
            client.read_tls(&mut &*bytes).unwrap();
            client.process_new_packets().unwrap();
        }
    }
    assert!(!client.is_handshaking() && !server.is_handshaking(), "the handshake is complete");
    asked.0.load(Ordering::Relaxed)
}

#[test]
fn a_port_for_browsers_requests_no_certificate() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "own", "own");
    assert!(asks_for_a_certificate(folder.path(), TlsSettings::default()));
    let for_browsers = TlsSettings::default().without_client_certificates();
    assert!(!asks_for_a_certificate(folder.path(), for_browsers));
}
