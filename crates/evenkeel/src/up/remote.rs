//! Connection to a remote API server, which runs outside of this process.

use super::Args;
use anyhow::{Context, Result};
use evenkeel::explain::ca_of;
use evenkeel_runtime::{
    client::{self, Client, ConnectOptions},
    clock::Clock,
};
use serde::Deserialize;

/// Connection to a remote API server.
pub(super) struct Remote {
    /// Client of the remote API server.
    pub(super) kube: kube::Client,
    /// Client of the remote API server without credentials.
    pub(super) anonymous: kube::Client,
    /// URL of the remote API server.
    pub(super) url: String,
    /// Version that the server reports.
    pub(super) version: String,
    /// CA (PEM) of the server's certificate, if the configuration has one.
    pub(super) ca: Option<String>,
}

/// Response of `/version`.
#[derive(Deserialize)]
struct Version {
    #[serde(rename = "gitVersion")]
    git_version: String,
}

/// Connects to the server and reads its version, so that an invalid address or credential is reported immediately.
pub(super) async fn connect(args: &Args, clock: &Clock) -> Result<Remote> {
    let options = ConnectOptions {
        kubeconfig: args.kubeconfig.clone(),
        server: args.apiserver.clone(),
        ..ConnectOptions::default()
    };
    let mut config = client::config(&options).await?;
    let url = config.cluster_url.to_string();
    let ca = ca_of(&config);
    let kube = client::transport(&config)?;
    config.auth_info = kube::config::AuthInfo::default();
    let anonymous = client::transport(&config)?;
    let request = http::Request::get("/version").body(bytes::Bytes::new())?;
    let answer = Client::new(kube.clone(), clock.clone()).raw(request).await;
    let answer = answer.with_context(|| {
        format!("the API server at {url} does not answer; check --apiserver, --kubeconfig and the user's credentials")
    })?;
    let version: Version = serde_json::from_slice(answer.body()).with_context(|| {
        format!("the server at {url} is not an API server; check --apiserver and --kubeconfig")
    })?;
    Ok(Remote { kube, anonymous, url, version: version.git_version, ca })
}
