//! The plan: steps of the replacement and of the rollback of each program.

use super::{
    Program,
    observe::{Observed, ObservedProgram},
};
use serde::Serialize;

/// Steps for one program, to perform on one control plane node after the other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProgramPlan {
    pub(super) program: Program,
    /// Steps of the replacement.
    pub(super) replace: Vec<String>,
    /// Checks after it.
    pub(super) watch: Vec<String>,
    /// Steps of the way back.
    pub(super) go_back: Vec<String>,
}

/// Returns the plans, in the order in which the programs are replaced.
pub(super) fn plans(observed: &Observed) -> Vec<ProgramPlan> {
    observed.programs.iter().map(plan).collect()
}

fn plan(observed: &ObservedProgram) -> ProgramPlan {
    let program = observed.subject.program;
    let (replace, go_back) = match &observed.subject.source {
        Some(source) if source.pod.is_some() => {
            static_pod(observed, &source.file.display().to_string())
        }
        _ => process(program),
    };
    ProgramPlan { program, replace, watch: watch(observed), go_back }
}

/// Steps for a static pod. The copy of the manifest is outside the folder, because the kubelet runs every file in it.
fn static_pod(observed: &ObservedProgram, file: &str) -> (Vec<String>, Vec<String>) {
    let name = observed.subject.program.name();
    let pod = observed.subject.source.as_ref().and_then(|source| source.pod.as_ref());
    let image = pod.map(|pod| pod.image.as_str()).unwrap_or_default();
    let copy = format!("/root/{name}.upstream.yaml");
    let mut edit =
        format!("In a copy of {file}, set the image of {name} (now {image}) to Evenkeel's");
    if pod.is_some_and(|pod| !pod.sets_user) {
        edit.push_str(
            "; add to the container: securityContext: {runAsUser: 0, allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}",
        );
    }
    let replace = vec![
        format!("cp -p {file} {copy}"),
        edit,
        format!(
            "Move the edited file over {file}: the kubelet stops upstream's program and starts Evenkeel's"
        ),
    ];
    let go_back = vec![
        format!("cp -p {copy} {file}"),
        "Evenkeel's program releases the lease when it stops, so that upstream's leads at once"
            .to_owned(),
    ];
    (replace, go_back)
}

/// Steps for a program that a service manager or another distribution starts.
fn process(program: Program) -> (Vec<String>, Vec<String>) {
    let name = program.name();
    let replace = vec![
        format!("Stop upstream's {name} on one control plane node"),
        format!("Start Evenkeel's {name} there with the same flags and the same user"),
    ];
    let go_back = vec![
        format!("Stop Evenkeel's {name}, which releases the lease"),
        format!("Start upstream's {name} with the same flags"),
    ];
    (replace, go_back)
}

fn watch(observed: &ObservedProgram) -> Vec<String> {
    let (program, lease) = (observed.subject.program, &observed.lease_name);
    let mut watch = vec![
        format!("kubectl -n {} get lease {}", lease.namespace, lease.name),
        format!("curl -sk 'https://127.0.0.1:{}/healthz?verbose'", program.port()),
    ];
    if let Ok(Some(state)) = &observed.lease
        && !state.holder.is_empty()
    {
        watch.push(format!(
            "With one control plane node, up to {} s pass without a leader: upstream's program may keep its lease when it stops",
            state.duration.as_secs()
        ));
    }
    watch.push("Repeat the steps on the next control plane node".to_owned());
    watch
}
