//! `evenkeel logs`: prints the log of a cluster.

use super::{
    folder::Clusters,
    named::{self, NamedCluster},
    record::Cluster,
};
use crate::{command::block_on, kubeconfig::Home};
use anyhow::{Context, Result, bail};
use evenkeel_component::logging::LogFile;
use evenkeel_runtime::clock::Clock;
use std::{
    fs::File,
    io::{self, Write as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

/// Interval at which a followed log is read.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Arguments of `evenkeel logs`.
#[derive(Debug, clap::Args)]
pub(crate) struct LogsArgs {
    #[command(flatten)]
    cluster: NamedCluster,

    /// Print new lines until the cluster stops.
    #[arg(short, long)]
    follow: bool,
}

/// Runs `evenkeel logs`.
pub(crate) fn logs(args: &LogsArgs) -> ExitCode {
    block_on(async {
        let home = Home::from_env();
        let clusters = Clusters::of(&home);
        let all = clusters.all()?;
        let cluster = named::find(&all, args.cluster.name(), &home)?;
        let path = log_path(&clusters, cluster);
        let old = LogFile::old_path(&path);
        if old.exists() {
            Follower::open(&old)?.copy()?;
        }
        let mut log = Follower::open(&path)?;
        log.copy()?;
        if args.follow {
            follow(&clusters, &cluster.name, &mut log).await?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Copies new lines until the cluster has stopped.
async fn follow(clusters: &Clusters, name: &str, log: &mut Follower) -> Result<()> {
    loop {
        // Read the state before the log, so that the last lines of a process that has ended are copied.
        let is_alive = clusters.find(name)?.is_some_and(|cluster| cluster.state.is_alive());
        let copied = log.copy_new()?;
        if !is_alive && copied == 0 {
            return Ok(());
        }
        Clock::system().sleep(POLL_INTERVAL).await;
    }
}

fn log_path(clusters: &Clusters, cluster: &Cluster) -> PathBuf {
    let record = cluster.record.as_ref().map(|record| record.log.clone());
    record.unwrap_or_else(|| clusters.folder_of(&cluster.name).join("log"))
}

/// Reader of a log file that may be renamed when it is full.
struct Follower {
    path: PathBuf,
    file: File,
}

impl Follower {
    fn open(path: &Path) -> Result<Self> {
        match File::open(path) {
            Ok(file) => Ok(Self { path: path.to_owned(), file }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                bail!(
                    "there is no log at {}; the cluster has not written one, or it was moved",
                    path.display()
                )
            }
            Err(error) => {
                Err(error).with_context(|| format!("cannot read the log {}", path.display()))
            }
        }
    }

    /// Copies new bytes to standard output. Returns their number.
    fn copy(&mut self) -> Result<u64> {
        let mut output = io::stdout().lock();
        let copied = io::copy(&mut self.file, &mut output)?;
        output.flush()?;
        Ok(copied)
    }

    /// Like [`Self::copy`], and continues with the new file if the old one was renamed.
    fn copy_new(&mut self) -> Result<u64> {
        let copied = self.copy()?;
        let Ok(named) = self.path.metadata() else { return Ok(copied) };
        if named.ino() == self.file.metadata()?.ino() {
            return Ok(copied);
        }
        // Copy the lines that were written between the last read and the renaming.
        let rest = self.copy()?;
        self.file = File::open(&self.path)?;
        Ok(copied + rest + self.copy()?)
    }
}
