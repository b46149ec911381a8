//! The tests of all views cover each view.

use std::{fs, path::Path};

#[test]
fn the_list_of_views_is_complete() {
    let views = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/views");
    let list = fs::read_to_string(views.join("mod.rs")).unwrap();
    let list = list.split_once("$check! {").unwrap().1.split_once('}').unwrap().0;
    let list: Vec<String> = list.split(',').map(|name| name.trim().to_owned()).collect();
    let mut defined = Vec::new();
    for file in fs::read_dir(views).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        let views = text.split("\nview!(").skip(1).filter_map(|rest| rest.split(',').next());
        defined.extend(views.map(|name| name.trim().to_owned()));
    }
    defined.sort();
    assert_eq!(defined, list);
}
