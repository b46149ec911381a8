//! Private files: only their owner may access them, regardless of the umask. Writes are atomic.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

/// Mode of folders: full access for the owner only.
const FOLDER: u32 = 0o700;
/// Mode of files: read and write access for the owner only.
const FILE: u32 = 0o600;

/// Returns the folder that contains a file or folder.
pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) => folder,
        None => path,
    }
}

/// Syncs the names of a folder's files to disk.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Creates a private folder and its missing parents, and syncs their names to disk: without this, a power failure may
/// remove a folder with all its synced files. Makes an existing folder private if `ours` accepts the names of all its
/// entries. Does not change a folder with other files, but logs a warning.
pub(crate) fn make_folder(path: &Path, ours: impl Fn(&str) -> bool) -> io::Result<()> {
    let missing = path
        .ancestors()
        .take_while(|folder| !folder.as_os_str().is_empty() && folder.symlink_metadata().is_err());
    let missing: Vec<&Path> = missing.collect();
    // If the path exists but is not a folder, later accesses to its entries fail.
    match DirBuilder::new().recursive(true).mode(FOLDER).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    for folder in missing {
        sync_folder(folder_of(folder))?;
    }
    if !is_open_to_others(&path.metadata()?.permissions()) {
        return Ok(());
    }
    for entry in path.read_dir()? {
        let name = entry?.file_name();
        if !name.to_str().is_some_and(&ours) {
            tracing::warn!(
                folder = %path.display(),
                other = %name.display(),
                "other users may enter the data folder, which holds other files as well; files that this server makes are private"
            );
            return Ok(());
        }
    }
    std::fs::set_permissions(path, Permissions::from_mode(FOLDER))
}

/// Opens a private file for reading and writing, and creates it if it does not exist.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(FILE)
        .open(path)?;
    revoke_access_of_others(&file)?;
    Ok(file)
}

/// Creates a private file. If the file exists, it returns an error.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(FILE).open(path)
}

/// Reads a private file. Revokes the access of others first.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    let file = File::open(path)?;
    revoke_access_of_others(&file)?;
    io::read_to_string(file)
}

/// Writes a file that only its owner may access, atomically and durably: after a crash or a power failure, the file has its
/// old or its new content. Its folder must exist.
///
/// # Errors
/// The file cannot be written.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    let folder = folder_of(path);
    // On Unix, `tempfile` creates files with mode 0600.
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    sync_folder(folder)
}

fn is_open_to_others(permissions: &Permissions) -> bool {
    permissions.mode() & 0o077 != 0
}

fn revoke_access_of_others(file: &File) -> io::Result<()> {
    if is_open_to_others(&file.metadata()?.permissions()) {
        file.set_permissions(Permissions::from_mode(FILE))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        path.metadata().expect("an existing file").permissions().mode() & 0o777
    }

    fn open_up(path: &Path, mode: u32) {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("changed");
    }

    #[test]
    fn new_files_are_private_and_files_open_to_others_become_private() {
        let home = tempfile::tempdir().expect("a folder");
        let folder = home.path().join("a/b");
        let ours = |name: &str| name == "f" || name == "g";
        make_folder(&folder, ours).expect("made");
        let (first, second) = (folder.join("f"), folder.join("g"));
        write(&first, "one").expect("written");
        drop(open(&second).expect("opened"));
        for path in [&folder, &home.path().join("a")] {
            assert_eq!(mode(path), 0o700, "{}", path.display());
        }
        assert_eq!((mode(&first), mode(&second)), (0o600, 0o600));
        for path in [&first, &second] {
            open_up(path, 0o644);
        }
        open_up(&folder, 0o755);
        make_folder(&folder, ours).expect("made private");
        assert_eq!(read(&first).expect("read"), "one");
        drop(open(&second).expect("opened"));
        assert_eq!((mode(&folder), mode(&first), mode(&second)), (0o700, 0o600, 0o600));
    }

    #[test]
    fn a_folder_with_other_files_keeps_its_mode() {
        let home = tempfile::tempdir().expect("a folder");
        std::fs::write(home.path().join("theirs"), "x").expect("written");
        open_up(home.path(), 0o755);
        make_folder(home.path(), |name| name == "ours").expect("unchanged");
        assert_eq!(mode(home.path()), 0o755);
    }

    #[test]
    fn a_file_without_a_folder_is_in_the_current_one() {
        for (file, folder) in [("a", "."), ("./a", "."), ("b/a", "b"), ("/a", "/"), ("/", "/")] {
            assert_eq!(folder_of(Path::new(file)), Path::new(folder), "{file}");
        }
    }
}
