//! File system of a running script: reads the files that all runs wrote, and records the script's own writes.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use crate::{
    files::{Content, FilePath, Scope, Write, normalize},
    interpreter::{Interpreter, MAX_COMMAND_FILE, MAX_LENGTH, OwnWrite},
    shell::{Halt, Shell, unsupported},
};

/// Maximum number of writes of a script. A script that exceeds it counts as running forever.
const MAX_WRITES: usize = 100;
/// Maximum number of writes of a command that a client executes in a container. A command that exceeds it fails.
const MAX_COMMAND_WRITES: usize = 1000;
/// Folders with files of the image. A path below them may exist although no run wrote it.
const IMAGE_FOLDERS: [&str; 17] = [
    "/app", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib32", "/lib64", "/opt", "/proc",
    "/root", "/sbin", "/srv", "/sys", "/usr", "/var",
];
/// Folders that exist and are empty in every image.
const EMPTY_FOLDERS: [&str; 8] =
    ["", "/tmp", "/var/tmp", "/var/run", "/run", "/dev/shm", "/mnt", "/var/log"];
/// File that a script can write although the content of its folder is unknown.
const TERMINATION_LOG: &str = "/dev/termination-log";

impl Interpreter<'_> {
    /// Returns the absolute path, and the location of the file through the mounts.
    fn resolve(&self, shell: &Shell, path: &str) -> (String, FilePath) {
        let path = normalize(&shell.folder, path);
        let location = self.mounts.resolve(self.container, &path);
        if location.scope != Scope::Container(self.container.into()) {
            self.reads_shared_files.set(true);
        }
        (path, location)
    }

    /// Returns the current content at a path. The outer `None` means that no run wrote the path. The
    /// inner `None` means that a run removed the path.
    fn content_at(&self, shell: &Shell, location: &FilePath) -> Option<Option<Content>> {
        let own_writes = self
            .writes
            .iter()
            .map(|own| &own.write)
            .filter(|write| write.path == *location && write.after <= shell.now);
        // Of several writes at the same time, `max_by_key` returns the last, which applies.
        let own_write = own_writes.max_by_key(|write| write.after);
        let other_write = self.context.content_at(location, self.time(shell));
        match (own_write, other_write) {
            (Some(own), Some((time, content)))
                if time > crate::later(self.context.start, own.after) =>
            {
                Some(content.cloned())
            }
            (Some(own), _) => Some(own.content.clone()),
            (None, other) => other.map(|(_, content)| content.cloned()),
        }
    }

    /// Returns the contents of a file; `None` if the path does not exist or is a folder.
    pub(crate) fn read(&self, shell: &Shell, path: &str) -> Result<Option<Arc<str>>, Halt> {
        if matches!(path, "/dev/null") {
            return Ok(Some("".into()));
        }
        if matches!(path, "/dev/stdin" | "-") {
            return self.read_input(shell).map(Some);
        }
        let (path, location) = self.resolve(shell, path);
        match self.content_at(shell, &location) {
            Some(Some(Content::File(text))) => Ok(Some(text)),
            Some(_) => Ok(None),
            None => self.check_absent(&path, &location).map(|()| None),
        }
    }

    /// Fails if a path that no run has written may exist in the image or in a volume of unknown content.
    fn check_absent(&self, path: &str, location: &FilePath) -> Result<(), Halt> {
        if self.exec.is_some() {
            return Ok(());
        }
        let may_be_in_image = IMAGE_FOLDERS.iter().any(|folder| is_within(path, folder))
            && !EMPTY_FOLDERS[1..].iter().any(|folder| is_within(path, folder))
            && path != TERMINATION_LOG;
        match &location.scope {
            Scope::UnknownVolume(volume) => unsupported(format!("what is in volume {volume}")),
            Scope::Container(_) if may_be_in_image => {
                unsupported(format!("whether the image has {path}"))
            }
            _ => Ok(()),
        }
    }

    /// Returns whether a folder exists at the path.
    pub(crate) fn is_folder(&self, shell: &Shell, path: &str) -> Result<bool, Halt> {
        let (path, location) = self.resolve(shell, path);
        if EMPTY_FOLDERS.contains(&&*path)
            || IMAGE_FOLDERS.contains(&&*path)
            || self.mounts.leads_to(&path)
        {
            return Ok(true);
        }
        match self.content_at(shell, &location) {
            Some(Some(content)) => Ok(content == Content::Folder),
            Some(None) => Ok(false),
            None => self.check_absent(&path, &location).map(|()| false),
        }
    }

    /// Returns whether a file or folder exists at the path.
    pub(crate) fn exists(&self, shell: &Shell, path: &str) -> Result<bool, Halt> {
        Ok(self.read(shell, path)?.is_some() || self.is_folder(shell, path)?)
    }

    /// Writes a file. Returns false if the parent folder does not exist, or if the path is a folder.
    pub(crate) fn write(&mut self, shell: &Shell, path: &str, text: String) -> Result<bool, Halt> {
        if path == "/dev/null" {
            return Ok(true);
        }
        let limit = if self.exec.is_some() { MAX_COMMAND_FILE } else { MAX_LENGTH };
        if text.len() > limit {
            return Err(Halt::StepLimit);
        }
        let parent = normalize(&shell.folder, &format!("{path}/.."));
        if normalize(&shell.folder, path) != TERMINATION_LOG
            && (!self.is_folder(shell, &format!("/{parent}"))? || self.is_folder(shell, path)?)
        {
            return Ok(false);
        }
        self.record_write(shell, path, Some(Content::File(text.into())))?;
        Ok(true)
    }

    /// Records a write of the script, unless the content is unchanged. `None` removes the file or folder.
    pub(crate) fn record_write(
        &mut self,
        shell: &Shell,
        path: &str,
        content: Option<Content>,
    ) -> Result<(), Halt> {
        let (_, location) = self.resolve(shell, path);
        if self.content_at(shell, &location) == Some(content.clone()) {
            return Ok(());
        }
        // A second write at the same time replaces the first.
        self.writes
            .retain(|OwnWrite { write, .. }| write.path != location || write.after != shell.now);
        let limit = if self.exec.is_some() { MAX_COMMAND_WRITES } else { MAX_WRITES };
        if self.writes.len() >= limit {
            return Err(Halt::StepLimit);
        }
        let write = Write { after: shell.now, path: location, content };
        self.writes.push(OwnWrite { job: self.job, serial: self.n_writes, write });
        self.n_writes += 1;
        Ok(())
    }

    /// Creates a folder. With `parents`, also creates the missing folders above it. Returns whether it succeeds.
    pub(crate) fn make_folder(
        &mut self,
        shell: &Shell,
        path: &str,
        parents: bool,
    ) -> Result<bool, Halt> {
        let path = normalize(&shell.folder, path);
        if !parents && self.exists(shell, &format!("/{path}"))? {
            return Ok(false);
        }
        for (end, _) in path.match_indices('/').skip(1).chain([(path.len(), "")]) {
            let folder = &path[..end];
            if self.is_folder(shell, &format!("/{folder}"))? {
                continue;
            }
            let file = self.read(shell, &format!("/{folder}"))?.is_some();
            if file || (end < path.len() && !parents) {
                return Ok(false);
            }
            self.record_write(shell, &format!("/{folder}"), Some(Content::Folder))?;
        }
        Ok(true)
    }

    /// Returns the sorted names in a folder.
    pub(crate) fn folder_entries(
        &self,
        shell: &Shell,
        path: &str,
    ) -> Result<BTreeSet<String>, Halt> {
        let (path, location) = self.resolve(shell, path);
        let is_unknown = IMAGE_FOLDERS.contains(&&*path)
            || path.is_empty()
            || matches!(location.scope, Scope::UnknownVolume(_));
        if is_unknown && self.exec.is_none() {
            return unsupported(format!("what is in {path}/"));
        }
        let first_segment = |path: &str| path.split('/').next().unwrap_or_default().to_owned();
        let mut names = BTreeSet::new();
        for found in self.below(&location) {
            if matches!(self.content_at(shell, &found), Some(Some(_))) {
                names.insert(first_segment(&found.path[location.path.len() + 1..]));
            }
        }
        if self.exec.is_some() {
            let image_folders = IMAGE_FOLDERS.iter().chain(&EMPTY_FOLDERS).copied();
            for folder in image_folders.chain(self.mounts.paths()) {
                if let Some(rest) = folder.strip_prefix(&*path)
                    && let Some(inner) = rest.strip_prefix('/')
                {
                    names.insert(first_segment(inner));
                }
            }
        }
        Ok(names)
    }

    /// Returns the locations below a folder that this or another run has written.
    fn below(&self, folder: &FilePath) -> BTreeSet<FilePath> {
        let own = self.writes.iter().map(|own| &own.write.path).filter(|location| {
            location.scope == folder.scope
                && location
                    .path
                    .strip_prefix(&*folder.path)
                    .is_some_and(|rest| rest.starts_with('/'))
        });
        own.chain(self.context.below(folder)).cloned().collect()
    }

    /// Returns whether two paths lead to the same file.
    pub(crate) fn is_same_file(&self, shell: &Shell, left: &str, right: &str) -> bool {
        let (_, left) = self.resolve(shell, left);
        let (_, right) = self.resolve(shell, right);
        left == right
    }

    /// Removes a file, or a folder with its content.
    pub(crate) fn remove(&mut self, shell: &Shell, path: &str) -> Result<(), Halt> {
        let (absolute, location) = self.resolve(shell, path);
        if self.mounts.leads_to(&absolute)
            || EMPTY_FOLDERS.contains(&&*absolute)
            || IMAGE_FOLDERS.contains(&&*absolute)
        {
            return unsupported(format!("removing {path}"));
        }
        for below in self.below(&location) {
            let path = format!("{absolute}{}", &below.path[location.path.len()..]);
            self.record_write(shell, &path, None)?;
        }
        self.record_write(shell, &absolute, None)
    }

    /// Parses a duration as `sleep` and `timeout` do.
    pub(crate) fn duration(text: &str) -> Option<Duration> {
        let (number, unit) = match text.char_indices().last()? {
            (end, 's') => (&text[..end], 1.0),
            (end, 'm') => (&text[..end], 60.0),
            (end, 'h') => (&text[..end], 3600.0),
            (end, 'd') => (&text[..end], 86_400.0),
            _ => (text, 1.0),
        };
        let is_decimal = number.bytes().all(|c| c.is_ascii_digit() || c == b'.');
        let seconds: f64 = number.parse().ok().filter(|_| is_decimal)?;
        Duration::try_from_secs_f64(seconds * unit).ok()
    }
}

/// Returns whether a path is a folder or below it.
fn is_within(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
