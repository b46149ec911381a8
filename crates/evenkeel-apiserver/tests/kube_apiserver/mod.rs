//! Upstream's kube-apiserver and etcd, as an oracle. Dropping the value ends the processes.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};

/// Token file of users whose token is their name.
pub(crate) const TOKENS: &str = "admin,admin,admin,system:masters\nann,ann,ann\nbob,bob,bob\n\
    n1,system:node:n1,n1,system:nodes\nn2,system:node:n2,n2,system:nodes\nnameless,system:node:,nameless,system:nodes\n";

/// Upstream's etcd, and its folder.
pub(crate) struct Etcd {
    /// URL of the server for clients.
    pub(crate) url: String,
    running: Child,
    _folder: tempfile::TempDir,
}

impl Etcd {
    /// Starts it from a folder of programs.
    pub(crate) fn start(binaries: &Path) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let [client, peer] = free_ports();
        let (url, peer) =
            (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
        let running = start(binaries, "etcd", folder.path(), &Self::arguments(&url, &peer));
        Self { url, running, _folder: folder }
    }

    fn arguments(url: &str, peer: &str) -> Vec<String> {
        vec![
            "--name=a".to_owned(),
            "--data-dir=etcd".to_owned(),
            "--unsafe-no-fsync".to_owned(),
            "--log-level=error".to_owned(),
            format!("--listen-client-urls={url}"),
            format!("--advertise-client-urls={url}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=a={peer}"),
        ]
    }

    /// Stops or continues the process.
    #[allow(dead_code, reason = "not every suite stops it")]
    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.running.id().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status().expect("kill");
        assert!(sent.success(), "{signal}");
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // One that has ended already is as good.
        let _ = self.running.kill();
        let _ = self.running.wait();
    }
}

/// Starts a program in a folder, which gets its log.
fn start(binaries: &Path, program: &str, folder: &Path, arguments: &[String]) -> Child {
    let log = std::fs::File::create(folder.join(format!("{program}.log"))).expect("a log");
    Command::new(binaries.join(program))
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a log"))
        .stderr(log)
        .spawn()
        .unwrap_or_else(|error| panic!("{program} cannot be started: {error}"))
}

/// Both programs, and their folder.
pub(crate) struct Upstream {
    /// The etcd of the server.
    #[allow(dead_code, reason = "not every suite reads from it")]
    pub(crate) etcd: Etcd,
    /// Where the server listens, once it does.
    pub(crate) address: SocketAddr,
    /// The authority of the server's certificate and of its clients', and its key, PEM.
    pub(crate) ca: String,
    #[allow(dead_code, reason = "not every suite makes certificates")]
    pub(crate) ca_key: String,
    running: Child,
    _folder: tempfile::TempDir,
}

impl Upstream {
    /// Starts them from a folder of programs. The server is ready some seconds later.
    pub(crate) fn start(binaries: &Path) -> Self {
        Self::start_with(binaries, &[])
    }

    /// Starts them with further flags of the server.
    pub(crate) fn start_with(binaries: &Path, flags: &[String]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |file: &str| folder.path().join(file).display().to_string();
        let write = |file: &str, text: &str| std::fs::write(at(file), text).expect("written");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "attacked");
        let issuer = Issuer::new(params.clone(), KeyPair::generate().expect("a key"));
        let ca = params.self_signed(issuer.key()).expect("a certificate").pem();
        let key = KeyPair::generate().expect("a key");
        let serving =
            CertificateParams::new(["localhost", "127.0.0.1"].map(String::from)).expect("names");
        write("ca.crt", &ca);
        write("server.crt", &serving.signed_by(&key, &issuer).expect("a certificate").pem());
        write("server.key", &key.serialize_pem());
        let accounts = KeyPair::generate().expect("a key");
        write("accounts.key", &accounts.serialize_pem());
        write("accounts.pub", &accounts.public_key_pem());
        write("tokens.csv", TOKENS);
        let [port] = free_ports();
        let etcd = Etcd::start(binaries);
        let server = [
            format!("--etcd-servers={}", etcd.url),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={port}"),
            "--endpoint-reconciler-type=none".to_owned(),
            "--allow-privileged=true".to_owned(),
            "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
            "--authorization-mode=Node,RBAC".to_owned(),
            "--enable-admission-plugins=NodeRestriction".to_owned(),
            format!("--token-auth-file={}", at("tokens.csv")),
            format!("--client-ca-file={}", at("ca.crt")),
            format!("--tls-cert-file={}", at("server.crt")),
            format!("--tls-private-key-file={}", at("server.key")),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", at("accounts.pub")),
            format!("--service-account-signing-key-file={}", at("accounts.key")),
        ];
        let server = [&server[..], flags].concat();
        let running = start(binaries, "kube-apiserver", folder.path(), &server);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Self { etcd, address, ca, ca_key: issuer.key().serialize_pem(), running, _folder: folder }
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        // One that has ended already is as good.
        let _ = self.running.kill();
        let _ = self.running.wait();
    }
}

/// Returns ports that were free at the time of the call.
fn free_ports<const N: usize>() -> [u16; N] {
    let listeners =
        [(); N].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port"));
    listeners.map(|listener| listener.local_addr().expect("an address").port())
}
