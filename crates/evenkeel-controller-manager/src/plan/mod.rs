//! `--plan`: prints the writes that a manager would send to a cluster now. It writes no lease, event or object.
//!
//! The enabled controllers run over a read-only connection until all of them are idle. Operators use it before
//! they replace another program with this one.

mod dry_run;

use crate::{controllers, options::Options};
use anyhow::{Context, Result};
pub use dry_run::DryRun;
use dry_run::{describe_busy, describe_failing};
use evenkeel_api::time::SignedDuration;
use evenkeel_controllers::{
    needs::{Gates, Resources},
    wiring::descriptor::{ControllerContext, Descriptor},
};
use evenkeel_runtime::{
    cache::Caches,
    client::{self, Client, ConnectOptions, RecordedWrites},
    clock::Clock,
    controller::Env,
    introspect::{ControllerReport, Introspection},
    tasks::Tasks,
};
use prometheus::Registry;
use std::{process::ExitCode, sync::Arc, time::Duration};

/// Default timeout of the dry run.
pub const SYNC_TIMEOUT: Duration = Duration::from_secs(120);
/// Time without a request after which the controllers have finished.
const IDLE_PERIOD: Duration = Duration::from_secs(2);
/// Interval at which the dry run reports its unfinished work.
const REPORT_INTERVAL: SignedDuration = SignedDuration::from_secs(5);
/// Interval between checks that the controllers have finished.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Maximum time for tasks to end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Settings of the dry run.
pub struct DryRunSettings<'a> {
    /// Controllers to run.
    pub chosen: &'a [Descriptor],
    /// Options of the controllers.
    pub options: evenkeel_controllers::options::Options,
    /// Feature gates of the controllers.
    pub gates: Gates,
    /// Maximum duration. After it, unfinished controllers are reported.
    pub timeout: Duration,
    /// Called every five seconds with the run's unfinished work, if there is any.
    pub report_waits: fn(&[String]),
}

/// Prints the unfinished work of a dry run to standard error.
pub fn print_waits(waits: &[String]) {
    use std::io::Write as _;
    // A write error is ignored, because nothing depends on the message.
    let _ = writeln!(std::io::stderr(), "waiting: {}", waits.join("; "));
}

/// Runs the controllers on the cluster of `kube`, and returns their planned writes.
///
/// # Errors
/// Fails if discovery fails, or a controller cannot start with its options.
pub async fn dry_run(
    kube: kube::Client,
    clock: &Clock,
    settings: DryRunSettings<'_>,
) -> Result<DryRun> {
    let (kube, recorded) = client::dry_run(kube);
    // A negative QPS means no rate limit.
    let client = |name: &str| {
        Client::builder(kube.clone(), clock.clone()).qps(-1.0).user_agent(name).build()
    };
    let resources = client("plan").api_resources().await.context("discovery failed")?;
    let registry = Registry::new();
    let caches = Caches::new(client("plan"), clock.clone(), &registry);
    let env = Env::new(client("plan"), caches.clone(), clock.clone(), &registry);
    let introspection = env.introspection.clone();
    let (reflectors, tasks) = (Tasks::new(), Tasks::new());
    let shared_client = client("plan");
    let mut context = ControllerContext::new(
        env,
        Arc::new(move |_| shared_client.clone()),
        tasks.clone(),
        registry,
        settings.options,
    );
    context.gates = settings.gates;
    context.resources = Resources::discovered(&resources);
    let (mut names, mut unfinished) = (Vec::new(), Vec::new());
    for descriptor in settings.chosen {
        match context.start(descriptor)? {
            None => names.push(descriptor.name.to_owned()),
            Some(unmet) => unfinished.push(format!("{} was not asked: {unmet}", descriptor.name)),
        }
    }
    caches.start(&reflectors);
    let (timeout, report_waits) = (settings.timeout, settings.report_waits);
    unfinished
        .extend(wait_until_idle(&introspection, &recorded, clock, timeout, report_waits).await);
    for tasks in [tasks, reflectors] {
        tasks.shut_down(SHUTDOWN_TIMEOUT).await;
    }
    Ok(DryRun {
        writes: recorded.writes(),
        events: recorded.events(),
        controllers: names,
        unfinished,
    })
}

/// Waits until all controllers are idle. Returns the failing controllers, and at the timeout also the busy
/// ones.
async fn wait_until_idle(
    introspection: &Introspection,
    recorded: &RecordedWrites,
    clock: &Clock,
    timeout: Duration,
    report_waits: fn(&[String]),
) -> Vec<String> {
    let deadline = clock.now() + timeout;
    let mut reported = clock.now();
    let (mut requests, mut idle_since) = (recorded.requests(), clock.now());
    let idle_period = SignedDuration::try_from(IDLE_PERIOD).unwrap_or_default();
    loop {
        clock.sleep(POLL_INTERVAL).await;
        let now = clock.now();
        let reports = reports(introspection);
        let busy = describe_busy(&reports, now);
        let sent = recorded.requests();
        if sent != requests || !busy.is_empty() {
            (requests, idle_since) = (sent, now);
        }
        if now.duration_since(idle_since) >= idle_period {
            return describe_failing(&reports);
        }
        if now.duration_since(reported) >= REPORT_INTERVAL && !busy.is_empty() {
            report_waits(&busy);
            reported = now;
        }
        if now >= deadline {
            return busy.into_iter().chain(describe_failing(&reports)).collect();
        }
    }
}

/// Returns the reports of all controllers.
fn reports(introspection: &Introspection) -> Vec<ControllerReport> {
    introspection.all().iter().map(|inspect| inspect.report()).collect()
}

/// Returns the settings with which the program would run these controllers.
fn settings<'a>(options: &Options, chosen: &'a [Descriptor]) -> Result<DryRunSettings<'a>> {
    Ok(DryRunSettings {
        chosen,
        options: controllers::options(options)?,
        gates: controllers::gates(options),
        timeout: SYNC_TIMEOUT,
        report_waits: print_waits,
    })
}

/// Runs the program with `--plan`.
pub(crate) async fn run(options: Options) -> Result<ExitCode> {
    let clock = Clock::system();
    let connect = ConnectOptions {
        kubeconfig: options.client.kubeconfig.clone().map(Into::into),
        only_in_pod: true,
        server: options.client.master.clone(),
        ..ConnectOptions::default()
    };
    let kube = client::transport(&client::config(&connect).await?)?;
    let chosen = controllers::enabled_descriptors(&options);
    let dry_run = dry_run(kube, &clock, settings(&options, &chosen)?).await?;
    #[expect(clippy::print_stdout, reason = "the program's output is the plan")]
    {
        print!("{}", dry_run.text());
    }
    Ok(dry_run.exit_code())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use evenkeel_controllers::wiring::descriptor::descriptors;
    use evenkeel_test::TestServer;
    use serde_json::{Value, json};

    /// Sends a request, and returns the response's JSON.
    async fn send(client: &Client, method: &str, path: &str, body: Value) -> Value {
        let bytes = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
        let request = http::Request::builder().method(method).uri(path);
        let request = request.header("content-type", "application/json").body(bytes);
        let response = client.raw(request.expect("a request")).await.expect("an answer");
        serde_json::from_slice(response.body()).expect("JSON")
    }

    /// Returns the current revision of the server's store.
    async fn revision(client: &Client) -> String {
        let list = send(client, "GET", "/api/v1/configmaps?limit=1", Value::Null).await;
        list["metadata"]["resourceVersion"].as_str().expect("a version").to_owned()
    }

    /// Returns a Deployment `web` with two replicas.
    fn deployment() -> Value {
        let labels = json!({"app": "web"});
        json!({
            "metadata": {"name": "web"},
            "spec": {
                "replicas": 2, "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [{"name": "a", "image": "a"}]},
                },
            },
        })
    }

    #[tokio::test(start_paused = true)]
    async fn planned_writes_are_reported_and_not_sent() {
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().expect("a time"));
        let server = TestServer::builder().clock(clock.clone()).start().await.expect("a server");
        let kube = server.client();
        let client = Client::new(kube.clone(), clock.clone());
        let path = "/apis/apps/v1/namespaces/default/deployments";
        send(&client, "POST", path, deployment()).await;
        let orphan = json!({"metadata": {"name": "orphan", "ownerReferences": [{
            "apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "u",
        }]}});
        send(&client, "POST", "/api/v1/namespaces/default/configmaps", orphan).await;
        let before = revision(&client).await;
        let chosen = descriptors();
        let settings = DryRunSettings {
            chosen: &chosen,
            options: evenkeel_controllers::options::Options::default(),
            gates: Gates::default(),
            timeout: SYNC_TIMEOUT,
            report_waits: |_| {},
        };
        let dry_run = dry_run(kube, &clock, settings).await.expect("a plan");
        assert_eq!(revision(&client).await, before, "nothing was written");
        let text = dry_run.text();
        for line in [
            "deployment-controller\n  create replicasets.apps default/web-",
            "  update status of deployments.apps default/web: ",
            "  delete configmaps default/orphan\n",
            "  create serviceaccounts default/default\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        assert!(
            !text.contains("pods default"),
            "the plan has no pods of the planned ReplicaSet: {text}"
        );
        assert_eq!(dry_run.exit_code(), ExitCode::from(2));
        assert!(
            client.get_metadata(&lease(), "kube-system", "kube-controller-manager").await.is_err()
        );
    }

    #[test]
    fn planned_controllers_have_the_gates_of_the_program() {
        let arguments = ["--plan", "--feature-gates=PodDeletionCost=false"];
        let options = crate::options::from_arguments(arguments.map(str::to_owned));
        let options = options.expect("options");
        let settings = settings(&options, &[]).expect("settings");
        assert!(!settings.gates.enabled("PodDeletionCost"));
        assert!(settings.gates.enabled("VolumeAttributesClass"), "on by default");
        assert!(settings.gates.enabled("Graduated"), "v1.37 does not know this gate");
    }

    /// Returns the kind of leases.
    fn lease() -> evenkeel_api::Kind {
        evenkeel_api::Kind::new("coordination.k8s.io", "v1", "Lease", "leases", true)
    }

    /// A terminating namespace is reconciled repeatedly until its objects are deleted.
    #[tokio::test(start_paused = true)]
    async fn periodic_keys_are_not_waited_for() {
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().expect("a time"));
        let server = TestServer::builder().clock(clock.clone()).start().await.expect("a server");
        let client = Client::new(server.client(), clock.clone());
        send(&client, "POST", "/api/v1/namespaces", json!({"metadata": {"name": "dying"}})).await;
        let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/held"]}});
        send(&client, "POST", "/api/v1/namespaces/dying/configmaps", held).await;
        send(&client, "DELETE", "/api/v1/namespaces/dying", Value::Null).await;
        // The controller does not handle a namespace for its first seconds.
        clock.sleep(Duration::from_secs(10)).await;
        let settings = DryRunSettings {
            chosen: &descriptors(),
            options: evenkeel_controllers::options::Options::default(),
            gates: Gates::default(),
            timeout: SYNC_TIMEOUT,
            report_waits: |waits| panic!("nothing is awaited for long: {waits:?}"),
        };
        let dry_run = dry_run(server.client(), &clock, settings).await.expect("a plan");
        let is_left_out = |note: &String| note.contains(" was not asked: ");
        assert!(dry_run.unfinished.iter().all(is_left_out), "{}", dry_run.text());
        assert!(dry_run.text().contains("delete all configmaps in dying"), "{}", dry_run.text());
    }

    #[tokio::test(start_paused = true)]
    async fn a_converged_cluster_needs_no_writes() {
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().expect("a time"));
        let kube = TestServer::start().await.expect("a server").client();
        let chosen = [evenkeel_controllers::apps::deployment::DESCRIPTOR];
        let settings = DryRunSettings {
            chosen: &chosen,
            options: evenkeel_controllers::options::Options::default(),
            gates: Gates::default(),
            timeout: SYNC_TIMEOUT,
            report_waits: |_| {},
        };
        let dry_run = dry_run(kube, &clock, settings).await.expect("a plan");
        assert_eq!(dry_run.text(), "1 controller would write nothing.\n");
        assert_eq!(dry_run.exit_code(), ExitCode::SUCCESS);
    }
}
