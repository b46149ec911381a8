//! How a program reaches its cluster.

use crate::flags::Reader;

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
    pub fn check(read: &Reader) -> Self {
        let burst = read.int("kube-api-burst");
        Self {
            kubeconfig: read.path("kubeconfig"),
            master: read.path("master"),
            own_credentials: read.bool("use-service-account-credentials"),
            qps: read.float("kube-api-qps") as f32,
            burst: u32::try_from(burst).unwrap_or_else(|_| {
                read.refuse(
                    "kube-api-burst",
                    format!("kube-api-burst must be non-negative, but got {burst}"),
                );
                0
            }),
        }
    }
}
