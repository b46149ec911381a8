use super::{
    findings::{Finding, Verdict, findings},
    flags,
    observe::{LeaseState, Observed, ServerVersion, observe},
    report::Report,
    *,
};
use evenkeel_api::time::Timestamp;
use evenkeel_test::TestServer;
use k8s_openapi::api::{coordination::v1::Lease, rbac::v1::ClusterRoleBinding};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::json;
use std::time::Duration;

const NOW: &str = "2026-01-01T00:00:00Z";

fn now() -> Timestamp {
    NOW.parse().expect("a time")
}

/// Returns a program with the flags of a file of this content, as the command reads them.
fn subject(program: Program, content: Option<&str>) -> Subject {
    let parse = |content: &str| {
        Source::parse(program, Path::new("/etc/manifest.yaml"), content.as_bytes())
            .expect("a source")
    };
    let source = content.map(parse);
    let arguments = source.as_ref().map(|source| source.arguments.clone()).unwrap_or_default();
    let checked = match program {
        Program::KubeControllerManager => flags::check_controller_manager(arguments),
        Program::KubeScheduler => flags::check_scheduler(arguments, None),
    };
    Subject { program, user: program.user().to_owned(), source, checked }
}

/// Returns the observations of a program whose user has all permissions, and whose lease is held.
fn observed(subject: Subject) -> Observed {
    let lease = LeaseState {
        holder: "node-1_a".to_owned(),
        renewed: Some(now()),
        duration: Duration::from_secs(15),
        is_coordinated: false,
    };
    let lease_name = flags::LeaseName {
        namespace: "kube-system".to_owned(),
        name: subject.program.name().to_owned(),
    };
    let accounts = &subject.checked.controller_accounts;
    let needed = permissions::needed(subject.program, Some(&lease_name), accounts, true);
    let needed = needed.expect("the policy");
    Observed {
        server: "https://127.0.0.1:6443/".to_owned(),
        version: ServerVersion { numbers: Some((1, 37)), text: "v1.37.1".to_owned() },
        user: "kubernetes-admin".to_owned(),
        now: now(),
        programs: vec![observe::ObservedProgram {
            subject,
            lease_name,
            lease: Ok(Some(lease)),
            permissions: needed.into_iter().map(|permission| (permission, Ok(true))).collect(),
        }],
    }
}

fn scheduler(content: &str) -> Observed {
    observed(subject(Program::KubeScheduler, Some(content)))
}

/// Returns a check's finding: one that is not ok, or else the ok one.
#[track_caller]
fn finding(observed: &Observed, check: &str) -> Finding {
    let of_check = findings(observed).into_iter().filter(|finding| finding.check == check);
    of_check.max_by_key(|finding| finding.verdict).expect("a finding of that check")
}

#[test]
fn manifests_of_kubeadm_have_no_blocker() {
    for (program, text) in [
        (
            Program::KubeControllerManager,
            include_str!("../../../../deploy/static-pod/kube-controller-manager.yaml"),
        ),
        (Program::KubeScheduler, include_str!("../../../../deploy/static-pod/kube-scheduler.yaml")),
    ] {
        let observed = observed(subject(program, Some(text)));
        let worst = findings(&observed).into_iter().max_by_key(|finding| finding.verdict);
        assert!(worst.as_ref().is_some_and(|worst| worst.verdict < Verdict::Blocker), "{worst:?}");
        let report = Report::new(&observed);
        assert!(report.is_ready);
        let text = report.text();
        for part in ["cp -p /etc/manifest.yaml /root/", "go back", "get lease", "up to 15 s"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}

#[test]
fn version_is_judged_by_the_skew_policy() {
    let mut observed = scheduler("--v=2");
    for (numbers, verdict) in [
        (Some((1, 34)), Verdict::Blocker),
        (Some((1, 35)), Verdict::Warning),
        (Some((1, 36)), Verdict::Warning),
        (Some((1, 37)), Verdict::Ok),
        (Some((1, 38)), Verdict::Warning),
        (Some((1, 39)), Verdict::Blocker),
        (Some((2, 0)), Verdict::Blocker),
        (None, Verdict::Blocker),
    ] {
        observed.version.numbers = numbers;
        assert_eq!(finding(&observed, "version").verdict, verdict, "{numbers:?}");
    }
    observed.version.numbers = Some((1, 36));
    let step = finding(&observed, "version").next_step.expect("a step");
    assert!(step.contains("--emulated-version=1.36"), "{step}");
}

#[test]
fn lease_is_held_expired_released_or_absent() {
    let mut observed = scheduler("--v=2");
    assert!(finding(&observed, "lease").message.contains("held by node-1_a"));
    observed.now = "2026-01-01T00:00:16Z".parse().expect("a time");
    let expired = finding(&observed, "lease");
    assert_eq!(expired.verdict, Verdict::Warning);
    assert!(expired.message.contains("expired"), "{expired:?}");
    let Ok(Some(state)) = &mut observed.programs[0].lease else { panic!("a lease") };
    state.holder.clear();
    assert!(finding(&observed, "lease").message.contains("no holder"));
    observed.programs[0].lease = Ok(None);
    assert!(finding(&observed, "lease").message.contains("there is no lease"));
    observed.programs[0].lease = Err("forbidden".to_owned());
    assert_eq!(finding(&observed, "lease").verdict, Verdict::Blocker);
}

#[test]
fn blockers_of_flags_and_manifest_are_found() {
    for (content, check, part) in [
        ("--leader-elect=false", "lease", "leader election is off"),
        ("--no-such-flag=1", "flags", "unknown flag: --no-such-flag"),
        (
            "kind: Pod\nspec: {containers: [{name: a, image: i, command: [/go-runner, /x/kube-scheduler]}]}",
            "manifest",
            "/go-runner",
        ),
        (
            "kind: Pod\nspec: {containers: [{name: kube-scheduler, image: i, env: [{name: HTTPS_PROXY, value: 'https://p'}]}]}",
            "manifest",
            "HTTPS_PROXY",
        ),
    ] {
        let observed = scheduler(content);
        let finding = finding(&observed, check);
        assert_eq!(finding.verdict, Verdict::Blocker, "{content}: {finding:?}");
        let all = format!("{:?}", findings(&observed));
        assert!(all.contains(part), "{part}: {all}");
        let report = Report::new(&observed);
        assert!(!report.is_ready && report.text().contains("there is no plan"));
    }
}

#[test]
fn unread_configuration_is_a_warning() {
    let finding = finding(&scheduler("--config=/no/such/file.yaml"), "configuration");
    assert_eq!(finding.verdict, Verdict::Warning);
    assert!(finding.message.contains("/no/such/file.yaml"), "{finding:?}");
}

#[test]
fn missing_permissions_name_account_and_permission() {
    let mut observed = observed(subject(Program::KubeControllerManager, None));
    for (permission, answer) in &mut observed.programs[0].permissions {
        let is_job = permission.account == Some("job-controller") && permission.object() == "pods";
        let is_lease = permission.account.is_none() && permission.object().starts_with("leases");
        if is_job || (is_lease && permission.verb == "update") {
            *answer = Ok(false);
        }
    }
    let messages: Vec<String> = findings(&observed)
        .into_iter()
        .filter(|finding| finding.verdict == Verdict::Blocker)
        .map(|finding| finding.message)
        .collect();
    assert_eq!(
        messages,
        [
            "job-controller may not: create/delete/list/patch/watch pods",
            "system:kube-controller-manager may not: update leases.coordination.k8s.io kube-controller-manager in kube-system",
        ]
    );
}

#[test]
fn only_permissions_that_later_versions_added_may_miss_on_an_older_server() {
    /// Returns the findings of permissions on a server of a minor version. `is_missing` selects the missing permissions.
    fn permission_findings(
        program: Program,
        minor: u32,
        is_missing: fn(&permissions::Permission) -> bool,
    ) -> Vec<Finding> {
        let mut observed = observed(subject(program, None));
        observed.version.numbers = Some((1, minor));
        for (permission, answer) in &mut observed.programs[0].permissions {
            *answer = Ok(!is_missing(permission));
        }
        findings(&observed).into_iter().filter(|finding| finding.check == "permissions").collect()
    }
    let added = |permission: &permissions::Permission| permission.resource == "devicetaintrules";
    for (minor, verdict) in [(35, Verdict::Warning), (36, Verdict::Warning), (37, Verdict::Blocker)]
    {
        let found = permission_findings(Program::KubeScheduler, minor, added);
        let [finding] = &*found else { panic!("{found:?}") };
        assert_eq!(finding.verdict, verdict, "{minor}: {finding:?}");
        assert!(finding.message.ends_with("get/list/watch devicetaintrules.resource.k8s.io"));
    }
    // A server of 1.36 already has the permissions that 1.36 added.
    let of_36 =
        |permission: &permissions::Permission| permission.resource == "resourceclaims/binding";
    assert_eq!(permission_findings(Program::KubeScheduler, 35, of_36)[0].verdict, Verdict::Warning);
    assert_eq!(permission_findings(Program::KubeScheduler, 36, of_36)[0].verdict, Verdict::Blocker);
    // A role that was reduced, and a lease that it does not name.
    for is_missing in [
        (|permission| permission.resource == "pods/binding")
            as fn(&permissions::Permission) -> bool,
        |permission| permission.resource == "leases" && permission.verb == "update",
    ] {
        let found = permission_findings(Program::KubeScheduler, 36, is_missing);
        assert!(found.len() == 1 && found[0].verdict == Verdict::Blocker, "{found:?}");
    }
    let both = permission_findings(Program::KubeScheduler, 36, |permission| {
        permission.resource == "pods/binding" || permission.resource == "devicetaintrules"
    });
    let verdicts: Vec<Verdict> = both.iter().map(|finding| finding.verdict).collect();
    assert_eq!(verdicts, [Verdict::Warning, Verdict::Blocker], "{both:?}");
    let of_jobs = permission_findings(Program::KubeControllerManager, 36, |permission| {
        permission.account == Some("job-controller") && permission.object() == "pods"
    });
    assert_eq!(of_jobs[0].verdict, Verdict::Blocker, "{of_jobs:?}");
}

#[test]
fn a_right_that_an_older_role_grants_is_not_new() {
    let accounts = ["device-taint-eviction-controller", "job-controller"];
    let needed = |own| permissions::needed(Program::KubeControllerManager, None, &accounts, own);
    let events = |permissions: &[permissions::Permission], account| {
        let mut found = permissions.iter().filter(|permission| {
            permission.account == account
                && permission.verb == "create"
                && permission.object() == "events"
        });
        found.next().expect("the permission").added_in
    };
    let own = needed(true).expect("the policy");
    assert_eq!(events(&own, Some(accounts[0])), Some(36));
    assert_eq!(events(&own, Some(accounts[1])), None);
    assert_eq!(events(&needed(false).expect("the policy"), None), None);
}

#[test]
fn permissions_are_those_of_the_enabled_controllers_and_of_served_resources() {
    let lines =
        "--use-service-account-credentials=true --controllers=job-controller,cronjob-controller";
    let checked = subject(Program::KubeControllerManager, Some(lines)).checked;
    assert_eq!(checked.controller_accounts, ["cronjob-controller", "job-controller"]);
    let accounts = &checked.controller_accounts;
    let needed = |own| permissions::needed(Program::KubeControllerManager, None, accounts, own);
    let permissions = needed(true).expect("the policy");
    let of_jobs =
        permissions.iter().filter(|permission| permission.account == Some("job-controller"));
    let creates: Vec<String> = of_jobs
        .filter(|permission| permission.verb == "create")
        .map(permissions::Permission::object)
        .collect();
    assert_eq!(creates, ["pods", "events", "events.events.k8s.io"]);
    assert!(
        permissions.iter().all(|permission| permission.group != "coordination.k8s.io"),
        "no lease"
    );
    let of_user = needed(false).expect("the policy");
    assert!(of_user.iter().all(|permission| permission.account.is_none()));
    assert!(of_user.len() < permissions.len(), "each once");

    let pods = evenkeel_api::Kind::new("", "v1", "Pod", "pods", true);
    let resource = evenkeel_runtime::discovery::Resource {
        kind: pods,
        singular: "pod".into(),
        verbs: Box::default(),
        short_names: Box::default(),
        categories: Box::default(),
        subresources: Box::default(),
        preferred: true,
    };
    let served = evenkeel_runtime::discovery::ServerResources {
        resources: vec![resource],
        failed: Vec::new(),
    };
    let groups: std::collections::BTreeSet<(&str, &str)> = permissions
        .iter()
        .filter(|permission| permission.is_served(&served))
        .map(|permission| (&*permission.group, &*permission.resource))
        .collect();
    assert_eq!(groups, [("", "pods"), ("*", "*")].into_iter().collect());
}

fn both_programs() -> Vec<Subject> {
    Program::ALL.into_iter().map(|program| subject(program, None)).collect()
}

#[tokio::test(start_paused = true)]
async fn bootstrap_roles_have_all_permissions() {
    let clock = Clock::starting_at(now());
    let server = TestServer::builder().clock(clock.clone()).start().await.expect("a server");
    let lease: Lease = serde_json::from_value(json!({
        "metadata": {"name": "kube-scheduler"},
        "spec": {"holderIdentity": "a_1", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"},
    }))
    .expect("a lease");
    let leases = Api::namespaced(server.client(), "kube-system");
    leases.create(&PostParams::default(), &lease).await.expect("created");
    let observed = observe(server.client(), "in-process".to_owned(), both_programs(), &clock);
    let observed = observed.await.expect("observed");
    let permissions =
        findings(&observed).into_iter().filter(|finding| finding.check == "permissions");
    let permissions: Vec<Finding> = permissions.collect();
    assert_eq!(permissions.len(), 2, "{permissions:#?}");
    assert!(permissions.iter().all(|finding| finding.verdict == Verdict::Ok), "{permissions:#?}");
    assert_eq!(finding(&observed, "version").verdict, Verdict::Ok);
    let held = observed.programs[0].lease.clone().expect("read").expect("a lease");
    assert_eq!((held.holder.as_str(), held.duration.as_secs()), ("a_1", 15));
    assert_eq!(observed.programs[1].lease, Ok(None));
}

#[tokio::test(start_paused = true)]
async fn permissions_without_the_binding_are_missing() {
    let clock = Clock::starting_at(now());
    let server = TestServer::builder().clock(clock.clone()).start().await.expect("a server");
    let bindings = Api::<ClusterRoleBinding>::all(server.client());
    for name in ["system:kube-scheduler", "system:volume-scheduler"] {
        bindings.delete(name, &DeleteParams::default()).await.expect("deleted");
    }
    let observed = observe(server.client(), "in-process".to_owned(), both_programs(), &clock);
    let observed = observed.await.expect("observed");
    let missing = finding(&observed, "permissions");
    assert_eq!(missing.verdict, Verdict::Blocker);
    assert_eq!(missing.program, Some(Program::KubeScheduler));
    assert!(missing.message.contains("create pods/binding"), "{missing:?}");
}

#[tokio::test(start_paused = true)]
async fn permissions_of_others_are_reviewed_by_users_who_may() {
    let clock = Clock::starting_at(now());
    let server = TestServer::builder().clock(clock.clone()).start().await.expect("a server");
    let kube = server.client_as("system:kube-scheduler", ["system:authenticated"]);
    let own =
        observe(kube, "in-process".to_owned(), both_programs(), &clock).await.expect("observed");
    assert_eq!(own.user, "system:kube-scheduler");
    let verdicts: Vec<(Option<Program>, Verdict)> = findings(&own)
        .into_iter()
        .filter(|finding| finding.check == "permissions")
        .map(|finding| (finding.program, finding.verdict))
        .collect();
    // Upstream's role of the scheduler also allows reviews of other users.
    assert_eq!(
        verdicts,
        [
            (Some(Program::KubeScheduler), Verdict::Ok),
            (Some(Program::KubeControllerManager), Verdict::Ok),
        ]
    );
    let nobody = server.client_as("nobody", ["system:authenticated"]);
    let nobody =
        observe(nobody, "in-process".to_owned(), both_programs(), &clock).await.expect("observed");
    let permissions = finding(&nobody, "permissions");
    assert_eq!(permissions.verdict, Verdict::Blocker);
    assert!(permissions.message.contains("could not be reviewed"), "{permissions:?}");
}
