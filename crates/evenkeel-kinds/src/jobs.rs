//! What the server adds to a new Job: labels by which its pods are known, and the selector on them.

use evenkeel_apimachinery::value::{at, flag, object_mut, set, text};
use serde_json::{Value, json};

/// Generates the selector of a job that does not bring its own (its uid is known by now).
pub(crate) fn create(job: &mut Value) {
    let manual = flag(job, "spec.manualSelector");
    if manual {
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
    let labels = at(job, "spec.template.metadata.labels").cloned();
    if let Some(labels) =
        labels.filter(|_| evenkeel_apimachinery::value::is_empty(job, "metadata.labels"))
    {
        set(job, "metadata.labels", labels);
    }
}
