//! Paths and changes of kubeconfigs.

use anyhow::{Context, Result};
use evenkeel_apiserver::Server;
use kube::config::Kubeconfig;
use std::{
    io::Write,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

/// Default port of the API server, as upstream's.
const DEFAULT_PORT: u16 = 6443;

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

    /// Returns the path of a cluster's own kubeconfig: in the cluster's data folder, or else in the user's state
    /// folder, with one file per port.
    pub(crate) fn cluster_kubeconfig(&self, data_dir: Option<&Path>, port: u16) -> PathBuf {
        if let Some(folder) = data_dir {
            return folder.join("kubeconfig");
        }
        let state = self.state.clone().or_else(|| Some(self.home.as_ref()?.join(".local/state")));
        let folder = state.unwrap_or_else(std::env::temp_dir).join("evenkeel");
        folder.join(if port == DEFAULT_PORT {
            "kubeconfig".to_owned()
        } else {
            format!("kubeconfig-{port}")
        })
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

    /// Returns the kubeconfigs of running clusters without a data folder, by their sockets in the user's state folder.
    pub(crate) fn cluster_kubeconfigs(&self) -> Vec<PathBuf> {
        let Some(folder) = self.cluster_kubeconfig(None, DEFAULT_PORT).parent().map(Path::to_owned)
        else {
            return Vec::new();
        };
        let Ok(entries) = std::fs::read_dir(&folder) else { return Vec::new() };
        let mut kubeconfigs = Vec::new();
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("controllers") && name.ends_with(".sock") {
                let name = name.replace("controllers", "kubeconfig").replace(".sock", "");
                kubeconfigs.push(folder.join(name));
            }
        }
        kubeconfigs
    }

    /// Returns the kubeconfig that kubectl writes to.
    pub(crate) fn user_kubeconfig(&self) -> Result<PathBuf> {
        let from_variable = self.kubeconfig.as_ref().and_then(|paths| {
            std::env::split_paths(paths).find(|path| !path.as_os_str().is_empty())
        });
        if let Some(first) = from_variable {
            return Ok(first);
        }
        let home = self.home.as_ref().context("neither KUBECONFIG nor HOME is set")?;
        Ok(home.join(".kube/config"))
    }
}

/// Writes the cluster's own kubeconfig, and adds the cluster to the user's.
pub(crate) fn write(text: &str, cluster_path: &Path, user_path: Option<&Path>) -> Result<()> {
    write_private(cluster_path, text).context("the kubeconfig cannot be written")?;
    if let Some(user_path) = user_path {
        merge_into(user_path, text).context("your kubeconfig was not changed")?;
    }
    Ok(())
}

/// Rewrites the kubeconfigs each time that the server has renewed its certificates.
pub(crate) async fn keep_renewed(
    server: Server,
    url: String,
    cluster_path: PathBuf,
    user_path: Option<PathBuf>,
) {
    let mut renewals = server.renewals();
    while renewals.changed().await.is_ok() {
        if let Err(error) = write(&server.kubeconfig(&url), &cluster_path, user_path.as_deref()) {
            tracing::error!("certificates were renewed: {error:#}");
        }
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
fn write_private(path: &Path, text: &str) -> Result<()> {
    let folder = path.parent().context("it has no folder")?;
    make_private_folder(folder)?;
    let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let write = || {
        let mut file = tempfile::NamedTempFile::new_in(target.parent().unwrap_or(folder))?;
        file.write_all(text.as_bytes())?;
        file.persist(&target)?;
        std::io::Result::Ok(())
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// Merges the cluster's kubeconfig into the one at `path`. The cluster's entries replace those of the same names, and
/// its context becomes the current one.
fn merge_into(path: &Path, cluster_kubeconfig: &str) -> Result<()> {
    let added = Kubeconfig::from_yaml(cluster_kubeconfig)
        .context("the cluster's own kubeconfig cannot be read")?;
    let mut merged = if path.exists() {
        Kubeconfig::read_from(path)
            .with_context(|| format!("{} cannot be read as a kubeconfig", path.display()))?
    } else {
        Kubeconfig {
            api_version: Some("v1".to_owned()),
            kind: Some("Config".to_owned()),
            ..Kubeconfig::default()
        }
    };
    merged.clusters.retain(|entry| added.clusters.iter().all(|new| new.name != entry.name));
    merged.auth_infos.retain(|entry| added.auth_infos.iter().all(|new| new.name != entry.name));
    merged.contexts.retain(|entry| added.contexts.iter().all(|new| new.name != entry.name));
    merged.clusters.extend(added.clusters);
    merged.auth_infos.extend(added.auth_infos);
    merged.contexts.extend(added.contexts);
    merged.current_context = added.current_context;
    let text = serde_saphyr::to_string(&merged)
        .context("the merged kubeconfig cannot be written as YAML")?;
    write_private(path, &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "apiVersion: v1\nkind: Config\ncurrent-context: evenkeel\nclusters:\n- name: evenkeel\n  cluster: {server: \"https://127.0.0.1:6443\"}\n\
        users:\n- name: evenkeel\n  user: {token: secret}\ncontexts:\n- name: evenkeel\n  context: {cluster: evenkeel, user: evenkeel}\n";

    #[test]
    fn merging_keeps_the_users_other_entries() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("config");
        std::fs::write(&path, OURS.replace("evenkeel", "work").replace("6443", "1"))
            .expect("written");
        merge_into(&path, OURS).expect("merged");
        merge_into(&path, OURS).expect("merged again");
        let merged = Kubeconfig::read_from(&path).expect("read");
        let names: Vec<_> = merged.clusters.iter().map(|cluster| &*cluster.name).collect();
        assert_eq!(names, ["work", "evenkeel"]);
        assert_eq!(merged.current_context.as_deref(), Some("evenkeel"));
        assert_eq!(merged.auth_infos.len(), 2);
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
        let error = merge_into(&path, OURS).expect_err("refused");
        assert!(error.to_string().contains("config"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).expect("still there"), "{ not yaml");
    }

    #[test]
    fn paths_follow_kubectl_and_the_xdg_folders() {
        let home =
            Home { home: Some("/h".into()), kubeconfig: Some("/a:/b".into()), ..Home::default() };
        assert_eq!(home.data_folder(), Some("/h/.local/share/evenkeel".into()));
        assert_eq!(home.user_kubeconfig().expect("found"), Path::new("/a"));
        let first_is_empty = Home { kubeconfig: Some(":/b".into()), ..Home::default() };
        assert_eq!(first_is_empty.user_kubeconfig().expect("found"), Path::new("/b"));
        assert_eq!(
            home.cluster_kubeconfig(None, 6443),
            Path::new("/h/.local/state/evenkeel/kubeconfig")
        );
        assert_eq!(
            home.cluster_kubeconfig(None, 7000),
            Path::new("/h/.local/state/evenkeel/kubeconfig-7000")
        );
        assert_eq!(
            home.cluster_kubeconfig(Some(Path::new("/d")), 7000),
            Path::new("/d/kubeconfig")
        );
        assert_eq!(
            Home::default().user_kubeconfig().map_err(|e| e.to_string()),
            Err("neither KUBECONFIG nor HOME is set".to_owned())
        );
    }
}
