//! Commands in simulated containers, through a client's WebSocket: only the embedded server has kubelets that execute them.

use crate::cluster::{Cluster, Namespace};
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Status};
use kube::{
    Api, Client,
    api::{AttachParams, AttachedProcess},
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Runs a case on a cluster whose server also listens on a port, because a WebSocket needs a socket.
async fn on_sockets(
    prefix: &str,
    case: impl for<'a> FnOnce(Containers<'a>) -> futures::future::LocalBoxFuture<'a, ()> + 'static,
) {
    let prefix = prefix.to_owned();
    crate::embedded::run(move |cluster| {
        Box::pin(async move {
            let namespace = cluster.namespace(&prefix).await;
            let client = client(cluster).await;
            let pods = Api::namespaced(client, &namespace.name);
            case(Containers { namespace: &namespace, pods }).await;
        })
    })
    .await;
}

/// Returns a client of the cluster's server over TCP.
async fn client(cluster: &Cluster) -> Client {
    let server = cluster.server().clone();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let mut config = kube::Config::new(url.parse().expect("a URL"));
    config.auth_info.token = Some(server.admin_token().to_owned().into());
    #[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
    tokio::spawn(async move { server.serve_plain(listener, std::future::pending()).await });
    Client::try_from(config).expect("a client")
}

/// Pods of a namespace whose containers execute commands.
struct Containers<'a> {
    namespace: &'a Namespace<'a>,
    pods: Api<Pod>,
}

/// A command, its input, its exit code, and its output on both streams.
type Row = (&'static [&'static str], Option<&'static str>, i32, &'static str, &'static str);

/// Result of a command: its standard output, standard error and status.
type Ended = (String, String, Status);

impl Containers<'_> {
    /// Creates a pod whose container runs a script, and waits until it runs.
    async fn run(&self, name: &str, script: &str) {
        let container = json!({"name": "c", "image": "busybox", "command": ["sh", "-c", script],
            "env": [{"name": "GREETING", "value": "hello"}],
            "volumeMounts": [{"name": "data", "mountPath": "/data"}]});
        let spec = json!({"containers": [container], "volumes": [{"name": "data", "emptyDir": {}}],
            "terminationGracePeriodSeconds": 1});
        self.namespace.create("pods", json!({"metadata": {"name": name}, "spec": spec})).await;
        self.namespace.until(&format!("pods/{name}"), is_running).await;
    }

    async fn start(&self, pod: &str, command: &[&str], params: &AttachParams) -> AttachedProcess {
        self.pods.exec(pod, command.iter().copied(), params).await.expect("an upgrade")
    }

    /// Executes a command with this input, and waits until it exits.
    async fn exec(&self, pod: &str, command: &[&str], input: Option<&str>) -> Ended {
        let params = AttachParams::default().stdin(input.is_some());
        let mut process = self.start(pod, command, &params).await;
        if let Some(input) = input {
            let mut stdin = process.stdin().expect("an input");
            stdin.write_all(input.as_bytes()).await.expect("it is written");
            stdin.shutdown().await.expect("it is closed");
        }
        ended(process).await
    }

    /// Executes a command that succeeds. Returns its standard output.
    async fn output(&self, pod: &str, command: &[&str]) -> String {
        let (output, errors, status) = self.exec(pod, command, None).await;
        assert_eq!(status.status.as_deref(), Some("Success"), "{command:?}: {errors} {status:?}");
        output
    }
}

fn is_running(pod: &Value) -> bool {
    !pod["status"]["containerStatuses"][0]["state"]["running"].is_null()
}

/// Reads the output of a process to its end.
async fn ended(mut process: AttachedProcess) -> Ended {
    let status = process.take_status().expect("a status");
    let (mut output, mut errors) = (String::new(), String::new());
    let (stdout, stderr) = (process.stdout(), process.stderr());
    let read = async {
        if let Some(mut stdout) = stdout {
            stdout.read_to_string(&mut output).await.expect("text");
        }
    };
    let read_errors = async {
        if let Some(mut stderr) = stderr {
            stderr.read_to_string(&mut errors).await.expect("text");
        }
    };
    let (status, (), ()) = futures::join!(status, read, read_errors);
    (output, errors, status.expect("it ends with a status"))
}

fn message(status: &Status) -> &str {
    status.message.as_deref().unwrap_or_default()
}

/// Returns the exit code in a status; 0 on success.
fn exit_code(status: &Status) -> i32 {
    let causes = status.details.as_ref().and_then(|details| details.causes.as_ref());
    let cause = causes
        .and_then(|causes| causes.iter().find(|cause| cause.reason.as_deref() == Some("ExitCode")));
    let code = cause.and_then(|cause| cause.message.as_deref()?.parse().ok());
    if status.status.as_deref() == Some("Success") { 0 } else { code.expect("an exit code") }
}

#[tokio::test(start_paused = true)]
async fn exec_output_and_exit_codes() {
    on_sockets("exec", |containers| Box::pin(print_and_end(containers))).await;
}

async fn print_and_end(containers: Containers<'_>) {
    containers.run("web", "echo begun > /tmp/log; sleep 1000000").await;
    let table: [Row; 10] = [
        (&["cat", "/tmp/log"], None, 0, "begun\n", ""),
        (&["sh", "-c", "echo $GREETING $HOSTNAME"], None, 0, "hello web\n", ""),
        (&["sh", "-c", "echo out; echo err >&2; exit 3"], None, 3, "out\n", "err\n"),
        (&["false"], None, 1, "", ""),
        (&["sh", "-c", "nothing"], None, 127, "", "sh: nothing: not found\n"),
        (&["sh", "-c", "echo a; sleep 100; echo b"], None, 0, "a\nb\n", ""),
        (&["cat"], Some("a\nb"), 0, "a\nb", ""),
        (&["sh", "-c", "cat > /data/in; wc -l < /data/in"], Some("a\nb\n"), 0, "2\n", ""),
        (
            &["sh"],
            Some("x=1\nfor i in 1 2; do\necho $i$x\ndone\nexit 4\necho no\n"),
            4,
            "11\n21\n",
            "",
        ),
        (&["sh"], Some("false"), 1, "", ""),
    ];
    for (command, input, code, output, errors) in table {
        let (found, found_errors, status) = containers.exec("web", command, input).await;
        assert_eq!((&*found, &*found_errors), (output, errors), "{command:?}");
        assert_eq!(exit_code(&status), code, "{command:?}");
    }
    let (_, _, status) = containers.exec("web", &["vim"], None).await;
    let why = "Internal error occurred: error executing command in container: failed to exec in container: ";
    assert!(message(&status).starts_with(why), "{status:?}");
    assert!(message(&status).ends_with("exec: \"vim\": executable file not found in $PATH"));
}

#[tokio::test(start_paused = true)]
async fn exec_files_end_with_their_container() {
    on_sockets("files", |containers| Box::pin(end_with_their_container(containers))).await;
}

async fn end_with_their_container(containers: Containers<'_>) {
    containers.run("loop", "while [ ! -f /tmp/stop ]; do sleep 1; done; echo stopped").await;
    containers.output("loop", &["sh", "-c", "echo mine > /tmp/a; echo shared > /data/a"]).await;
    assert_eq!(containers.output("loop", &["cat", "/tmp/a", "/data/a"]).await, "mine\nshared\n");
    // The container's own process finds the file that a command wrote.
    containers.output("loop", &["touch", "/tmp/stop"]).await;
    let is_restarted =
        |pod: &Value| is_running(pod) && pod["status"]["containerStatuses"][0]["restartCount"] == 1;
    containers.namespace.until("pods/loop", is_restarted).await;
    let (output, errors, _) = containers.exec("loop", &["cat", "/tmp/a", "/data/a"], None).await;
    assert_eq!(output, "shared\n");
    assert_eq!(errors, "cat: can't open '/tmp/a': No such file or directory\n");
}

#[tokio::test(start_paused = true)]
async fn exec_ends_with_its_container() {
    on_sockets("ends", |containers| Box::pin(end_with_container(containers))).await;
}

async fn end_with_container(containers: Containers<'_>) {
    containers.run("brief", "sleep 1000000").await;
    let endless = containers.exec("brief", &["sh", "-c", "echo begun; sleep 1000000"], None);
    let session = containers.exec("brief", &["sh"], Some("sleep 1000000\n"));
    let deleted = async {
        containers.namespace.cluster().sleep(std::time::Duration::from_secs(100)).await;
        containers.namespace.delete("pods/brief", "Background").await;
    };
    let (endless, session, ()) = futures::join!(endless, session, deleted);
    assert_eq!((&*endless.0, exit_code(&endless.2)), ("begun\n", 137));
    assert_eq!(exit_code(&session.2), 137);
}

#[tokio::test(start_paused = true)]
async fn terminal_echoes_and_prompts() {
    on_sockets("tty", |containers| Box::pin(terminals(containers))).await;
}

async fn terminals(containers: Containers<'_>) {
    containers.run("web", "sleep 1000000").await;
    let params = AttachParams::interactive_tty();
    let mut process = containers.start("web", &["sh"], &params).await;
    let mut stdin = process.stdin().expect("an input");
    let mut stdout = process.stdout().expect("an output");
    let mut screen = String::new();
    for (typed, shown) in [
        ("", "/ # "),
        (
            "cd /tmp; ls nothing\r",
            "cd /tmp; ls nothing\r\nls: nothing: No such file or directory\r\n/tmp # ",
        ),
        ("eco\x7fho a\r", "eco\x08 \x08ho a\r\na\r\n/tmp # "),
        ("for i in 1 2; do\r", "for i in 1 2; do\r\n> "),
        ("echo $i; done\r", "echo $i; done\r\n1\r\n2\r\n/tmp # "),
        ("sleep 1000000\r", "sleep 1000000\r\n"),
        ("\x03", "^C\r\n/tmp # "),
        ("echo $?\r", "echo $?\r\n130\r\n/tmp # "),
        ("cat > x\r", "cat > x\r\n"),
        ("line\r\x04", "line\r\n/tmp # "),
        ("cat x\r", "cat x\r\nline\r\n/tmp # "),
    ] {
        stdin.write_all(typed.as_bytes()).await.expect("it is written");
        screen.push_str(shown);
        let mut read = vec![0; shown.len()];
        stdout.read_exact(&mut read).await.expect("output");
        assert_eq!(String::from_utf8_lossy(&read), shown, "after {typed:?}");
    }
    stdin.write_all(b"exit 5\r").await.expect("it is written");
    let status = process.take_status().expect("a status").await.expect("it ends");
    assert_eq!(exit_code(&status), 5);
}

#[tokio::test(start_paused = true)]
async fn containers_are_attached_to() {
    on_sockets("attach", |containers| Box::pin(attached_to(containers))).await;
}

async fn attached_to(containers: Containers<'_>) {
    containers.run("tick", "echo past; sleep 100; echo one; sleep 100; printf two; exit 3").await;
    let attached = containers.pods.attach("tick", &AttachParams::default()).await;
    let (output, errors, status) = ended(attached.expect("an upgrade")).await;
    assert_eq!((&*output, &*errors, exit_code(&status)), ("one\ntwo", "", 0));

    // A shell with open standard input receives the input of an attached client, and the container ends with the shell.
    let container = json!({"name": "c", "image": "busybox", "stdin": true, "tty": true});
    let spec = json!({"containers": [container], "restartPolicy": "Never"});
    containers.namespace.create("pods", json!({"metadata": {"name": "shell"}, "spec": spec})).await;
    containers.namespace.until("pods/shell", is_running).await;
    let params = AttachParams::interactive_tty();
    let mut process = containers.pods.attach("shell", &params).await.expect("an upgrade");
    let mut stdin = process.stdin().expect("an input");
    stdin.write_all(b"echo hi; exit 3\r").await.expect("it is written");
    let (output, _, status) = ended(process).await;
    assert_eq!((&*output, exit_code(&status)), ("/ # echo hi; exit 3\r\nhi\r\n", 0));
    let is_over = |pod: &Value| pod["status"]["phase"] == "Failed";
    let pod = containers.namespace.until("pods/shell", is_over).await;
    assert_eq!(pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 3);
}

#[tokio::test(start_paused = true)]
async fn ephemeral_containers_run_beside_the_others() {
    on_sockets("debug", |containers| Box::pin(debugged(containers))).await;
}

async fn debugged(containers: Containers<'_>) {
    containers.run("web", "echo mine > /tmp/a; echo shared > /data/a; sleep 1000000").await;
    let debugger = json!({"name": "d", "image": "busybox", "command": ["sh", "-c", "echo here; sleep 60; exit 2"],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}]});
    let patch = json!({"spec": {"ephemeralContainers": [debugger]}});
    containers.namespace.patch("pods/web/ephemeralcontainers", patch).await;
    let state = |pod: &Value| pod["status"]["ephemeralContainerStatuses"][0]["state"].clone();
    containers.namespace.until("pods/web", |pod| !state(pod)["running"].is_null()).await;
    let params = AttachParams::default().container("d");
    let command = ["sh", "-c", "cat /data/a; ls /tmp"];
    let (output, _, _) = ended(containers.start("web", &command, &params).await).await;
    assert_eq!(output, "shared\n");
    let is_over = |pod: &Value| !state(pod)["terminated"].is_null();
    let pod = containers.namespace.until("pods/web", is_over).await;
    assert_eq!(state(&pod)["terminated"]["exitCode"], 2);
    assert_eq!(pod["status"]["phase"], "Running");
    assert!(is_running(&pod));
    assert_eq!(pod["status"]["ephemeralContainerStatuses"][0]["restartCount"], 0);
}
