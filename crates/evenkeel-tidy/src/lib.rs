//! Access to the workspace's crates, manifests and source files as text, for the tests of this crate.
//!
//! The crate depends on nothing, so that its tests build and run without the workspace that they read.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Returns the root folder of the workspace.
///
/// # Panics
/// Panics if the folder does not exist: the tests run only in a checkout.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}

/// Returns the content of a file.
///
/// # Panics
/// Panics if it cannot be read; the message names the file.
pub fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the name and folder of each crate under `crates/`, in order of name.
///
/// # Panics
/// Panics if the folder cannot be read.
pub fn crates() -> Vec<(String, PathBuf)> {
    let folders = fs::read_dir(root().join("crates")).expect("crates");
    let mut crates: Vec<_> = folders
        .map(|folder| folder.expect("a folder").path())
        .filter(|path| path.join("Cargo.toml").exists())
        .map(|path| (path.file_name().expect("a name").to_string_lossy().into_owned(), path))
        .collect();
    crates.sort();
    crates
}

/// Returns all Rust files below a folder, in order of path; none if the folder does not exist.
///
/// # Panics
/// Panics if a folder below it cannot be read.
pub fn sources(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Returns the part of a file before its unit tests. A declaration of a test module (`mod tests;`) does not end it.
pub fn production(text: &str) -> &str {
    const TEST: &str = "#[cfg(test)]";
    let declares = |rest: &str| {
        let line = rest.trim_start().lines().next().unwrap_or_default();
        line.starts_with("mod ") && line.ends_with(';')
    };
    let end = text.match_indices(TEST).find(|(index, _)| !declares(&text[index + TEST.len()..]));
    end.map_or(text, |(index, _)| &text[..index])
}

/// Returns number and content of the lines that are not comments.
pub fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
    lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
}

/// Returns whether `word` occurs in `text` as a whole word: no letter, digit or underscore is next to it.
pub fn has_word(text: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(index, _)| {
        let (before, after) = (&text[..index], &text[index + word.len()..]);
        !before.ends_with(part) && !after.starts_with(part)
    })
}

/// Returns the names in one section of a manifest, such as `dependencies`: the part of each row before `.`, `=` or a space.
pub fn dependencies(manifest: &str, section: &str) -> Vec<String> {
    let rows = manifest.split(&format!("[{section}]\n")).nth(1).unwrap_or_default();
    let rows = rows.split("\n[").next().unwrap_or_default().lines();
    rows.filter(|row| !row.trim().is_empty() && !row.starts_with('#'))
        .map(|row| row.split(['.', ' ', '=']).next().unwrap_or_default().to_owned())
        .collect()
}
