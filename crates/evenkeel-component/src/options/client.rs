//! How a program reaches its cluster.

use crate::flags::Reader;

/// What requests and answers may be written in.
const CONTENT_TYPE: &str = "kube-api-content-type";
const JSON: &str = "application/json";

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
    /// Whether answers are asked for as JSON alone.
    pub json: bool,
    /// Whether each controller has credentials of its own.
    pub own_credentials: bool,
}

impl ClientOptions {
    /// Whether that is what client-go makes of these settings: without `accept`, answers are asked for as requests are written.
    pub fn asks_for_json(accept: &str, content_type: &str) -> bool {
        match accept {
            "" => content_type == JSON,
            accept => !accept.contains("protobuf"),
        }
    }

    /// Checks what was given.
    pub fn check(read: &Reader) -> Self {
        let burst = read.int("kube-api-burst");
        let content = read.text(CONTENT_TYPE);
        if !matches!(&*content, JSON | "application/vnd.kubernetes.protobuf") {
            read.idle(&[CONTENT_TYPE]);
        }
        Self {
            kubeconfig: read.path("kubeconfig"),
            master: read.path("master"),
            json: Self::asks_for_json("", &content),
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
