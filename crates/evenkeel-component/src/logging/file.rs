//! Log file of bounded size.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

/// Size in bytes from which the next line begins a new file.
const MAX_SIZE: u64 = 16 << 20;

/// Log file that only its owner can read. At 16 MiB it is renamed to the same name with `.old`, which replaces an earlier
/// one, and a new file begins.
#[derive(Debug)]
pub struct LogFile {
    path: PathBuf,
    file: File,
    size: u64,
    max_size: u64,
}

impl LogFile {
    /// Opens the file, and creates it if it does not exist. New lines follow its content.
    ///
    /// # Errors
    /// Fails if the file cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = open(path)?;
        let size = file.metadata()?.len();
        Ok(Self { path: path.to_owned(), file, size, max_size: MAX_SIZE })
    }

    /// Returns the path to which a full file is renamed.
    pub fn old_path(path: &Path) -> PathBuf {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".old");
        path.with_file_name(name)
    }

    fn begin_new_file(&mut self) -> io::Result<()> {
        std::fs::rename(&self.path, Self::old_path(&self.path))?;
        self.file = open(&self.path)?;
        self.size = 0;
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

impl Write for LogFile {
    /// Writes a line. If no new file can begin, for example because the folder was deleted, the line is appended to the old
    /// file.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.size >= self.max_size {
            let _ = self.begin_new_file();
        }
        let written = self.file.write(line)?;
        self.size = self.size.saturating_add(written as u64);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_full_file_is_renamed_and_its_content_kept_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        std::fs::write(&path, "before\n").expect("written");
        let mut log = LogFile::open(&path).expect("opened");
        log.max_size = 14;
        let read = |path: &Path| std::fs::read_to_string(path).expect("there");
        for line in ["first\n", "second\n", "third\n"] {
            log.write_all(line.as_bytes()).expect("written");
        }
        assert_eq!(read(&LogFile::old_path(&path)), "before\nfirst\nsecond\n");
        assert_eq!(read(&path), "third\n");
        let mode = path.metadata().expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
