//! Modules import downward, because files that import each other in a circle can only be understood together.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use evenkeel_tidy::{code, crates, production, read, sources};

/// Maximum number of files that may import each other in a circle.
const LARGEST: usize = 5;

/// Crates in which no file is in a circle, even if a module that composes its children counts as importing them.
const WITHOUT: [&str; 1] = ["evenkeel-apiserver"];

/// Path of a module within its crate; the root is empty.
type Module = Vec<String>;

/// Returns the files of a crate by module, with their content, without tests.
fn modules(src: &Path) -> BTreeMap<Module, String> {
    let mut found = BTreeMap::new();
    for file in sources(src) {
        let below = file.strip_prefix(src).expect("below the source").with_extension("");
        let mut module: Module =
            below.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        if module.iter().any(|part| matches!(part.as_str(), "tests" | "fixtures" | "bin")) {
            continue;
        }
        if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
            module.pop();
        }
        let text = read(&file);
        let lines: Vec<&str> = code(production(&text)).map(|(_, line)| line).collect();
        found.insert(module, lines.join("\n"));
    }
    found
}

/// The paths of a `use`: `a::{b, c::d}` is `a::b` and `a::c::d`.
fn expand(tree: &str, before: &[String], found: &mut Vec<Module>) {
    let (head, inner) = match tree.split_once('{') {
        Some((head, rest)) => (head, rest.rsplit_once('}').map_or(rest, |(inner, _)| inner)),
        None => (tree.split(" as ").next().unwrap_or_default(), ""),
    };
    let parts = head.split("::").map(str::trim).filter(|part| !part.is_empty());
    let path: Module = before.iter().cloned().chain(parts.map(str::to_owned)).collect();
    if !tree.contains('{') {
        found.push(path);
        return;
    }
    let (mut depth, mut start) = (0_i32, 0);
    for (at, c) in inner.char_indices().chain([(inner.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let part = inner[start..at].trim();
                if !part.is_empty() {
                    expand(part, &path, found);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
}

/// Returns the paths that a source file names: those of each `use` that is not a re-export, and those within expressions.
fn paths(text: &str) -> Vec<Module> {
    let mut found = Vec::new();
    let mut rest = String::new();
    for statement in text.split_inclusive(';') {
        let last = statement.rfind("use ").unwrap_or(0);
        let (before, tree) = statement.split_at(last);
        let visibility = before.lines().last().unwrap_or_default().trim();
        match tree.strip_prefix("use ") {
            Some(tree) if visibility.is_empty() => {
                expand(tree.trim_end_matches(';'), &[], &mut found);
                rest.push_str(before);
            }
            Some(_) if visibility.starts_with("pub") => rest.push_str(before),
            _ => rest.push_str(statement),
        }
    }
    for path in rest.split(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | ':')) {
        let parts: Module =
            path.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
        if parts.len() > 1 {
            found.push(parts);
        }
    }
    found
}

/// Returns the module to which a path within `module` leads. `None` for paths outside the crate and, unless `strict`, for a
/// module's own children.
fn target(
    module: &Module,
    path: &Module,
    all: &BTreeMap<Module, String>,
    strict: bool,
) -> Option<Module> {
    let first = path.first()?.as_str();
    let child: Module = module.iter().cloned().chain([first.to_owned()]).collect();
    let mut at: Module = match first {
        "crate" => path[1..].to_vec(),
        "self" => module.iter().chain(&path[1..]).cloned().collect(),
        "super" => {
            let up = path.iter().take_while(|part| *part == "super").count();
            let base = module.len().checked_sub(up)?;
            module[..base].iter().chain(&path[up..]).cloned().collect()
        }
        _ if strict && all.contains_key(&child) => module.iter().chain(path).cloned().collect(),
        _ => return None,
    };
    while !at.is_empty() && !all.contains_key(&at) {
        at.pop();
    }
    (!at.is_empty() && at != *module).then_some(at)
}

/// Returns the modules that a module can reach, directly or through others.
fn reached(edges: &BTreeMap<Module, BTreeSet<Module>>, from: &Module) -> BTreeSet<Module> {
    let mut found = BTreeSet::new();
    let mut next: Vec<&Module> = edges[from].iter().collect();
    while let Some(module) = next.pop() {
        if found.insert(module.clone()) {
            next.extend(&edges[module]);
        }
    }
    found
}

/// Returns the circles of a crate: sets of modules in which each module reaches all others.
fn circles(all: &BTreeMap<Module, String>, strict: bool) -> BTreeSet<BTreeSet<Module>> {
    let edges: BTreeMap<Module, BTreeSet<Module>> = all
        .iter()
        .map(|(module, text)| {
            let targets =
                paths(text).into_iter().filter_map(|path| target(module, &path, all, strict));
            (module.clone(), targets.collect())
        })
        .collect();
    let reach: BTreeMap<&Module, BTreeSet<Module>> =
        edges.keys().map(|module| (module, reached(&edges, module))).collect();
    let circle = |module: &Module| {
        let both = reach[module].iter().filter(|other| reach[other].contains(module));
        both.cloned().collect::<BTreeSet<Module>>()
    };
    edges.keys().map(circle).filter(|circle| circle.len() > 1).collect()
}

#[test]
fn no_circle_is_large() {
    for (name, path) in crates() {
        let strict = WITHOUT.contains(&name.as_str());
        let allowed = if strict { 1 } else { LARGEST };
        for circle in circles(&modules(&path.join("src")), strict) {
            let files: Vec<String> = circle.iter().map(|module| module.join("::")).collect();
            assert!(files.len() <= allowed, "{name}: these import each other: {files:?}");
        }
    }
}

#[test]
fn circles_are_found() {
    let crate_of = |files: &[(&str, &str)]| -> BTreeMap<Module, String> {
        let module = |path: &str| -> Module { path.split("::").map(str::to_owned).collect() };
        files.iter().map(|(path, text)| (module(path), (*text).to_owned())).collect()
    };
    let down = crate_of(&[("a", "use crate::b::{C, d::e};"), ("b", "fn f() {}"), ("b::d", "")]);
    assert!(circles(&down, true).is_empty());
    let both = crate_of(&[("a", "use crate::b::C;\nfn g() {}"), ("b", "fn f() { crate::a::g() }")]);
    assert_eq!(circles(&both, false).len(), 1);
    let child = crate_of(&[("a", "mod b;\nfn f() { b::g() }"), ("a::b", "use super::T;")]);
    assert_eq!(circles(&child, true).len(), 1);
    assert!(circles(&child, false).is_empty());
}
