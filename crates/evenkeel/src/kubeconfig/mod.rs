//! Paths and changes of kubeconfigs.

mod merge;

use anyhow::{Context, Result};
use evenkeel_apiserver::{Server, write_private_file};
use std::{
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

/// The user's folders and files from environment variables.
#[derive(Debug, Default)]
pub(crate) struct Home {
    /// Value of `$HOME`.
    pub(crate) home: Option<PathBuf>,
    /// Value of `$KUBECONFIG`.
    pub(crate) kubeconfig: Option<String>,
    /// Value of `$XDG_STATE_HOME`.
    pub(crate) state: Option<PathBuf>,
    /// Value of `$XDG_DATA_HOME`.
    pub(crate) data: Option<PathBuf>,
    /// Value of `$PATH`.
    pub(crate) path: Option<String>,
}

impl Home {
    /// Reads the environment.
    #[expect(
        clippy::disallowed_methods,
        reason = "the program's edge, where the environment is read"
    )]
    pub(crate) fn from_env() -> Self {
        let var = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self {
            home: var("HOME").map(PathBuf::from),
            kubeconfig: var("KUBECONFIG"),
            state: var("XDG_STATE_HOME").map(PathBuf::from),
            data: var("XDG_DATA_HOME").map(PathBuf::from),
            path: var("PATH"),
        }
    }

    /// Returns the folder for the state of clusters.
    pub(crate) fn state_folder(&self) -> PathBuf {
        let state = self.state.clone().or_else(|| Some(self.home.as_ref()?.join(".local/state")));
        state.unwrap_or_else(std::env::temp_dir).join("evenkeel")
    }

    /// Returns the folder for files that this program creates for other programs.
    pub(crate) fn data_folder(&self) -> Option<PathBuf> {
        let data = self.data.clone().or_else(|| Some(self.home.as_ref()?.join(".local/share")));
        data.map(|data| data.join("evenkeel"))
    }

    /// Returns the path at which the shell finds a program.
    pub(crate) fn find_program(&self, name: &str) -> Option<PathBuf> {
        let folders = std::env::split_paths(self.path.as_ref()?);
        folders.map(|folder| folder.join(name)).find(|program| program.is_file())
    }

    /// Returns the kubeconfigs that kubectl reads.
    pub(crate) fn kubeconfigs(&self) -> Vec<PathBuf> {
        match &self.kubeconfig {
            Some(paths) => std::env::split_paths(paths).collect(),
            None => self.home.iter().map(|home| home.join(".kube/config")).collect(),
        }
    }

    /// Returns the file of `$KUBECONFIG` from which kubectl takes the current context, if the file is a cluster's own.
    pub(crate) fn clusters_kubeconfig(
        &self,
        is_clusters: impl Fn(&Path) -> bool,
    ) -> Option<PathBuf> {
        self.named_kubeconfigs().next().filter(|path| is_clusters(path))
    }

    /// Returns the current context of kubectl, from the first kubeconfig that has one. A file that cannot be read has
    /// none.
    pub(crate) fn current_context(&self) -> Option<String> {
        self.kubeconfigs().iter().find_map(|path| {
            let config = merge::parse(&std::fs::read_to_string(path).ok()?).ok()?;
            merge::current(&config).map(str::to_owned)
        })
    }

    /// Returns the files of `$KUBECONFIG`.
    fn named_kubeconfigs(&self) -> impl Iterator<Item = PathBuf> {
        let named = self.kubeconfig.as_ref().map(std::env::split_paths);
        named.into_iter().flatten().filter(|path| !path.as_os_str().is_empty())
    }

    /// Returns the user's kubeconfig: the file to which kubectl writes, unless it is a cluster's own file, which other clusters
    /// leave unchanged.
    ///
    /// # Errors
    /// Fails if no variable names a kubeconfig.
    pub(crate) fn user_kubeconfig(&self, is_clusters: impl Fn(&Path) -> bool) -> Result<PathBuf> {
        if let Some(first) = self.named_kubeconfigs().find(|path| !is_clusters(path)) {
            return Ok(first);
        }
        let home = self.home.as_ref().context(
            "neither KUBECONFIG nor HOME is set, so that your kubeconfig is not known; set one, or --write-kubeconfig=false",
        )?;
        Ok(home.join(".kube/config"))
    }
}

/// Kubeconfigs that contain a running cluster's entries.
#[derive(Debug, Clone)]
pub(crate) struct Kubeconfigs {
    /// Name of the cluster, its user and its context.
    pub(crate) context: String,
    /// The cluster's own kubeconfig.
    pub(crate) own: PathBuf,
    /// The user's kubeconfig, if the cluster is added to it.
    pub(crate) user: Option<UserKubeconfig>,
}

/// The user's kubeconfig, which several clusters change.
#[derive(Debug, Clone)]
pub(crate) struct UserKubeconfig {
    pub(crate) path: PathBuf,
    /// File whose lock serializes the changes of this program's processes.
    pub(crate) lock: PathBuf,
}

impl Kubeconfigs {
    /// Writes the cluster's own kubeconfig from the administrator's, and adds the cluster to the user's. Returns the
    /// context that was the user's current one.
    ///
    /// # Errors
    /// Fails if a file cannot be written, or the user's file is not a kubeconfig.
    pub(crate) fn write(&self, administrator: &str) -> Result<Option<String>> {
        let config = merge::parse(administrator).context("the cluster's kubeconfig")?;
        let config = merge::renamed(config, &self.context);
        let printed = merge::print(&config)?;
        // A restart on a full disk needs no room for what is already so.
        let is_written = std::fs::read_to_string(&self.own).is_ok_and(|text| text == printed);
        if !is_written {
            write_private(&self.own, &printed).context("the kubeconfig cannot be written")?;
        }
        let Some(user) = &self.user else { return Ok(None) };
        let mut previous = None;
        user.change(|users| {
            previous = merge::current(users).map(str::to_owned);
            merge::add(users, &config);
            true
        })
        .context(
            "your kubeconfig cannot be changed (mend the file, or leave it as it is with --write-kubeconfig=false)",
        )?;
        Ok(previous)
    }

    /// Rewrites the kubeconfigs whenever the server has renewed its certificates.
    pub(crate) async fn keep_renewed(self, server: Server, url: String) {
        let mut renewals = server.renewals();
        while renewals.changed().await.is_ok() {
            if let Err(error) = self.write(&server.kubeconfig(&url)) {
                tracing::error!("certificates were renewed: {error:#}");
            }
        }
    }
}

/// Writes a kubeconfig for a user with a token, from the administrator's. `names` are the names of the cluster and of
/// the user.
///
/// # Errors
/// Fails if the file cannot be written.
pub(crate) fn write_for_user(
    path: &Path,
    administrator: &str,
    (cluster, user): (&str, &str),
    token: &str,
) -> Result<()> {
    let config = merge::parse(administrator).context("the cluster's kubeconfig")?;
    let config = merge::for_user(config, cluster, user, token);
    write_private(path, &merge::print(&config)?)
}

impl UserKubeconfig {
    /// Returns whether the file has a context.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub(crate) fn has(&self, context: &str) -> Result<bool> {
        let cannot = || format!("{} cannot be read as a kubeconfig", self.path.display());
        match std::fs::read_to_string(&self.path) {
            Ok(text) => Ok(merge::has(&merge::parse(&text).with_context(cannot)?, context)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error).with_context(cannot),
        }
    }

    /// Removes a cluster. If its context is the current one, the first context of `previous` that exists becomes current.
    ///
    /// # Errors
    /// Fails if the file cannot be changed.
    pub(crate) fn remove(&self, context: &str, previous: &[String]) -> Result<()> {
        if !self.path.exists() {
            return Ok(());
        }
        self.change(|users| merge::remove(users, context, previous))
            .context("your kubeconfig was not changed")
    }

    /// Changes the file, if `change` returns true.
    fn change(
        &self,
        change: impl FnOnce(&mut serde_json::Map<String, serde_json::Value>) -> bool,
    ) -> Result<()> {
        let Self { path, lock } = self;
        make_private_folder(lock.parent().unwrap_or(lock))?;
        let locked = std::fs::File::create(lock).and_then(|file| file.lock().map(|()| file));
        let _locked = locked.with_context(|| format!("cannot lock {}", lock.display()))?;
        let text = if path.exists() {
            std::fs::read_to_string(path)
                .with_context(|| format!("cannot read {}", path.display()))?
        } else {
            String::new()
        };
        let mut config = merge::parse(&text)
            .with_context(|| format!("{} cannot be read as a kubeconfig", path.display()))?;
        if !change(&mut config) {
            return Ok(());
        }
        let printed = merge::print(&config)?;
        if printed == text { Ok(()) } else { write_private(path, &printed) }
    }
}

/// Creates a folder that only its owner can access, unless it exists.
pub(crate) fn make_private_folder(folder: &Path) -> Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))
}

/// Writes a file that only its owner can read. Replaces an existing file atomically, and follows a symbolic link to it.
///
/// # Errors
/// Fails if the folder or the file cannot be written.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<()> {
    let folder = path.parent().context("it has no folder")?;
    make_private_folder(folder)?;
    let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    // The file may have other clusters' credentials, which a power failure must not destroy.
    write_private_file(&target, text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "apiVersion: v1\nkind: Config\ncurrent-context: evenkeel\nclusters:\n- name: evenkeel\n  cluster: {server: \"https://127.0.0.1:6443\"}\n\
        users:\n- name: evenkeel\n  user: {token: secret}\ncontexts:\n- name: evenkeel\n  context: {cluster: evenkeel, user: evenkeel}\n";

    fn kubeconfigs(folder: &Path) -> Kubeconfigs {
        Kubeconfigs {
            context: "evenkeel-a".to_owned(),
            own: folder.join("a/kubeconfig"),
            user: Some(UserKubeconfig { path: folder.join("config"), lock: folder.join("lock") }),
        }
    }

    #[test]
    fn a_cluster_is_added_and_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let paths = kubeconfigs(folder.path());
        let user = folder.path().join("config");
        std::fs::write(&user, OURS.replace("evenkeel", "work")).expect("written");
        assert_eq!(paths.write(OURS).expect("written"), Some("work".to_owned()));
        assert_eq!(paths.write(OURS).expect("again"), Some("evenkeel-a".to_owned()));
        let read = |path: &Path| kube::config::Kubeconfig::read_from(path).expect("a kubeconfig");
        assert_eq!(read(&user).current_context.as_deref(), Some("evenkeel-a"));
        assert_eq!(read(&paths.own).contexts[0].name, "evenkeel-a");
        let users = paths.user.clone().expect("set");
        users.remove("evenkeel-a", &["work".to_owned()]).expect("removed");
        assert_eq!(read(&user).current_context.as_deref(), Some("work"));
        assert_eq!(read(&user).clusters.len(), 1);
        let none = UserKubeconfig { path: folder.path().join("none"), ..users };
        none.remove("a", &[]).expect("there is nothing");
    }

    #[test]
    fn a_linked_kubeconfig_stays_a_link_and_becomes_private() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};

        let folder = tempfile::tempdir().expect("a folder");
        let (link, target) = (folder.path().join("config"), folder.path().join("target"));
        std::fs::write(&target, "old").expect("written");
        std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o644)).expect("set");
        symlink(&target, &link).expect("linked");
        write_private(&link, "new").expect("written");
        assert!(link.is_symlink(), "the link is kept");
        assert_eq!(std::fs::read_to_string(&target).expect("read"), "new");
        assert_eq!(target.metadata().expect("is there").permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_file_that_is_not_a_kubeconfig_is_not_changed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("config");
        std::fs::write(&path, "{ not yaml").expect("written");
        let error = kubeconfigs(folder.path()).write(OURS).expect_err("refused");
        assert!(format!("{error:#}").contains("config cannot be read"), "{error:#}");
        assert_eq!(std::fs::read_to_string(&path).expect("still there"), "{ not yaml");
    }

    #[test]
    fn paths_follow_kubectl_and_the_xdg_folders() {
        let home =
            Home { home: Some("/h".into()), kubeconfig: Some("/a:/b".into()), ..Home::default() };
        assert_eq!(home.data_folder(), Some("/h/.local/share/evenkeel".into()));
        let user_kubeconfig =
            |home: &Home| home.user_kubeconfig(|_| false).map_err(|error| error.to_string());
        assert_eq!(user_kubeconfig(&home).as_deref(), Ok(Path::new("/a")));
        let first_is_empty = Home { kubeconfig: Some(":/b".into()), ..Home::default() };
        assert_eq!(user_kubeconfig(&first_is_empty).as_deref(), Ok(Path::new("/b")));
        assert_eq!(home.state_folder(), Path::new("/h/.local/state/evenkeel"));
        assert_eq!(
            user_kubeconfig(&Home::default()).map_err(|error| error[..34].to_owned()),
            Err("neither KUBECONFIG nor HOME is set".to_owned())
        );
        // A cluster's own kubeconfig is not changed for another cluster.
        let is_clusters = |path: &Path| path == Path::new("/a");
        assert_eq!(home.user_kubeconfig(is_clusters).expect("found"), Path::new("/b"));
        assert_eq!(home.clusters_kubeconfig(is_clusters), Some("/a".into()));
        let only = Home { kubeconfig: Some("/a".to_owned()), ..home };
        assert_eq!(only.user_kubeconfig(is_clusters).expect("found"), Path::new("/h/.kube/config"));
        assert_eq!(only.clusters_kubeconfig(|_| false), None);
    }
}
