//! Programs of one cluster: started in their own folder, on free ports, and ended with the cluster.

use super::credentials::{Credentials, USERS};
use crate::cluster::{Cluster, WAIT_TIMEOUT};
use serde_json::{Value, json};
use std::{
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

/// A folder that is deleted with the cluster.
pub(super) struct Folder(tempfile::TempDir);

impl Folder {
    /// Creates an empty folder.
    pub(super) fn new() -> Self {
        Self(tempfile::Builder::new().prefix("evenkeel-e2e-").tempdir().expect("a folder"))
    }

    /// Returns the path of the folder.
    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file.
    pub(super) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).expect("a file is written");
    }

    fn flag(&self, flag: &str, file: &str) -> String {
        format!("--{flag}={}", self.path().join(file).display())
    }
}

/// Running programs of the cluster.
pub(super) struct Programs {
    binaries: PathBuf,
    folder: Folder,
    /// Running programs, the latest last. They are ended in reverse order.
    running: Vec<(String, Child)>,
    /// Arguments of the API server.
    server: Vec<String>,
}

impl Programs {
    /// Creates the programs without starting any. Upstream's programs are in `binaries`.
    pub(super) fn new(binaries: PathBuf, folder: Folder) -> Self {
        Self { binaries, folder, running: Vec::new(), server: Vec::new() }
    }

    /// Returns the folder with the files of the programs.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts etcd and the API server, and returns their URLs.
    pub(super) fn start_servers(&mut self) -> (String, String) {
        let [client, peer, port] = free_ports();
        let (client, peer) =
            (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
        let etcd = [
            "--name=e2e".to_owned(),
            self.folder.flag("data-dir", "etcd"),
            "--unsafe-no-fsync".to_owned(),
            "--log-level=warn".to_owned(),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=e2e={peer}"),
        ];
        let binary = self.binaries.join("etcd");
        self.start("etcd", &binary, &etcd);
        self.folder.write("audit-policy.json", &audit_policy().to_string());
        self.server = vec![
            format!("--etcd-servers={client}"),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={port}"),
            "--advertise-address=127.0.0.1".to_owned(),
            // A Service may not have a loopback address as endpoint.
            "--endpoint-reconciler-type=none".to_owned(),
            "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
            "--authorization-mode=RBAC".to_owned(),
            self.folder.flag("token-auth-file", "tokens.csv"),
            self.folder.flag("client-ca-file", "ca.crt"),
            self.folder.flag("tls-cert-file", "server.crt"),
            self.folder.flag("tls-private-key-file", "server.key"),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            self.folder.flag("service-account-key-file", "accounts.pub"),
            self.folder.flag("service-account-signing-key-file", "accounts.key"),
            self.folder.flag("audit-policy-file", "audit-policy.json"),
            self.folder.flag("audit-log-path", "audit.jsonl"),
        ];
        self.start_server_again();
        (client, format!("https://127.0.0.1:{port}"))
    }

    /// Starts the API server again, with the same arguments.
    pub(super) fn start_server_again(&mut self) {
        let (binary, arguments) = (self.binaries.join("kube-apiserver"), self.server.clone());
        self.start("kube-apiserver", &binary, &arguments);
    }

    /// Kills the API server.
    pub(super) fn kill_server(&mut self) {
        let at =
            self.running.iter().position(|(name, _)| name == "kube-apiserver").expect("it runs");
        let (_, mut child) = self.running.remove(at);
        end(&mut child);
    }

    /// Waits until the API server is ready.
    pub(super) async fn until_ready(&mut self, cluster: &Cluster) {
        let deadline = cluster.clock().now() + 2 * WAIT_TIMEOUT;
        while cluster.ask("GET", "/readyz", Value::Null).await.is_err() {
            self.all_alive();
            assert!(
                cluster.clock().now() < deadline,
                "the API server is not ready; {}",
                self.last_words("kube-apiserver")
            );
            cluster.sleep(Duration::from_millis(200)).await;
        }
    }

    /// Starts a controller manager, upstream's or ours, with short lease durations.
    pub(super) fn start_controller_manager(
        &mut self,
        user: &str,
        ours: bool,
        credentials: &Credentials,
        server: &str,
    ) {
        let kubeconfig = credentials.kubeconfig(user, server);
        let [port] = free_ports();
        let kubeconfig_flag = |flag: &str| format!("--{flag}={}", kubeconfig.display());
        let arguments = [
            kubeconfig_flag("kubeconfig"),
            kubeconfig_flag("authentication-kubeconfig"),
            kubeconfig_flag("authorization-kubeconfig"),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={port}"),
            "--leader-elect=true".to_owned(),
            "--leader-elect-lease-duration=4s".to_owned(),
            "--leader-elect-renew-deadline=3s".to_owned(),
            "--leader-elect-retry-period=1s".to_owned(),
            "--use-service-account-credentials=false".to_owned(),
            self.folder.flag("service-account-private-key-file", "accounts.key"),
            self.folder.flag("root-ca-file", "ca.crt"),
            self.folder.flag("cluster-signing-cert-file", "ca.crt"),
            self.folder.flag("cluster-signing-key-file", "ca.key"),
            self.folder.flag("cert-dir", "certificates"),
        ];
        let binary = if ours {
            PathBuf::from(env!("CARGO_BIN_EXE_kube-controller-manager"))
        } else {
            self.binaries.join("kube-controller-manager")
        };
        self.start(user, &binary, &arguments);
    }

    /// Returns the writes of this user, except for leases, events and reviews, as `verb resource/name`.
    pub(super) fn writes_of(&self, user: &str) -> Vec<String> {
        let log =
            std::fs::read_to_string(self.folder.path().join("audit.jsonl")).unwrap_or_default();
        let entries = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let of_user = entries.filter(|entry| entry["user"]["username"] == user);
        of_user.map(|entry| format!("{} {}", entry["verb"], entry["requestURI"])).collect()
    }

    /// Asks a program to stop, and waits until it has ended.
    pub(super) async fn stop(&mut self, cluster: &Cluster, name: &str) -> ExitStatus {
        let at = self.running.iter().position(|(running, _)| running == name).expect("it runs");
        let (_, mut child) = self.running.remove(at);
        signal(&child, "TERM");
        let deadline = cluster.clock().now() + WAIT_TIMEOUT;
        loop {
            if let Some(status) = child.try_wait().expect("a child can be waited for") {
                return status;
            }
            if cluster.clock().now() > deadline {
                end(&mut child);
                panic!("{name} did not stop; {}", self.last_words(name));
            }
            cluster.sleep(Duration::from_millis(50)).await;
        }
    }

    /// Ends all programs except the API server and etcd.
    pub(super) fn stop_others(&mut self) {
        while self.running.len() > 2 {
            if let Some((_, mut child)) = self.running.pop() {
                end(&mut child);
            }
        }
    }

    /// Panics if a program has ended by itself.
    pub(super) fn all_alive(&mut self) {
        let ended = self
            .running
            .iter_mut()
            .find_map(|(name, child)| Some((name.clone(), child.try_wait().ok()??)));
        if let Some((name, status)) = ended {
            panic!("{name} ended with {status}; {}", self.last_words(&name));
        }
    }

    /// Returns the end of a program's log.
    pub(super) fn last_words(&self, name: &str) -> String {
        let log = std::fs::read_to_string(self.folder.path().join(format!("{name}.log")))
            .unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        format!("the end of its log:\n{}", lines[lines.len().saturating_sub(30)..].join("\n"))
    }

    fn start(&mut self, name: &str, binary: &Path, arguments: &[String]) {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.path().join(format!("{name}.log")))
            .expect("a log file");
        let child = Command::new(binary)
            .args(arguments)
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log file"))
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("{} cannot be started: {error}", binary.display()));
        self.running.push((name.to_owned(), child));
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        while let Some((_, mut child)) = self.running.pop() {
            end(&mut child);
        }
    }
}

fn end(child: &mut Child) {
    // An error means that the process has already ended.
    let _ = child.kill();
    let _ = child.wait();
}

fn signal(child: &Child, signal: &str) {
    let sent = Command::new("kill").arg(format!("-{signal}")).arg(child.id().to_string()).status();
    assert!(sent.is_ok_and(|status| status.success()), "signal {signal} is sent");
}

/// Returns ports that were free a moment ago.
fn free_ports<const N: usize>() -> [u16; N] {
    let listeners =
        [(); N].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port"));
    listeners.map(|listener| listener.local_addr().expect("an address").port())
}

/// Returns a policy that logs the controller managers' writes, except for those of a standby.
fn audit_policy() -> Value {
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "None", "verbs": ["get", "list", "watch"]},
            {"level": "None", "resources": [
                {"group": "coordination.k8s.io", "resources": ["leases"]},
                {"group": "", "resources": ["events"]},
                {"group": "events.k8s.io", "resources": ["events"]},
                {"group": "authentication.k8s.io"},
                {"group": "authorization.k8s.io"},
            ]},
            {"level": "Metadata", "users": USERS},
        ],
    })
}
