//! Fuzz targets for certificates, keys and certificate requests.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use evenkeel_apimachinery::validation::Errors;
use evenkeel_kinds::validation::{self, ValidationTarget};
use evenkeel_x509::CertPool;
use evenkeel_x509::keys::{Form, PrivateKey};
use serde_json::json;

/// Reads the data as PEM, and as DER that is wrapped in PEM.
pub(crate) fn certificates(data: &[u8]) {
    pem(data);
    for label in ["CERTIFICATE REQUEST", "CERTIFICATE", "PRIVATE KEY", "EC PRIVATE KEY"] {
        let body = BASE64_STANDARD.encode(data);
        pem(format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n").as_bytes());
    }
}

fn pem(pem: &[u8]) {
    if let Ok(pool) = CertPool::from_pem(pem) {
        assert_eq!(pool.is_empty(), pool.subjects().is_empty());
    }
    let _ = PrivateKey::from_pem(pem, Form::Fixed);
    let text = BASE64_STANDARD.encode(pem);
    let object = json!({"metadata": {"name": "a"}, "spec": {"request": text, "signerName": "example.com/a",
        "usages": ["client auth"]}, "status": {"certificate": text}});
    let target = |subresource| ValidationTarget {
        group: "certificates.k8s.io",
        request_group: "certificates.k8s.io",
        kind: "CertificateSigningRequest",
        subresource,
    };
    validation::create(target(""), &object, &mut Errors::default());
    let old = json!({"metadata": {"name": "a"}, "spec": object["spec"]});
    validation::update(target("status"), &object, &old, &mut Errors::default());
}
