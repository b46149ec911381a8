//! Options of the components, from flags and the configuration file.

use super::{
    config::{Components, Equipment, Nodes, Outage, Pool, outages},
    options::Args,
};
use anyhow::{Context, Error, Result, bail};
use evenkeel::schedulers::Schedulers;
use evenkeel_cloud::ip_pool::{Config, IpPool, PoolConfig};
use evenkeel_component::flags::Invocation;
use evenkeel_controller_manager::options as manager;
use evenkeel_controllers::{needs::Gates, wiring::descriptor::Descriptor};
use evenkeel_plane::{NodeGroup, NodeOptions, Plane, PlaneOptions};
use evenkeel_runtime::clock::Clock;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    sync::Arc,
};

/// Controllers that run by default although upstream's program leaves them out: kubeadm enables them for bootstrap tokens.
const BOOTSTRAP_CONTROLLERS: [&str; 2] =
    ["bootstrap-signer-controller", "token-cleaner-controller"];

/// Returns the schedulers and their configurations.
pub(super) fn schedulers(args: &Args) -> Schedulers {
    let Components { scheduler, feature_gates, .. } = &args.components;
    let schedulers = scheduler.schedulers(feature_gates);
    if args.no_scheduler { Schedulers { configs: Vec::new(), ..schedulers } } else { schedulers }
}

/// Starts controllers, schedulers, nodes and load balancers.
///
/// # Errors
/// Fails if a component cannot start with its options.
pub(super) fn start(
    args: &Args,
    kube: &kube::Client,
    clock: &Clock,
    options: PlaneOptions,
) -> Result<Plane> {
    // The first scheduler is already in the other components' options.
    let more = schedulers(args).options()?.into_iter().skip(1).collect();
    Ok(Plane::start_with_schedulers(kube, clock, options, more)?)
}

/// Returns the options of controllers, the first scheduler, nodes and load balancers.
///
/// # Errors
/// Fails if a controller, a feature gate, a scheduler's configuration or the pool is invalid.
pub(super) fn options(args: &Args) -> Result<PlaneOptions> {
    let mut options = PlaneOptions::all(args.node_count());
    if let (None, Some(groups)) = (args.nodes, &args.components.nodes) {
        options.nodes.nodes = nodes(groups)?;
    }
    configure(&mut options, args)?;
    if args.no_controllers {
        options.controllers.clear();
    }
    options.scheduler = schedulers(args).options()?.into_iter().next();
    if !options.controllers.is_empty()
        && let Some((config, source)) = pools(args)
    {
        options.cloud = Some(Arc::new(IpPool::new(&config).context(source)?));
    }
    Ok(options)
}

/// Returns the pools of load balancer addresses, and the name of their setting.
fn pools(args: &Args) -> Option<(Config, &'static str)> {
    let named = &args.components.load_balancer_pools;
    if named.is_empty() {
        return Some((Config::of_addresses(args.pool()?), "--load-balancer-pool"));
    }
    let pools = named
        .iter()
        .map(|Pool { name, addresses }| PoolConfig {
            name: name.clone(),
            addresses: addresses.clone(),
        })
        .collect();
    Some((Config { pools, nodes: None }, "loadBalancerPools"))
}

/// Returns the equipment of the nodes by their names. Nodes that the flag adds have none.
///
/// # Errors
/// Fails if an amount or a name is invalid.
pub(super) fn equipment(args: &Args) -> Result<BTreeMap<String, Equipment>> {
    match (args.nodes, &args.components.nodes) {
        (None, Some(groups)) => Equipment::of(groups).map_err(Error::msg),
        _ => Ok(BTreeMap::new()),
    }
}

/// Returns the names of the nodes of the configuration file's groups.
///
/// # Errors
/// Fails if two groups have the same name.
pub(super) fn group_nodes(args: &Args) -> Result<Vec<String>> {
    match (args.nodes, &args.components.nodes) {
        (None, Some(groups)) => Ok(nodes(groups)?.into_iter().map(|node| node.name).collect()),
        _ => Ok(Vec::new()),
    }
}

/// Returns all simulated nodes: the `copied` nodes, which stay unchanged, and the nodes of the flag or of the
/// configuration file. A cluster with copied nodes gets no other nodes by default.
///
/// # Errors
/// Fails if two groups have the same name.
pub(super) fn all_nodes(args: &Args, copied: Vec<NodeOptions>) -> Result<Vec<NodeOptions>> {
    let others = match (args.nodes, &args.components.nodes) {
        (None, Some(groups)) => nodes(groups)?,
        (None, None) if !copied.is_empty() => Vec::new(),
        _ => PlaneOptions::all(args.node_count()).nodes.nodes,
    };
    Ok(beside(copied, others))
}

/// Adds nodes to the existing ones, except nodes whose name exists. Replaces an address that an existing node has by the next
/// free one.
fn beside(existing: Vec<NodeOptions>, others: Vec<NodeOptions>) -> Vec<NodeOptions> {
    let mut names: BTreeSet<String> = existing.iter().map(|node| node.name.clone()).collect();
    let mut addresses: BTreeSet<Ipv4Addr> = existing.iter().map(|node| node.ip).collect();
    let mut nodes = existing;
    for mut node in others {
        if names.insert(node.name.clone()) {
            while !addresses.insert(node.ip) {
                node.ip = Ipv4Addr::from(u32::from(node.ip).wrapping_add(1));
            }
            nodes.push(node);
        }
    }
    nodes
}

/// Returns the outages of the planned failures of these nodes.
///
/// # Errors
/// Fails if a failure names an unknown node or group.
pub(super) fn planned_outages(args: &Args, nodes: &[NodeOptions]) -> Result<Vec<Outage>> {
    let failures = &args.components.failures;
    if failures.is_empty() {
        return Ok(Vec::new());
    }
    let names: Vec<&str> = nodes.iter().map(|node| &*node.name).collect();
    outages(failures, &names).map_err(Error::msg)
}

/// Returns the nodes of all groups.
fn nodes(groups: &[Nodes]) -> Result<Vec<NodeOptions>> {
    let mut names = BTreeSet::new();
    if let Some(twice) = groups.iter().find(|group| !names.insert(&group.name)) {
        bail!("nodes: two groups have the name {}; rename one of them", twice.name);
    }
    let groups: Vec<NodeGroup> = groups.iter().map(Nodes::group).collect();
    Ok(NodeGroup::nodes(&groups))
}

/// Sets the controllers and feature gates that the file names.
fn configure(options: &mut PlaneOptions, args: &Args) -> Result<()> {
    let components = &args.components;
    let chosen = components.controllers.as_deref();
    let runs_by_default = |controller: &Descriptor| {
        controller.on_by_default || BOOTSTRAP_CONTROLLERS.contains(&controller.name)
    };
    if chosen.is_none() {
        options.controllers.retain(runs_by_default);
    }
    if chosen.is_none() && components.feature_gates.is_empty() {
        return Ok(());
    }
    let program = manager_options(chosen, &components.feature_gates)?;
    if let Some(chosen) = chosen {
        let known = options.controllers.iter();
        let known = known.map(|controller| (controller.name, runs_by_default(controller)));
        let enabled: BTreeSet<&str> = program.choice.enabled(known).into_iter().collect();
        options
            .controllers
            .retain(|controller| !chosen.is_empty() && enabled.contains(controller.name));
    }
    if !components.feature_gates.is_empty() {
        let binder = options.controller_options.binder.clone();
        options.controller_options = program.controllers;
        options.controller_options.binder = binder;
        let gates = Arc::clone(&program.gates);
        options.gates = Gates::new(move |gate| gates.enabled(gate));
    }
    Ok(())
}

/// Returns the options of kube-controller-manager with these values of `--controllers` and `--feature-gates`.
fn manager_options(
    controllers: Option<&[String]>,
    gates: &BTreeMap<String, bool>,
) -> Result<manager::Options> {
    let mut arguments = Vec::new();
    if let Some(names) = controllers.filter(|names| !names.is_empty()) {
        arguments.push(format!("--controllers={}", names.join(",")));
    }
    arguments.extend(gates.iter().map(|(gate, on)| format!("--feature-gates={gate}={on}")));
    match manager::flags().parse("evenkeel up", arguments)? {
        Invocation::Run(parsed) => Ok(manager::Options::check(parsed)?),
        Invocation::Help | Invocation::Version { .. } => bail!(
            "controllers: each entry is a name, a name after -, or *; `evenkeel man` lists the names"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::up::config::read;
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Up {
        #[command(flatten)]
        args: Args,
    }

    fn configured(text: &str, flags: &[&str]) -> Result<PlaneOptions> {
        options(&arguments(text, flags))
    }

    fn arguments(text: &str, flags: &[&str]) -> Args {
        let text = format!("apiVersion: evenkeel.dev/v1alpha1\nkind: Cluster\n{text}");
        let config = read("f", &text).expect("a configuration");
        let mut args = Up::parse_from([&["up"], flags].concat()).args;
        args.components = Components {
            nodes: config.nodes,
            controllers: config.controllers,
            scheduler: config.scheduler,
            feature_gates: config.feature_gates,
            load_balancer_pools: config.load_balancer_pools,
            ..Components::default()
        };
        args
    }

    fn refused(text: &str) -> String {
        format!("{:#}", configured(text, &[]).expect_err(text))
    }

    #[test]
    fn controllers_are_chosen_by_name() {
        let all = configured("", &[]).expect("valid").controllers.len();
        for (chosen, want) in [
            ("[]", 0),
            ("[deployment-controller, replicaset-controller]", 2),
            // An old name of the Job controller.
            ("['*', -job]", all - 1),
            // Off by default, as in upstream's program.
            ("['*', selinux-warning-controller]", all + 1),
        ] {
            let options = configured(&format!("controllers: {chosen}\n"), &[]).expect(chosen);
            assert_eq!(options.controllers.len(), want, "{chosen}");
            assert_eq!(options.cloud.is_some(), want > 0, "{chosen}");
        }
        let error = refused("controllers: [nobody]\n");
        assert!(error.contains("\"nobody\" is not in the list of known controllers"), "{error}");
    }

    #[test]
    fn gates_apply_to_controllers_and_scheduler() {
        let defaults = configured("", &[]).expect("valid");
        assert!(!defaults.gates.enabled("StorageVersionAPI"));
        let text =
            "featureGates: {StatefulSetRecreateStrategy: true, SchedulerPopFromBackoffQ: false}\n";
        let options = configured(text, &[]).expect("valid");
        assert!(options.gates.enabled("StatefulSetRecreateStrategy"));
        assert!(!options.scheduler.expect("it runs").pop_from_backoff_q);
        assert!(!options.controller_options.binder.host_path_files, "as without gates");
        let error = refused("featureGates: {Nothing: true}\n");
        assert!(error.contains("unrecognized feature gate: Nothing"), "{error}");
    }

    #[test]
    fn pools_have_names() {
        let text = "loadBalancerPools:\n- {name: a, addresses: [192.0.2.0/28]}\n- {name: b, addresses: [192.0.2.32-192.0.2.40]}\n";
        assert!(configured(text, &[]).expect("valid").cloud.is_some());
        let error = refused(&text.replace("192.0.2.32", "192.0.2.8"));
        assert!(
            error.starts_with("loadBalancerPools: addresses ") && error.contains("overlap"),
            "{error}"
        );
    }

    #[test]
    fn the_scheduler_has_its_configuration() {
        let text = "scheduler:\n  config:\n    podInitialBackoffSeconds: 3\n    profiles: [{schedulerName: a}, {schedulerName: b}]\n";
        let scheduler = configured(text, &[]).expect("valid").scheduler.expect("it runs");
        assert_eq!((scheduler.profiles.len(), scheduler.pod_initial_backoff.as_secs()), (2, 3));
        assert!(
            configured("scheduler: {disabled: true}\n", &[]).expect("valid").scheduler.is_none()
        );
        assert!(configured(text, &["--no-scheduler"]).expect("valid").scheduler.is_none());
        let error = refused("scheduler: {config: {profilse: []}}\n");
        assert!(error.contains("scheduler.config") && error.contains("profilse"), "{error}");
        let error = refused("scheduler: {config: {extenders: [{urlPrefix: 'http://x'}]}}\n");
        assert!(error.contains("extenders"), "{error}");
    }

    #[test]
    fn copied_nodes_stay_and_get_others_on_request_alone() {
        let copied = |name: &str, last| NodeOptions {
            existing: true,
            ..NodeOptions::new(name, Ipv4Addr::new(172, 18, 0, last))
        };
        let existing = || vec![copied("prod-1", 2), copied("node-1", 4)];
        let nodes = |flags: &[&str], existing| -> Vec<(String, u8, bool)> {
            let args = Up::parse_from([&["up"], flags].concat()).args;
            let nodes = all_nodes(&args, existing).expect("valid").into_iter();
            nodes.map(|node| (node.name, node.ip.octets()[3], node.existing)).collect()
        };
        let node = |name: &str, last, existing| (name.to_owned(), last, existing);
        let kept = [node("prod-1", 2, true), node("node-1", 4, true)];
        assert_eq!(nodes(&[], existing()), kept);
        assert_eq!(nodes(&["--nodes=0"], existing()), kept);
        let more = nodes(&["--nodes=3"], existing());
        assert_eq!(more[..2], kept);
        assert_eq!(more[2..], [node("node-0", 3, false), node("node-2", 5, false)]);
        assert_eq!(nodes(&[], Vec::new()).len(), 3, "a copy of no nodes");
    }

    #[test]
    fn several_schedulers_have_their_configurations() {
        let text = "scheduler:\n  configs:\n  - profiles: [{schedulerName: a}, {schedulerName: b}]\n  - {}\n";
        let names = |text: &str, flags: &[&str]| -> Vec<String> {
            let options = schedulers(&arguments(text, flags)).options().expect("valid");
            options.iter().map(|one| one.names().collect::<Vec<_>>().join("+")).collect()
        };
        assert_eq!(names(text, &[]), ["a+b", "default-scheduler"]);
        assert_eq!(names("", &[]), ["default-scheduler"]);
        assert_eq!(names(text, &["--no-scheduler"]), [""; 0]);
        assert_eq!(names(&text.replace("configs:", "disabled: true\n  configs:"), &[]), [""; 0]);
        let options = configured(text, &[]).expect("valid");
        assert_eq!(options.scheduler.expect("the first one").profiles.len(), 2);
        let error = refused(&text.replace("b}", "default-scheduler}"));
        assert!(
            error.starts_with(
                "scheduler.configs[1] (whose profile has no name, which means default-scheduler): "
            ) && error.contains("scheduler.configs[0].profiles[1].schedulerName is"),
            "{error}"
        );
    }

    #[test]
    fn a_flag_replaces_the_groups_of_nodes() {
        let text = "nodes: [{name: big, count: 2}, {name: small}]\n";
        let names = |options: PlaneOptions| -> Vec<String> {
            options.nodes.nodes.into_iter().map(|node| node.name).collect()
        };
        assert_eq!(names(configured(text, &[]).expect("valid")), ["big-0", "big-1", "small-0"]);
        assert_eq!(names(configured(text, &["--nodes=1"]).expect("valid")), ["node-0"]);
        assert_eq!(names(configured("nodes: []\n", &[]).expect("valid")), [""; 0]);
        assert!(refused("nodes: [{name: a}, {name: a}]\n").contains("two groups have the name a"));
    }
}
