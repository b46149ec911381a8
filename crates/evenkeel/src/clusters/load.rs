//! `evenkeel load` and `up --load`: apply manifests to a cluster.

use super::{
    folder::Clusters,
    manifests::{self, Manifest},
    named,
};
use crate::{
    command::{block_on, print},
    kubeconfig::Home,
};
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use evenkeel_api::Kind;
use evenkeel_runtime::{
    client::{self, Client, ConnectOptions, full_text},
    clock::Clock,
    discovery::ServerResources,
};
use http::{Request, StatusCode, header};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

const FIELD_MANAGER: &str = "evenkeel-load";

/// Interval at which the definition of a custom resource is read until it is served.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Maximum number of reads of a definition: half a minute.
const MAX_POLLS: usize = 600;

/// Maximum number of reads of a namespace's default service account: ten seconds.
const MAX_ACCOUNT_POLLS: usize = 200;

/// Name of the service account of pods that name none. Its controller creates it in each namespace.
const DEFAULT_ACCOUNT: &str = "default";

/// Namespace that each cluster has from its start.
const SYSTEM_NAMESPACE: &str = "kube-system";

/// Arguments of `evenkeel load`.
#[derive(Debug, clap::Args)]
pub(crate) struct LoadArgs {
    /// Files (YAML or JSON), folders with their subfolders, or - for standard input.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,

    /// Name of the cluster. Default: the only one, or that of the kubeconfig's current context, or `default`.
    #[arg(long)]
    name: Option<String>,
}

/// Numbers of created objects, and of applied objects that existed before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Loaded {
    pub(crate) created: usize,
    pub(crate) changed: usize,
}

/// Runs `evenkeel load`.
pub(crate) fn load(args: &LoadArgs) -> ExitCode {
    block_on(async {
        let home = Home::from_env();
        let all = Clusters::of(&home).all()?;
        let cluster = named::find(&all, args.name.as_deref(), &home)?;
        let kubeconfig = cluster.record.as_ref().and_then(|record| record.kubeconfig.clone());
        let Some(kubeconfig) = kubeconfig.filter(|_| cluster.state.is_alive()) else {
            bail!(
                "cluster {} does not run here; its API server can be reached with kubectl",
                cluster.name
            );
        };
        let options = ConnectOptions { kubeconfig: Some(kubeconfig), ..ConnectOptions::default() };
        let config = client::config(&options).await?;
        let client =
            Client::builder(client::transport(&config)?, Clock::system()).qps(-1.0).build();
        let report = |line: &str| print(&format!("{line}\n"));
        load_paths(&client, &args.paths, report).await?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Applies the manifests of files and folders. `report` gets a line for each object.
///
/// # Errors
/// Fails if a file cannot be read, or the server rejects an object.
pub(crate) async fn load_paths(
    client: &Client,
    paths: &[PathBuf],
    report: impl Fn(&str),
) -> Result<Loaded> {
    load_manifests(client, parse(paths)?, report).await
}

/// Returns the objects of files and folders, in the order in which they are applied.
///
/// # Errors
/// Fails if a file cannot be read, or a path has no object.
pub(crate) fn read_manifests(paths: &[PathBuf]) -> Result<Vec<Value>> {
    let manifests = manifests::ordered(parse(paths)?);
    Ok(manifests.into_iter().map(|manifest| Value::Object(manifest.object)).collect())
}

/// Returns the objects of a manifest in the order in which they are applied. Errors name `source`.
///
/// # Errors
/// Fails if the manifest has no objects, or cannot be parsed.
pub(crate) fn parse_manifests(source: &str, text: &str) -> Result<Vec<Value>> {
    let manifests = manifests::ordered(manifests::parse(source, text)?);
    if manifests.is_empty() {
        bail!("{source}: there is no object");
    }
    Ok(manifests.into_iter().map(|manifest| Value::Object(manifest.object)).collect())
}

fn parse(paths: &[PathBuf]) -> Result<Vec<Manifest>> {
    let mut parsed = Vec::new();
    for path in paths {
        let before = parsed.len();
        for (source, text) in read(path)? {
            parsed.extend(manifests::parse(&source, &text)?);
        }
        if parsed.len() == before {
            let path = if path.as_os_str() == "-" { Path::new("standard input") } else { path };
            bail!(
                "{} has no object; a folder's manifests are its files .yaml, .yml and .json",
                path.display()
            );
        }
    }
    Ok(parsed)
}

/// Applies objects. Errors name their origin `source`; `report` gets a line for each object.
///
/// # Errors
/// Fails if the server rejects an object.
pub(crate) async fn load_objects(
    client: &Client,
    source: &str,
    objects: Vec<Value>,
    report: impl Fn(&str),
) -> Result<Loaded> {
    let objects = objects.into_iter().filter_map(|object| match object {
        Value::Object(object) => Some(Manifest { source: source.to_owned(), object }),
        _ => None,
    });
    load_manifests(client, objects.collect(), report).await
}

async fn load_manifests(
    client: &Client,
    parsed: Vec<Manifest>,
    report: impl Fn(&str),
) -> Result<Loaded> {
    let mut loaded = Loaded::default();
    let mut resources = Arc::default();
    let mut accounts = Accounts::default();
    for manifest in manifests::ordered(parsed) {
        let kind = find_kind(client, &mut resources, &manifest).await?;
        if kind.namespaced && manifest.may_need_account() {
            accounts.wait_in(client, manifest.namespace()).await?;
        }
        let is_new = apply(client, &kind, &manifest).await?;
        *(if is_new { &mut loaded.created } else { &mut loaded.changed }) += 1;
        let outcome = if is_new { "created" } else { "applied" };
        let group = if kind.group.is_empty() { String::new() } else { format!(".{}", kind.group) };
        let kind_name = kind.kind.to_lowercase();
        report(&format!("{kind_name}{group}/{} {outcome}", manifest.name()));
        if manifest.is_definition() {
            wait_until_served(client, &manifest).await?;
        }
    }
    Ok(loaded)
}

/// Namespaces that have their default service account, without which the server refuses pods. A controller creates it shortly
/// after the namespace.
#[derive(Debug, Default)]
struct Accounts {
    present: BTreeSet<String>,
    /// Whether the cluster has a controller that creates service accounts. `None` until that is known.
    are_made: Option<bool>,
}

impl Accounts {
    /// Waits until a namespace has its default service account, for ten seconds at most. Does not wait in a cluster without the
    /// account's controller, or for a namespace that does not exist.
    async fn wait_in(&mut self, client: &Client, namespace: &str) -> Result<()> {
        if self.are_made == Some(false) || self.present.contains(namespace) {
            return Ok(());
        }
        for _ in 0..MAX_ACCOUNT_POLLS {
            if exists(client, &account_path(namespace)).await? {
                self.present.insert(namespace.to_owned());
                return Ok(());
            }
            if self.are_made.is_none() {
                self.are_made = Some(exists(client, &account_path(SYSTEM_NAMESPACE)).await?);
            }
            let is_awaited = self.are_made == Some(true)
                && exists(client, &format!("/api/v1/namespaces/{namespace}")).await?;
            if !is_awaited {
                return Ok(());
            }
            client.clock().sleep(POLL_INTERVAL).await;
        }
        // The server's error names the missing object, so one wait is enough.
        self.are_made = Some(false);
        Ok(())
    }
}

fn account_path(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/serviceaccounts/{DEFAULT_ACCOUNT}")
}

/// Returns whether an object exists. An object that the user may not read counts as present, because the user could never
/// observe its creation.
async fn exists(client: &Client, path: &str) -> Result<bool> {
    let Ok(request) = Request::get(path).body(Bytes::new()) else { return Ok(false) };
    match client.raw(request).await {
        Ok(_) => Ok(true),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) if error.is_forbidden() => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Returns the content of a file, or of all manifests in a folder, sorted by path.
fn read(path: &Path) -> Result<Vec<(String, String)>> {
    let source = path.display().to_string();
    if source == "-" {
        let text = io::read_to_string(io::stdin()).context("cannot read standard input")?;
        return Ok(vec![("standard input".to_owned(), text)]);
    }
    let context = || format!("cannot read {source}");
    if !path.is_dir() {
        let text = fs::read_to_string(path).with_context(context)?;
        return Ok(vec![(source, text)]);
    }
    let entries: io::Result<Vec<_>> = fs::read_dir(path).with_context(context)?.collect();
    let mut entries: Vec<fs::DirEntry> = entries.with_context(context)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    let mut texts = Vec::new();
    for entry in entries {
        let path = entry.path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        // Do not follow links to folders: a link to a parent folder would lead to an endless recursion.
        let is_folder = entry.file_type().with_context(context)?.is_dir();
        if is_folder || (path.is_file() && matches!(extension, Some("yaml" | "yml" | "json"))) {
            texts.extend(read(&path)?);
        }
    }
    Ok(texts)
}

/// Returns the resource of an object by discovery. Repeats discovery for a resource that is not in `resources`, because a
/// CustomResourceDefinition may have been applied meanwhile.
async fn find_kind(
    client: &Client,
    resources: &mut Arc<ServerResources>,
    manifest: &Manifest,
) -> Result<Kind> {
    let (api_version, kind) = (manifest.api_version(), manifest.kind());
    if resources.of_kind(api_version, kind).is_none() {
        *resources = client.api_resources().await?;
    }
    match resources.of_kind(api_version, kind) {
        Some(resource) => Ok(resource.kind.clone()),
        None => bail!(
            "{}: {kind} {}: the server has no {kind} in {api_version}; load its CustomResourceDefinition too, or use one of \
             `kubectl api-resources`",
            manifest.source,
            manifest.name()
        ),
    }
}

fn object_path(kind: &Kind, manifest: &Manifest) -> String {
    let namespace = if kind.namespaced { manifest.namespace() } else { "" };
    format!("{}/{}", kind.path(namespace), manifest.name())
}

/// Applies an object. Returns whether it is new.
async fn apply(client: &Client, kind: &Kind, manifest: &Manifest) -> Result<bool> {
    let path = object_path(kind, manifest);
    let request = Request::patch(format!("{path}?fieldManager={FIELD_MANAGER}&force=true"))
        .header(header::CONTENT_TYPE, "application/apply-patch+yaml")
        .body(Bytes::from(serde_json::to_vec(&manifest.object)?))
        .with_context(|| format!("{}: {} is not a name", manifest.source, manifest.name()))?;
    match client.raw(request).await {
        Ok(response) => Ok(response.status() == StatusCode::CREATED),
        Err(error) => bail!(
            "{}: {} {}: {}",
            manifest.source,
            manifest.kind(),
            manifest.name(),
            full_text(&error)
        ),
    }
}

/// Waits until the server serves a custom resource.
async fn wait_until_served(client: &Client, manifest: &Manifest) -> Result<()> {
    let path =
        format!("/apis/{}/customresourcedefinitions/{}", manifest.api_version(), manifest.name());
    let mut conditions = Value::Null;
    for _ in 0..MAX_POLLS {
        let response = client.raw(Request::get(&path).body(Bytes::new())?).await?;
        let definition: Value = serde_json::from_slice(response.body())?;
        conditions = definition["status"]["conditions"].clone();
        let is_established =
            |condition: &Value| condition["type"] == "Established" && condition["status"] == "True";
        if conditions.as_array().is_some_and(|all| all.iter().any(is_established)) {
            return Ok(());
        }
        client.clock().sleep(POLL_INTERVAL).await;
    }
    bail!(
        "{}: CustomResourceDefinition {} is not served after {} s; its conditions say why: {conditions}",
        manifest.source,
        manifest.name(),
        (POLL_INTERVAL * u32::try_from(MAX_POLLS).unwrap_or(u32::MAX)).as_secs()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_apiserver::Server;

    const NAMESPACES: &str = "/api/v1/namespaces";

    async fn create(client: &Client, path: &str, name: &str) {
        let body = serde_json::json!({"metadata": {"name": name}}).to_string();
        let request = Request::post(path).header(header::CONTENT_TYPE, "application/json");
        let request = request.body(Bytes::from(body)).expect("a request");
        client.raw(request).await.expect("created");
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_namespace_is_waited_for_until_it_has_its_service_account() {
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().expect("a time"));
        let server = Server::builder().build().await.expect("a server");
        let kube = kube::Client::new(server.service(), "default");
        let client = Client::builder(kube, clock.clone()).qps(-1.0).build();
        let seconds = |since| clock.now().duration_since(since).as_secs();
        create(&client, NAMESPACES, "new").await;
        // Without its controller, no namespace has a service account.
        let before = clock.now();
        Accounts::default().wait_in(&client, "new").await.expect("read");
        assert_eq!(seconds(before), 0);
        create(&client, &format!("{NAMESPACES}/{SYSTEM_NAMESPACE}/serviceaccounts"), "default")
            .await;
        let mut accounts = Accounts::default();
        accounts.wait_in(&client, "none").await.expect("read");
        assert_eq!(seconds(before), 0, "there is no such namespace");
        let (waited, ()) = tokio::join!(accounts.wait_in(&client, "new"), async {
            clock.sleep(Duration::from_secs(3)).await;
            create(&client, &format!("{NAMESPACES}/new/serviceaccounts"), "default").await;
        });
        waited.expect("read");
        assert_eq!((seconds(before), accounts.present.contains("new")), (3, true));
        for namespace in ["late", "later"] {
            create(&client, NAMESPACES, namespace).await;
            accounts.wait_in(&client, namespace).await.expect("read");
        }
        assert_eq!(seconds(before), 13, "after one wait in vain, none follows");
    }
}
