//! The workspace as text: its crates, manifests and source files, for the tests of this crate.
//!
//! The crate depends on nothing, so that its tests build and run without the workspace that they read.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The root folder of the workspace.
///
/// # Panics
/// When the folder is not there: the tests run in a checkout only.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}

/// The text of a file.
///
/// # Panics
/// When it cannot be read; the message names the file.
pub fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Name and folder of each crate under `crates/`, in order of name.
///
/// # Panics
/// When the folder cannot be read.
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

/// All Rust files below a folder, in order of path; none where there is no such folder.
///
/// # Panics
/// When a folder below it cannot be read.
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

/// The part of a file's text before its unit tests. A mere declaration of a test module (`mod tests;`) does not end it.
pub fn production(text: &str) -> &str {
    const TEST: &str = "#[cfg(test)]";
    let declares = |rest: &str| {
        let line = rest.trim_start().lines().next().unwrap_or_default();
        line.starts_with("mod ") && line.ends_with(';')
    };
    let end = text.match_indices(TEST).find(|(index, _)| !declares(&text[index + TEST.len()..]));
    end.map_or(text, |(index, _)| &text[..index])
}

/// Number and text of the lines that are no comments.
pub fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
    lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
}

/// Whether `word` stands in `text` as a whole word: no letter, digit or underscore beside it.
pub fn has_word(text: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(index, _)| {
        let (before, after) = (&text[..index], &text[index + word.len()..]);
        !before.ends_with(part) && !after.starts_with(part)
    })
}

/// The rows of one section of a manifest, such as `dependencies`: what is left of `.`, `=` or a space.
pub fn dependencies(manifest: &str, section: &str) -> Vec<String> {
    let rows = manifest.split(&format!("[{section}]\n")).nth(1).unwrap_or_default();
    let rows = rows.split("\n[").next().unwrap_or_default().lines();
    rows.filter(|row| !row.trim().is_empty() && !row.starts_with('#'))
        .map(|row| row.split(['.', ' ', '=']).next().unwrap_or_default().to_owned())
        .collect()
}
