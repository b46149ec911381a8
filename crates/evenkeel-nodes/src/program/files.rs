//! Files of simulated containers: what they hold, since when, and who wrote it. Also what is written only later, by a
//! program whose end is known already.

use evenkeel_api::{Text, time::Timestamp};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

use crate::pod::memory::later;

/// So many files are kept of a pod or a node; more are not written.
const MOST: usize = 4096;

/// Whose file it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    /// The container's own, gone when it is restarted.
    Own(Text),
    /// Of a volume that is as old as the pod.
    Volume(Text),
    /// Of a volume with a content that is not known here.
    Foreign(Text),
    /// The node's.
    Node,
}

/// A file, or a folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) scope: Scope,
    /// Absolute within the scope, without `.` and `..`; empty for its root.
    pub(crate) path: Text,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    File(Arc<str>),
    Folder,
}

/// A change made by a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Write {
    /// Since the run began.
    pub(crate) after: Duration,
    pub(crate) place: Place,
    /// `None` takes it away.
    pub(crate) content: Option<Content>,
}

/// Files with their past, and with their future as far as it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Files {
    places: BTreeMap<Place, Vec<Version>>,
    /// Grows with each change.
    changes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Version {
    at: Timestamp,
    content: Option<Content>,
    /// The run that wrote it.
    by: Arc<str>,
}

impl Files {
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// What `place` holds at `time` and since when, leaving aside what the run `but` wrote; `None` where nothing was.
    pub(crate) fn at(
        &self,
        place: &Place,
        time: Timestamp,
        but: &str,
    ) -> Option<(Timestamp, Option<&Content>)> {
        let versions = self.places.get(place)?;
        let found = versions.iter().rev().find(|v| v.at <= time && *v.by != *but)?;
        Some((found.at, found.content.as_ref()))
    }

    /// Places in the same scope below `folder`.
    pub(crate) fn below<'f>(&'f self, folder: &'f Place) -> impl Iterator<Item = &'f Place> + 'f {
        let places = self.places.range(folder.clone()..).map(|(place, _)| place);
        places
            .take_while(|place| {
                place.scope == folder.scope && place.path.starts_with(&*folder.path)
            })
            .filter(|place| place.path[folder.path.len()..].starts_with('/'))
    }

    /// When something changes next after `time`, by another run than `but`.
    pub(crate) fn next_change(&self, time: Timestamp, but: &str) -> Option<Timestamp> {
        let versions = self.places.values().flatten();
        versions.filter(|v| v.at > time && *v.by != *but).map(|v| v.at).min()
    }

    /// Puts the writes of the run `by`, which began at `start`, in the place of those noted of it before.
    pub(crate) fn replace(&mut self, by: &Arc<str>, start: Timestamp, writes: &[&Write]) {
        let before = self.of(by);
        let now: Vec<_> = writes
            .iter()
            .map(|write| (write.place.clone(), later(start, write.after), write.content.clone()))
            .collect();
        let mut sorted = now.clone();
        sorted.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
        if before == sorted {
            return;
        }
        self.changes += 1;
        self.places.retain(|_, versions| {
            versions.retain(|version| *version.by != **by);
            !versions.is_empty()
        });
        for (place, at, content) in now {
            if self.places.len() >= MOST && !self.places.contains_key(&place) {
                continue;
            }
            let versions = self.places.entry(place).or_default();
            let position = versions.partition_point(|version| version.at <= at);
            versions.insert(position, Version { at, content, by: Arc::clone(by) });
        }
    }

    fn of(&self, by: &str) -> Vec<(Place, Timestamp, Option<Content>)> {
        let all = self.places.iter().flat_map(|(place, versions)| {
            versions
                .iter()
                .filter(|version| *version.by == *by)
                .map(|version| (place.clone(), version.at, version.content.clone()))
        });
        all.collect()
    }

    /// Forgets what a container had of its own, and what nobody can ask for any more: what was replaced before `time`.
    pub(crate) fn clear(&mut self, container: &str, time: Timestamp) {
        self.places.retain(|place, versions| {
            let last = versions.iter().rposition(|version| version.at <= time);
            versions.drain(..last.unwrap_or(0));
            let gone = matches!(&**versions, [only] if only.content.is_none() && only.at <= time);
            !gone && !matches!(&place.scope, Scope::Own(of) if **of == *container)
        });
    }
}

/// Which volume is found where in a container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Mounts(Vec<(Text, Place)>);

impl Mounts {
    /// The longest path first, so that the first that fits is the one.
    pub(crate) fn new(mut mounts: Vec<(Text, Place)>) -> Self {
        mounts.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        Self(mounts)
    }

    /// The place that the normal `path` leads to in `container`.
    pub(crate) fn place(&self, container: &str, path: &str) -> Place {
        for (mount, place) in &self.0 {
            if let Some(rest) = path.strip_prefix(&**mount)
                && (rest.is_empty() || rest.starts_with('/'))
            {
                let path = format!("{}{rest}", place.path).into();
                return Place { scope: place.scope.clone(), path };
            }
        }
        Place { scope: Scope::Own(container.into()), path: path.into() }
    }

    /// Whether something is mounted at `path` or below.
    pub(crate) fn leads_to(&self, path: &str) -> bool {
        self.0.iter().any(|(mount, _)| {
            mount.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }
}

/// An absolute path without `.`, `..` and needless slashes; empty for the root.
pub(crate) fn normal(folder: &str, path: &str) -> String {
    let all = if path.starts_with('/') { path.to_owned() } else { format!("{folder}/{path}") };
    let mut parts: Vec<&str> = Vec::new();
    for part in all.split('/') {
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

    fn place(path: &str) -> Place {
        Place { scope: Scope::Volume("data".into()), path: path.into() }
    }

    fn write(after: u64, path: &str, text: Option<&str>) -> Write {
        let content = text.map(|text| Content::File(text.into()));
        Write { after: Duration::from_secs(after), place: place(path), content }
    }

    fn text(files: &Files, path: &str, seconds: i64, but: &str) -> Option<String> {
        match files.at(&place(path), at(seconds), but)? {
            (_, Some(Content::File(text))) => Some(text.to_string()),
            _ => None,
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn a_file_has_a_past_and_a_future_and_a_run_replaces_what_it_wrote() {
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
        assert_eq!(files.changes(), changes, "nothing new is no change");
        files.replace(&one, at(100), &[&write(0, "/a", Some("x"))]);
        assert_eq!(text(&files, "/a", 111, "").as_deref(), Some("y"));
    }

    #[test]
    fn what_was_replaced_is_forgotten_and_so_is_a_containers_own() {
        let mut files = Files::default();
        let by: Arc<str> = "one".into();
        let own = Place { scope: Scope::Own("c".into()), path: "/tmp/x".into() };
        let own = Write { after: Duration::ZERO, place: own, content: Some(Content::Folder) };
        let writes =
            [write(0, "/a", Some("x")), write(5, "/a", Some("y")), write(6, "/b/c", None), own];
        files.replace(&by, at(0), &writes.each_ref());
        files.clear("c", at(7));
        assert_eq!(text(&files, "/a", 4, ""), None);
        assert_eq!(text(&files, "/a", 7, "").as_deref(), Some("y"));
        assert_eq!(files.places.len(), 1);
    }

    #[test]
    fn the_longest_mount_wins_and_paths_are_made_normal() {
        let node = Place { scope: Scope::Node, path: "/var/x".into() };
        let mounts = Mounts::new(vec![("/data".into(), place("")), ("/data/node".into(), node)]);
        for (path, want) in [
            ("/data/a", place("/a")),
            ("/data", place("")),
            ("/data/node/./a", Place { scope: Scope::Node, path: "/var/x/a".into() }),
            ("/database", Place { scope: Scope::Own("c".into()), path: "/database".into() }),
            ("../a//b/../c", Place { scope: Scope::Own("c".into()), path: "/a/c".into() }),
        ] {
            assert_eq!(mounts.place("c", &normal("/tmp", path)), want, "{path}");
        }
        assert!(mounts.leads_to("/data") && mounts.leads_to("") && !mounts.leads_to("/dat"));
    }
}
