//! Pods that a Job creates, as JSON.

use super::{
    per_index::{self, IndexFailureCounts},
    pod,
};
use crate::wire;
use evenkeel_api::{
    View,
    template::Template,
    views::{Job, Pod},
};
use evenkeel_runtime::plan::Target;
use serde_json::{Value, json};

/// Maximum length of a prefix (`generateName`). The API server appends five characters, and a name has at most 63.
const MAX_PREFIX_LENGTH: usize = 58;

/// Returns the JSON of a pod to create. `replaced` is the failed pod of the same index that the new pod replaces.
pub(super) fn pod_json(job: &Job, index: Option<u32>, replaced: Option<&Pod>) -> String {
    let owner = wire::controller_reference(&Target::of(Job::kind(), &job.meta));
    let mut template = job.spec.template.with_finalizer(pod::FINALIZER);
    let mut prefix = format!("{}-", job.meta.name);
    if let Some(index) = index {
        template = with_index(&template, job, index, replaced);
        prefix = prefix_with_index(&job.meta.name, index);
    }
    template.pod_json(&prefix, &job.meta.namespace, &owner)
}

/// Returns the prefix of the names of an index's pods. Shortens the Job's name if the prefix would be too long.
fn prefix_with_index(job_name: &str, index: u32) -> String {
    let suffix = format!("-{index}-");
    let available = MAX_PREFIX_LENGTH.saturating_sub(suffix.len()).min(job_name.len());
    // Names are ASCII, so `get` fails at no boundary of a character.
    format!("{}{suffix}", job_name.get(..available).unwrap_or(job_name))
}

/// Adds the index to the template's labels, annotations, host name and environment; with `backoffLimitPerIndex`, also
/// the failure counts of the index to its annotations.
fn with_index(template: &Template, job: &Job, index: u32, replaced: Option<&Pod>) -> Template {
    let text = index.to_string();
    let mut template = template
        .with_label(pod::COMPLETION_INDEX, &text)
        .with_annotation(pod::COMPLETION_INDEX, &text)
        .with_spec(|spec| {
            spec["hostname"] = format!("{}-{index}", job.meta.name).into();
            for field in ["containers", "initContainers"] {
                let containers = spec[field].as_array_mut().into_iter().flatten();
                containers.for_each(add_completion_index_env);
            }
        });
    if job.spec.backoff_limit_per_index.is_some() {
        let IndexFailureCounts { counted, ignored } =
            per_index::new_index_failure_counts(job, replaced);
        template = template.with_annotation(pod::INDEX_FAILURE_COUNT, &counted.to_string());
        if ignored > 0 {
            template =
                template.with_annotation(pod::INDEX_IGNORED_FAILURE_COUNT, &ignored.to_string());
        }
    }
    template
}

/// Adds the variable `JOB_COMPLETION_INDEX`, unless the container has it. Upstream: `addCompletionIndexEnvVariable`.
fn add_completion_index_env(container: &mut Value) {
    const NAME: &str = "JOB_COMPLETION_INDEX";
    let Some(container) = container.as_object_mut() else { return };
    let env = container.entry("env").or_insert_with(|| json!([]));
    let Some(env) = env.as_array_mut() else { return };
    if env.iter().any(|variable| variable["name"] == NAME) {
        return;
    }
    let path = format!("metadata.labels['{}']", pod::COMPLETION_INDEX);
    env.push(json!({ "name": NAME, "valueFrom": { "fieldRef": { "fieldPath": path } } }));
}
