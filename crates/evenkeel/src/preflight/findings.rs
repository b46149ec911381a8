//! Findings: reasons for and against the replacement of each program.

use super::{
    Program,
    observe::{LeaseState, Observed, ObservedProgram, ServerVersion},
    permissions::Permission,
    source::StaticPod,
};
use evenkeel_api::time::{Timestamp, saturating_add};
use evenkeel_component::features::{BINARY, Version};
use serde::Serialize;
use std::collections::BTreeMap;

/// Oldest supported minor version of API servers.
const OLDEST_MINOR: u32 = 35;

/// Weight of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Verdict {
    /// Nothing to do.
    Ok,
    /// Finding to read before the replacement.
    Warning,
    /// Stands against the replacement.
    Blocker,
}

/// Result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Finding {
    /// Program that the finding is about. `None` for the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) program: Option<Program>,
    /// Subject of the check: `version`, `permissions`, `lease`, `flags`, `configuration`, `controllers` or `manifest`.
    pub(super) check: &'static str,
    pub(super) verdict: Verdict,
    pub(super) message: String,
    /// The next step, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next_step: Option<String>,
}

impl Finding {
    fn new(check: &'static str, verdict: Verdict, message: impl Into<String>) -> Self {
        Self { program: None, check, verdict, message: message.into(), next_step: None }
    }

    fn next_step(self, step: impl Into<String>) -> Self {
        Self { next_step: Some(step.into()), ..self }
    }
}

/// Returns the findings: of the cluster, and of each program.
pub(super) fn findings(observed: &Observed) -> Vec<Finding> {
    let mut findings = vec![version(&observed.version)];
    for program in &observed.programs {
        let own = [
            permissions(program, &observed.version),
            vec![lease(program, observed.now)],
            flags(program),
            configuration(program).into_iter().collect(),
            controllers(program).into_iter().collect(),
            manifest(program),
        ];
        let about = |finding| Finding { program: Some(program.subject.program), ..finding };
        findings.extend(own.into_iter().flatten().map(about));
    }
    findings
}

/// Checks the API server's version against upstream's version skew policy: programs have the server's minor version, or the
/// previous one.
fn version(server: &ServerVersion) -> Finding {
    let ServerVersion { numbers, text } = server;
    let new = |verdict, message: String| Finding::new("version", verdict, message);
    let Some((major, minor)) = *numbers else {
        return new(Verdict::Blocker, format!("the API server's version {text:?} has no numbers"))
            .next_step("Check that the kubeconfig names a Kubernetes API server");
    };
    let server = Version { major, minor };
    let oldest = Version { major: BINARY.major, minor: OLDEST_MINOR };
    let next = Version { major: BINARY.major, minor: BINARY.minor + 1 };
    if server == BINARY {
        return new(Verdict::Ok, format!("the API server is {text}"));
    }
    if server < oldest || server > next {
        let message = format!(
            "the API server is {text}; these programs are made for API servers of {oldest} to {BINARY}"
        );
        return new(Verdict::Blocker, message).next_step("Choose a release for this version");
    }
    let message = format!("the API server is {text}, the programs are of {BINARY}");
    if server > BINARY {
        return new(Verdict::Warning, message).next_step(
            "The version skew policy allows programs that are one minor version older; upgrade them next",
        );
    }
    new(Verdict::Warning, message).next_step(format!(
        "The version skew policy wants programs that are not newer: add --emulated-version={server} to their flags"
    ))
}

/// Checks the permissions of a program's user, and of its controllers' service accounts. An older server's bootstrap policy
/// lacks permissions that later versions added.
fn permissions(program: &ObservedProgram, server: &ServerVersion) -> Vec<Finding> {
    let user = &program.subject.user;
    let new = |verdict, message: String| Finding::new("permissions", verdict, message);
    let (mut missing, mut errors) = (BTreeMap::<&str, Vec<&Permission>>::new(), Vec::new());
    for (permission, answer) in &program.permissions {
        match answer {
            Ok(true) => {}
            Ok(false) => {
                missing.entry(permission.account.unwrap_or(user)).or_default().push(permission);
            }
            Err(error) => errors.push(error),
        }
    }
    let is_newer = |permission: &&Permission| {
        server.numbers.zip(permission.added_in).is_some_and(|((major, minor), added)| {
            Version { major, minor } < Version { major: BINARY.major, minor: added }
        })
    };
    let mut findings = Vec::new();
    if let Some(error) = errors.first() {
        let (failed, all) = (errors.len(), program.permissions.len());
        let message =
            format!("{failed} of {all} permissions of {user} could not be reviewed: {error}");
        findings.push(
            new(Verdict::Blocker, message)
                .next_step("Use the kubeconfig of an administrator, or the one of the program"),
        );
    }
    for (account, permissions) in missing {
        let may_not =
            |permissions: &[&Permission]| format!("{account} may not: {}", listed(permissions));
        let (newer, permissions): (Vec<_>, Vec<_>) = permissions.into_iter().partition(is_newer);
        if !newer.is_empty() {
            findings.push(new(Verdict::Warning, may_not(&newer)).next_step(format!(
                "Roles of {} lack what later versions added; upgrade kube-apiserver, or allow it if a controller logs that it is forbidden",
                server.text
            )));
        }
        if permissions.is_empty() {
            continue;
        }
        let step = if account == user {
            format!("Bind the user to upstream's role {}", program.subject.program.user())
        } else {
            format!(
                "Restart kube-apiserver: it makes the role system:controller:{account} at its start"
            )
        };
        findings.push(new(Verdict::Blocker, may_not(&permissions)).next_step(step));
    }
    if findings.is_empty() {
        let all = program.permissions.len();
        findings
            .push(new(Verdict::Ok, format!("{user} has all {all} permissions that were reviewed")));
    }
    findings
}

/// Returns permissions as a list, with the verbs of each object joined: `create/patch events`.
fn listed(permissions: &[&Permission]) -> String {
    let mut objects: Vec<(String, Vec<&str>)> = Vec::new();
    for permission in permissions {
        let object = permission.object();
        match objects.iter_mut().find(|(known, _)| *known == object) {
            Some((_, verbs)) => verbs.push(&permission.verb),
            None => objects.push((object, vec![&permission.verb])),
        }
    }
    let texts: Vec<String> =
        objects.iter().map(|(object, verbs)| format!("{} {object}", verbs.join("/"))).collect();
    texts.join(", ")
}

/// Checks leader election. Without a common lease, the two programs would be active at the same time.
fn lease(program: &ObservedProgram, now: Timestamp) -> Finding {
    let new = |verdict, message: String| Finding::new("lease", verdict, message);
    if program.subject.checked.leader_election_is_off {
        return new(
            Verdict::Blocker,
            "leader election is off: both programs could work at once".to_owned(),
        )
        .next_step("Run the present program with --leader-elect=true first");
    }
    let name = format!("lease {}/{}", program.lease_name.namespace, program.lease_name.name);
    match &program.lease {
        Err(error) => new(Verdict::Blocker, format!("{name} cannot be read: {error}"))
            .next_step("Use the kubeconfig of an administrator, or the one of the program"),
        Ok(None) => new(Verdict::Warning, format!("there is no {name}: no program has led here"))
            .next_step("If the present program uses a lease of another name, pass its flags"),
        Ok(Some(state)) => held(&name, state, now),
    }
}

fn held(name: &str, state: &LeaseState, now: Timestamp) -> Finding {
    let LeaseState { holder, renewed, duration, is_coordinated } = state;
    let new = |verdict, message: String| Finding::new("lease", verdict, message);
    if holder.is_empty() {
        return new(Verdict::Warning, format!("{name} has no holder: nobody leads"));
    }
    let is_current = renewed.is_some_and(|renewed| saturating_add(renewed, *duration) >= now);
    if !is_current {
        return new(Verdict::Warning, format!("{name} expired: {holder} no longer renews it"))
            .next_step("Find out why the present program does not lead");
    }
    let how = if *is_coordinated { ", chosen by the API server" } else { "" };
    let seconds = duration.as_secs();
    new(Verdict::Ok, format!("{name} is held by {holder}{how}, for {seconds} s after each renewal"))
}

/// Judges the flags.
fn flags(program: &ObservedProgram) -> Vec<Finding> {
    let checked = &program.subject.checked;
    let new = |verdict, message: String| Finding::new("flags", verdict, message);
    let Some(source) = &program.subject.source else {
        let flag = match program.subject.program {
            Program::KubeScheduler => "--scheduler-flags",
            Program::KubeControllerManager => "--controller-manager-flags",
        };
        return vec![
            new(Verdict::Warning, "the flags of the present program were not checked".to_owned())
                .next_step(format!("Pass {flag}=FILE")),
        ];
    };
    let refused = checked.refused.iter().map(|error| {
        new(Verdict::Blocker, error.clone())
            .next_step(format!("Remove or correct the flag in {}", source.file.display()))
    });
    let warnings = checked.warnings.iter().map(|warning| new(Verdict::Warning, warning.clone()));
    let mut findings: Vec<Finding> = refused.chain(warnings).collect();
    let file = source.file.display();
    let accepted = match checked.accepted.len() {
        1 => format!("1 flag of {file} is accepted and has an effect"),
        count => format!("{count} flags of {file} are accepted and have an effect"),
    };
    findings.push(new(Verdict::Ok, accepted));
    findings
}

/// Judges the scheduler's configuration file.
fn configuration(program: &ObservedProgram) -> Option<Finding> {
    let checked = &program.subject.checked;
    let new = |verdict, message: String| Finding::new("configuration", verdict, message);
    match &checked.scheduler_names {
        None => checked.config_file.as_ref().map(|file| {
            new(Verdict::Warning, format!("{file} was not checked: this machine cannot read it"))
                .next_step("Run the command on the node, or pass --scheduler-config=FILE")
        }),
        Some(Err(error)) => Some(
            new(Verdict::Blocker, format!("the scheduler's configuration is refused: {error}"))
                .next_step(
                    "Correct the configuration; plugins of your own need a program of your own",
                ),
        ),
        Some(Ok(_)) if program.subject.source.is_none() => None,
        Some(Ok(names)) => Some(new(Verdict::Ok, format!("profiles: {}", names.join(", ")))),
    }
}

/// Names the enabled controllers that would no longer run.
fn controllers(program: &ObservedProgram) -> Option<Finding> {
    let missing = &program.subject.checked.missing_controllers;
    if missing.is_empty() {
        return None;
    }
    let names = missing.join(", ");
    let step = "If the cluster needs one, leave it to upstream's program with --controllers=NAME and a lease of its own";
    let finding = Finding::new(
        "controllers",
        Verdict::Warning,
        format!("enabled, but not implemented here: {names}"),
    );
    Some(finding.next_step(step))
}

/// Judges the static pod.
fn manifest(program: &ObservedProgram) -> Vec<Finding> {
    let Some(pod) = program.subject.source.as_ref().and_then(|source| source.pod.as_ref()) else {
        return Vec::new();
    };
    let StaticPod { image: _, wrapper, sets_user, proxies } = pod;
    let new = |verdict, message: String| Finding::new("manifest", verdict, message);
    let mut findings = Vec::new();
    if let Some(wrapper) = wrapper {
        let message = format!("the pod starts the program with {wrapper}, which the image lacks");
        findings.push(
            new(Verdict::Blocker, message)
                .next_step("Copy the program into upstream's image, see the page about kOps"),
        );
    }
    if !sets_user {
        let message =
            "the pod sets no user: the image's is nobody (65534), who may not read files of root";
        findings.push(new(Verdict::Warning, message.to_owned()).next_step(
            "Set runAsUser: 0 with all capabilities dropped, or let group 65534 read the files that the flags name",
        ));
    }
    for (name, url) in proxies {
        let scheme = url.split_once("://").map(|(scheme, _)| scheme);
        if scheme.is_some_and(|scheme| !scheme.eq_ignore_ascii_case("http")) {
            let message = format!("{name} names a proxy by a scheme other than http");
            findings.push(
                new(Verdict::Blocker, message)
                    .next_step("Use a proxy with an http:// URL, or remove the variable"),
            );
        }
    }
    findings
}
