//! Messages of `evenkeel up` to the user.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "this module prints to the user")]

use super::Args;
use evenkeel_api::time::Timestamp;
use evenkeel_runtime::clock::Clock;
use std::path::Path;

/// Prints progress, with the time since the start.
pub(super) struct Messages {
    clock: Clock,
    started: Timestamp,
}

impl Messages {
    /// Returns a printer that measures the time from now.
    pub(super) fn start(clock: Clock) -> Self {
        Self { started: clock.now(), clock }
    }

    fn elapsed_ms(&self) -> i128 {
        self.clock.now().duration_since(self.started).as_millis()
    }

    /// Prints the URL of the API server, and the location of the state.
    pub(super) fn served(&self, url: &str, data_dir: Option<&Path>) {
        println!("API server     {url}");
        match data_dir {
            Some(dir) => println!("state          {}", dir.display()),
            None => println!("state          in memory (--data-dir DIR keeps it)"),
        }
    }

    /// Prints that the cluster was added to the user's kubeconfig.
    pub(super) fn merged(&self, path: &Path) {
        println!("added to       {} (context evenkeel)", path.display());
    }

    /// Prints the URL and version of the API server that `--apiserver` or `--kubeconfig` names.
    pub(super) fn connected(&self, url: &str, version: &str) {
        println!("API server     {url} ({version})");
    }

    /// Prints that controllers, scheduler and nodes run against the remote API server.
    pub(super) fn running(&self, args: &Args) {
        self.components(args);
        println!("Ready in {} ms. Ctrl-C stops.", self.elapsed_ms());
    }

    /// Prints that the control plane runs, and how to reach it.
    pub(super) fn ready(&self, kubeconfig: &Path, args: &Args) {
        self.components(args);
        println!("kubeconfig     {}", kubeconfig.display());
        println!("Ready in {} ms. Ctrl-C stops. Try:", self.elapsed_ms());
        println!();
        if !args.write_kubeconfig {
            println!("    export KUBECONFIG={}", kubeconfig.display());
        }
        println!("    kubectl create deployment web --image=nginx --replicas=3");
        println!("    kubectl rollout status deployment/web");
        println!("    kubectl get all");
    }

    fn components(&self, args: &Args) {
        let yes_no = |enabled: bool| if enabled { "yes" } else { "no" };
        println!("controllers    {}", yes_no(!args.no_controllers));
        println!("scheduler      {}", yes_no(!args.no_scheduler));
        println!("nodes          {} (simulated)", args.nodes);
    }

    /// Prints that the control plane stops.
    pub(super) fn stopping(&self) {
        println!("Stopping. Press Ctrl-C again to exit immediately.");
    }
}

/// Prints the error that ends the program.
pub(super) fn error(error: &anyhow::Error) {
    eprintln!("Error: {error:#}");
}
