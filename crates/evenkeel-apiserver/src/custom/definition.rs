//! What the server makes of one CustomResourceDefinition: rows of the resource table, one a served version.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use tokio::sync::watch;

use super::conversion::Webhook;
use super::hooks::Hooks;
use crate::resource::{
    Column, GroupResource, GroupVersionKind, ResourceType, Subresource, Verb, Verbs,
};
use evenkeel_apiextensions::jsonpath::JsonPath;
use evenkeel_apiextensions::scale::ScalePaths;
use evenkeel_apiextensions::structural::Structural;
use evenkeel_apiextensions::{defaulting, pruning};
use evenkeel_apimachinery::schema::Schema;
use evenkeel_apimachinery::value::{at, flag, int, list, text};

/// What all versions of a definition share.
pub(crate) struct Definition {
    /// apiVersion of the stored form.
    pub(crate) stored_as: Box<str>,
    /// Version of the stored form.
    pub(crate) storage: Box<str>,
    /// Who converts between versions, where they differ in more than their schemas.
    pub(crate) webhook: Option<Webhook>,
    /// The schemas of all versions, served or not, by apiVersion.
    schemas: Vec<(Box<str>, Arc<Structural>)>,
    /// Deletion was asked for: nothing new is made.
    terminating: AtomicBool,
    /// Told when the rows are replaced: watches end then.
    over: watch::Receiver<bool>,
}

impl Definition {
    /// Whether deletion was asked for.
    pub(crate) fn is_terminating(&self) -> bool {
        self.terminating.load(Ordering::Relaxed)
    }

    /// Deletion was asked for, or not.
    pub(super) fn set_terminating(&self, terminating: bool) {
        self.terminating.store(terminating, Ordering::Relaxed);
    }

    fn structural(&self, api_version: &str) -> Option<&Arc<Structural>> {
        self.schemas
            .iter()
            .find(|(version, _)| **version == *api_version)
            .map(|(_, structural)| structural)
    }

    /// Whether there is such a version.
    pub(super) fn knows(&self, api_version: &str) -> bool {
        self.structural(api_version).is_some()
    }

    /// Removes the fields that the schema of the object's own version does not specify, and nulls that it does not allow.
    pub(super) fn prune(&self, object: &mut Value) {
        if let Some(structural) = self.structural(text(object, "apiVersion")) {
            pruning::prune(object, structural, true);
            defaulting::prune_non_nullable_nulls(object, structural);
        }
    }

    /// Prunes an object by the schema of its own version, then fills in that schema's defaults. The head of `defaulting` in
    /// `evenkeel-apiextensions` lists when this is done.
    ///
    /// Upstream: `structuraldefaulting.Default`.
    pub(crate) fn prune_and_default(&self, object: &mut Value) {
        self.prune(object);
        if let Some(structural) = self.structural(text(object, "apiVersion")) {
            defaulting::default(object, structural);
        }
    }

    /// Ready when these rows are served no more.
    pub(crate) fn over(&self) -> watch::Receiver<bool> {
        self.over.clone()
    }
}

/// What a row of a custom resource has beyond other rows.
pub(crate) struct Version {
    /// The definition that it is of.
    pub(crate) definition: Arc<Definition>,
    /// Group and version, as objects name them.
    pub(crate) api_version: Box<str>,
    /// The schema, as decoding and managers of fields need it.
    pub(crate) schema: Schema,
    /// The schema, as validation needs it.
    pub(crate) structural: Arc<Structural>,
    /// The schema as it was written.
    pub(crate) document: Value,
    /// Whether `status` is a sub-resource.
    pub(crate) status: bool,
    /// Where replicas are, when there is a `scale` sub-resource.
    pub(crate) scale: Option<ScalePaths>,
    /// Paths of the columns after the name.
    pub(crate) columns: Vec<JsonPath>,
    /// Fields for field selectors.
    pub(crate) selectable: Vec<(Box<str>, JsonPath)>,
    /// What clients of a deprecated version are told.
    pub(crate) deprecation: Option<Box<str>>,
}

/// The rows of a definition, in order of preference. `over` is told when they are replaced.
pub(super) fn rows(crd: &Value, over: watch::Receiver<bool>) -> Vec<Arc<ResourceType>> {
    let group: Arc<str> = text(crd, "spec.group").into();
    let versions = list(crd, "spec.versions");
    let storage = versions.iter().find(|v| flag(v, "storage")).map_or("", |v| text(v, "name"));
    let definition = Arc::new(Definition {
        stored_as: format!("{group}/{storage}").into(),
        storage: storage.into(),
        webhook: Webhook::of(crd),
        schemas: versions.iter().map(|version| node_of(&group, version)).collect(),
        terminating: AtomicBool::new(!text(crd, "metadata.deletionTimestamp").is_empty()),
        over,
    });
    let mut served: Vec<&Value> = versions.iter().filter(|v| flag(v, "served")).collect();
    served.sort_by(|a, b| preference(text(b, "name")).cmp(&preference(text(a, "name"))));
    served.into_iter().map(|version| Arc::new(row(crd, version, &definition))).collect()
}

fn node_of(group: &str, version: &Value) -> (Box<str>, Arc<Structural>) {
    let structural = Structural::new(&version["schema"]["openAPIV3Schema"]);
    (format!("{group}/{}", text(version, "name")).into(), Arc::new(structural))
}

fn row(crd: &Value, version: &Value, definition: &Arc<Definition>) -> ResourceType {
    let names = &crd["status"]["acceptedNames"];
    let gvk = GroupVersionKind {
        group: text(crd, "spec.group").into(),
        version: text(version, "name").into(),
        kind: text(names, "kind").into(),
    };
    let document = version["schema"]["openAPIV3Schema"].clone();
    let status = version["subresources"]["status"].is_object();
    let scale = version["subresources"]["scale"]
        .as_object()
        .map(|_| ScalePaths::new(&version["subresources"]["scale"]));
    let boxed = |name: &str| -> Box<[Box<str>]> {
        list(names, name).iter().filter_map(Value::as_str).map(Into::into).collect()
    };
    let (columns, paths) = columns(version);
    let api_version: Box<str> = gvk.api_version().into();
    let custom = Arc::new(Version {
        definition: definition.clone(),
        schema: Schema::custom(&gvk, &document, status),
        structural: definition.structural(&api_version).cloned().unwrap_or_default(),
        api_version: api_version.clone(),
        document,
        status,
        columns: paths,
        selectable: list(version, "selectableFields")
            .iter()
            .map(|field| text(field, "jsonPath"))
            .map(|path| (path.trim_start_matches('.').into(), JsonPath::parse(path)))
            .collect(),
        deprecation: deprecation(&gvk, version),
        scale: scale.clone(),
    });
    let plural: Arc<str> = text(names, "plural").into();
    ResourceType {
        api_version,
        list_kind: text(names, "listKind").into(),
        singular: text(names, "singular").into(),
        short_names: boxed("shortNames"),
        categories: boxed("categories"),
        namespaced: text(crd, "spec.scope") == "Namespaced",
        verbs: Verb::ALL.into_iter().collect(),
        subresources: parts(&gvk, status, scale.is_some()),
        columns,
        resource_prefix: format!("{}/{plural}", gvk.group).into(),
        stored: false,
        hooks: Arc::new(Hooks::new(custom.clone())),
        name: GroupResource { group: gvk.group.clone(), resource: plural },
        custom: Some(custom),
        gvk,
    }
}

fn parts(gvk: &GroupVersionKind, status: bool, scale: bool) -> Box<[Subresource]> {
    let verbs: Verbs = [Verb::Get, Verb::Patch, Verb::Update].into_iter().collect();
    let mut parts = Vec::new();
    if status {
        let kind = gvk.clone();
        parts.push(Subresource { name: "status".into(), kind, foreign_kind: false, verbs });
    }
    if scale {
        let kind = GroupVersionKind {
            group: "autoscaling".into(),
            version: "v1".into(),
            kind: "Scale".into(),
        };
        parts.push(Subresource { name: "scale".into(), kind, foreign_kind: true, verbs });
    }
    parts.into()
}

/// The columns of a Table, and where their cells are found.
fn columns(version: &Value) -> (Box<[Column]>, Vec<JsonPath>) {
    let column =
        |name: &str, kind: &str, format: &str, priority: i64, description: Option<&str>| Column {
            name: name.into(),
            kind: kind.into(),
            format: format.into(),
            priority,
            description: description.map(Into::into),
        };
    let mut columns = vec![column("Name", "string", "name", 0, None)];
    let mut paths = Vec::new();
    let own = list(version, "additionalPrinterColumns");
    for given in own {
        let path = text(given, "jsonPath");
        let described = match text(given, "description") {
            "" => format!("Custom resource definition column (in JSONPath format): {path}"),
            words => words.to_owned(),
        };
        columns.push(column(
            text(given, "name"),
            text(given, "type"),
            text(given, "format"),
            int(given, "priority").unwrap_or(0),
            Some(&described),
        ));
        paths.push(JsonPath::parse(path));
    }
    if own.is_empty() {
        columns.push(column("Age", "date", "", 0, None));
        paths.push(JsonPath::parse(".metadata.creationTimestamp"));
    }
    (columns.into(), paths)
}

fn deprecation(gvk: &GroupVersionKind, version: &Value) -> Option<Box<str>> {
    if !flag(version, "deprecated") {
        return None;
    }
    Some(match at(version, "deprecationWarning").and_then(Value::as_str) {
        Some(words) => words.into(),
        None => format!("{} {} is deprecated", gvk.api_version(), gvk.kind).into(),
    })
}

/// How a version compares with others: `v2` before `v1`, before `v1beta2`, before `v1alpha1`, before all else by name.
fn preference(name: &str) -> (u8, u64, u64, std::cmp::Reverse<&str>) {
    let none = (0, 0, 0, std::cmp::Reverse(name));
    let Some(rest) = name.strip_prefix('v') else { return none };
    let split = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let Ok(major) = rest[..split].parse() else { return none };
    let (rank, minor) = match &rest[split..] {
        "" => return (3, major, 0, std::cmp::Reverse("")),
        stage => {
            if let Some(minor) = stage.strip_prefix("beta") {
                (2, minor)
            } else if let Some(minor) = stage.strip_prefix("alpha") {
                (1, minor)
            } else {
                return none;
            }
        }
    };
    minor.parse().map_or(none, |minor| (rank, major, minor, std::cmp::Reverse("")))
}

#[cfg(test)]
mod tests {
    use super::preference;

    #[test]
    fn versions_are_preferred_as_upstream_does() {
        let mut names =
            ["foo1", "v1alpha1", "v10", "v2", "v1beta2", "v11beta1", "foo10", "v1", "vx"];
        names.sort_by(|a, b| preference(b).cmp(&preference(a)));
        let want = ["v10", "v2", "v1", "v11beta1", "v1beta2", "v1alpha1", "foo1", "foo10", "vx"];
        assert_eq!(names, want);
    }
}
