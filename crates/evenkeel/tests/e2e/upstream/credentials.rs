//! Certificates, tokens and kubeconfigs of one cluster.

use super::programs::Folder;
use crate::forbidden::USER as LIMITED;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use serde_json::json;
use std::path::PathBuf;

/// Users, each with a token that is its name. They have all permissions, because permissions are tested with another user.
pub(super) const USERS: [&str; 3] = ["admin", "upstream-kcm", "evenkeel-kcm"];

/// The files, and the certificate authority.
pub(super) struct Credentials {
    folder: PathBuf,
    ca: String,
    ca_key: String,
}

impl Credentials {
    /// Creates the credentials in a cluster's folder.
    pub(super) fn make(folder: &Folder) -> Self {
        let mut ca = CertificateParams::default();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let issuer = Issuer::new(ca.clone(), KeyPair::generate().expect("a key"));
        let ca = ca.self_signed(issuer.key()).expect("a certificate").pem();
        let key = KeyPair::generate().expect("a key");
        let names = ["127.0.0.1", "10.96.0.1", "localhost"].map(String::from);
        let serving = CertificateParams::new(names).expect("names").signed_by(&key, &issuer);
        folder.write("ca.crt", &ca);
        folder.write("ca.key", &issuer.key().serialize_pem());
        folder.write("server.crt", &serving.expect("a certificate").pem());
        folder.write("server.key", &key.serialize_pem());
        let accounts = KeyPair::generate().expect("a key");
        folder.write("accounts.key", &accounts.serialize_pem());
        folder.write("accounts.pub", &accounts.public_key_pem());
        let tokens: String =
            USERS.iter().map(|user| format!("{user},{user},{user},system:masters\n")).collect();
        let limited = format!("{LIMITED},{LIMITED},{LIMITED}\n");
        folder.write("tokens.csv", &(tokens + &limited));
        let ca_key = issuer.key().serialize_pem();
        Self { folder: folder.path().to_owned(), ca, ca_key }
    }

    /// Returns the certificate of the authority, in PEM.
    pub(super) fn ca(&self) -> &str {
        &self.ca
    }

    /// Returns the key of the authority, in PEM.
    pub(super) fn ca_key(&self) -> &str {
        &self.ca_key
    }

    /// Returns the path of a kubeconfig for `user`.
    pub(super) fn kubeconfig(&self, user: &str, server: &str) -> PathBuf {
        let path = self.folder.join(format!("{user}.kubeconfig"));
        let text = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "e2e",
            "clusters": [{"name": "e2e", "cluster": {"server": server, "certificate-authority": self.folder.join("ca.crt")}}],
            "users": [{"name": user, "user": {"token": user}}],
            "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": user}}],
        });
        std::fs::write(&path, text.to_string()).expect("a kubeconfig is written");
        path
    }
}
