//! How a program reaches its cluster.

use crate::flags::{Reader, ValueError};

/// How to reach the API server.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// Path of a kubeconfig; in-cluster configuration when empty.
    pub kubeconfig: Option<String>,
    /// Address of the API server, over the kubeconfig's.
    pub master: Option<String>,
    /// Requests a second; unlimited when negative.
    pub qps: f32,
    /// Requests at once.
    pub burst: u32,
    /// Whether each controller has credentials of its own.
    pub own_credentials: bool,
}

impl ClientOptions {
    /// Checks what was given.
    ///
    /// # Errors
    /// When a value is not allowed; the error names the flag.
    pub fn check(read: &Reader) -> Result<Self, ValueError> {
        let burst = read.int("kube-api-burst")?;
        Ok(Self {
            kubeconfig: read.path("kubeconfig")?,
            master: read.path("master")?,
            own_credentials: read.bool("use-service-account-credentials")?,
            qps: read.float("kube-api-qps")? as f32,
            burst: u32::try_from(burst).map_err(|_| {
                ValueError::refused("kube-api-burst", burst.to_string(), "must not be negative")
            })?,
        })
    }
}
