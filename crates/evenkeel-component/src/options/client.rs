//! Options of the connection to the API server.

use crate::flags::Reader;

/// Flag of the content type in which requests are sent and responses are accepted.
const CONTENT_TYPE_FLAG: &str = "kube-api-content-type";
const JSON: &str = "application/json";

/// Options of the connection to the API server (upstream's `ClientConnectionConfiguration`).
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// Path of a kubeconfig. Without a kubeconfig and `master`, the program uses its pod's service account. It never reads the
    /// user's own kubeconfig.
    pub kubeconfig: Option<String>,
    /// `--master`: URL of the API server, which overrides the kubeconfig's.
    pub master: Option<String>,
    /// `--kube-api-qps`: requests per second. Negative means no limit.
    pub qps: f32,
    /// `--kube-api-burst`: requests that may be sent in a burst.
    pub burst: u32,
    /// Whether responses are requested only as JSON.
    pub json: bool,
    /// `--use-service-account-credentials`: each controller uses its own service account.
    pub own_credentials: bool,
    /// Whether the program also sends requests of users, with the users' credentials.
    pub for_users: bool,
}

impl ClientOptions {
    /// Returns whether client-go requests JSON with these settings. Without `accept`, client-go requests the
    /// content type that it sends.
    pub fn asks_for_json(accept: &str, content_type: &str) -> bool {
        match accept {
            "" => content_type == JSON,
            accept => !accept.contains("protobuf"),
        }
    }

    /// Reads and validates the flags.
    pub fn from_flags(read: &Reader) -> Self {
        let burst = read.int("kube-api-burst");
        let content = read.text(CONTENT_TYPE_FLAG);
        if !matches!(&*content, JSON | "application/vnd.kubernetes.protobuf") {
            read.mark_unimplemented(&[CONTENT_TYPE_FLAG]);
        }
        Self {
            kubeconfig: read.non_empty_text("kubeconfig"),
            master: read.non_empty_text("master"),
            json: Self::asks_for_json("", &content),
            own_credentials: read.bool("use-service-account-credentials"),
            for_users: false,
            qps: read.float("kube-api-qps") as f32,
            burst: u32::try_from(burst).unwrap_or_else(|_| {
                read.record_invalid(
                    "kube-api-burst",
                    format!("kube-api-burst must be non-negative, but got {burst}"),
                );
                0
            }),
        }
    }
}
