//! Files of simulated containers: each version with its content, its time and the run that wrote it. The outcome of
//! a run is computed ahead, so that future versions are included.

use evenkeel_api::{Text, time::Timestamp};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

use crate::later;

/// Maximum number of files per pod or node. Writes to further files are dropped.
const MAX_FILES: usize = 4096;

/// Maximum size in bytes of the files of a pod or a node, including past versions. Beyond it, commands cannot add to
/// them.
const MAX_BYTES: usize = 4 * 1024 * 1024;
/// Bytes that a version of a file takes in addition to its content.
const VERSION_BYTES: usize = 128;
/// Maximum number of versions of a file that a command writes. If there are more, the oldest versions are dropped.
const MAX_VERSIONS: usize = 64;

/// Returns the last segment of a path.
pub(crate) fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Error of writes that exceed the space for the files of a pod or a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

/// The volume or root file system that a file belongs to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Root file system of a container, which is new after each restart.
    Container(Text),
    /// `emptyDir` volume, which is empty when the pod starts.
    Volume(Text),
    /// Volume with content that the interpreter does not know, such as a ConfigMap's.
    UnknownVolume(Text),
    /// File system of the node.
    Node,
}

/// Path of a file or folder within a scope.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FilePath {
    /// Scope to whose root the path is relative.
    pub scope: Scope,
    /// Absolute path within the scope, without `.` and `..`; empty for the root.
    pub path: Text,
}

/// Content at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Regular file with its contents.
    File(Arc<str>),
    /// Folder with or without files.
    Folder,
}

/// Write of a run to one file or folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// Time of the write since the run's start.
    pub after: Duration,
    /// The file or folder.
    pub path: FilePath,
    /// New content. `None` removes the file or folder.
    pub content: Option<Content>,
}

impl Write {
    /// Returns the number of bytes that the write takes in [`Files`].
    pub fn size(&self) -> usize {
        size(self.content.as_ref())
    }
}

/// Returns the number of bytes that a version with this content takes.
fn size(content: Option<&Content>) -> usize {
    match content {
        Some(Content::File(text)) => VERSION_BYTES + text.len(),
        Some(Content::Folder) | None => VERSION_BYTES,
    }
}

/// Files with their past and known future versions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Files {
    paths: BTreeMap<FilePath, Vec<Version>>,
    /// Number of changes so far.
    changes: u64,
}

/// Content of a path from a time on.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Version {
    at: Timestamp,
    content: Option<Content>,
    /// ID of the run that wrote the version.
    by: Arc<str>,
}

impl Files {
    /// Returns a counter that grows with each change.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns the content of `path` at `time` with the time of its write, without writes of the run `except`. The
    /// outer `None` means that no run wrote the path. The inner `None` means that a run removed the path.
    pub fn at(
        &self,
        path: &FilePath,
        time: Timestamp,
        except: &str,
    ) -> Option<(Timestamp, Option<&Content>)> {
        let versions = self.paths.get(path)?;
        let found =
            versions.iter().rev().find(|version| version.at <= time && *version.by != *except)?;
        Some((found.at, found.content.as_ref()))
    }

    /// Iterates over the paths below `folder` in the same scope.
    pub fn below<'f>(&'f self, folder: &'f FilePath) -> impl Iterator<Item = &'f FilePath> + 'f {
        let paths = self.paths.range(folder.clone()..).map(|(path, _)| path);
        paths
            .take_while(|path| path.scope == folder.scope && path.path.starts_with(&*folder.path))
            .filter(|path| path.path[folder.path.len()..].starts_with('/'))
    }

    /// Returns the time of the first change after `time`, without writes of the run `except`.
    pub fn next_change(&self, time: Timestamp, except: &str) -> Option<Timestamp> {
        let versions = self.paths.values().flatten();
        versions
            .filter(|version| version.at > time && *version.by != *except)
            .map(|version| version.at)
            .min()
    }

    /// Replaces the recorded writes of the run `by`, which began at `start`, with `writes`.
    pub fn replace(&mut self, by: &Arc<str>, start: Timestamp, writes: &[&Write]) {
        let old_versions = self.versions_of(by);
        let new_versions: Vec<_> = writes
            .iter()
            .map(|write| (write.path.clone(), later(start, write.after), write.content.clone()))
            .collect();
        let mut sorted = new_versions.clone();
        sorted.sort_by(|(left_path, left_time, _), (right_path, right_time, _)| {
            (left_path, left_time).cmp(&(right_path, right_time))
        });
        if old_versions == sorted {
            return;
        }
        self.changes += 1;
        self.paths.retain(|_, versions| {
            versions.retain(|version| *version.by != **by);
            !versions.is_empty()
        });
        for (path, at, content) in new_versions {
            if self.paths.len() >= MAX_FILES && !self.paths.contains_key(&path) {
                continue;
            }
            let versions = self.paths.entry(path).or_default();
            let position = versions.partition_point(|version| version.at <= at);
            versions.insert(position, Version { at, content, by: Arc::clone(by) });
        }
    }

    /// Records the writes of a command, as [`Files::replace`] does for a container's process, but within a limit,
    /// because any number of commands may run.
    ///
    /// # Errors
    /// Fails if the writes exceed the limit. In this case, no write is recorded.
    pub fn record(
        &mut self,
        by: &Arc<str>,
        start: Timestamp,
        writes: &[&Write],
    ) -> Result<(), Full> {
        let versions = self.paths.values().flatten().filter(|version| *version.by != **by);
        let other_bytes: usize = versions.map(|version| size(version.content.as_ref())).sum();
        let added_bytes: usize = writes.iter().map(|write| write.size()).sum();
        let n_new_paths =
            writes.iter().filter(|write| !self.paths.contains_key(&write.path)).count();
        if other_bytes + added_bytes > MAX_BYTES || self.paths.len() + n_new_paths > MAX_FILES {
            return Err(Full);
        }
        self.replace(by, start, writes);
        for write in writes {
            if let Some(versions) = self.paths.get_mut(&write.path) {
                let surplus = versions.len().saturating_sub(MAX_VERSIONS);
                versions.drain(..surplus);
            }
        }
        Ok(())
    }

    /// Returns the number of bytes that all versions take.
    pub fn size(&self) -> usize {
        self.paths.values().flatten().map(|version| size(version.content.as_ref())).sum()
    }

    /// Returns the versions that a run wrote, sorted by path and time.
    fn versions_of(&self, by: &str) -> Vec<(FilePath, Timestamp, Option<Content>)> {
        let versions = self.paths.iter().flat_map(|(path, versions)| {
            versions
                .iter()
                .filter(|version| *version.by == *by)
                .map(|version| (path.clone(), version.at, version.content.clone()))
        });
        versions.collect()
    }

    /// Drops the root file system of `container`, and all versions that were replaced before `time`.
    pub fn clear_container(&mut self, container: &str, time: Timestamp) {
        self.paths.retain(|path, versions| {
            let last = versions.iter().rposition(|version| version.at <= time);
            versions.drain(..last.unwrap_or(0));
            let is_removed =
                matches!(&**versions, [only] if only.content.is_none() && only.at <= time);
            let is_of_container =
                matches!(&path.scope, Scope::Container(name) if **name == *container);
            !is_removed && !is_of_container
        });
    }
}

/// Volume mounts of a container, each with its path and the root of the volume.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Mounts(Vec<(Text, FilePath)>);

impl Mounts {
    /// Returns the mounts sorted by path length, longest first, so that the first match is the innermost mount.
    pub(crate) fn new(mut mounts: Vec<(Text, FilePath)>) -> Self {
        mounts.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        Self(mounts)
    }

    /// Resolves the normalized `path` of `container` through the mounts.
    pub(crate) fn resolve(&self, container: &str, path: &str) -> FilePath {
        for (mount, root) in &self.0 {
            if let Some(rest) = path.strip_prefix(&**mount)
                && (rest.is_empty() || rest.starts_with('/'))
            {
                let path = format!("{}{rest}", root.path).into();
                return FilePath { scope: root.scope.clone(), path };
            }
        }
        FilePath { scope: Scope::Container(container.into()), path: path.into() }
    }

    /// Returns the mount paths of the volumes.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(path, _)| &**path)
    }

    /// Returns whether a volume is mounted at `path` or below.
    pub(crate) fn leads_to(&self, path: &str) -> bool {
        self.0.iter().any(|(mount, _)| {
            mount.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }
}

/// Normalizes `path`, relative to `folder`: makes it absolute, without `.`, `..` and needless slashes. The root is
/// empty.
pub(crate) fn normalize(folder: &str, path: &str) -> String {
    let full_path =
        if path.starts_with('/') { path.to_owned() } else { format!("{folder}/{path}") };
    let mut parts: Vec<&str> = Vec::new();
    for part in full_path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.iter().flat_map(|part| ["/", part]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a path in the volume `data`.
    fn in_volume(path: &str) -> FilePath {
        FilePath { scope: Scope::Volume("data".into()), path: path.into() }
    }

    fn write(after: u64, path: &str, text: Option<&str>) -> Write {
        let content = text.map(|text| Content::File(text.into()));
        Write { after: Duration::from_secs(after), path: in_volume(path), content }
    }

    fn text(files: &Files, path: &str, seconds: i64, but: &str) -> Option<String> {
        match files.at(&in_volume(path), at(seconds), but)? {
            (_, Some(Content::File(text))) => Some(text.to_string()),
            _ => None,
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn a_file_has_past_and_future_versions_and_a_run_replaces_its_own() {
        let mut files = Files::default();
        let (one, two): (Arc<str>, Arc<str>) = ("one".into(), "two".into());
        files.replace(&one, at(100), &[&write(0, "/a", Some("x")), &write(10, "/a", None)]);
        files.replace(&two, at(105), &[&write(0, "/a", Some("y"))]);
        assert_eq!(text(&files, "/a", 99, ""), None);
        assert_eq!(text(&files, "/a", 104, "").as_deref(), Some("x"));
        assert_eq!(text(&files, "/a", 107, "").as_deref(), Some("y"));
        assert_eq!(text(&files, "/a", 107, "two").as_deref(), Some("x"));
        assert_eq!(text(&files, "/a", 111, ""), None);
        assert_eq!(files.next_change(at(100), "two"), Some(at(110)));
        let changes = files.changes();
        files.replace(&two, at(105), &[&write(0, "/a", Some("y"))]);
        assert_eq!(files.changes(), changes, "the same writes do not count as a change");
        files.replace(&one, at(100), &[&write(0, "/a", Some("x"))]);
        assert_eq!(text(&files, "/a", 111, "").as_deref(), Some("y"));
    }

    #[test]
    fn commands_fill_the_files_of_a_pod_up_to_the_limits() {
        let mut files = Files::default();
        let mut record = |n: usize, path: &str, text: &str| {
            let by: Arc<str> = format!("exec/{n}").into();
            let written = files.record(&by, at(10), &[&write(0, path, Some(text))]);
            (written, files.paths.values().map(Vec::len).max().unwrap_or(0), files.paths.len())
        };
        for n in 0..3 * MAX_VERSIONS {
            let (written, versions, _) = record(n, "/a", &n.to_string());
            assert!(written.is_ok() && versions == MAX_VERSIONS.min(n + 1), "{n}: {versions}");
        }
        let large = "x".repeat(64 * 1024);
        let refused = (0..1000).find(|n| record(*n, &format!("/{n}"), &large).0.is_err());
        assert_eq!(refused, Some(63));
        assert_eq!(record(0, "/0", "small").0, Ok(()), "a command can replace its own write");
        let refused = (2000..9000).find(|n| record(*n, &format!("/{n}"), "").0.is_err());
        assert!(refused.is_some_and(|n| n < 2000 + MAX_FILES), "{refused:?}");
    }

    #[test]
    fn clear_drops_replaced_versions_and_the_root_file_system_of_the_container() {
        let mut files = Files::default();
        let by: Arc<str> = "one".into();
        let own = FilePath { scope: Scope::Container("c".into()), path: "/tmp/x".into() };
        let own = Write { after: Duration::ZERO, path: own, content: Some(Content::Folder) };
        let writes =
            [write(0, "/a", Some("x")), write(5, "/a", Some("y")), write(6, "/b/c", None), own];
        files.replace(&by, at(0), &writes.each_ref());
        files.clear_container("c", at(7));
        assert_eq!(text(&files, "/a", 4, ""), None);
        assert_eq!(text(&files, "/a", 7, "").as_deref(), Some("y"));
        assert_eq!(files.paths.len(), 1);
    }

    #[test]
    fn the_innermost_mount_applies_to_the_normalized_path() {
        let node = FilePath { scope: Scope::Node, path: "/var/x".into() };
        let mounts =
            Mounts::new(vec![("/data".into(), in_volume("")), ("/data/node".into(), node)]);
        for (path, want) in [
            ("/data/a", in_volume("/a")),
            ("/data", in_volume("")),
            ("/data/node/./a", FilePath { scope: Scope::Node, path: "/var/x/a".into() }),
            (
                "/database",
                FilePath { scope: Scope::Container("c".into()), path: "/database".into() },
            ),
            ("../a//b/../c", FilePath { scope: Scope::Container("c".into()), path: "/a/c".into() }),
        ] {
            assert_eq!(mounts.resolve("c", &normalize("/tmp", path)), want, "{path}");
        }
        assert!(mounts.leads_to("/data") && mounts.leads_to("") && !mounts.leads_to("/dat"));
    }
}
