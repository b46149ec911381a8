//! Somebody else's API server.

use super::Args;
use anyhow::{Context, Result};
use evenkeel_runtime::{
    client::{self, Client, ConnectOptions},
    clock::Clock,
};
use serde::Deserialize;

/// A server that answered.
pub(super) struct Remote {
    /// The connection.
    pub(super) kube: kube::Client,
    /// Its address.
    pub(super) url: String,
    /// What it says of its version.
    pub(super) version: String,
    /// The CA that it is trusted by, PEM.
    pub(super) ca: Option<String>,
}

#[derive(Deserialize)]
struct Version {
    #[serde(rename = "gitVersion")]
    git_version: String,
}

/// Connects, and asks for the version, so that a wrong address or credential is told at once.
pub(super) async fn connect(args: &Args, clock: &Clock) -> Result<Remote> {
    let options = ConnectOptions {
        kubeconfig: args.kubeconfig.clone(),
        server: args.apiserver.clone(),
        ..ConnectOptions::default()
    };
    let config = client::config(&options).await?;
    let url = config.cluster_url.to_string();
    let ca = config.root_cert.as_deref().map(pem);
    let kube = client::transport(config)?;
    let request = http::Request::get("/version").body(bytes::Bytes::new())?;
    let answer = Client::new(kube.clone(), clock.clone()).raw(request).await;
    let answer = answer.with_context(|| format!("the API server at {url} does not answer"))?;
    let version: Version =
        serde_json::from_slice(answer.body()).with_context(|| format!("{url} is no API server"))?;
    Ok(Remote { kube, url, version: version.git_version, ca })
}

fn pem(certificates: &[Vec<u8>]) -> String {
    use base64::Engine;
    let mut text = String::new();
    for certificate in certificates {
        let encoded = base64::engine::general_purpose::STANDARD.encode(certificate);
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        let mut rest = &*encoded;
        while !rest.is_empty() {
            let (line, after) = rest.split_at(rest.len().min(64));
            text.push_str(line);
            text.push('\n');
            rest = after;
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text
}
