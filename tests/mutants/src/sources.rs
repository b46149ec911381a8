//! The files of a crate that get mutants, and which mutants the compiler accepts.

use crate::{
    mutate::{self, Found},
    tree::{Tree, write},
};
use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    ops::Range,
    path::Path,
    process::Stdio,
};

/// The mutants of one file.
pub struct Source {
    /// Its path from the workspace's root.
    pub path: String,
    /// Number of its first mutant.
    pub first: u32,
    text: String,
    found: Found,
    /// Mutants that the compiler refuses.
    refused: BTreeSet<usize>,
    ranges: Vec<(Range<usize>, usize)>,
}

/// A mutant of the build.
#[derive(Debug, Clone)]
pub struct Numbered {
    pub number: u32,
    pub path: String,
    pub line: usize,
    pub function: String,
    pub change: String,
}

impl Source {
    fn plant(&mut self, tree: &Tree) -> Result<()> {
        let planted = self.found.plant(&self.text, self.first, &self.refused);
        self.ranges = planted.ranges;
        write(&tree.root.join(&self.path), planted.text.as_bytes())
    }

    /// Leaves out the innermost mutant around a byte of the planted file. Returns whether there is one.
    fn refuse(&mut self, at: usize) -> bool {
        let around = self
            .ranges
            .iter()
            .filter(|(range, mutant)| range.contains(&at) && !self.refused.contains(mutant));
        let Some(innermost) =
            around.min_by_key(|(range, _)| range.len()).map(|(_, mutant)| *mutant)
        else {
            return false;
        };
        self.refused.insert(innermost)
    }
}

/// Finds the mutants of a crate's pure files that `only` admits.
///
/// # Errors
/// If a file cannot be read or is not Rust.
pub fn find(root: &Path, crate_name: &str, only: &[String]) -> Result<Vec<Source>> {
    let mut paths = Vec::new();
    list(&root.join("crates").join(crate_name).join("src"), &mut paths)?;
    let mut sources = Vec::new();
    let mut first = 1;
    for path in paths {
        let name = path
            .strip_prefix(root)
            .context("a path below the root")?
            .to_string_lossy()
            .into_owned();
        if !only.is_empty() && !only.iter().any(|part| name.contains(part)) {
            continue;
        }
        let text = fs::read_to_string(&path).with_context(|| name.clone())?;
        let found = mutate::find(&text).with_context(|| name.clone())?;
        let next = first + u32::try_from(found.mutants.len()).context("too many mutants")?;
        sources.push(Source {
            path: name,
            first,
            text,
            found,
            refused: BTreeSet::new(),
            ranges: Vec::new(),
        });
        first = next;
    }
    Ok(sources)
}

/// File names with the wiring of a folder, and tests: no decision is made there.
const NOT_PURE: [&str; 6] = ["mod.rs", "act.rs", "metrics.rs", "lib.rs", "tests.rs", "fixtures.rs"];

fn list(folder: &Path, paths: &mut Vec<std::path::PathBuf>) -> Result<()> {
    let mut entries: Vec<_> = fs::read_dir(folder)
        .with_context(|| folder.display().to_string())?
        .collect::<Result<_, _>>()?;
    entries.sort_by_key(fs::DirEntry::path);
    for entry in entries {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" {
            list(&path, paths)?;
        } else if name.ends_with(".rs") && !NOT_PURE.contains(&name.as_str()) {
            paths.push(path);
        }
    }
    Ok(())
}

/// Plants all mutants, and leaves out those that the compiler refuses, until it accepts the rest.
///
/// # Errors
/// If it refuses something else.
pub fn plant(tree: &Tree, crate_name: &str, sources: &mut [Source]) -> Result<()> {
    tree.add_planted(crate_name)?;
    loop {
        for source in sources.iter_mut() {
            source.plant(tree)?;
        }
        let errors = check(tree, crate_name)?;
        if errors.is_empty() {
            return Ok(());
        }
        let mut refused = 0;
        let mut unknown = Vec::new();
        for (path, at, message) in &errors {
            let source = sources.iter_mut().find(|source| source.path == *path);
            match source.map(|source| source.refuse(*at)) {
                Some(true) => refused += 1,
                _ => unknown.push(format!("{path}, byte {at}: {message}")),
            }
        }
        eprintln!("the compiler refuses {refused} mutants");
        if refused == 0 {
            bail!(
                "the planted crate does not compile, and no mutant is the reason:\n{}",
                unknown.join("\n")
            );
        }
    }
}

#[derive(Deserialize)]
struct Message {
    message: Option<Diagnostic>,
}

#[derive(Deserialize)]
struct Diagnostic {
    message: String,
    level: String,
    spans: Vec<DiagnosticSpan>,
}

#[derive(Deserialize)]
struct DiagnosticSpan {
    file_name: String,
    byte_start: usize,
    is_primary: bool,
    expansion: Option<Box<Expansion>>,
}

#[derive(Deserialize)]
struct Expansion {
    span: DiagnosticSpan,
}

/// Compiles the crate and its tests. Returns file, byte and text of each error.
fn check(tree: &Tree, crate_name: &str) -> Result<Vec<(String, usize, String)>> {
    let output = tree
        .cargo()
        .args(["check", "--package", crate_name, "--lib", "--tests", "--message-format=json"])
        .stderr(Stdio::inherit())
        .output()
        .context("cargo check")?;
    let mut errors = BTreeMap::new();
    for line in output.stdout.split(|byte| *byte == b'\n') {
        let Ok(Message { message: Some(message) }) = serde_json::from_slice(line) else { continue };
        if message.level != "error" {
            continue;
        }
        if let Some(span) = message.spans.iter().find(|span| span.is_primary) {
            let mut span = span;
            while let Some(expansion) = &span.expansion {
                span = &expansion.span;
            }
            errors.insert((span.file_name.clone(), span.byte_start), message.message);
        }
    }
    if errors.is_empty() && !output.status.success() {
        bail!("cargo check fails without an error in a file");
    }
    Ok(errors.into_iter().map(|((path, at), message)| (path, at, message)).collect())
}

/// Returns the mutants that the compiler accepts.
pub fn numbered(sources: &[Source]) -> Vec<Numbered> {
    let mut all = Vec::new();
    for source in sources {
        for mutant in
            source.found.mutants.iter().filter(|mutant| !source.refused.contains(&mutant.index))
        {
            all.push(Numbered {
                number: source.first + u32::try_from(mutant.index).unwrap_or(u32::MAX),
                path: source.path.clone(),
                line: mutant.line,
                function: mutant.function.clone(),
                change: mutant.change.clone(),
            });
        }
    }
    all
}
