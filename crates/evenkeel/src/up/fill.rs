//! Fills settings that no flag sets from the configuration file.

use super::{
    config::{Cluster, Components, Scheduler},
    options::Args,
};
use crate::copied::Copied;
use std::path::{Path, PathBuf};

/// Fills the settings that no flag sets. Paths in the file are relative to its `folder`.
pub(super) fn fill(args: &mut Args, config: Cluster, folder: &Path) {
    fn fill_option<T>(flag: &mut Option<T>, value: Option<T>) {
        *flag = flag.take().or(value);
    }
    fn fill_list<T>(flag: &mut Vec<T>, value: Vec<T>) {
        if flag.is_empty() {
            *flag = value;
        }
    }
    let path = |path: PathBuf| folder.join(path);
    let paths = |paths: Vec<PathBuf>| paths.into_iter().map(path).collect::<Vec<_>>();
    fill_option(&mut args.name, config.name);
    fill_option(&mut args.wait, config.wait);
    fill_option(&mut args.console, config.console);
    args.console_writes |= config.console_writes;
    fill_option(&mut args.write_kubeconfig, config.write_kubeconfig);
    fill_option(&mut args.log_file, config.log_file.map(path));
    // A flag replaces the pools of the file in both of their formats.
    let pools = match args.load_balancer_pool {
        Some(_) => Vec::new(),
        None => config.load_balancer_pools,
    };
    fill_option(&mut args.load_balancer_pool, config.load_balancer_pool);
    fill_list(&mut args.load, paths(config.load));
    // With a remote API server, this process has no data folder and no API server port.
    if !args.is_remote() {
        fill_option(&mut args.data_dir, config.data_dir.map(path));
        fill_option(&mut args.port, config.port);
        fill_option(&mut args.bind_address, config.bind_address);
    }
    let server = config.api_server;
    let flags = &mut args.server;
    fill_option(&mut flags.token_auth_file, server.token_auth_file.map(path));
    fill_option(&mut flags.authentication_config, server.authentication_config.map(path));
    fill_option(&mut flags.anonymous_auth, server.anonymous_auth);
    flags.enable_bootstrap_token_auth |= server.enable_bootstrap_token_auth;
    fill_option(&mut flags.client_ca_file, server.client_ca_file.map(path));
    fill_option(
        &mut flags.service_account_signing_key_file,
        server.service_account_signing_key_file.map(path),
    );
    fill_list(&mut flags.service_account_key_file, paths(server.service_account_key_files));
    fill_list(&mut flags.service_account_issuer, server.service_account_issuers);
    fill_list(&mut flags.api_audiences, server.api_audiences);
    fill_option(&mut flags.encryption_provider_config, server.encryption_provider_config.map(path));
    fill_list(&mut flags.enable_admission_plugins, server.enable_admission_plugins);
    fill_list(&mut flags.disable_admission_plugins, server.disable_admission_plugins);
    // An authorization mode in the flags replaces an authorization configuration in the file, and vice versa.
    if flags.authorization_mode.is_empty() && flags.authorization_config.is_none() {
        flags.authorization_mode = server.authorization_mode;
        flags.authorization_config = server.authorization_config.map(path);
    }
    fill_option(&mut flags.service_cluster_ip_range, server.service_cluster_ip_range);
    fill_option(&mut flags.service_account_jwks_uri, server.service_account_jwks_uri);
    args.components = Components {
        nodes: config.nodes,
        controllers: config.controllers,
        scheduler: config.scheduler,
        feature_gates: config.feature_gates,
        load_balancer_pools: pools,
        audit: server.audit.map(|audit| audit.relative_to(folder)),
        users: config.users,
        failures: config.failures,
    };
}

/// For a data folder that is a copy of a cluster, sets the options that neither flags nor a file set to the values of that
/// cluster.
pub(super) fn fill_copied(args: &mut Args, copied: Copied) {
    args.is_copy = true;
    let range = &mut args.server.service_cluster_ip_range;
    *range = range.take().or(copied.service_cluster_ip_range);
    let scheduler = &mut args.components.scheduler;
    if *scheduler == Scheduler::default() {
        scheduler.config = copied.scheduler_config;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::up::config::{ConsolePort, NoConsole, read};
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Up {
        #[command(flatten)]
        args: Args,
    }

    const FILE: &str = "apiVersion: evenkeel.dev/v1alpha1\nkind: Cluster\nname: a\nport: 7000\ndataDir: data\nload: [m]\n\
        loadBalancerPool: none\nconsole: none\nnodes: [{name: n, count: 2}]\napiServer:\n  anonymousAuth: false\n  tokenAuthFile: /t\n  \
        authorizationMode: [RBAC]\n";

    fn filled(flags: &[&str]) -> Args {
        let mut args = Up::parse_from([&["up"], flags].concat()).args;
        fill(&mut args, read("f", FILE).expect("a configuration"), Path::new("/c"));
        args
    }

    #[test]
    fn the_file_says_what_flags_do_not() {
        let args = filled(&[]);
        assert_eq!((args.name.as_deref(), args.port), (Some("a"), Some(7000)));
        assert_eq!(args.data_dir.as_deref(), Some(Path::new("/c/data")), "relative to the file");
        assert_eq!(args.server.token_auth_file.as_deref(), Some(Path::new("/t")));
        assert_eq!(args.load, [Path::new("/c/m")]);
        assert_eq!(args.server.anonymous_auth, Some(false));
        assert_eq!((args.pool(), args.node_count()), (None, 2));
        assert_eq!(args.console, Some(ConsolePort::Word(NoConsole::None)));
    }

    #[test]
    fn a_flag_replaces_named_pools_too() {
        let text = "apiVersion: evenkeel.dev/v1alpha1\nkind: Cluster\nloadBalancerPools: [{name: a, addresses: [192.0.2.1]}]\n";
        for (flags, pools, flag) in
            [(&["up"][..], 1, None), (&["up", "--load-balancer-pool=none"], 0, Some("none"))]
        {
            let mut args = Up::parse_from(flags).args;
            fill(&mut args, read("f", text).expect("a configuration"), Path::new("/c"));
            assert_eq!(args.components.load_balancer_pools.len(), pools, "{flags:?}");
            assert_eq!(args.load_balancer_pool.as_deref(), flag);
        }
    }

    #[test]
    fn flags_and_the_file_win_over_the_copied_cluster() {
        let copied = Copied {
            scheduler_config: Some(serde_json::Map::from_iter([("parallelism".into(), 3.into())])),
            service_cluster_ip_range: Some("10.43.0.0/16".into()),
        };
        let mut args = filled(&[]);
        fill_copied(&mut args, copied.clone());
        assert_eq!(args.components.scheduler.config, copied.scheduler_config);
        assert_eq!(args.server.service_cluster_ip_range, copied.service_cluster_ip_range);
        let mut args = filled(&["--service-cluster-ip-range=10.9.0.0/16"]);
        args.components.scheduler.disabled = true;
        fill_copied(&mut args, copied);
        assert!(args.is_copy && args.components.scheduler.config.is_none());
        assert_eq!(args.server.service_cluster_ip_range.as_deref(), Some("10.9.0.0/16"));
    }

    #[test]
    fn flags_win_over_the_file() {
        let args = filled(&[
            "--name=b",
            "--port=0",
            "--data-dir=d",
            "--load=l",
            "--nodes=5",
            "--anonymous-auth",
            "--authorization-config=x",
            "--load-balancer-pool=192.0.2.0/24",
            "--console=7070",
        ]);
        assert_eq!((args.name.as_deref(), args.port), (Some("b"), Some(0)));
        assert_eq!(args.data_dir.as_deref(), Some(Path::new("d")));
        assert_eq!(args.load, [Path::new("l")]);
        assert_eq!((args.pool(), args.node_count()), (Some("192.0.2.0/24"), 5));
        assert_eq!(args.console, Some(ConsolePort::Port(7070)));
        assert_eq!(args.server.anonymous_auth, Some(true));
        assert!(args.server.authorization_mode.is_empty(), "the flag is the other form");
        let remote = filled(&["--apiserver=https://127.0.0.1:1"]);
        assert_eq!((remote.port, remote.data_dir), (None, None));
    }
}
