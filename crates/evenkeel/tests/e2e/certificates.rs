//! Certificates: a request is signed if it is approved and the signer's rules allow it.

use crate::cluster::{Cluster, condition, items, name};
use base64::prelude::*;
use rcgen::{CertificateParams, DnType, KeyPair, SanType};
use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use serde_json::{Value, json};
use x509_parser::prelude::{FromDer as _, X509Certificate};

const REQUESTS: &str = "certificatesigningrequests";
const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
const KUBELET: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const SERVING: &str = "kubernetes.io/kubelet-serving";

/// Requests a certificate.
async fn ask(cluster: &Cluster, request: &str, who: (&str, &str), signer: &str, usages: &[&str]) {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, who.0);
    params.distinguished_name.push(DnType::CommonName, who.1);
    if signer == SERVING {
        params.subject_alt_names = vec![SanType::DnsName("node.test".try_into().expect("a name"))];
    }
    let key = KeyPair::generate().expect("a key");
    let pem = params.serialize_request(&key).and_then(|asked| asked.pem()).expect("a request");
    let body = json!({
        "metadata": {"name": request},
        "spec": {
            "request": BASE64_STANDARD.encode(pem), "signerName": signer, "usages": usages,
            "expirationSeconds": 3600,
        },
    });
    cluster.create(REQUESTS, body).await;
}

async fn approve(cluster: &Cluster, request: &str) {
    let approved = json!({"status": {"conditions": [
        {"type": "Approved", "status": "True", "reason": "Wanted", "message": "by a test"},
    ]}});
    cluster.patch(&format!("{REQUESTS}/{request}/approval"), approved).await;
}

/// Waits for the certificate, and checks it.
async fn issued(
    cluster: &Cluster,
    request: &str,
    look: impl FnOnce(&X509Certificate<'_>),
) -> Value {
    let path = format!("{REQUESTS}/{request}");
    let done = cluster.until(&path, |request| request["status"]["certificate"].is_string()).await;
    let pem = done["status"]["certificate"].as_str().expect("a text");
    let der = CertificateDer::from_pem_slice(&BASE64_STANDARD.decode(pem).expect("base64"));
    let der = der.expect("PEM");
    look(&X509Certificate::from_der(&der).expect("a certificate").1);
    done
}

pub(crate) async fn are_signed_once_approved(cluster: &Cluster) {
    ask(cluster, "someone", ("team", "someone"), CLIENT, &["client auth"]).await;
    ask(cluster, "denied", ("team", "someone"), CLIENT, &["client auth"]).await;
    ask(cluster, "elsewhere", ("team", "someone"), "example.test/signer", &["client auth"]).await;
    let denied =
        json!({"status": {"conditions": [{"type": "Denied", "status": "True", "reason": "No"}]}});
    cluster.patch(&format!("{REQUESTS}/denied/approval"), denied).await;
    cluster.watch_a_while().await;
    assert!(cluster.get(&format!("{REQUESTS}/someone")).await["status"]["certificate"].is_null());
    approve(cluster, "elsewhere").await;
    approve(cluster, "someone").await;
    issued(cluster, "someone", |certificate| {
        assert_eq!(certificate.subject().to_string(), "O=team, CN=someone");
        let validity = certificate.validity();
        let lasts = validity.not_after.timestamp() - validity.not_before.timestamp();
        assert_eq!(lasts, 3600 + 300);
        assert!(
            certificate
                .extended_key_usage()
                .expect("readable")
                .is_some_and(|usage| usage.value.client_auth)
        );
    })
    .await;
    for other in ["denied", "elsewhere"] {
        let other = cluster.get(&format!("{REQUESTS}/{other}")).await;
        assert!(other["status"]["certificate"].is_null(), "{other:#}");
        assert!(condition(&other, "Failed").is_null(), "{other:#}");
    }
}

pub(crate) async fn are_refused_by_their_signers_rules(cluster: &Cluster) {
    ask(cluster, "no-client", ("team", "someone"), CLIENT, &["server auth"]).await;
    ask(cluster, "no-node", ("team", "someone"), SERVING, &["digital signature", "server auth"])
        .await;
    let table = [
        ("no-client", "invalid usage for client certificate: server auth"),
        ("no-node", "subject organization is not system:nodes"),
    ];
    for (request, why) in table {
        approve(cluster, request).await;
        let path = format!("{REQUESTS}/{request}");
        let failed =
            cluster.until(&path, |request| condition(request, "Failed")["status"] == "True").await;
        let failed = condition(&failed, "Failed");
        assert_eq!(
            (&failed["reason"], &failed["message"]),
            (&json!("SignerValidationFailure"), &json!(why))
        );
    }
    // What is decided stays decided.
    let taken_back = json!({"status": {"conditions": []}});
    let refused = cluster.ask("PATCH", &format!("{REQUESTS}/no-node/approval"), taken_back).await;
    assert_eq!(refused.expect_err("a refusal").code(), 422);
}

pub(crate) async fn of_nodes_are_approved_at_once(cluster: &Cluster) {
    let who = ("system:nodes", "system:node:e2e");
    ask(cluster, "of-a-node", who, KUBELET, &["digital signature", "client auth"]).await;
    let done = issued(cluster, "of-a-node", |certificate| {
        assert_eq!(certificate.subject().to_string(), "O=system:nodes, CN=system:node:e2e");
    })
    .await;
    assert_eq!(condition(&done, "Approved")["reason"], "AutoApproved");
    // Serving certificates of nodes are not approved automatically.
    ask(cluster, "served", who, SERVING, &["digital signature", "server auth"]).await;
    cluster.watch_a_while().await;
    assert!(cluster.get(&format!("{REQUESTS}/served")).await["status"]["conditions"].is_null());
    approve(cluster, "served").await;
    issued(cluster, "served", |certificate| {
        let names = certificate.subject_alternative_name().expect("readable").expect("names");
        assert_eq!(names.value.general_names.len(), 1);
    })
    .await;
}

pub(crate) async fn of_the_server_are_published(cluster: &Cluster) {
    let path =
        "clustertrustbundles?fieldSelector=spec.signerName%3Dkubernetes.io/kube-apiserver-serving";
    let bundles = cluster.until(path, |bundles| items(bundles).len() == 1).await;
    let bundle = &items(&bundles)[0];
    let (of_bundle, text) = (name(bundle).to_owned(), bundle["spec"]["trustBundle"].clone());
    assert!(of_bundle.starts_with("kubernetes.io:kube-apiserver-serving:"), "{of_bundle}");
    cluster.delete(&format!("clustertrustbundles/{of_bundle}"), "Background").await;
    let is_back = |bundle: &Value| bundle["spec"]["trustBundle"] == text;
    cluster.until(&format!("clustertrustbundles/{of_bundle}"), is_back).await;
}
