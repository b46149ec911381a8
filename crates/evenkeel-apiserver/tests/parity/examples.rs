//! Valid objects of the built-in kinds. The tests derive their objects from these.

use rcgen::{CertificateParams, KeyPair};
use serde_json::Value;

/// Files of one object of each kind.
pub(crate) const EXAMPLES: [&str; 3] = [
    include_str!("../answers/examples/core.yaml"),
    include_str!("../answers/examples/workloads.yaml"),
    include_str!("../answers/examples/cluster.yaml"),
];

/// Returns the objects of a file, with a certificate request where one is to be.
pub(crate) fn objects(file: &'static str) -> impl Iterator<Item = Value> {
    file.split("\n---\n").map(object)
}

fn object(text: &str) -> Value {
    let key = KeyPair::generate().expect("a key");
    let request =
        CertificateParams::new(vec!["a".to_owned()]).expect("names").serialize_request(&key);
    let request = request.expect("a request").pem().expect("a request");
    let request = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, request);
    evenkeel_apimachinery::decode::file(text.replace("@CSR@", &request).as_bytes())
        .expect("an example")
}
