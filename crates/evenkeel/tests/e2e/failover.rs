//! Two processes of the controller manager, one of them active: after any failure of the active one, the other takes over in
//! time, all work is done, and the two never write at the same time.

mod line;

use evenkeel_api::{Kind, views::Lease};
use evenkeel_apiserver::Server;
use evenkeel_runtime::{
    client::{Client, ListOptions, Metadata},
    clock::Clock,
    plan::PatchType,
    tasks::Tasks,
};
use line::{Line, Record};
use serde_json::json;
use std::{
    fs::File,
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};
use tempfile::TempDir;
use tokio::time::Instant;

const PODS: Kind = Kind::new("", "v1", "Pod", "pods", true);
const DEPLOYMENTS: Kind = Kind::new("apps", "v1", "Deployment", "deployments", true);

/// Timeout of each wait, for a busy machine.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// `--leader-elect-lease-duration`.
const LEASE: Duration = Duration::from_secs(4);

/// A controller manager, its connection line and its index among the started processes.
struct Process {
    child: Child,
    line: Line,
    number: usize,
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").arg(format!("-{signal}")).arg(id).status();
        assert!(sent.is_ok_and(|status| status.success()), "signal {signal} is sent");
    }

    async fn ended(&mut self) -> ExitStatus {
        let deadline = Clock::system().instant() + WAIT_TIMEOUT;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                return status;
            }
            assert!(Clock::system().instant() < deadline, "process {} does not end", self.number);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// The server, and the record of all writes.
struct Scene {
    server: Server,
    client: Client,
    record: Record,
    tasks: Tasks,
    folder: TempDir,
    started: usize,
}

impl Scene {
    async fn new() -> Self {
        let server = Server::builder().build().await.expect("a server in memory");
        let client = Client::new(kube::Client::new(server.service(), "default"), Clock::system());
        Self {
            server,
            client,
            record: Record::default(),
            tasks: Tasks::new(),
            folder: tempfile::tempdir().expect("a folder"),
            started: 0,
        }
    }

    async fn start(&mut self) -> Process {
        let number = self.started;
        self.started += 1;
        let (line, url) =
            Line::start(number, self.server.service(), &self.record, &self.tasks).await;
        let kubeconfig = self.folder.path().join(format!("kubeconfig-{number}"));
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
             clusters: [{{name: k, cluster: {{server: \"{url}\"}}}}]\nusers: [{{name: u, user: {{}}}}]\n"
        );
        std::fs::write(&kubeconfig, text).expect("a kubeconfig");
        let log = File::create(self.folder.path().join(format!("log-{number}"))).expect("a log");
        let child = Command::new(env!("CARGO_BIN_EXE_kube-controller-manager"))
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .args(["--secure-port=0", "--controllers=deployment-controller,replicaset-controller"])
            .args(["--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=3s"])
            .arg("--leader-elect-retry-period=500ms")
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the controller manager starts");
        Process { child, line, number }
    }

    /// Waits until this process leads.
    async fn leads(&self, process: &Process) {
        self.until(&format!("process {} leads", process.number), async || {
            self.record.leader() == Some(process.number)
        })
        .await;
    }

    /// Returns the holder that is written in the lease.
    async fn holder(&self) -> String {
        let lease = self.client.get::<Lease>("kube-system", "kube-controller-manager").await;
        lease.expect("a lease").spec.holder_identity.into()
    }

    /// Requests `count` pods, and waits until `process` has created them. Returns the time since when it was active.
    async fn scaled(&self, count: usize, process: &Process) -> Instant {
        let body = json!({"spec": {"replicas": count}}).to_string();
        let form = PatchType::Merge;
        self.client
            .patch::<Metadata>(&DEPLOYMENTS, "default", "web", "", form, body.into())
            .await
            .expect("it is scaled");
        self.until(&format!("{count} pods"), async || {
            let pods = self.client.list_metadata(&PODS, "default", &ListOptions::default()).await;
            pods.expect("a list").items.len() == count
        })
        .await;
        let work = self.record.work();
        assert_eq!(work.last().map(|written| written.line), Some(process.number), "{work:?}");
        let first = work.iter().find(|written| written.line == process.number);
        first.expect("it wrote").at
    }

    async fn until(&self, what: &str, holds: impl AsyncFn() -> bool) {
        let deadline = Clock::system().instant() + WAIT_TIMEOUT;
        while !holds().await {
            if Clock::system().instant() > deadline {
                let log = |n| std::fs::read_to_string(self.folder.path().join(format!("log-{n}")));
                let logs: Vec<_> = (0..self.started).map(log).collect();
                panic!("not in time: {what}; {logs:#?}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn deployment() -> serde_json::Value {
    let labels = json!({"app": "web"});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "replicas": 0, "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "web", "image": "web"}], "serviceAccountName": "default"},
            },
        },
    })
}

#[tokio::test]
async fn one_replica_leads_despite_failures() {
    let mut scene = Scene::new().await;
    let accounts = Kind::new("", "v1", "ServiceAccount", "serviceaccounts", true);
    let account = json!({"metadata": {"name": "default"}}).to_string();
    scene
        .client
        .create::<Metadata>(&accounts, "default", account.into())
        .await
        .expect("an account");
    let body = deployment().to_string();
    scene
        .client
        .create::<Metadata>(&DEPLOYMENTS, "default", body.into())
        .await
        .expect("a Deployment");

    let mut killed = scene.start().await;
    scene.leads(&killed).await;
    let mut paused = scene.start().await;
    scene.scaled(2, &killed).await;
    let at = Clock::system().instant();
    killed.child.kill().expect("it runs");
    let taken_over = scene.scaled(4, &paused).await - at;
    assert!(
        taken_over > LEASE - Duration::from_secs(1),
        "before the lease ran out: {taken_over:?}"
    );

    let mut cut_off = scene.start().await;
    paused.signal("STOP");
    scene.scaled(6, &cut_off).await;
    paused.signal("CONT");
    assert_eq!(paused.ended().await.code(), Some(1), "it wakes, sees who leads, and ends");

    let mut stopped = scene.start().await;
    cut_off.line.cut();
    scene.scaled(8, &stopped).await;
    assert_eq!(cut_off.ended().await.code(), Some(1), "it could not renew");

    let last = scene.start().await;
    let standing_by = scene.record.leader();
    assert_eq!(standing_by, Some(stopped.number));
    // Wait until the second process is on standby, not just starting.
    scene
        .until("the last one stands by", async || {
            let log = std::fs::read_to_string(scene.folder.path().join("log-4")).expect("a log");
            log.contains("new leader elected")
        })
        .await;
    let holder = scene.holder().await;
    stopped.signal("TERM");
    assert_eq!(stopped.ended().await.code(), Some(0));
    assert_ne!(scene.holder().await, holder, "it gave the lease back");
    scene.scaled(10, &last).await;

    let lines: Vec<usize> = scene.record.work().iter().map(|written| written.line).collect();
    assert!(lines.is_sorted(), "one wrote after another had taken over: {lines:?}");
    drop(last);
    scene.tasks.shut_down(WAIT_TIMEOUT).await;
}
