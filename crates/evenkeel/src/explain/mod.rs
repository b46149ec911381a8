//! `evenkeel explain KIND/NAME`: explains the state of an object. It shows the status and events of the object and its
//! dependents, the scheduler's view of a pod, the controllers' observations, their next actions, and their reasons to wait.
//!
//! It queries a running manager. Without a manager, it runs the controllers' planners in this process. They use a read-only
//! connection and only the caches that they need.

mod answer;
mod live;
mod offline;
mod resolve;

pub use answer::Answer;
pub use live::{ask_socket, normalized_url, socket_beside};
pub use offline::Offline;
pub use resolve::{resolve, split};

use anyhow::{Context, Result, bail};
use evenkeel_explain::{Limits, NoSuchObject, Objects, causes, explain, owners, read};
use evenkeel_runtime::{
    client::{self, Client, ConnectOptions},
    clock::Clock,
    introspect::Subject,
};
use evenkeel_scheduler::SchedulerOptions;
use futures::future::LocalBoxFuture;
use live::Live;
use std::{path::PathBuf, sync::Arc, time::Duration};

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

    /// Output: text, json or yaml.
    #[arg(short, long, default_value = "text", value_parser = ["text", "json", "yaml"])]
    pub output: String,

    /// Print the explanation again whenever it changes, until it is interrupted.
    #[arg(short, long)]
    pub watch: bool,
}

/// Interval at which a watched object is explained by a manager.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Interval at which a watched object is explained without a manager: the caches are filled each time.
const OFFLINE_WATCH_INTERVAL: Duration = Duration::from_secs(5);

/// Maximum number of objects that are read for one explanation.
const MAX_OBJECTS: usize = 40;

/// Explains an object, and returns the output.
///
/// # Errors
/// Fails if neither a manager nor the cluster responds, or the kind or the object does not exist.
pub fn run<'a>(args: &'a Args, sockets: &'a [PathBuf]) -> LocalBoxFuture<'a, Result<String>> {
    Box::pin(async move {
        let session = Session::start(args, sockets).await?;
        session.answer().await?.format(&args.output, session.clock.now())
    })
}

/// Explains an object repeatedly, and passes the output to `print` whenever it has changed in more than its times.
///
/// # Errors
/// Fails if neither a manager nor the cluster responds, or the kind does not exist. If the object does not exist, waits until
/// it exists.
pub fn watch<'a>(
    args: &'a Args,
    sockets: &'a [PathBuf],
    mut print: impl FnMut(&str) + 'a,
) -> LocalBoxFuture<'a, Result<()>> {
    Box::pin(async move {
        let session = Session::start(args, sockets).await?;
        let interval =
            if session.manager.is_some() { WATCH_INTERVAL } else { OFFLINE_WATCH_INTERVAL };
        let mut last = None;
        loop {
            let now = session.clock.now();
            let (key, text) = match session.answer().await {
                Ok(answer) => (answer.key(), answer.format(&args.output, now)?),
                // A missing object is a valid result; other errors end the command.
                Err(error) => match error.downcast_ref::<NoSuchObject>() {
                    Some(missing) if args.output == "text" => {
                        (missing.to_string(), format!("{missing}\n"))
                    }
                    Some(missing) => (missing.to_string(), String::new()),
                    None => return Err(error),
                },
            };
            if last.as_ref() != Some(&key) {
                let separator = match (&*args.output, &last) {
                    ("text", Some(_)) => format!("\n--- {}\n", now.strftime("%H:%M:%S")),
                    ("yaml", Some(_)) => "---\n".to_owned(),
                    _ => String::new(),
                };
                if !text.is_empty() {
                    print(&(separator + &text));
                }
                last = Some(key);
            }
            session.clock.sleep(interval).await;
        }
    })
}

/// Connections that explain one object.
struct Session<'a> {
    args: &'a Args,
    clock: Clock,
    namespace: String,
    url: String,
    kube: kube::Client,
    client: Client,
    manager: Option<Live>,
}

impl<'a> Session<'a> {
    async fn start(args: &'a Args, sockets: &[PathBuf]) -> Result<Self> {
        let clock = Clock::system();
        let options = ConnectOptions {
            kubeconfig: args.kubeconfig.clone(),
            context: args.context.clone(),
            ..ConnectOptions::default()
        };
        let config = client::config(&options).await?;
        let namespace = args.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let (url, kube) = (config.cluster_url.to_string(), client::transport(&config)?);
        let client = Client::builder(kube.clone(), clock.clone())
            .qps(-1.0)
            .user_agent("evenkeel-explain")
            .build();
        let manager = match (&args.server, args.offline) {
            (_, true) => None,
            (Some(server), _) => Some(Live::connect_https(config, args, server, &clock)?),
            (None, _) => Live::connect_socket(sockets, &url).await,
        };
        Ok(Self { args, clock, namespace, url, kube, client, manager })
    }

    /// Explains the object once.
    async fn answer(&self) -> Result<Answer> {
        let Self { args, clock, namespace, kube, client, .. } = self;
        let (kind, name) = split(&args.object)?;
        let resources = client.api_resources().await;
        let (explained, resources) = match (&self.manager, resources) {
            (Some(live), Ok(resources)) => {
                let subject = resolve(&resources, kind, namespace, name)?;
                (explain(live, subject, live.description(), Limits::TEXT).await?, Some(resources))
            }
            // The manager can also explain its reasons to wait while the API server is unavailable.
            (Some(live), Err(_)) => {
                let subject = subject_of_manager(live, kind, namespace, name).await?;
                (explain(live, subject, live.description(), Limits::TEXT).await?, None)
            }
            (None, resources) => {
                let resources = resources
                    .with_context(|| format!("the API server at {} does not answer", self.url))?;
                let subject = resolve(&resources, kind, namespace, name)?;
                let offline =
                    Offline::start(kube.clone(), clock, Arc::clone(&resources), &subject).await?;
                let mode =
                    format!("worked out from the cluster {}; no manager was asked", self.url);
                let explained = explain(&offline, subject, mode, Limits::TEXT).await;
                offline.stop().await;
                (explained?, Some(resources))
            }
        };
        let schedulers = match &self.manager {
            Some(live) => live.schedulers().await,
            None => None,
        };
        let schedulers = schedulers.map(|schedulers| schedulers.options()).transpose();
        let schedulers = schedulers.context(
            "the manager's schedulers are configured as this version of evenkeel does not know",
        )?;
        let objects = match &resources {
            Some(resources) => read(client, resources, &explained, MAX_OBJECTS).await?,
            None => Objects::default(),
        };
        let objects = Objects { schedulers: schedulers.as_deref().map(names), ..objects };
        let root = objects.of(&explained.object);
        let is_pod = explained.object.kind == "Pod" && explained.object.group.is_empty();
        let scheduler = match is_pod && resources.is_some() {
            true => {
                let schedulers = schedulers.as_deref().unwrap_or_default();
                crate::schedule::explain(kube.clone(), namespace, name, schedulers).await?
            }
            false => None,
        };
        if explained.reports.is_empty() && scheduler.is_none() && root.is_none() {
            bail!(
                "no controller has anything to say of {}, and it cannot be read: `kubectl get {kind} {name}` says why",
                explained.object
            );
        }
        let is_pending = is_pod
            && root.is_some_and(|pod| {
                pod["spec"]["nodeName"].as_str().unwrap_or_default().is_empty()
                    && pod["status"]["phase"] == "Pending"
            });
        let owners = match (&resources, root) {
            (Some(resources), Some(root)) => owners(client, resources, root).await,
            _ => Vec::new(),
        };
        let owners = owners.into_iter().map(|owner| owner.subject).collect();
        let why = causes(&objects, clock.now());
        Ok(Answer { explained, owners, why, scheduler, is_pending })
    }
}

/// Returns the names of the profiles of all schedulers.
fn names(schedulers: &[SchedulerOptions]) -> Vec<String> {
    schedulers.iter().flat_map(SchedulerOptions::names).map(str::to_owned).collect()
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
        bail!(
            "the API server does not answer, and no controller of the manager is for {kind}; try again once \
             `kubectl get --raw=/readyz` succeeds"
        );
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
