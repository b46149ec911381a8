//! The state folder: locks and records of clusters.

use super::record::{self, Cluster, Record, State, context};
use crate::kubeconfig::{Home, UserKubeconfig, make_private_folder, write_private};
use anyhow::{Context, Result, bail};
use std::{
    fs::{self, File, TryLockError},
    io,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

const LOCK: &str = "lock";
const RECORD: &str = "cluster.json";

/// File of the objects in a data folder.
const DATABASE: &str = "evenkeel.redb";

/// Name of a cluster's own kubeconfig. The names of its users' kubeconfigs begin with it.
const OWN_KUBECONFIG: &str = "kubeconfig";

/// Files that remain when a claim is cleaned: the lock, and the log, which may show why a process crashed.
const KEPT: [&str; 3] = [LOCK, "log", "log.old"];

/// Maximum number of times that a folder may vanish while its lock is acquired.
const MAX_ATTEMPTS: usize = 100;

/// The folder of all clusters.
#[derive(Debug, Clone)]
pub(crate) struct Clusters {
    folder: PathBuf,
    kubeconfig_lock: PathBuf,
}

impl Clusters {
    /// Returns the user's clusters.
    pub(crate) fn of(home: &Home) -> Self {
        let state = home.state_folder();
        Self { folder: state.join("clusters"), kubeconfig_lock: state.join("kubeconfig.lock") }
    }

    /// Returns the folder of a cluster. The name must be a DNS label.
    pub(crate) fn folder_of(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Returns the user's kubeconfig at this path, with the lock of all clusters.
    pub(crate) fn user_kubeconfig(&self, path: PathBuf) -> UserKubeconfig {
        UserKubeconfig { path, lock: self.kubeconfig_lock.clone() }
    }

    /// Returns whether a kubeconfig belongs to a cluster or to one of its users: it is in a cluster's folder or beside a
    /// cluster's data.
    pub(crate) fn owns_kubeconfig(&self, path: &Path) -> bool {
        let whole = |path: &Path| path.canonicalize().or_else(|_| std::path::absolute(path));
        let (Ok(path), Ok(folder)) = (whole(path), whole(&self.folder)) else { return false };
        let is_named = path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(OWN_KUBECONFIG.as_bytes()));
        path.starts_with(&folder) || (is_named && path.with_file_name(DATABASE).exists())
    }

    /// Returns all clusters by name, including crashed ones.
    ///
    /// # Errors
    /// Fails if the folder cannot be read.
    pub(crate) fn all(&self) -> Result<Vec<Cluster>> {
        self.names()?.iter().filter_map(|name| self.find(name).transpose()).collect()
    }

    /// Returns the cluster of a data folder, if there is one.
    ///
    /// # Errors
    /// Fails if the clusters' folder cannot be read.
    pub(crate) fn of_data(&self, folder: &Path) -> Result<Option<Cluster>> {
        Ok(self.all()?.into_iter().find(|cluster| cluster.uses(folder)))
    }

    /// Returns the names of all folders that may belong to clusters, sorted.
    fn names(&self) -> Result<Vec<String>> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => {
                let reason = format!("cannot read {}", self.folder.display());
                return Err(anyhow::Error::from(error).context(reason));
            }
        };
        let mut names: Vec<String> =
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.retain(|name| record::check_name(name).is_ok());
        names.sort();
        Ok(names)
    }

    /// Returns the cluster with this name, if it exists.
    ///
    /// # Errors
    /// Fails if its folder cannot be read.
    pub(crate) fn find(&self, name: &str) -> Result<Option<Cluster>> {
        let folder = self.folder_of(name);
        let is_locked = is_locked(&folder.join(LOCK))
            .with_context(|| format!("cannot read {}", folder.display()))?;
        let record = read_record(&folder);
        let state = State::of(is_locked, record.as_ref());
        Ok(state.map(|state| Cluster { name: name.to_owned(), state, record }))
    }

    /// Creates and locks the folder of a cluster for this process, and removes files of a crashed process.
    ///
    /// # Errors
    /// Fails if a process runs a cluster of this name, or the folder cannot be written.
    pub(crate) fn claim(&self, name: &str) -> Result<Claim> {
        let folder = self.folder_of(name);
        for _ in 0..MAX_ATTEMPTS {
            make_private_folder(&folder)?;
            let lock = match open_lock(&folder.join(LOCK)) {
                Ok(lock) => lock,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => {
                    let reason = format!("cannot write to {}", folder.display());
                    return Err(anyhow::Error::from(error).context(reason));
                }
            };
            match lock.try_lock() {
                Ok(()) => {}
                // A command that reads the state of the cluster briefly holds a shared lock.
                Err(TryLockError::WouldBlock) if is_locked(&folder.join(LOCK))? => {
                    bail!(in_use(name, read_record(&folder).as_ref()))
                }
                Err(TryLockError::WouldBlock) => {
                    std::thread::yield_now();
                    continue;
                }
                Err(TryLockError::Error(error)) => {
                    let reason = format!("cannot lock {}", folder.display());
                    return Err(anyhow::Error::from(error).context(reason));
                }
            }
            // The process that had the lock may have removed the folder meanwhile.
            if is_same_file(&lock, &folder.join(LOCK)) {
                self.clean(&folder, &KEPT)?;
                return Ok(Claim { clusters: self.clone(), folder, _lock: lock });
            }
        }
        bail!(
            "cluster {name}: {} is removed again and again, because other processes start and stop it at the same time; try again",
            folder.display()
        )
    }

    /// Removes the folders of crashed clusters whose data folder no longer exists, such as a test's temporary folder, because
    /// these clusters are not started again.
    ///
    /// # Errors
    /// Fails if files cannot be removed.
    pub(crate) fn remove_orphans(&self) -> Result<()> {
        let is_gone = |record: &Record| record.data_dir.as_ref().is_some_and(|dir| !dir.exists());
        for name in self.names()? {
            let folder = self.folder_of(&name);
            // Skip running clusters first: there may be hundreds, and each start would read their records.
            if !is_locked(&folder.join(LOCK))? && read_record(&folder).as_ref().is_some_and(is_gone)
            {
                self.wait_and_remove(&name)?;
            }
        }
        Ok(())
    }

    /// Waits until the process of a cluster has ended, and removes its remaining files. Blocks the thread.
    ///
    /// # Errors
    /// Fails if files cannot be removed.
    pub(super) fn wait_and_remove(&self, name: &str) -> Result<()> {
        let folder = self.folder_of(name);
        let lock = match File::open(folder.join(LOCK)) {
            Ok(lock) => lock,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        lock.lock()?;
        if is_same_file(&lock, &folder.join(LOCK)) { self.remove(&folder) } else { Ok(()) }
    }

    /// Removes a cluster's folder, and the cluster from the user's kubeconfig. The caller holds the lock.
    fn remove(&self, folder: &Path) -> Result<()> {
        self.clean(folder, &[LOCK])?;
        let cannot = || format!("cannot remove {}", folder.display());
        let lock = folder.join(LOCK);
        for entry in fs::read_dir(folder)?.flatten() {
            if entry.path().is_dir() {
                fs::remove_dir_all(entry.path()).with_context(cannot)?;
            }
        }
        fs::remove_file(&lock).with_context(cannot)?;
        match fs::remove_dir(folder) {
            // Once the lock file is removed, another process may claim the name, and then owns the folder.
            Err(_) if lock.exists() || !folder.exists() => Ok(()),
            removed => removed.with_context(cannot),
        }
    }

    /// Removes a cluster from the user's kubeconfig, and its files except the kept ones. Removes the record last, so that an
    /// incomplete removal is repeated. A kubeconfig that cannot be changed keeps the cluster's context, but not its files.
    fn clean(&self, folder: &Path, kept: &[&str]) -> Result<()> {
        let record = read_record(folder);
        if let Some(record) = &record
            && let Some(path) = &record.merged_into
        {
            let users = self.user_kubeconfig(path.clone());
            if let Err(error) = users.remove(&context(&record.name), &record.previous_contexts) {
                tracing::warn!("cluster {}: {error:#}", record.name);
            }
        }
        for entry in fs::read_dir(folder)?.flatten() {
            let name = entry.file_name();
            if name != RECORD && !kept.iter().any(|kept| name == *kept) {
                // Other entries, such as a folder that the user created, are harmless.
                let _ = fs::remove_file(entry.path());
            }
        }
        match fs::remove_file(folder.join(RECORD)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// The folder of a cluster that this process runs.
#[derive(Debug)]
pub(crate) struct Claim {
    clusters: Clusters,
    folder: PathBuf,
    _lock: File,
}

impl Claim {
    /// Returns the cluster's folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes the cluster's record.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub(crate) fn write(&self, record: &Record) -> Result<()> {
        write_private(&self.folder.join(RECORD), &serde_json::to_string_pretty(record)?)
    }

    /// Removes the cluster's folder, and the cluster from the user's kubeconfig. The lock is held until the process ends. A
    /// process that waits for the lock then finds the ports and the data folder unused.
    ///
    /// # Errors
    /// Fails if files cannot be removed.
    pub(crate) fn remove(self) -> Result<()> {
        let Self { clusters, folder, _lock: lock } = self;
        std::mem::forget(lock);
        clusters.remove(&folder)
    }
}

fn in_use(name: &str, record: Option<&Record>) -> String {
    let process = record.map_or_else(String::new, |record| {
        let url = record.url.as_ref().map_or_else(String::new, |url| format!(", {url}"));
        format!(" (process {}{url})", record.pid)
    });
    format!(
        "the cluster {name} runs already{process}: stop it with `evenkeel down {name}`, or start another one with --name"
    )
}

fn open_lock(path: &Path) -> io::Result<File> {
    File::options().write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Returns whether a process holds the lock.
fn is_locked(path: &Path) -> io::Result<bool> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    // The shared lock of another reader does not count as a lock of a running process.
    match file.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn is_same_file(file: &File, path: &Path) -> bool {
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let [opened, named] = [file.metadata(), path.metadata()].map(|found| found.ok().map(identity));
    opened.is_some() && opened == named
}

/// Returns a folder's record; `None` if there is none, or if it cannot be read.
fn read_record(folder: &Path) -> Option<Record> {
    serde_json::from_str(&fs::read_to_string(folder.join(RECORD)).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clusters::record::tests::record;
    use std::os::unix::fs::PermissionsExt as _;

    fn clusters(state: &Path) -> Clusters {
        Clusters::of(&Home { state: Some(state.to_owned()), ..Home::default() })
    }

    #[test]
    fn a_name_is_claimed_once_and_free_afterwards() {
        let state = tempfile::tempdir().expect("a folder");
        let clusters = clusters(state.path());
        let claim = clusters.claim("a").expect("claimed");
        claim.write(&record("a")).expect("written");
        let mode = |path: &Path| path.metadata().expect("there").permissions().mode() & 0o777;
        assert_eq!(mode(claim.folder()), 0o700);
        assert_eq!(mode(&claim.folder().join(RECORD)), 0o600);
        let refused = clusters.claim("a").expect_err("in use").to_string();
        assert!(refused.contains("the cluster a runs already (process 7, https://"), "{refused}");
        let _other = clusters.claim("b").expect("another name");
        let found = clusters.find("a").expect("read").expect("there");
        assert_eq!((found.state, found.record), (State::Running, Some(record("a"))));
        claim.remove().expect("removed");
        assert_eq!(clusters.find("a").expect("read"), None);
        clusters.claim("a").expect("free again");
    }

    #[test]
    fn what_a_crash_left_is_cleaned_but_its_log() {
        let state = tempfile::tempdir().expect("a folder");
        let clusters = clusters(state.path());
        let claim = clusters.claim("a").expect("claimed");
        let user = state.path().join("config");
        let text = "current-context: evenkeel-a\ncontexts: [{name: evenkeel-a}, {name: work}]\n";
        fs::write(&user, text).expect("written");
        let crashed = Record {
            merged_into: Some(user.clone()),
            previous_contexts: vec!["work".to_owned()],
            ..record("a")
        };
        claim.write(&crashed).expect("written");
        for name in ["kubeconfig", "controllers.sock", "log"] {
            fs::write(claim.folder().join(name), "old").expect("written");
        }
        // The lock ends with the process, and the folder stays.
        drop(claim);
        let found = clusters.all().expect("read");
        assert_eq!(found.iter().map(|found| found.state).collect::<Vec<_>>(), [State::Crashed]);
        let claim = clusters.claim("a").expect("claimed");
        let mut left: Vec<_> =
            fs::read_dir(claim.folder()).expect("there").flatten().map(|e| e.file_name()).collect();
        left.sort();
        assert_eq!(left, ["lock", "log"]);
        let config = fs::read_to_string(&user).expect("there");
        assert!(config.contains("current-context: work") && !config.contains("evenkeel-a"));
    }

    #[test]
    fn a_kubeconfig_that_cannot_be_read_keeps_no_cluster() {
        let state = tempfile::tempdir().expect("a folder");
        let clusters = clusters(state.path());
        let user = state.path().join("config");
        fs::write(&user, "no kubeconfig").expect("written");
        let merged = || Record { merged_into: Some(user.clone()), ..record("a") };
        let claim = clusters.claim("a").expect("claimed");
        claim.write(&merged()).expect("written");
        claim.remove().expect("removed");
        assert_eq!(clusters.all().expect("read"), []);
        let claim = clusters.claim("a").expect("claimed");
        claim.write(&merged()).expect("written");
        drop(claim);
        clusters.wait_and_remove("a").expect("removed");
        assert_eq!(clusters.all().expect("read"), []);
        assert_eq!(fs::read_to_string(&user).expect("there"), "no kubeconfig");
    }

    #[test]
    fn kubeconfigs_of_clusters_are_known() {
        let state = tempfile::tempdir().expect("a folder");
        let clusters = clusters(state.path());
        let claim = clusters.claim("a").expect("claimed");
        let data = state.path().join("data");
        fs::create_dir(&data).expect("made");
        for (path, want) in [
            (claim.folder().join("kubeconfig"), true),
            (claim.folder().join("kubeconfig-ann"), true),
            (data.join("kubeconfig"), true),
            (data.join("kubeconfig-ann"), true),
            (data.join("config"), false),
            (state.path().join("kubeconfig"), false),
            (state.path().join("none/config"), false),
        ] {
            if path.parent().is_some_and(Path::exists) {
                fs::write(&path, "").expect("written");
            }
            fs::write(data.join(DATABASE), "").expect("written");
            assert_eq!(clusters.owns_kubeconfig(&path), want, "{}", path.display());
        }
    }

    #[test]
    fn crashed_clusters_are_removed_once_their_data_is_gone() {
        let state = tempfile::tempdir().expect("a folder");
        let clusters = clusters(state.path());
        for (name, data_dir) in
            [("gone", "/nonexistent/data"), ("kept", "/"), ("runs", "/nonexistent")]
        {
            let claim = clusters.claim(name).expect("claimed");
            let record = Record { data_dir: Some(data_dir.into()), ..record(name) };
            claim.write(&record).expect("written");
            if name == "runs" {
                std::mem::forget(claim);
            }
        }
        clusters.remove_orphans().expect("removed");
        let names: Vec<_> = clusters.all().expect("read").into_iter().map(|c| c.name).collect();
        assert_eq!(names, ["kept", "runs"]);
    }

    #[test]
    fn a_name_that_is_claimed_while_it_is_removed_stays_claimed() {
        let state = tempfile::tempdir().expect("a folder");
        let clusters = clusters(state.path());
        std::thread::scope(|threads| {
            for _ in 0..2 {
                threads.spawn(|| {
                    for _ in 0..300 {
                        let Ok(claim) = clusters.claim("a") else { continue };
                        claim.write(&record("a")).expect("its folder stays");
                        assert!(claim.folder().join(LOCK).exists(), "its lock stays");
                    }
                });
            }
            threads.spawn(|| {
                for _ in 0..300 {
                    clusters.wait_and_remove("a").expect("removed");
                }
            });
        });
    }

    #[test]
    fn folders_of_other_names_are_not_clusters() {
        let state = tempfile::tempdir().expect("a folder");
        let clusters = clusters(state.path());
        assert_eq!(clusters.all().expect("nothing yet"), []);
        make_private_folder(&clusters.folder_of("No label")).expect("made");
        make_private_folder(&clusters.folder_of("empty")).expect("made");
        assert_eq!(clusters.all().expect("read"), []);
    }
}
