//! The tables of the page on operators name existing items: each name in their right columns occurs in a code block of the
//! page, and these blocks are doctests.

/// The page on operators.
const PAGE: &str = include_str!("../../docs/operators.md");

/// Returns the code of the page's doctests, without comments, and with white space between words only.
fn code() -> String {
    let blocks = PAGE.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next());
    let lines = blocks.flat_map(str::lines).filter_map(|line| line.split("//").next());
    let mut code = String::new();
    for part in lines.flat_map(str::split_whitespace) {
        if code.ends_with(is_of_word) && part.starts_with(is_of_word) {
            code.push(' ');
        }
        code.push_str(part);
    }
    code
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the code spans in the last column of each table's rows.
fn last_columns(page: &str) -> Vec<String> {
    let rows = page.lines().filter(|line| line.starts_with("| "));
    let cells = rows.filter_map(|row| {
        let row = row.replace("\\|", "\u{b6}");
        row.trim_end_matches([' ', '|']).rsplit_once('|').map(|(_, last)| last.to_owned())
    });
    cells
        .flat_map(|cell| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>())
        .collect()
}

/// Returns the names in a code span: names that are called, have type arguments or are alone. Arguments do not count.
fn names(span: &str) -> Vec<String> {
    let span = span.replace('-', "_");
    let part = |c: char| c.is_alphanumeric() || "_.:".contains(c);
    let mut rest = &*span;
    let mut names = Vec::new();
    while let Some(start) = rest.find(part) {
        let end = rest[start..].find(|c| !part(c)).map_or(rest.len(), |length| start + length);
        let name = rest[start..end].trim_end_matches(':');
        rest = &rest[end..];
        if rest.is_empty() || rest.starts_with(['(', '<']) {
            names.push(name.to_owned());
        }
    }
    names
}

/// Returns whether code has the name as a whole word.
fn has(code: &str, name: &str) -> bool {
    code.match_indices(name).any(|(at, _)| {
        let before = name.starts_with('.') || !code[..at].ends_with(is_of_word);
        before && !code[at + name.len()..].starts_with(is_of_word)
    })
}

#[test]
fn tables_name_items_that_exist() {
    let code = code();
    // The names of faults are prose.
    let sections = PAGE.split("\n## ").filter(|section| !section.starts_with("Testing it under"));
    let spans = last_columns(&sections.collect::<Vec<_>>().join("\n"));
    assert!(spans.len() >= 200, "{} names: the tables are not found", spans.len());
    let is_missing = |name: &String| !has(&code, name);
    let missing: Vec<_> = spans.iter().flat_map(|span| names(span)).filter(is_missing).collect();
    assert!(missing.is_empty(), "no block of code has {missing:?}");
}

#[test]
fn names_are_read_from_code_spans() {
    let table =
        "| a | b |\n|---|---|\n| `x` | `cx.status(…).patch_if_changed()`, `when(changed())` |\n";
    assert_eq!(last_columns(table), ["cx.status(…).patch_if_changed()", "when(changed())"]);
    assert_eq!(names("cx.status(…).patch_if_changed()"), ["cx.status", ".patch_if_changed"]);
    assert_eq!(names("when(changed())"), ["when", "changed"]);
    assert_eq!(names("manager.controller::<K>()"), ["manager.controller"]);
    assert_eq!(names("Outcome::again(d)"), ["Outcome::again"]);
    assert_eq!(names("evenkeel-test"), ["evenkeel_test"]);
    assert!(has("letx=cx.get_live(1)", "cx.get_live") && !has("letx=cx.get_live(1)", "cx.get"));
}
