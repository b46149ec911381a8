//! Data of a [`ResourceType`](crate::resource::ResourceType) from a CustomResourceDefinition: schemas, storage version,
//! conversion, and the pruning and defaults of objects ([`Definition::prune_and_default`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use evenkeel_apiextensions::conversion::ConversionWebhook;
use evenkeel_apiextensions::jsonpath::JsonPath;
use evenkeel_apiextensions::scale::ScalePaths;
use evenkeel_apiextensions::structural::Structural;
use evenkeel_apiextensions::{defaulting, pruning};
use evenkeel_apimachinery::schema::Schema;
use evenkeel_apimachinery::value::{flag, list, text};
use evenkeel_tasks::watch;
use serde_json::Value;

/// Data that all versions of a CustomResourceDefinition share.
pub(crate) struct Definition {
    /// `apiVersion` of stored objects.
    pub(crate) stored_as: Box<str>,
    /// Storage version, without the group.
    pub(crate) storage: Box<str>,
    /// Conversion webhook, for the strategy `Webhook`.
    pub(crate) webhook: Option<ConversionWebhook>,
    /// Schemas of all versions, served or not, by `apiVersion`.
    schemas: Vec<(Box<str>, Arc<Structural>)>,
    /// Whether the definition has a deletion timestamp, so that creates are refused.
    terminating: AtomicBool,
    /// Becomes true when the definition changes or is removed. This ends watches of its objects.
    replaced: watch::Receiver<bool>,
}

impl Definition {
    /// Parses a CustomResourceDefinition. `replaced` becomes true when it changes or is removed.
    pub(crate) fn new(crd: &Value, replaced: watch::Receiver<bool>) -> Self {
        let group = text(crd, "spec.group");
        let versions = list(crd, "spec.versions");
        let storage = versions.iter().find(|v| flag(v, "storage")).map_or("", |v| text(v, "name"));
        Self {
            stored_as: format!("{group}/{storage}").into(),
            storage: storage.into(),
            webhook: ConversionWebhook::of(crd),
            schemas: versions.iter().map(|version| schema_of(group, version)).collect(),
            terminating: AtomicBool::new(!text(crd, "metadata.deletionTimestamp").is_empty()),
            replaced,
        }
    }

    /// Returns whether the definition has a deletion timestamp.
    pub(crate) fn is_terminating(&self) -> bool {
        self.terminating.load(Ordering::Relaxed)
    }

    /// Records whether the definition has a deletion timestamp.
    pub(crate) fn set_terminating(&self, terminating: bool) {
        self.terminating.store(terminating, Ordering::Relaxed);
    }

    /// Returns the schema of one version.
    pub(crate) fn structural(&self, api_version: &str) -> Option<&Arc<Structural>> {
        self.schemas
            .iter()
            .find(|(version, _)| **version == *api_version)
            .map(|(_, structural)| structural)
    }

    /// Returns whether the definition has this version, served or not.
    pub(crate) fn has_version(&self, api_version: &str) -> bool {
        self.structural(api_version).is_some()
    }

    /// Removes fields that the schema of the object's version lacks, and nulls that it does not allow.
    ///
    /// Upstream: `schemaCoercingDecoder`, `structuralpruning.PruneWithOptions`, `PruneNonNullableNullsWithoutDefaults`.
    pub(crate) fn prune(&self, object: &mut Value) {
        if let Some(structural) = self.structural(text(object, "apiVersion")) {
            pruning::prune(object, structural, true);
            defaulting::prune_non_nullable_nulls(object, structural);
        }
    }

    /// Applies the defaults of a CustomResourceDefinition's schema: prunes the object by the schema of its own version, then
    /// sets the `default` of each absent field. The table in [`evenkeel_apiextensions::defaulting`] lists the callers.
    ///
    /// Upstream: `unstructuredDefaulter.Default`, `structuraldefaulting.PruneNonNullableNullsWithoutDefaults`,
    /// `structuraldefaulting.Default`.
    pub(crate) fn prune_and_default(&self, object: &mut Value) {
        self.prune(object);
        if let Some(structural) = self.structural(text(object, "apiVersion"))
            && !defaulting::set_defaults(object, structural)
        {
            tracing::warn!(
                api_version = text(object, "apiVersion"),
                kind = text(object, "kind"),
                namespace = text(&object["metadata"], "namespace"),
                name = text(&object["metadata"], "name"),
                "the defaults of the object are too large; some are not set"
            );
        }
    }

    /// Returns a receiver that becomes true when the definition changes or is removed.
    pub(crate) fn replaced(&self) -> watch::Receiver<bool> {
        self.replaced.clone()
    }
}

/// Version of a custom resource, with the data that built-in [`ResourceType`](crate::resource::ResourceType)s lack.
pub(crate) struct Version {
    /// Data that all versions share.
    pub(crate) definition: Arc<Definition>,
    /// Group and version: `example.com/v1`.
    pub(crate) api_version: Box<str>,
    /// Schema for decoding and managed fields.
    pub(crate) schema: Schema,
    /// Structural schema for pruning, defaults and validation.
    pub(crate) structural: Arc<Structural>,
    /// Unchanged `openAPIV3Schema` of the definition.
    pub(crate) document: Value,
    /// Whether the version has the subresource `status`.
    pub(crate) status: bool,
    /// Paths of the subresource `scale`, if the version has one.
    pub(crate) scale: Option<ScalePaths>,
    /// Paths of the columns after the name (`additionalPrinterColumns`).
    pub(crate) columns: Vec<JsonPath>,
    /// Names and paths of `selectableFields`.
    pub(crate) selectable: Vec<(Box<str>, JsonPath)>,
    /// Text of the `Warning` header for a deprecated version.
    pub(crate) deprecation: Option<Box<str>>,
}

fn schema_of(group: &str, version: &Value) -> (Box<str>, Arc<Structural>) {
    let structural = Structural::new(&version["schema"]["openAPIV3Schema"]);
    (format!("{group}/{}", text(version, "name")).into(), Arc::new(structural))
}
