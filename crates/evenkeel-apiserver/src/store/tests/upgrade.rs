//! Tests of upgrades of files of earlier versions.

use redb::{Builder, TableDefinition};

use super::super::folder::Folder as _;
use super::super::open::DATABASE;
use super::crash::on;
use super::disk::FaultyFolder;
use super::*;

const OBJECTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("objects");
const COUNTERS: TableDefinition<'_, &str, u64> = TableDefinition::new("counters");

/// Returns a folder with a file as version 1 wrote it, with objects of these names.
fn version_1(names: &[&str], damaged: bool) -> FaultyFolder {
    let folder = FaultyFolder::new(1);
    let file = super::super::folder::FailureRecorder::new(folder.open(DATABASE).expect("memory")).0;
    let database = Builder::new().create_with_backend(file).expect("memory");
    let write = database.begin_write().expect("a transaction");
    {
        let mut objects = write.open_table(OBJECTS).expect("a table");
        for (index, name) in names.iter().enumerate() {
            let encoded = Encoded::new(
                &json!({"metadata": {"name": name}, "numbers": [index]}),
                SelectionAttributes::default(),
            );
            let entry = encoded.into_entry((*name).into(), index as u64 + 5, Change::Added);
            let mut bytes = entry.to_log();
            if damaged {
                bytes[0] ^= 2;
            }
            objects.insert(format!("numbers\0{name}").as_str(), bytes.as_slice()).expect("memory");
        }
        let mut counters = write.open_table(COUNTERS).expect("a table");
        counters.insert("revision", 40).expect("memory");
    }
    write.commit().expect("memory");
    drop(database);
    folder
}

#[tokio::test(start_paused = true)]
async fn objects_of_version_1_are_migrated_without_history() {
    let folder = version_1(&["a", "b"], false);
    let numbers: ResourcePrefix = "numbers".into();
    for _ in 0..2 {
        let store = on(&folder).expect("readable");
        assert_eq!(state(&store), (vec![("a".to_owned(), 5), ("b".to_owned(), 6)], 1_040));
        assert!(store.is_taken("numbers", "0") && store.is_taken("numbers", "1"));
        assert!(
            store.follow(&numbers, &Scope::All, 1_039).is_err()
                && store.follow(&numbers, &Scope::All, 1_040).is_ok()
        );
        assert_eq!(store.count("numbers"), 2);
    }
    // Version 1 refuses the new file instead of reading it as empty.
    let file = super::super::folder::FailureRecorder::new(folder.open(DATABASE).expect("memory")).0;
    let database = Builder::new().create_with_backend(file).expect("readable");
    let write = database.begin_write().expect("a transaction");
    assert!(write.open_table(OBJECTS).is_err());
}

#[tokio::test(start_paused = true)]
async fn the_error_names_a_damaged_object_of_version_1() {
    let error = on(&version_1(&["a"], true)).err().expect("refused").to_string();
    assert!(error.contains("\"numbers\\0a\" is damaged"), "{error}");
}
