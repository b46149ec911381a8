//! What a row of the resource table has beyond others when its resource is a custom one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use evenkeel_apiextensions::conversion::ConversionWebhook;
use evenkeel_apiextensions::jsonpath::JsonPath;
use evenkeel_apiextensions::scale::ScalePaths;
use evenkeel_apiextensions::structural::Structural;
use evenkeel_apiextensions::{defaulting, pruning};
use evenkeel_apimachinery::schema::Schema;
use evenkeel_apimachinery::value::{flag, list, text};
use serde_json::Value;
use tokio::sync::watch;

/// What all versions of a definition share.
pub(crate) struct Definition {
    /// apiVersion of the stored form.
    pub(crate) stored_as: Box<str>,
    /// Version of the stored form.
    pub(crate) storage: Box<str>,
    /// Who converts between versions, where they differ in more than their schemas.
    pub(crate) webhook: Option<ConversionWebhook>,
    /// The schemas of all versions, served or not, by apiVersion.
    schemas: Vec<(Box<str>, Arc<Structural>)>,
    /// Deletion was asked for: nothing new is made.
    terminating: AtomicBool,
    /// Told when the rows are replaced: watches end then.
    over: watch::Receiver<bool>,
}

impl Definition {
    /// Reads a definition. `over` becomes true when its rows are replaced.
    pub(crate) fn new(crd: &Value, over: watch::Receiver<bool>) -> Self {
        let group = text(crd, "spec.group");
        let versions = list(crd, "spec.versions");
        let storage = versions.iter().find(|v| flag(v, "storage")).map_or("", |v| text(v, "name"));
        Self {
            stored_as: format!("{group}/{storage}").into(),
            storage: storage.into(),
            webhook: ConversionWebhook::of(crd),
            schemas: versions.iter().map(|version| schema_of(group, version)).collect(),
            terminating: AtomicBool::new(!text(crd, "metadata.deletionTimestamp").is_empty()),
            over,
        }
    }

    /// Whether deletion was asked for.
    pub(crate) fn is_terminating(&self) -> bool {
        self.terminating.load(Ordering::Relaxed)
    }

    /// Deletion was asked for, or not.
    pub(crate) fn set_terminating(&self, terminating: bool) {
        self.terminating.store(terminating, Ordering::Relaxed);
    }

    /// Returns the schema of one of its versions.
    pub(crate) fn structural(&self, api_version: &str) -> Option<&Arc<Structural>> {
        self.schemas
            .iter()
            .find(|(version, _)| **version == *api_version)
            .map(|(_, structural)| structural)
    }

    /// Whether there is such a version.
    pub(crate) fn knows(&self, api_version: &str) -> bool {
        self.structural(api_version).is_some()
    }

    /// Removes the fields that the schema of the object's own version does not specify, and nulls that it does not allow.
    pub(crate) fn prune(&self, object: &mut Value) {
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
    /// Group and version: `example.com/v1`.
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

fn schema_of(group: &str, version: &Value) -> (Box<str>, Arc<Structural>) {
    let structural = Structural::new(&version["schema"]["openAPIV3Schema"]);
    (format!("{group}/{}", text(version, "name")).into(), Arc::new(structural))
}
