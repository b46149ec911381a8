//! Links in Markdown refer to existing files and headings, and messages on the troubleshooting page occur in the code.

use std::{
    fs,
    path::{Path, PathBuf},
};

use evenkeel_tidy::{crates, read, root, sources};

/// Folders without pages of ours.
const LEFT_OUT: [&str; 4] = ["target", "node_modules", ".git", ".venv"];

/// Appends the Markdown files below a folder. Links to files are followed once, at their target.
fn collect_pages(folder: &Path, pages: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_symlink() || LEFT_OUT.contains(&&*name) {
            continue;
        }
        if path.is_dir() {
            collect_pages(&path, pages);
        } else if name.ends_with(".md") {
            pages.push(path);
        }
    }
}

/// Returns the lines of a page outside fenced blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// Returns the targets of the links in a page's prose, without code spans.
fn targets(text: &str) -> Vec<String> {
    let text = prose(text).collect::<Vec<_>>().join("\n");
    let text: String = text.split('`').step_by(2).collect();
    let parts = text.split("](").skip(1);
    parts.filter_map(|part| Some(part.split_once(')')?.0.trim().to_owned())).collect()
}

/// Returns the anchor of a heading, as GitHub and mdBook generate it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// Returns the anchors of a page.
fn anchors(text: &str) -> Vec<String> {
    let headings = prose(text).filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#'))).collect()
}

/// Returns the reason why a link of a page is broken; `None` if it is valid, or leads outside the repository.
fn broken(page: &Path, target: &str) -> Option<&'static str> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, wanted) = target.split_once('#').unwrap_or((target, ""));
    let file = match path {
        "" => page.to_owned(),
        path => page.parent().expect("a folder").join(path),
    };
    if !file.exists() {
        return Some("there is no such file");
    }
    let is_page = file.extension().is_some_and(|extension| extension == "md");
    let is_there =
        wanted.is_empty() || !is_page || anchors(&read(&file)).iter().any(|a| a == wanted);
    (!is_there).then_some("there is no such heading")
}

#[test]
fn links_lead_somewhere() {
    let mut pages = Vec::new();
    collect_pages(&root(), &mut pages);
    assert!(pages.len() >= 30, "{} pages only", pages.len());
    let mut found = Vec::new();
    for page in pages {
        // A template is a page once it is expanded.
        for target in targets(&read(&page)).iter().filter(|target| !target.contains("{{")) {
            if let Some(why) = broken(&page, target) {
                found.push(format!("{}: {target}: {why}", page.display()));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_page_of_the_docs_is_in_the_book() {
    let docs = root().join("docs");
    let summary = targets(&read(&docs.join("SUMMARY.md")));
    let mut pages = Vec::new();
    collect_pages(&docs, &mut pages);
    for page in pages.iter().filter(|page| !page.ends_with("SUMMARY.md")) {
        let name = page.strip_prefix(&docs).expect("a page of the docs").to_string_lossy();
        assert!(summary.contains(&name.clone().into_owned()), "docs/SUMMARY.md lacks {name}");
    }
}

/// Returns whether a line of code has the fixed parts of a message, in order. `…` stands for the other parts.
fn has_message(line: &str, message: &str) -> bool {
    let mut rest = line;
    message.split('…').map(str::trim).filter(|part| !part.is_empty()).all(|part| {
        let found = rest.split_once(part);
        rest = found.map_or(rest, |(_, after)| after);
        found.is_some()
    })
}

#[test]
fn messages_on_the_page_on_troubleshooting_stand_in_the_code() {
    let page = read(&root().join("docs/troubleshooting.md"));
    let files = crates().into_iter().flat_map(|(_, path)| sources(&path.join("src")));
    let code: String = files.map(|file| read(&file)).collect();
    let messages: Vec<&str> =
        prose(&page).filter_map(|line| line.strip_prefix("## `")?.strip_suffix('`')).collect();
    assert!(messages.len() >= 20, "{} messages only", messages.len());
    let is_missing = |message: &&str| !code.lines().any(|line| has_message(line, message));
    let missing: Vec<&str> = messages.into_iter().filter(is_missing).collect();
    assert!(missing.is_empty(), "no code has {missing:#?}");
}

#[test]
fn links_and_anchors_are_read() {
    let page = "# Two *words*, `code`\n[a](b.md#c) `[no](x)` [d](<e>)\n```sh\n# no [f](g)\n```\n[h](https://i)\n";
    assert_eq!(targets(page), ["b.md#c", "<e>", "https://i"]);
    assert_eq!(anchors(page), ["two-words-code"]);
    assert_eq!(
        anchor("What `evenkeel up` cannot pass, and why"),
        "what-evenkeel-up-cannot-pass-and-why"
    );
    assert!(has_message("error(\"{0} is in use: stop it\")", "… is in use: …"));
    assert!(!has_message("error(\"stop it: {0} is in use\")", "… is in use: stop it"));
    let here = root().join("README.md");
    assert_eq!(broken(&here, "nowhere.md"), Some("there is no such file"));
    assert_eq!(broken(&here, "CONTRIBUTING.md#nowhere"), Some("there is no such heading"));
    assert_eq!(broken(&here, "CONTRIBUTING.md#words"), None);
}
