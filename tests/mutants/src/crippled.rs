//! Builds the simulation with crippled controllers, all in one build, and checks that its scenarios notice each.

use crate::{
    tree::{Tree, write},
    unit::{self, Program},
};
use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    time::{Duration, Instant},
};

/// Time in which the scenarios of one entry end, unless the change lets them run forever. That counts as noticed.
const LIMIT: Duration = Duration::from_secs(180);

/// The list of changes.
#[derive(Deserialize)]
struct List {
    crippled: Vec<Crippled>,
}

/// A change of the code that the simulation must notice.
#[derive(Deserialize)]
pub struct Crippled {
    /// What the program no longer does.
    pub name: String,
    /// The file, below `crates/`.
    file: String,
    /// Code that occurs once in the file.
    find: String,
    /// What changes of the code: all of it without this.
    part: Option<String>,
    /// The expression that takes its place. Without one, it is a statement that is left out.
    replace: Option<String>,
    /// Parts of the names of tests, one of which must fail.
    scenarios: Vec<String>,
}

/// Reads the list.
///
/// # Errors
/// If it cannot be read, or two entries have one name.
pub fn read(path: &Path) -> Result<Vec<Crippled>> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let list: List = toml::from_str(&text).with_context(|| path.display().to_string())?;
    let names: BTreeSet<&str> = list.crippled.iter().map(|entry| entry.name.as_str()).collect();
    ensure!(names.len() == list.crippled.len(), "two entries have one name");
    Ok(list.crippled)
}

/// Returns the changed files. The change of the entry at `index` acts if the mutant `index + 1` is active.
///
/// # Errors
/// If a file cannot be read, or has the code of an entry not once.
pub fn change(root: &Path, list: &[Crippled]) -> Result<BTreeMap<String, String>> {
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    for (index, entry) in list.iter().enumerate() {
        let path = format!("crates/{}", entry.file);
        let text = match files.remove(&path) {
            Some(text) => text,
            None => fs::read_to_string(root.join(&path)).with_context(|| path.clone())?,
        };
        let count = text.matches(&*entry.find).count();
        ensure!(count == 1, "{}: {path} has the code {count} times:\n{}", entry.name, entry.find);
        let number = index + 1;
        let part = entry.part.as_ref().unwrap_or(&entry.find);
        ensure!(
            entry.find.contains(&**part),
            "{}: the code does not have the part {part}",
            entry.name
        );
        let changed = match &entry.replace {
            Some(replace) => {
                format!("(if crate::planted::is({number}) {{ {replace} }} else {{ {part} }})")
            }
            None => format!("if !crate::planted::is({number}) {{ {part} }}"),
        };
        let changed = entry.find.replacen(&**part, &changed, 1);
        files.insert(path, text.replacen(&*entry.find, &changed, 1));
    }
    Ok(files)
}

/// Builds the simulation with all changes.
///
/// # Errors
/// If it does not build.
pub fn build(tree: &Tree, files: &BTreeMap<String, String>) -> Result<Program> {
    let mut crates = BTreeSet::new();
    for (path, text) in files {
        write(&tree.root.join(path), text.as_bytes())?;
        crates.extend(path.split('/').nth(1));
    }
    for name in crates {
        tree.add_planted(name)?;
    }
    unit::build(tree, "evenkeel-sim", Some("it"))
}

/// Returns `count` entries, or all, that a number such as the day selects, so that each is tried in its turn.
pub fn rotate(len: usize, count: Option<usize>, turn: usize) -> Vec<usize> {
    let count = count.unwrap_or(len).min(len);
    (0..count).map(|index| (turn * count + index) % len).collect()
}

/// Runs the scenarios of the chosen entries, without a change and with each. Returns the names of those that no scenario
/// notices.
///
/// # Errors
/// If a scenario fails without a change, or the program does not start.
pub fn run(program: &Program, list: &[Crippled], chosen: &[usize]) -> Result<Vec<String>> {
    let filters: BTreeSet<&str> =
        chosen.iter().flat_map(|index| &list[*index].scenarios).map(String::as_str).collect();
    let filters: Vec<&str> = filters.into_iter().collect();
    let passes = program.passes(0, &filters, false, LIMIT * 10)?;
    ensure!(passes, "the scenarios fail without a change: {}", filters.join(" "));
    let mut unnoticed = Vec::new();
    for index in chosen {
        let entry = &list[*index];
        let filters: Vec<&str> = entry.scenarios.iter().map(String::as_str).collect();
        ensure!(
            !program.list(&filters)?.is_empty(),
            "{}: there is no scenario {}",
            entry.name,
            filters.join(" ")
        );
        let start = Instant::now();
        let number = u32::try_from(index + 1).context("too many entries")?;
        let noticed = !program.passes(number, &filters, false, LIMIT)?;
        let how = if noticed { "noticed" } else { "NOT NOTICED" };
        println!("{how} after {:.0} s: {}", start.elapsed().as_secs_f64(), entry.name);
        if !noticed {
            unnoticed.push(entry.name.clone());
        }
    }
    Ok(unnoticed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_entry_is_chosen_in_its_turn() {
        assert_eq!(rotate(5, None, 3), [0, 1, 2, 3, 4]);
        let chosen: BTreeSet<usize> = (0..5).flat_map(|turn| rotate(5, Some(2), turn)).collect();
        assert_eq!(chosen.len(), 5);
        assert_eq!(rotate(5, Some(2), 2), [4, 0]);
    }

    #[test]
    fn every_entry_changes_its_file() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let list = read(&folder.join("crippled.toml")).expect("the list");
        let files = change(&folder.join("../.."), &list).expect("all files");
        for (path, text) in files {
            syn::parse_file(&text).unwrap_or_else(|error| panic!("{path}: {error}"));
        }
    }
}
