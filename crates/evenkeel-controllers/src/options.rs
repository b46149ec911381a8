//! What controllers can be told on the command line.

use crate::{apps, autoscaling, batch, certificates, core, discovery, policy, resource, storage};
use std::time::Duration;

/// Where options come from: flags by their names, without dashes, of whoever was given them, checked for their types and
/// upstream's ranges. A controller's options are read from it in the controller's own folder, so that folder says which
/// flags the controller has.
pub trait Flags {
    /// A `bool`.
    fn bool(&self, flag: &str) -> bool;
    /// A whole number.
    fn int(&self, flag: &str) -> i64;
    /// A number.
    fn float(&self, flag: &str) -> f64;
    /// A duration.
    fn duration(&self, flag: &str) -> Duration;
    /// Text.
    fn text(&self, flag: &str) -> String;
    /// A list.
    fn list(&self, flag: &str) -> Vec<String>;
    /// A number of workers, above zero.
    fn workers(&self, flag: &str) -> usize;
    /// Whether a feature gate is on.
    fn enabled(&self, gate: &str) -> bool;
    /// Notes that what was given for a flag is not allowed, with what to tell the user: it must name the flag. The program
    /// does not start then.
    fn refuse(&self, flag: &str, problem: String);

    /// Text, `None` where empty.
    fn path(&self, flag: &str) -> Option<String> {
        Some(self.text(flag)).filter(|text| !text.is_empty())
    }
}

/// Options of a controller that is told how many of its objects are worked on at the same time, and nothing else; so many
/// unless it is told otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Workers<const DEFAULT: usize> {
    /// How many at the same time.
    pub concurrent_syncs: usize,
}

impl<const DEFAULT: usize> Default for Workers<DEFAULT> {
    fn default() -> Self {
        Self { concurrent_syncs: DEFAULT }
    }
}

impl<const DEFAULT: usize> Workers<DEFAULT> {
    /// What the flag says.
    fn read(flags: &dyn Flags, flag: &str) -> Self {
        Self { concurrent_syncs: flags.workers(flag) }
    }
}

/// Options of a controller that is told that, and how often it does what it does anew; every five minutes unless it is told
/// otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Periodic<const DEFAULT: usize> {
    /// How many at the same time.
    pub concurrent_syncs: usize,
    /// How often.
    pub sync_period: Duration,
}

impl<const DEFAULT: usize> Default for Periodic<DEFAULT> {
    fn default() -> Self {
        Self { concurrent_syncs: DEFAULT, sync_period: Duration::from_mins(5) }
    }
}

impl<const DEFAULT: usize> Periodic<DEFAULT> {
    /// What the flags say, the one of workers and the one of the period.
    fn read(flags: &dyn Flags, [workers, period]: [&str; 2]) -> Self {
        Self { concurrent_syncs: flags.workers(workers), sync_period: flags.duration(period) }
    }
}

/// The options of all controllers, each as its controller's folder has it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Options {
    /// Of the controller that has volumes attached.
    pub attach_detach: storage::attach_detach::Options,
    /// Of the controller that binds claims and volumes.
    pub binder: storage::binder::Options,
    /// Of the cronjob controller.
    pub cron_job: batch::cron_job::Options,
    /// Of the daemonset controller.
    pub daemonset: apps::daemonset::Options,
    /// Of the deployment controller.
    pub deployment: apps::deployment::Options,
    /// Of the controller of disruption budgets.
    pub disruption_budget: policy::disruption_budget::Options,
    /// Of the controller of Endpoints.
    pub endpoints: discovery::endpoints::Options,
    /// Of the controller of EndpointSlices.
    pub endpointslice: discovery::endpointslice::Options,
    /// Of the controller of mirrored slices.
    pub endpointslice_mirroring: discovery::endpointslice_mirroring::Options,
    /// Of the controller of ephemeral volumes.
    pub ephemeral_volume: storage::ephemeral_volume::Options,
    /// Of the garbage collector.
    pub garbage_collector: core::garbage_collector::Options,
    /// Of the autoscaler.
    pub horizontal: autoscaling::horizontal::Options,
    /// Of the job controller.
    pub job: batch::job::Options,
    /// Of the cleaner of legacy tokens.
    pub legacy_token_cleaner: core::legacy_token_cleaner::Options,
    /// Of the namespace controller.
    pub namespace: core::namespace::Options,
    /// Of the controller of nodes' ranges.
    pub node_ipam: core::node_ipam::Options,
    /// Of the controller of nodes' health.
    pub node_lifecycle: core::node_lifecycle::Options,
    /// Of the collector of pods.
    pub pod_gc: core::pod_gc::Options,
    /// Of the replicaset controller.
    pub replicaset: apps::replicaset::Options,
    /// Of the replicationcontroller controller.
    pub replicationcontroller: apps::replicationcontroller::Options,
    /// Of the controller of claims to devices.
    pub resource_claim: resource::claim::Options,
    /// Of the controller of quotas.
    pub resource_quota: core::resource_quota::Options,
    /// Of the publisher of the cluster's CA.
    pub root_ca: core::root_ca::Options,
    /// Of the token controller.
    pub service_account_token: core::service_account_token::Options,
    /// Of the controller that signs certificates.
    pub signing: certificates::signing::Options,
    /// Of the statefulset controller.
    pub statefulset: apps::statefulset::Options,
    /// Of the controller that deletes Jobs that have ended.
    pub ttl_after_finished: batch::ttl_after_finished::Options,
}

impl Options {
    /// What the flags say.
    pub fn read(flags: &dyn Flags) -> Self {
        Self {
            attach_detach: storage::attach_detach::Options::read(flags),
            binder: storage::binder::Options::read(flags),
            cron_job: Workers::read(flags, batch::cron_job::WORKERS),
            daemonset: Workers::read(flags, apps::daemonset::WORKERS),
            deployment: Workers::read(flags, apps::deployment::WORKERS),
            disruption_budget: Workers::read(flags, policy::disruption_budget::WORKERS),
            endpoints: discovery::endpoints::Options::read(flags),
            endpointslice: discovery::endpointslice::Options::read(flags),
            endpointslice_mirroring: discovery::endpointslice_mirroring::Options::read(flags),
            ephemeral_volume: Workers::read(flags, storage::ephemeral_volume::WORKERS),
            garbage_collector: core::garbage_collector::Options::read(flags),
            horizontal: autoscaling::horizontal::Options::read(flags),
            job: Workers::read(flags, batch::job::WORKERS),
            legacy_token_cleaner: core::legacy_token_cleaner::Options::read(flags),
            namespace: Periodic::read(flags, core::namespace::FLAGS),
            node_ipam: core::node_ipam::Options::read(flags),
            node_lifecycle: core::node_lifecycle::Options::read(flags),
            pod_gc: core::pod_gc::Options::read(flags),
            replicaset: Workers::read(flags, apps::replicaset::WORKERS),
            replicationcontroller: Workers::read(flags, apps::replicationcontroller::WORKERS),
            resource_claim: Workers::read(flags, resource::claim::WORKERS),
            resource_quota: Periodic::read(flags, core::resource_quota::FLAGS),
            // The CA is a file's content, which the program reads.
            root_ca: core::root_ca::Options::default(),
            service_account_token: core::service_account_token::Options::read(flags),
            signing: certificates::signing::Options::read(flags),
            statefulset: Workers::read(flags, apps::statefulset::WORKERS),
            ttl_after_finished: Workers::read(flags, batch::ttl_after_finished::WORKERS),
        }
    }
}
