//! The folder of `evenkeel envtest`: its programs are started in the same way as envtest starts kube-apiserver and etcd.

use crate::{
    cluster::{Cluster, Intervals},
    program::{POLL_INTERVAL, Program, free_port},
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use evenkeel_runtime::{
    client::{self, Client},
    clock::Clock,
};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::json;
use std::{path::Path, process::Command, time::Duration};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Files like those of envtest, and the client's certificate.
struct Files {
    /// Certificate of the authority that signed the server's.
    ca: String,
    client: [String; 2],
}

impl Files {
    fn make(folder: &Path) -> Self {
        let write = |name: &str, text: String| {
            std::fs::write(folder.join(name), text).expect("a file is written");
        };
        let authority = || {
            let mut params = CertificateParams::default();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let issuer = Issuer::new(params.clone(), KeyPair::generate().expect("a key"));
            (params.self_signed(issuer.key()).expect("a certificate").pem(), issuer)
        };
        let (ca, issuer) = authority();
        let key = KeyPair::generate().expect("a key");
        let names = CertificateParams::new(["127.0.0.1".to_owned()]).expect("names");
        write("apiserver.crt", names.signed_by(&key, &issuer).expect("a certificate").pem());
        write("apiserver.key", key.serialize_pem());
        let accounts = KeyPair::generate().expect("a key");
        let certificate = CertificateParams::default().self_signed(&accounts);
        write("sa-signer.crt", certificate.expect("a certificate").pem());
        write("sa-signer.key", accounts.serialize_pem());
        let (client_ca, issuer) = authority();
        write("client-cert-auth-ca.crt", client_ca);
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "admin");
        params.distinguished_name.push(DnType::OrganizationName, "system:masters");
        let client = params.signed_by(&key, &issuer).expect("a certificate");
        Self { ca, client: [client.pem(), key.serialize_pem()] }
    }

    fn cluster(&self, port: u16) -> Cluster {
        let mut config =
            kube::Config::new(format!("https://127.0.0.1:{port}").parse().expect("a URL"));
        let der = pem_of(&self.ca);
        config.root_cert = Some(vec![der]);
        let [certificate, key] = self.client.each_ref().map(|pem| BASE64_STANDARD.encode(pem));
        config.auth_info.client_certificate_data = Some(certificate);
        config.auth_info.client_key_data = Some(key.into());
        let kube = client::transport(&config).expect("a transport");
        let intervals = Intervals { poll: POLL_INTERVAL, hold: Duration::from_secs(1) };
        Cluster::new(Client::new(kube, Clock::system()), Clock::system(), intervals)
    }
}

/// Returns the bytes of one certificate.
fn pem_of(text: &str) -> Vec<u8> {
    let lines = text.lines().filter(|line| !line.starts_with("-----"));
    BASE64_STANDARD.decode(lines.collect::<String>()).expect("PEM")
}

/// Returns the first line of the response of a server without TLS.
async fn health(port: u16) -> std::io::Result<String> {
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
    stream.write_all(b"GET /health HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\n\r\n").await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text)
}

#[tokio::test]
async fn envtest_programs_start_serve_and_stop() {
    let folder = tempfile::tempdir().expect("a folder");
    let assets = folder.path().join("assets");
    let files = Files::make(folder.path());
    let made = Command::new(env!("CARGO_BIN_EXE_evenkeel"))
        .args(["envtest", "use", "-p", "path", "--dir"])
        .arg(&assets)
        .output()
        .expect("it runs");
    assert_eq!(String::from_utf8_lossy(&made.stdout), assets.to_string_lossy(), "{made:?}");
    let program = |name: &str| assets.join(name).to_string_lossy().into_owned();
    let help = Command::new(program("kube-apiserver")).arg("--help").output().expect("it runs");
    assert!(help.status.success(), "{help:?}");
    assert!(String::from_utf8_lossy(&help.stdout).contains("--service-cluster-ip-range string"));

    let (etcds, port) = (free_port(), free_port());
    let cluster = files.cluster(port);
    let arguments = [
        format!("--listen-client-urls=http://127.0.0.1:{etcds}"),
        "--unsafe-no-fsync=true".to_owned(),
    ];
    let mut etcd = Program::start(&program("etcd"), &arguments, folder.path());
    let path = folder.path().display();
    let arguments = [
        "--advertise-address=127.0.0.1".to_owned(),
        "--allow-privileged=true".to_owned(),
        "--authorization-mode=RBAC".to_owned(),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--cert-dir={path}"),
        format!("--client-ca-file={path}/client-cert-auth-ca.crt"),
        "--disable-admission-plugins=ServiceAccount".to_owned(),
        format!("--etcd-servers=http://127.0.0.1:{etcds}"),
        format!("--secure-port={port}"),
        format!("--service-account-issuer=https://127.0.0.1:{port}/"),
        format!("--service-account-key-file={path}/sa-signer.crt"),
        format!("--service-account-signing-key-file={path}/sa-signer.key"),
        "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
    ];
    let mut apiserver = Program::start(&program("kube-apiserver"), &arguments, folder.path());
    apiserver.serves(&cluster, port).await;
    let answer = loop {
        match health(etcds).await {
            Ok(answer) => break answer,
            Err(error) => assert!(etcd.is_running(), "{error}: {}", etcd.last_words()),
        }
        cluster.sleep(POLL_INTERVAL).await;
    };
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with(r#"{"health":"true","reason":""}"#), "{answer}");

    let pod =
        json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "a", "image": "a"}]}});
    let pod = cluster.create("/api/v1/namespaces/default/pods", pod).await;
    assert_eq!(pod["spec"]["volumes"], json!(null), "no service account was asked for");
    let service = cluster.get("/api/v1/namespaces/default/services/kubernetes").await;
    assert_eq!(service["spec"]["clusterIP"], "10.0.0.1");
    let path = "/api/v1/namespaces/default/serviceaccounts";
    cluster.create(path, json!({"metadata": {"name": "a"}})).await;
    let token = cluster.create(&format!("{path}/a/token"), json!({"spec": {}})).await;
    let review = json!({"spec": {"token": token["status"]["token"]}});
    let review = cluster.create("/apis/authentication.k8s.io/v1/tokenreviews", review).await;
    assert_eq!(review["status"]["user"]["username"], "system:serviceaccount:default:a");

    apiserver.stop(&cluster).await;
    etcd.stop(&cluster).await;
}
