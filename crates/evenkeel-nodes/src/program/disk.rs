//! Files as a running script finds and leaves them.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use super::{
    files::{Content, Place, Scope, Write, normal},
    machine::{LONGEST, Machine},
    shell::{Halt, Shell, unknown},
};

/// So often a script may write; one that goes on is taken to go on for ever.
const MOST: usize = 100;
/// Folders that every image fills as it likes: nothing can be said of what is not known to be there.
const FILLED: [&str; 17] = [
    "/app", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib32", "/lib64", "/opt", "/proc",
    "/root", "/sbin", "/srv", "/sys", "/usr", "/var",
];
/// Folders that every image has, with nothing in them.
const EMPTY: [&str; 8] =
    ["", "/tmp", "/var/tmp", "/var/run", "/run", "/dev/shm", "/mnt", "/var/log"];
/// Files that can be written though their folder is not known.
const TERMINATION_LOG: &str = "/dev/termination-log";

impl Machine<'_> {
    fn place(&self, shell: &Shell, path: &str) -> (String, Place) {
        let path = normal(&shell.folder, path);
        let place = self.mounts.place(self.container, &path);
        if place.scope != Scope::Own(self.container.into()) {
            self.looked.set(true);
        }
        (path, place)
    }

    /// What stands there now; the outer `None` where nobody ever wrote anything.
    fn held(&self, shell: &Shell, place: &Place) -> Option<Option<Content>> {
        let own =
            self.writes.iter().filter(|write| write.place == *place && write.after <= shell.now);
        // Of writes at the same time the last one counts.
        let own = own.fold(None::<&Write>, |best, write| {
            best.filter(|best| best.after > write.after).or(Some(write))
        });
        let others = self.around.held(place, self.time(shell));
        match (own, others) {
            (Some(own), Some((at, content)))
                if at > crate::pod::memory::later(self.around.start, own.after) =>
            {
                Some(content.cloned())
            }
            (Some(own), _) => Some(own.content.clone()),
            (None, others) => others.map(|(_, content)| content.cloned()),
        }
    }

    /// What a file holds; `None` when it is not there, or is a folder.
    pub(super) fn read(&self, shell: &Shell, path: &str) -> Result<Option<Arc<str>>, Halt> {
        if matches!(path, "/dev/null") {
            return Ok(Some("".into()));
        }
        if matches!(path, "/dev/stdin" | "-") {
            return Ok(Some(Arc::clone(&shell.input)));
        }
        let (path, place) = self.place(shell, path);
        match self.held(shell, &place) {
            Some(Some(Content::File(text))) => Ok(Some(text)),
            Some(_) => Ok(None),
            None => self.known_absent(&path, &place).map(|()| None),
        }
    }

    /// Nobody wrote it here: whether that means that it is not there.
    fn known_absent(&self, path: &str, place: &Place) -> Result<(), Halt> {
        let filled = FILLED.iter().any(|folder| within(path, folder))
            && !EMPTY[1..].iter().any(|folder| within(path, folder))
            && path != TERMINATION_LOG;
        match &place.scope {
            Scope::Foreign(volume) => unknown(format!("what is in volume {volume}")),
            Scope::Own(_) if filled => unknown(format!("whether the image has {path}")),
            _ => Ok(()),
        }
    }

    /// Whether there is a folder.
    pub(super) fn is_folder(&self, shell: &Shell, path: &str) -> Result<bool, Halt> {
        let (path, place) = self.place(shell, path);
        if EMPTY.contains(&&*path) || FILLED.contains(&&*path) || self.mounts.leads_to(&path) {
            return Ok(true);
        }
        match self.held(shell, &place) {
            Some(Some(content)) => Ok(content == Content::Folder),
            Some(None) => Ok(false),
            None => self.known_absent(&path, &place).map(|()| false),
        }
    }

    pub(super) fn exists(&self, shell: &Shell, path: &str) -> Result<bool, Halt> {
        Ok(self.read(shell, path)?.is_some() || self.is_folder(shell, path)?)
    }

    /// Writes a file; whether that could be done.
    pub(super) fn write(&mut self, shell: &Shell, path: &str, text: String) -> Result<bool, Halt> {
        if path == "/dev/null" {
            return Ok(true);
        }
        if text.len() > LONGEST {
            return Err(Halt::Spent);
        }
        let parent = normal(&shell.folder, &format!("{path}/.."));
        if normal(&shell.folder, path) != TERMINATION_LOG
            && (!self.is_folder(shell, &format!("/{parent}"))? || self.is_folder(shell, path)?)
        {
            return Ok(false);
        }
        self.change(shell, path, Some(Content::File(text.into())))?;
        Ok(true)
    }

    pub(super) fn change(
        &mut self,
        shell: &Shell,
        path: &str,
        content: Option<Content>,
    ) -> Result<(), Halt> {
        let (_, place) = self.place(shell, path);
        if self.held(shell, &place) == Some(content.clone()) {
            return Ok(());
        }
        // What is written twice at the same time was never anything else.
        self.writes.retain(|write| write.place != place || write.after != shell.now);
        if self.writes.len() >= MOST {
            return Err(Halt::Spent);
        }
        self.writes.push(Write { after: shell.now, place, content });
        Ok(())
    }

    /// Makes a folder and, where `parents`, those around it; whether that could be done.
    pub(super) fn make_folder(
        &mut self,
        shell: &Shell,
        path: &str,
        parents: bool,
    ) -> Result<bool, Halt> {
        let path = normal(&shell.folder, path);
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
            self.change(shell, &format!("/{folder}"), Some(Content::Folder))?;
        }
        Ok(true)
    }

    /// The names in a folder, in order.
    pub(super) fn names(&self, shell: &Shell, path: &str) -> Result<BTreeSet<String>, Halt> {
        let (path, place) = self.place(shell, path);
        if FILLED.contains(&&*path) || path.is_empty() || matches!(place.scope, Scope::Foreign(_)) {
            return unknown(format!("what is in {path}/"));
        }
        let below = self.below(&place);
        let here = below.iter().filter(|place| matches!(self.held(shell, place), Some(Some(_))));
        let rest = here.map(|found| found.path[place.path.len() + 1..].to_owned());
        Ok(rest.map(|rest| rest.split('/').next().unwrap_or_default().to_owned()).collect())
    }

    fn below(&self, folder: &Place) -> BTreeSet<Place> {
        let own = self.writes.iter().map(|write| &write.place).filter(|place| {
            place.scope == folder.scope
                && place.path.strip_prefix(&*folder.path).is_some_and(|rest| rest.starts_with('/'))
        });
        own.chain(self.around.below(folder)).cloned().collect()
    }

    /// Takes away a file, or a folder with all that is in it.
    pub(super) fn remove(&mut self, shell: &Shell, path: &str) -> Result<(), Halt> {
        let (full, place) = self.place(shell, path);
        if self.mounts.leads_to(&full) || EMPTY.contains(&&*full) || FILLED.contains(&&*full) {
            return unknown(format!("removing {path}"));
        }
        for below in self.below(&place) {
            let path = format!("{full}{}", &below.path[place.path.len()..]);
            self.change(shell, &path, None)?;
        }
        self.change(shell, &full, None)
    }

    /// Seconds as `sleep` and `timeout` read them.
    pub(super) fn duration(text: &str) -> Option<Duration> {
        let (number, unit) = match text.char_indices().last()? {
            (at, 's') => (&text[..at], 1.0),
            (at, 'm') => (&text[..at], 60.0),
            (at, 'h') => (&text[..at], 3600.0),
            (at, 'd') => (&text[..at], 86_400.0),
            _ => (text, 1.0),
        };
        let digits = number.bytes().all(|c| c.is_ascii_digit() || c == b'.');
        let seconds: f64 = number.parse().ok().filter(|_| digits)?;
        Duration::try_from_secs_f64(seconds * unit).ok()
    }
}

fn within(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
