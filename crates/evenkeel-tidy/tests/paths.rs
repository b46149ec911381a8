//! Comments name functions and types of other modules as plain text, which no compiler checks: a path in backticks such
//! as `plan::outcome` must refer to code that contains the name.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use evenkeel_tidy::{code, read, root, sources};

/// Other crates, some of which have the name of a folder.
const OTHER_CRATES: [&str; 4] = ["core", "kube", "std", "tokio"];

/// Keywords that precede the name of a type or module.
const KEYWORDS: [&str; 6] = ["enum", "mod", "struct", "trait", "type", "union"];

/// Splits a string into words of letters, digits and underscores.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Words of the code of each qualifier: of the modules by file and folder, and of the types by the files that declare or
/// implement them.
#[derive(Default)]
struct Index<'t> {
    files: Vec<BTreeSet<&'t str>>,
    /// Indexes into `files`.
    by_qualifier: BTreeMap<String, Vec<usize>>,
}

impl<'t> Index<'t> {
    fn add(&mut self, path: &Path, text: &'t str) {
        let mut qualifiers: BTreeSet<String> = path
            .with_extension("")
            .components()
            .map(|part| part.as_os_str().to_string_lossy().replace('-', "_"))
            .collect();
        let mut all = BTreeSet::new();
        for (_, line) in code(text) {
            let line: Vec<&str> = words(line).collect();
            let implements = line.first() == Some(&"impl");
            let declared = line.windows(2).filter(|pair| KEYWORDS.contains(&pair[0]));
            qualifiers.extend(declared.map(|pair| pair[1].to_owned()));
            qualifiers.extend(line.iter().filter(|_| implements).map(|&word| word.to_owned()));
            all.extend(line);
        }
        for qualifier in qualifiers {
            self.by_qualifier.entry(qualifier).or_default().push(self.files.len());
        }
        self.files.push(all);
    }

    /// Returns the first name of a path that its qualifier lacks. Qualifiers that the workspace does not have belong to other
    /// crates.
    fn missing<'p>(&self, path: &'p str) -> Option<&'p str> {
        let relative = ["Self", "crate", "self", "super"];
        let names: Vec<&str> = path.split("::").filter(|name| !relative.contains(name)).collect();
        if names.first().is_none_or(|name| OTHER_CRATES.contains(name)) {
            return None;
        }
        let mut missing = names.windows(2).filter_map(|pair| {
            let files = self.by_qualifier.get(pair[0])?;
            let modules = self.by_qualifier.get(pair[1]).map_or(&[][..], Vec::as_slice);
            let has_name =
                |file: &usize| self.files[*file].contains(pair[1]) || modules.contains(file);
            (!files.iter().any(has_name)).then_some(pair[1])
        });
        missing.next()
    }
}

/// Returns the paths in backticks on a line of a comment, without the parentheses of a call. Leaves out links, which rustdoc
/// checks, and paths with arguments of types.
fn paths(line: &str) -> Vec<&str> {
    let Some(comment) = line.trim_start().strip_prefix("//") else { return Vec::new() };
    let pieces: Vec<&str> = comment.split('`').collect();
    let quoted = pieces.windows(2).step_by(2).filter(|pair| !pair[0].ends_with('['));
    let plain = quoted.map(|pair| pair[1].trim_end_matches("()"));
    let is_path = |text: &&str| {
        let parts = || text.split("::");
        let is_name =
            |part: &str| !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || c == '_');
        parts().count() > 1 && parts().all(is_name)
    };
    plain.filter(is_path).collect()
}

#[test]
fn paths_in_comments_lead_to_code() {
    let root = root();
    let files: Vec<PathBuf> =
        ["crates", "examples", "tests"].iter().flat_map(|part| sources(&root.join(part))).collect();
    let texts: Vec<(&Path, String)> = files
        .iter()
        .map(|file| (file.strip_prefix(&root).expect("below the root"), read(file)))
        .collect();
    let mut index = Index::default();
    texts.iter().for_each(|(path, text)| index.add(path, text));
    let mut wrong = Vec::new();
    for (file, text) in texts.iter().filter(|(file, _)| !file.starts_with("crates/evenkeel-tidy")) {
        for (number, line) in text.lines().enumerate() {
            wrong.extend(paths(line).into_iter().filter_map(|path| {
                let name = index.missing(path)?;
                Some(format!("{}:{}: {path}: {name} is not there", file.display(), number + 1))
            }));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn stale_paths_are_found() {
    let text = "pub struct Plan;\nimpl Plan {\n    fn next() {}\n}\n// fn gone() {}\n";
    let mut index = Index::default();
    index.add(Path::new("crates/a-b/src/core/plan.rs"), text);
    for path in ["plan::next", "Plan::next", "super::next", "a_b::core::plan::Plan", "other::gone"]
    {
        assert_eq!(index.missing(path), None, "{path}");
    }
    assert_eq!(index.missing("a_b::plan::gone"), Some("gone"));
    assert_eq!(index.missing("Plan::gone"), Some("gone"));
    assert_eq!(
        paths("    /// Calls `plan::next()` of `a`, not `x::<T>`, `a b` or [`a::b`]."),
        ["plan::next"]
    );
    assert!(paths("let a = `plan::next`;").is_empty());
}
