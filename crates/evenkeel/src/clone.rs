//! `evenkeel clone`: copies a cluster's objects to a file, or into a data folder.

use crate::{command::exit_code, copied::Copied};
use anyhow::{Context as _, Result, bail};
use evenkeel_apiserver::Server;
use evenkeel_component::{count::counted, features::FeatureGates};
use evenkeel_kube_scheduler::{Registry, library_options};
use evenkeel_runtime::{
    client::{self, Client, ConnectOptions},
    clock::Clock,
};
use evenkeel_whatif::{
    Cluster,
    clone::{CloneOptions, Skipped, read},
};
use serde_json::{Map, Value};
use std::{
    fs,
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

/// The copy has names, nodes, owners and statuses. It has no Events, Leases, tokens and webhooks, and no values of
/// Secrets.
#[derive(Debug, clap::Args)]
pub(crate) struct CloneArgs {
    /// Files or folders from `kubectl get … -o yaml` (or json). Default: read a cluster.
    #[arg(value_name = "FILE", conflicts_with_all = ["kubeconfig", "context"])]
    files: Vec<PathBuf>,

    /// Kubeconfig of the cluster. Default: $KUBECONFIG or ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Context in the kubeconfig. Default: its current one.
    #[arg(long)]
    context: Option<String>,

    /// Leave out the values of ConfigMaps, too.
    #[arg(long)]
    without_config_maps: bool,

    /// File to write, a List in JSON. Default: the standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Instead of a file, write a new data folder for `evenkeel up --data-dir`.
    #[arg(long, value_name = "DIR", conflicts_with = "output")]
    data_dir: Option<PathBuf>,

    /// Configuration of the cluster's scheduler (KubeSchedulerConfiguration, without extenders), which the API does not serve.
    /// `evenkeel up` then uses it.
    #[arg(long, value_name = "FILE", requires = "data_dir")]
    scheduler_config: Option<PathBuf>,
}

/// Runs `evenkeel clone`, and returns its exit code.
pub(crate) fn main(args: &CloneArgs) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let result = runtime
        .context("the runtime cannot start")
        .and_then(|runtime| runtime.block_on(Box::pin(clone(args))));
    exit_code(result.map(|()| ExitCode::SUCCESS))
}

async fn clone(args: &CloneArgs) -> Result<()> {
    let options = CloneOptions { without_config_maps: args.without_config_maps };
    // Invalid arguments are refused before the cluster is read.
    let scheduler_config =
        args.scheduler_config.as_deref().map(read_scheduler_config).transpose()?;
    let (cluster, skipped) = if args.files.is_empty() {
        read_cluster(args, &options).await?
    } else {
        (read_files(&args.files, &options)?, Vec::new())
    };
    let mut messages = std::io::stderr();
    for Skipped { resource, reason } in &skipped {
        writeln!(messages, "skipped {resource}: {reason}")?;
    }
    match (&args.data_dir, &args.output) {
        (Some(folder), _) => {
            write_data(&cluster, folder, &mut messages).await?;
            let service_cluster_ip_range = cluster.service_ranges();
            Copied { scheduler_config, service_cluster_ip_range }.write(folder)?;
        }
        (None, Some(file)) => {
            write_private(file, &cluster.to_json()).with_context(|| file.display().to_string())?;
        }
        (None, None) => std::io::stdout().write_all(cluster.to_json().as_bytes())?,
    }
    writeln!(messages, "{}", counted(cluster.objects().len(), "object"))?;
    Ok(())
}

/// Writes a file. If it is new, only its owner can read it.
fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

/// Reads a scheduler's configuration that `evenkeel up` can use.
///
/// # Errors
/// Fails if the file cannot be read, or its configuration is invalid or has extenders.
fn read_scheduler_config(path: &Path) -> Result<Map<String, Value>> {
    let name = || format!("--scheduler-config: {}", path.display());
    let text = fs::read_to_string(path).with_context(name)?;
    library_options(&text, &Registry::in_tree(), &FeatureGates::default()).with_context(name)?;
    serde_saphyr::from_str(&text).with_context(name)
}

/// Reads the objects in files and folders.
pub(crate) fn read_files(paths: &[PathBuf], options: &CloneOptions) -> Result<Cluster> {
    let mut cluster = Cluster::default();
    for path in paths {
        cluster.add_path(path, options)?;
    }
    Ok(cluster)
}

/// Reads the objects of a cluster. Also returns the resources that could not be listed.
async fn read_cluster(args: &CloneArgs, options: &CloneOptions) -> Result<(Cluster, Vec<Skipped>)> {
    let connect = ConnectOptions {
        kubeconfig: args.kubeconfig.clone(),
        context: args.context.clone(),
        ..ConnectOptions::default()
    };
    let config = client::config(&connect).await?;
    let client = Client::builder(client::transport(&config)?, Clock::system())
        .user_agent("evenkeel-clone")
        .build();
    let cloned = read(&client, options).await.context("the cluster cannot be read")?;
    Ok((cloned.cluster, cloned.skipped))
}

/// Writes the objects into a new data folder, prepared for a simulation: with the namespaces that they name, and with
/// partitioned kubelets on nodes that are not ready.
async fn write_data(
    cluster: &Cluster,
    folder: &Path,
    messages: &mut impl std::io::Write,
) -> Result<()> {
    if folder.read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
        bail!("{} is not empty", folder.display());
    }
    let mut builder = Server::builder().data_dir(Some(folder.to_owned()));
    if let Some(ranges) = cluster.service_ranges() {
        builder = builder.service_cluster_ip_range(ranges);
    }
    let server = builder.build().await?;
    for object in server.load(cluster.prepared()).await? {
        writeln!(
            messages,
            "left out, of an unknown type: {} {}",
            object["kind"], object["metadata"]["name"]
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: CloneArgs,
    }

    const DUMP: &str = "{apiVersion: v1, kind: Node, metadata: {name: a, uid: u}}\n---\n\
        {apiVersion: v1, kind: Secret, metadata: {name: s, namespace: default}, data: {a: c2VjcmV0}}\n---\n\
        {apiVersion: v1, kind: Event, metadata: {name: e, namespace: default}}\n";

    async fn run(line: &[&str]) -> Result<()> {
        clone(&Line::try_parse_from([&["clone"], line].concat())?.args).await
    }

    // On one thread, dropping a server releases its data folder immediately.
    #[tokio::test]
    async fn dumps_become_a_file_or_a_data_folder() {
        let home = tempfile::tempdir().expect("a folder");
        let path = |name: &str| home.path().join(name).display().to_string();
        fs::write(path("dump.yaml"), DUMP).expect("written");
        run(&[&path("dump.yaml"), "-o", &path("copy.json")]).await.expect("copied");
        let copy = read_files(&[path("copy.json").into()], &CloneOptions::default()).expect("read");
        let kinds: Vec<_> = copy.objects().iter().map(|object| object["kind"].clone()).collect();
        assert_eq!(kinds, ["Node", "Secret"]);
        assert_eq!(copy.objects()[1]["data"]["a"], "");

        run(&[&path("copy.json"), "--data-dir", &path("data")]).await.expect("loaded");
        let again = run(&[&path("copy.json"), "--data-dir", &path("data")]).await;
        assert!(again.expect_err("the folder is not empty").to_string().contains("is not empty"));
        let server = Server::builder().data_dir(Some(path("data").into())).build().await;
        let client = kube::Client::new(server.expect("a server").service(), "default");
        let nodes: kube::Api<k8s_openapi::api::core::v1::Node> = kube::Api::all(client);
        assert_eq!(nodes.get("a").await.expect("the node").metadata.uid.as_deref(), Some("u"));
    }
}
