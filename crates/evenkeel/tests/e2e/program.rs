//! One of our programs in its own process: its start and end, its server, and a client of its secure port.

use crate::{
    cluster::{Cluster, Intervals},
    forbidden::USER,
};
use bytes::Bytes;
use evenkeel_apiserver::Server;
use evenkeel_runtime::{
    client::{self, ApiError, Client},
    clock::Clock,
};
use evenkeel_test::TestServer;
use http::{HeaderMap, Request, Response};
use std::{
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

/// Time between two checks of a condition in real time.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);

const INTERVALS: Intervals = Intervals { poll: POLL_INTERVAL, hold: Duration::from_secs(1) };

/// An embedded server on a port of this machine, in real time.
pub(crate) struct Embedded {
    pub(crate) server: Server,
    pub(crate) url: String,
    pub(crate) cluster: Cluster,
    /// Server that listens at `url` and must be stopped.
    pub(crate) serving: TestServer,
}

impl Embedded {
    pub(crate) async fn start() -> Self {
        let users = format!("{USER},{USER},{USER}\n");
        let serving = TestServer::builder()
            .enable_admission_plugin("ServiceAccount")
            .configure(|server| server.tokens_csv(&users))
            .start()
            .await
            .expect("a server in memory");
        let url = serving.listen().await.expect("a port").to_owned();
        let (kube, server) = (serving.client(), serving.server().clone());
        let client = Client::builder(kube, Clock::system()).qps(-1.0).user_agent("e2e").build();
        let cluster = Cluster::new(client, Clock::system(), INTERVALS).with_server(server.clone());
        Self { server, url, cluster, serving }
    }
}

/// The program. It is killed when the test ends, even if the test fails.
pub(crate) struct Program {
    child: Child,
    log: PathBuf,
}

impl Program {
    /// Starts a binary. Its log is a file with the binary's name in the folder.
    pub(crate) fn start(binary: &str, arguments: &[String], folder: &Path) -> Self {
        let name = Path::new(binary).file_name().expect("a file").to_string_lossy();
        let log = folder.join(format!("{name}.log"));
        let file = std::fs::File::create(&log).expect("a file");
        let child = Command::new(binary)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .expect("the program starts");
        Self { child, log }
    }

    /// Returns whether the program is still running.
    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Returns all log lines so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Returns the program's resident memory, in kB.
    pub(crate) fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    /// Returns the end of the program's log.
    pub(crate) fn last_words(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// Waits until the program's secure port responds.
    pub(crate) async fn serves(&mut self, cluster: &Cluster, port: u16) {
        let (anyone, mut tries) = (Watcher::anonymous(port), 0);
        while let Err(error) = anyone.get("/healthz", &HeaderMap::new()).await {
            tries += 1;
            assert!(self.is_running() && tries < 600, "{error}\n{}", self.last_words());
            cluster.sleep(POLL_INTERVAL).await;
        }
    }

    /// Requests the program to stop, and waits until it has ended successfully.
    pub(crate) async fn stop(mut self, cluster: &Cluster) {
        let id = self.child.id().to_string();
        let signaled = Command::new("kill").args(["-TERM", &id]).status().expect("kill runs");
        assert!(signaled.success(), "the program is signaled to stop");
        for _ in 0..600 {
            if let Some(status) = self.child.try_wait().expect("a child") {
                assert!(status.success(), "{status}: {}", self.last_words());
                return;
            }
            cluster.sleep(POLL_INTERVAL).await;
        }
        panic!("the program does not stop: {}", self.last_words());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // An error means that the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Client of the secure port.
pub(crate) struct Watcher(Client);

impl Watcher {
    pub(crate) fn new(port: u16, login: impl FnOnce(&mut kube::config::AuthInfo)) -> Self {
        let url = format!("https://127.0.0.1:{port}").parse().expect("a URL");
        let mut config = kube::Config::new(url);
        // As upstream's, the certificate is self-signed and exists only in the program's memory; probes do not verify it
        // either.
        config.accept_invalid_certs = true;
        login(&mut config.auth_info);
        let kube = client::transport(&config).expect("a transport");
        Self(Client::new(kube, Clock::system()))
    }

    pub(crate) fn anonymous(port: u16) -> Self {
        Self::new(port, |_| {})
    }

    /// Returns a client of the secure port with this token.
    pub(crate) fn with_token(port: u16, token: &str) -> Self {
        Self::new(port, |login| login.token = Some(token.to_owned().into()))
    }

    pub(crate) async fn get(
        &self,
        path: &str,
        headers: &HeaderMap,
    ) -> Result<Response<Bytes>, ApiError> {
        let mut request = Request::get(path).body(Bytes::new()).expect("a request");
        request.headers_mut().extend(headers.clone());
        self.0.raw(request).await
    }

    pub(crate) async fn text(&self, path: &str) -> String {
        let answer = self.get(path, &HeaderMap::new()).await;
        text(path, answer)
    }

    pub(crate) async fn put(&self, path: &str, body: &str) -> String {
        let request = Request::put(path).body(body.to_owned().into()).expect("a request");
        text(path, self.0.raw(request).await)
    }
}

fn text(path: &str, answer: Result<Response<Bytes>, ApiError>) -> String {
    let answer = answer.unwrap_or_else(|error| panic!("{path}: {error}"));
    String::from_utf8(answer.body().to_vec()).expect("text")
}

/// Returns a port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("an address").port()
}
