//! A copy of the workspace, in which mutants are planted.

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Where the copy is, and what is built from it.
#[derive(Args)]
pub struct Folders {
    /// The folder for the copy of the workspace
    #[arg(long, global = true, default_value = "target/mutants/tree")]
    copy: PathBuf,
    /// The folder for what is built; with `target`, dependencies that the workspace has built serve again
    #[arg(long, global = true, default_value = "target/mutants/target")]
    target: PathBuf,
}

/// The folder that holds the copy and what is built from it.
pub struct Tree {
    /// The copy.
    pub root: PathBuf,
    /// What cargo builds.
    pub target: PathBuf,
}

impl Tree {
    /// Copies all files that git knows. A file that is already so is not written, because cargo would build it again.
    ///
    /// # Errors
    /// If git fails, or a file cannot be read or written.
    pub fn copy(source: &Path, folders: &Folders, changed: &dyn Fn(&str) -> bool) -> Result<Self> {
        let tree = Self { root: source.join(&folders.copy), target: source.join(&folders.target) };
        let listed = Command::new("git")
            .args(["ls-files", "-z"])
            .current_dir(source)
            .output()
            .context("git ls-files")?;
        ensure!(listed.status.success(), "git ls-files failed in {}", source.display());
        for name in listed.stdout.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let name = std::str::from_utf8(name).context("a file's name is not UTF-8")?;
            let from = source.join(name);
            if !changed(name) && from.is_file() {
                write(
                    &tree.root.join(name),
                    &fs::read(&from).with_context(|| from.display().to_string())?,
                )?;
            }
        }
        Ok(tree)
    }

    /// Gives crates the functions that their mutants call.
    ///
    /// # Errors
    /// If a file cannot be read or written.
    pub fn add_planted(&self, name: &str) -> Result<()> {
        let path = format!("crates/{name}/src/lib.rs");
        let text = fs::read_to_string(self.root.join(&path)).with_context(|| path.clone())?;
        if !text.contains(DECLARATION) {
            write(&self.root.join(&path), (text + DECLARATION).as_bytes())?;
        }
        write(
            &self.root.join(format!("crates/{name}/src/planted.rs")),
            include_bytes!("planted.rs"),
        )
    }

    /// Returns cargo, to be run in the copy.
    pub fn cargo(&self) -> Command {
        let mut command = Command::new("cargo");
        command
            .current_dir(&self.root)
            .env("CARGO_TARGET_DIR", &self.target)
            .env("CARGO_INCREMENTAL", "0")
            .env("CARGO_PROFILE_DEV_DEBUG", "0");
        command
    }
}

const DECLARATION: &str = "\n#[doc(hidden)]\n#[allow(dead_code)]\npub mod planted;\n";

/// Writes a file unless it has this content.
///
/// # Errors
/// If its folder or the file cannot be written.
pub fn write(path: &Path, content: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|old| old == content) {
        return Ok(());
    }
    let folder = path.parent().context("a file has a folder")?;
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    fs::write(path, content).with_context(|| path.display().to_string())
}
