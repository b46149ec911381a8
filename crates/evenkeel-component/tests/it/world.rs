//! A cluster on a socket, and a program's secure port that sends reviews to it.

use crate::client::{Ca, Credential};
use bytes::Bytes;
use evenkeel_apiserver::{Builder, User};
use evenkeel_component::secure_serving::Routes;
use evenkeel_component::{
    options::{RequestHeader, ServingOptions, TlsOptions},
    serving::{self, Checks, ComponentInfo, Pages},
};
use evenkeel_runtime::{client::Client, clock::Clock, manager::Manager, tasks::Tasks};
use evenkeel_test::TestServer;
use http::{Method, Request};
use serde_json::{Value, json};
use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};
use tempfile::TempDir;
use tokio::sync::oneshot;

/// Credentials of a client: a certificate, and headers.
type Identity = (Option<Credential>, Vec<(&'static str, &'static str)>);

/// A cluster on a socket.
pub(crate) struct World {
    pub(crate) client: Client,
    kube: kube::Client,
    pub(crate) folder: TempDir,
    pub(crate) clients: Ca,
    pub(crate) proxies: Ca,
    pub(crate) others: Ca,
    server: TestServer,
}

/// A program that runs.
pub(crate) struct Program {
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    tasks: Tasks,
}

impl World {
    pub(crate) async fn new() -> Self {
        let user = |name: &str| User::authenticated(name, ["team"]);
        let tokens = |server: Builder| {
            server.token("reader-token", user("reader")).token("nobody-token", user("nobody"))
        };
        let server = TestServer::builder().configure(tokens).start().await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        server.kubeconfig(folder.path().join("kubeconfig")).await.unwrap();
        let kube = server.client();
        let world = Self {
            client: Client::new(kube.clone(), Clock::system()),
            kube,
            folder,
            clients: Ca::new("difftest-ca"),
            proxies: Ca::new("front-ca"),
            others: Ca::new("other-ca"),
            server,
        };
        world.grant().await;
        world.believe(&world.clients).await;
        world
    }

    async fn grant(&self) {
        let group = "rbac.authorization.k8s.io";
        let paths = [
            "/metrics",
            "/configz",
            "/debug/*",
            "/flagz",
            "/statusz",
            "/nowhere",
            "/healthz/*",
            "/",
        ];
        let role = json!({
            "metadata": {"name": "r"},
            "rules": [{"nonResourceURLs": paths, "verbs": ["get", "put", "head", "post", "options"]}],
        });
        let subjects = ["reader", "alice", "proxied"]
            .map(|name| json!({"kind": "User", "apiGroup": group, "name": name}));
        let binding = json!({
            "metadata": {"name": "r"}, "subjects": subjects,
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "r"},
        });
        for (what, object) in [("clusterroles", role), ("clusterrolebindings", binding)] {
            self.send(Method::POST, &format!("/apis/{group}/v1/{what}"), &object).await;
        }
    }

    /// Publishes in the cluster the CA of client certificates, and that of front proxies.
    pub(crate) async fn believe(&self, clients: &Ca) {
        let data = json!({"data": {
            "client-ca-file": clients.pem,
            "requestheader-client-ca-file": self.proxies.pem,
            "requestheader-allowed-names": "[\"front-proxy\"]",
            "requestheader-username-headers": "[\"X-Remote-User\"]",
            "requestheader-group-headers": "[\"X-Remote-Group\"]",
            "requestheader-extra-headers-prefix": "[\"X-Remote-Extra-\"]",
        }});
        let path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
        self.send(Method::PATCH, path, &data).await;
    }

    pub(crate) async fn send(&self, method: Method, path: &str, body: &Value) {
        let kind = if method == Method::PATCH {
            "application/merge-patch+json"
        } else {
            "application/json"
        };
        let request = Request::builder().method(method).uri(path).header("content-type", kind);
        let request = request.body(Bytes::from(body.to_string())).unwrap();
        self.client.raw(request).await.unwrap();
    }

    /// Returns the identities of clients, by their names in the recorded responses.
    pub(crate) fn identities(&self) -> BTreeMap<&'static str, Identity> {
        let reader = ("authorization", "Bearer reader-token");
        let proxy = self.proxies.sign("front-proxy", "");
        let mallory = self.others.sign("mallory", "");
        let user = |name: &'static str| ("x-remote-user", name);
        BTreeMap::from([
            ("anonymous", (None, vec![])),
            ("reader", (None, vec![reader])),
            ("nobody", (None, vec![("authorization", "Bearer nobody-token")])),
            ("unknown token", (None, vec![("authorization", "Bearer junk")])),
            ("basic", (None, vec![("authorization", "Basic eDp5")])),
            ("alice", (Some(self.clients.sign("alice", "dev")), vec![])),
            ("root", (Some(self.clients.sign("root", "system:masters")), vec![])),
            ("mallory", (Some(mallory.clone()), vec![])),
            ("mallory with reader's token", (Some(mallory), vec![reader])),
            ("proxy for proxied", (Some(proxy.clone()), vec![user("proxied")])),
            (
                "proxy for a master",
                (Some(proxy.clone()), vec![user("zed"), ("x-remote-group", "system:masters")]),
            ),
            ("proxy for zed", (Some(proxy.clone()), vec![user("zed")])),
            ("proxy for nobody", (Some(proxy), vec![])),
            (
                "stranger for proxied",
                (Some(self.proxies.sign("stranger", "")), vec![user("proxied")]),
            ),
            ("proxied without proxy", (None, vec![user("proxied")])),
        ])
    }

    pub(crate) fn options(&self) -> ServingOptions {
        let kubeconfig = self.folder.path().join("kubeconfig").to_string_lossy().into_owned();
        ServingOptions {
            address: [127, 0, 0, 1].into(),
            port: 0,
            certificate: None,
            cert_dir: None,
            tls: TlsOptions::default(),
            http2: true,
            http2_streams: None,
            share_address: false,
            share_port: false,
            authentication_kubeconfig: Some(kubeconfig.clone()),
            authorization_kubeconfig: Some(kubeconfig),
            client_ca: None,
            request_header: RequestHeader::default(),
            skip_lookup: false,
            tolerate_lookup_failure: false,
            always_allow: ["/healthz", "/readyz", "/livez"].map(str::to_owned).to_vec(),
            token_ttl: Duration::from_secs(10),
            granted_ttl: Duration::from_secs(10),
            denied_ttl: Duration::from_secs(10),
        }
    }

    /// Starts a program on standby: another process leads.
    pub(crate) async fn program(&self, options: &ServingOptions) -> Program {
        let lease = json!({
            "metadata": {"name": "test", "namespace": "kube-system"},
            "spec": {"holderIdentity": "other", "leaseDurationSeconds": 3600, "renewTime": "2100-01-01T00:00:00.000000Z"},
        });
        self.send(
            Method::POST,
            "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
            &lease,
        )
        .await;
        let clock = Clock::system();
        let manager = Manager::builder(self.kube.clone())
            .component("test")
            .leader_election("kube-system", "test", "me")
            .build()
            .unwrap();
        let pages = Pages {
            component: ComponentInfo {
                version: "1.37.1".to_owned(),
                emulated: "1.37".to_owned(),
                started: clock.now(),
                clock: clock.clone(),
            },
            configz: json!({"group": {"kind": "Configuration", "filler": "x".repeat(20_000)}}),
            flagz: Some([("v".to_owned(), "2".to_owned())].into()),
            statusz: true,
            profiling: true,
            set_verbosity: Some(Arc::new(|_| {})),
            controllers: Some(manager.env().introspection.clone()),
        };
        let routes = Routes::new().metrics(manager.registry().clone());
        let (identity, checks) =
            (serving::identity("test", options).unwrap(), Checks::usual(&manager));
        let address =
            serving::add(&manager, options, identity, routes, pages, checks, &clock).await.unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let tasks = Tasks::new();
        tasks.spawn("program", async move {
            manager
                .run(async move {
                    let _ = stopped.await;
                })
                .await
                .unwrap();
        });
        Program { address, stop: Some(stop), tasks }
    }

    pub(crate) async fn end(self) {
        self.server.stop().await;
    }
}

impl Program {
    pub(crate) fn stop(&mut self) {
        drop(self.stop.take());
    }

    pub(crate) async fn end(mut self) {
        self.stop();
        self.tasks.join().await;
    }
}
