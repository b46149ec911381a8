//! `evenkeel explain KIND/NAME`: the controllers' observations of an object, their next actions, and their reasons to
//! wait.
//!
//! It queries a running manager. Without one, it runs the controllers' planners in this process, over a read-only
//! connection and with only the caches that they need.

mod live;
mod offline;
mod resolve;
mod tree;

pub use live::{ask_socket, normalized_url, socket_beside};
pub use offline::Offline;
pub use resolve::{resolve, split};
pub use tree::{Explained, Source, explain};

use anyhow::{Context, Result, bail};
use evenkeel_runtime::{
    client::{self, Client, ConnectOptions},
    clock::Clock,
    introspect::Subject,
};
use futures::future::LocalBoxFuture;
use live::Live;
use std::path::PathBuf;

/// Flags of `evenkeel explain`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Object to explain: KIND/NAME, or KIND NAME. Plurals and short names are accepted.
    #[arg(required = true, num_args = 1..=2, value_name = "KIND/NAME")]
    pub object: Vec<String>,

    /// Namespace of the object. Default: the kubeconfig's.
    #[arg(short, long)]
    pub namespace: Option<String>,

    /// Kubeconfig of the cluster. Default: $KUBECONFIG or ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Context in the kubeconfig. Default: its current one.
    #[arg(long)]
    pub context: Option<String>,

    /// Ask the manager at this URL (https://127.0.0.1:10257), with the kubeconfig's credentials.
    #[arg(long, value_name = "URL", conflicts_with = "offline")]
    pub server: Option<String>,

    /// CA of the manager's certificate. Default: the kubeconfig's.
    #[arg(long, value_name = "FILE", requires = "server")]
    pub certificate_authority: Option<PathBuf>,

    /// Accept any certificate of the manager, which by default is self-signed.
    #[arg(long, requires = "server")]
    pub insecure_skip_tls_verify: bool,

    /// Do not ask a manager: read the cluster and run the planners here.
    #[arg(long)]
    pub offline: bool,

    /// Output: text, or json.
    #[arg(short, long, default_value = "text", value_parser = ["text", "json"])]
    pub output: String,
}

/// Explains an object, and returns the output.
///
/// # Errors
/// When neither a manager nor the cluster responds, or the kind or the object does not exist.
pub fn run<'a>(args: &'a Args, sockets: &'a [PathBuf]) -> LocalBoxFuture<'a, Result<String>> {
    Box::pin(explain_object(args, sockets))
}

async fn explain_object(args: &Args, sockets: &[PathBuf]) -> Result<String> {
    let clock = Clock::system();
    let options = ConnectOptions {
        kubeconfig: args.kubeconfig.clone(),
        context: args.context.clone(),
        ..ConnectOptions::default()
    };
    let config = client::config(&options).await?;
    let namespace = args.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
    let (url, kube) = (config.cluster_url.clone(), client::transport(&config)?);
    let client =
        Client::builder(kube.clone(), clock.clone()).user_agent("evenkeel-explain").build();
    let manager = match (&args.server, args.offline) {
        (_, true) => None,
        (Some(server), _) => Some(Live::connect_https(config, args, server, &clock)?),
        (None, _) => Live::connect_socket(sockets, &url.to_string()).await,
    };
    let (kind, name) = split(&args.object)?;
    let scheduler_client = kube.clone();
    let explained = match manager {
        Some(live) => {
            let subject = match client.api_resources().await {
                Ok(resources) => resolve(&resources, kind, &namespace, name)?,
                // The manager can also explain its reasons to wait while the API server is unavailable.
                Err(_) => subject_of_manager(&live, kind, &namespace, name).await?,
            };
            let mode = live.description();
            explain(&live, subject, mode).await?
        }
        None => {
            let resources =
                client.api_resources().await.context("the API server does not answer")?;
            let subject = resolve(&resources, kind, &namespace, name)?;
            let offline = Offline::start(kube, &clock, resources, &subject).await?;
            let mode = format!("worked out from the cluster {url}; no manager was asked");
            let explained = explain(&offline, subject, mode).await;
            offline.stop().await;
            explained?
        }
    };
    let scheduled = match kind.split('.').next() {
        Some("pod" | "pods" | "po" | "Pod") => {
            crate::schedule::explain(scheduler_client, &namespace, name).await?
        }
        _ => None,
    };
    if explained.reports.is_empty() && scheduled.is_none() {
        bail!("no controller has anything to say of {}", explained.object);
    }
    Ok(match (args.output.as_str(), &scheduled) {
        ("json", None) => serde_json::to_string_pretty(&explained)? + "\n",
        ("json", Some(scheduled)) => {
            let mut output = serde_json::to_value(&explained)?;
            output["scheduler"] = serde_json::to_value(scheduled)?;
            serde_json::to_string_pretty(&output)? + "\n"
        }
        (_, scheduled) => {
            let mut text = explained.text(clock.now());
            if let Some(scheduled) = scheduled {
                text += &format!("\nscheduler {}, if it were placed now:\n", scheduled.scheduler);
                text += &crate::schedule::table(scheduled);
            }
            text
        }
    })
}

/// Returns the CA (PEM) that a configuration trusts.
pub fn ca_of(config: &kube::Config) -> Option<String> {
    config.root_cert.as_deref().map(to_pem)
}

/// Returns a subject of a kind that the manager's controllers reconcile, without discovery.
async fn subject_of_manager(
    live: &Live,
    kind: &str,
    namespace: &str,
    name: &str,
) -> Result<Subject> {
    let kinds = live.kinds().await?;
    let requested = kind.split('.').next().unwrap_or_default().to_lowercase();
    // Without discovery, the plural of a kind is a guess.
    let is_requested = |known: &&String| {
        let singular = known.split('.').next().unwrap_or_default().to_lowercase();
        requested == singular || requested == format!("{singular}s")
    };
    let Some(known) = kinds.iter().find(is_requested) else {
        bail!("the API server does not answer, and no controller of the manager is for {kind}");
    };
    let (kind, group) = known.split_once('.').unwrap_or((known, ""));
    let namespaced = !matches!(kind, "Node" | "Namespace" | "PersistentVolume");
    Ok(Subject::new(group, kind, if namespaced { namespace } else { "" }, name))
}

/// Length of a line of base64 in PEM (RFC 7468).
const PEM_LINE_LENGTH: usize = 64;

fn to_pem(certificates: &[Vec<u8>]) -> String {
    use base64::Engine;
    let mut text = String::new();
    for certificate in certificates {
        let encoded = base64::engine::general_purpose::STANDARD.encode(certificate);
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        let mut rest = &*encoded;
        while !rest.is_empty() {
            let (line, after) = rest.split_at(rest.len().min(PEM_LINE_LENGTH));
            text.push_str(line);
            text.push('\n');
            rest = after;
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text
}
