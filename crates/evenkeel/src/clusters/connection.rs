//! Connection of a command to a running cluster: to its control socket and its API server.

use super::{commands::ask, folder::Clusters, named, record::Record};
use crate::{
    kubeconfig::Home,
    time::{self, TimeReport},
};
use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use evenkeel_runtime::{
    client::{self, Client, ConnectOptions},
    clock::Clock,
};
use http::Method;

/// A running cluster.
pub(crate) struct Connection {
    record: Record,
}

impl Connection {
    /// Finds a cluster by name. Without a name, finds the only cluster, the cluster of the kubeconfig's current
    /// context, or `default`.
    ///
    /// # Errors
    /// Fails if the cluster does not exist, several clusters match, or the cluster does not run.
    pub(crate) fn find(name: Option<&str>) -> Result<Self> {
        let home = Home::from_env();
        let all = Clusters::of(&home).all()?;
        let cluster = named::find(&all, name, &home)?;
        match &cluster.record {
            Some(record) if cluster.state.is_alive() => Ok(Self { record: record.clone() }),
            _ => bail!("cluster {} does not run", cluster.name),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.record.name
    }

    /// Sends a request to the control socket.
    ///
    /// # Errors
    /// Fails if the process does not respond, or rejects the request.
    pub(crate) async fn ask(&self, method: Method, target: &str) -> Result<Bytes> {
        let answer = ask(&self.record.socket, method, target).await;
        answer.with_context(|| format!("cluster {}", self.name()))
    }

    /// Returns the time of the cluster.
    ///
    /// # Errors
    /// Fails if the process does not respond.
    pub(crate) async fn time(&self) -> Result<TimeReport> {
        let answer = self.ask(Method::GET, time::PATH).await?;
        serde_json::from_slice(&answer).context("the process reports no time")
    }

    /// Returns a client of the cluster's API server.
    ///
    /// # Errors
    /// Fails if another program runs the API server, whose kubeconfig only the user has.
    pub(crate) async fn client(&self) -> Result<Client> {
        let Some(kubeconfig) = self.record.kubeconfig.clone() else {
            bail!(
                "the API server of cluster {} does not run here; use kubectl annotate",
                self.name()
            )
        };
        let options = ConnectOptions { kubeconfig: Some(kubeconfig), ..ConnectOptions::default() };
        let config = client::config(&options).await?;
        let transport = client::transport(&config)?;
        Ok(Client::builder(transport, Clock::system()).qps(-1.0).build())
    }
}
