//! CustomResourceDefinitions from files.

use crate::wait::{WaitError, eventually};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, PostParams},
    core::GroupVersionKind,
};
use serde_json::Value;
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Error of installing CustomResourceDefinitions.
#[derive(Debug, thiserror::Error)]
pub enum CrdError {
    /// A file or folder cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Path of the file or folder.
        path: PathBuf,
        /// Error of the file system.
        source: io::Error,
    },
    /// A file is not valid YAML or JSON.
    #[error("{}: {reason}", path.display())]
    Text {
        /// Path of the file.
        path: PathBuf,
        /// Error of the parser.
        reason: String,
    },
    /// A file or folder holds no CustomResourceDefinition.
    #[error("{} has no CustomResourceDefinition of apiextensions.k8s.io/v1", .0.display())]
    Empty(PathBuf),
    /// A value is no CustomResourceDefinition.
    #[error("no CustomResourceDefinition: {0}")]
    Invalid(serde_json::Error),
    /// The server refused a definition.
    #[error("CustomResourceDefinition {name} is refused: {source}")]
    Refused {
        /// Name of the definition.
        name: String,
        /// Error of the request.
        source: Box<kube::Error>,
    },
    /// A definition did not become established.
    #[error("CustomResourceDefinition {name} is not established: {source}")]
    NotEstablished {
        /// Name of the definition.
        name: String,
        /// Error of the wait.
        source: WaitError,
    },
}

/// Reads the definitions in a file, or in the files of a folder (`.yaml`, `.yml`, `.json`; not of its subfolders).
/// Skips objects of other kinds.
pub(crate) fn read(path: &Path) -> Result<Vec<Value>, CrdError> {
    let failed = |source| CrdError::Read { path: path.to_owned(), source };
    let mut files = vec![path.to_owned()];
    if fs::metadata(path).map_err(failed)?.is_dir() {
        let entries = fs::read_dir(path).map_err(failed)?;
        files =
            entries.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>().map_err(failed)?;
        files.retain(|file| is_manifest(file));
        files.sort();
    }
    let mut all_definitions = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file)
            .map_err(|source| CrdError::Read { path: file.clone(), source })?;
        let parsed = parse_definitions(&text);
        all_definitions.extend(parsed.map_err(|reason| CrdError::Text { path: file, reason })?);
    }
    if all_definitions.is_empty() {
        return Err(CrdError::Empty(path.to_owned()));
    }
    Ok(all_definitions)
}

fn is_manifest(file: &Path) -> bool {
    let extension = file.extension().and_then(|extension| extension.to_str());
    matches!(extension, Some("yaml" | "yml" | "json"))
}

/// Returns the CustomResourceDefinitions among the documents of a manifest, and among the items of its lists.
fn parse_definitions(text: &str) -> Result<Vec<Value>, String> {
    let documents: Vec<Value> = match serde_json::from_str(text) {
        Ok(document) => vec![document],
        Err(_) => serde_saphyr::from_multiple(text).map_err(|error| error.to_string())?,
    };
    let objects = documents.into_iter().flat_map(|mut document| match document.get_mut("items") {
        Some(Value::Array(items)) => std::mem::take(items),
        _ => vec![document],
    });
    Ok(objects.filter(is_definition).collect())
}

fn is_definition(object: &Value) -> bool {
    object["kind"] == "CustomResourceDefinition"
        && object["apiVersion"] == "apiextensions.k8s.io/v1"
}

/// Creates the definitions, and waits until the server serves them.
pub(crate) async fn install(client: &Client, definitions: Vec<Value>) -> Result<(), CrdError> {
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let resource = ApiResource::from_gvk(&kind);
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let mut names = Vec::new();
    for definition in definitions {
        let definition: DynamicObject =
            serde_json::from_value(definition).map_err(CrdError::Invalid)?;
        let name = definition.metadata.name.clone().unwrap_or_default();
        api.create(&PostParams::default(), &definition)
            .await
            .map_err(|source| CrdError::Refused { name: name.clone(), source: Box::new(source) })?;
        names.push(name);
    }
    for name in names {
        eventually(&api, &name, is_established)
            .await
            .map_err(|source| CrdError::NotEstablished { name, source })?;
    }
    Ok(())
}

fn is_established(definition: &DynamicObject) -> bool {
    let conditions = definition.data.pointer("/status/conditions").and_then(Value::as_array);
    conditions.is_some_and(|conditions| {
        let is_established =
            |condition: &Value| condition["type"] == "Established" && condition["status"] == "True";
        conditions.iter().any(is_established)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CRD: &str =
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: ";

    fn names(objects: &[Value]) -> Vec<&str> {
        objects.iter().filter_map(|object| object["metadata"]["name"].as_str()).collect()
    }

    #[test]
    fn definitions_are_found_in_documents_and_lists() {
        for (text, expected) in [
            (format!("{CRD}a}}\n---\n{CRD}b}}\n"), &["a", "b"][..]),
            (format!("---\n{CRD}a}}\n---\nkind: Namespace\napiVersion: v1\n---\n"), &["a"]),
            (r#"{"kind": "List", "items": [{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "c"}}]}"#.to_owned(), &["c"]),
            ("# nothing\n".to_owned(), &[]),
        ] {
            assert_eq!(names(&parse_definitions(&text).expect("valid")), expected, "{text}");
        }
        assert!(parse_definitions("a: [").is_err());
    }

    #[test]
    fn folders_are_read_in_order_of_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path();
        assert!(matches!(read(path), Err(CrdError::Empty(_))));
        for (name, text) in [
            ("b.yaml", format!("{CRD}b}}")),
            ("a.yml", format!("{CRD}a}}")),
            ("kustomization.yaml", "resources: [a.yml]\n".to_owned()),
            ("README.md", "a: [".to_owned()),
        ] {
            fs::write(path.join(name), text).expect("written");
        }
        assert_eq!(names(&read(path).expect("read")), ["a", "b"]);
        assert_eq!(names(&read(&path.join("b.yaml")).expect("read")), ["b"]);
        assert!(matches!(read(&path.join("absent")), Err(CrdError::Read { .. })));
        fs::write(path.join("c.yaml"), "a: [").expect("written");
        assert!(matches!(read(path), Err(CrdError::Text { path, .. }) if path.ends_with("c.yaml")));
    }
}
