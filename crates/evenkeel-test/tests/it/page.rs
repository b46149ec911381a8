//! The pages on testing and on operators only show code that CI runs.

use std::{fs, path::Path};

/// Returns the code blocks of a page: the language, the last line before the block, and the code.
fn blocks(text: &str) -> Vec<(&str, &str, String)> {
    let (mut found, mut open) = (Vec::new(), None::<(&str, &str, String)>);
    let mut before = "";
    for line in text.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(language)) => open = Some((language, before, String::new())),
            (Some(_), Some(_)) => found.extend(open.take()),
            (Some((.., code)), None) => {
                code.push_str(line);
                code.push('\n');
            }
            (None, None) if !line.is_empty() => before = line,
            (None, None) => {}
        }
    }
    found
}

/// Returns the target of the last link in a line.
fn target(line: &str) -> Option<&str> {
    line.rsplit_once("](")?.1.split_once(')').map(|(target, _)| target)
}

#[test]
fn examples_in_other_languages_are_parts_of_the_files_they_follow() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let page = fs::read_to_string(docs.join("testing.md")).expect("the page");
    let mut languages = Vec::new();
    let mut file = None;
    for (language, before, code) in blocks(&page) {
        // Rust code runs as a doctest. Other blocks are commands and settings.
        if !["go", "python", "javascript"].contains(&language) {
            continue;
        }
        file = target(before).or(file);
        let file = file.unwrap_or_else(|| panic!("no file is named before:\n{code}"));
        let text = fs::read_to_string(docs.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
        let indented = |by: usize| {
            let lines = code.lines().map(|line| match line {
                "" => "\n".to_owned(),
                line => format!("{}{line}\n", " ".repeat(by)),
            });
            text.contains(&lines.collect::<String>())
        };
        assert!([0, 4, 8].into_iter().any(indented), "{file} does not contain:\n{code}");
        languages.push(language);
    }
    languages.dedup();
    assert_eq!(languages, ["go", "python", "javascript"]);
}

#[test]
fn the_exploration_in_the_operators_guide_is_that_of_the_example() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/operators.md")).expect("the page");
    let test = fs::read_to_string(root.join("examples/webapp/tests/explore.rs")).expect("a test");
    let copies: Vec<_> =
        blocks(&page).into_iter().filter(|(language, ..)| *language == "rust,ignore").collect();
    assert_eq!(copies.len(), 1);
    assert!(test.contains(&copies[0].2), "{}", copies[0].2);
}

/// Returns the code of a page's blocks in a language.
fn code(page: &str, language: &str) -> Vec<String> {
    let found = blocks(page).into_iter().filter(|(found, ..)| *found == language);
    found.map(|(.., code)| code).collect()
}

/// Returns the lines of a file that are not empty.
fn lines(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.is_empty()).collect()
}

#[test]
fn the_chapter_on_the_first_operator_has_all_of_the_example_in_order() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read =
        |path: &str| fs::read_to_string(root.join(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
    let page = read("docs/first-operator.md");
    let sources = ["src/lib.rs", "src/main.rs", "tests/site.rs"];
    let files = sources.map(|file| read(&format!("examples/site/{file}")));
    let shown = code(&page, "rust,ignore").concat();
    assert_eq!(lines(&shown), files.iter().flat_map(|file| lines(file)).collect::<Vec<_>>());

    let length = |file: &String| file.lines().count();
    assert!(length(&files[0]) + length(&files[1]) < 100, "the chapter promises less");
    assert!(length(&files[2]) < 60, "the chapter promises less");

    let dependencies = |manifest: &str| -> Vec<String> {
        let rows = manifest.lines().skip_while(|row| *row != "[dependencies]");
        rows.map(|row| row.split(['.', ' ']).next().unwrap_or_default().to_owned()).collect()
    };
    let manifest = code(&page, "toml").concat();
    assert_eq!(dependencies(&manifest), dependencies(&read("examples/site/Cargo.toml")));
}

#[test]
fn the_plugin_in_the_chapter_on_plugins_is_the_example() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/scheduler-plugins.md")).expect("the page");
    let example = root.join("crates/evenkeel-kube-scheduler/examples/weekdays.rs");
    let example = fs::read_to_string(example).expect("the example");
    let shown = code(&page, "rust,ignore");
    assert_eq!(shown.len(), 2);
    for part in shown {
        assert!(example.contains(&part), "the example does not contain:\n{part}");
    }
    let configuration = code(&page, "yaml").concat();
    assert!(configuration.lines().all(|line| example.contains(&format!("//! {line}\n"))));
}

#[test]
fn blocks_are_found_with_the_line_before() {
    let text = "One.\n\n```rust\na\n```\n\nSee [b](../c/d.py):\n\n```python\ne\n\nf\n```\n";
    let found = blocks(text);
    assert_eq!(
        found,
        [
            ("rust", "One.", "a\n".to_owned()),
            ("python", "See [b](../c/d.py):", "e\n\nf\n".to_owned()),
        ]
    );
    assert_eq!(target(found[1].1), Some("../c/d.py"));
    assert_eq!(target("One."), None);
}
