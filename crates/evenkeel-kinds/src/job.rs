//! Generates a Job's selector and the labels that the selector matches.

use evenkeel_apimachinery::value::{flag, get, is_empty, object_mut, set, text};
use serde_json::{Value, json};

/// Generates the selector of a Job unless `spec.manualSelector` is set. The Job's uid must be set.
/// [`Context`](crate::strategy::Context) describes `has_template_labels`.
///
/// Upstream: `generateSelector`.
pub(crate) fn generate_selector(job: &mut Value, has_template_labels: bool) {
    if flag(job, "spec.manualSelector") {
        return;
    }
    let (uid, name) = (text(job, "metadata.uid").to_owned(), text(job, "metadata.name").to_owned());
    if let Some(labels) = object_mut(job, "spec.template.metadata.labels") {
        for key in ["controller-uid", "batch.kubernetes.io/controller-uid"] {
            labels.entry(key).or_insert_with(|| json!(uid));
        }
        for key in ["job-name", "batch.kubernetes.io/job-name"] {
            labels.entry(key).or_insert_with(|| json!(name));
        }
    }
    if let Some(labels) = object_mut(job, "spec.selector.matchLabels") {
        labels.entry("batch.kubernetes.io/controller-uid").or_insert_with(|| json!(uid));
    }
    let takes_template_labels = has_template_labels || is_empty(job, "metadata.labels");
    if takes_template_labels
        && let Some(labels) = get(job, "spec.template.metadata.labels").cloned()
    {
        set(job, "metadata.labels", labels);
    }
}
