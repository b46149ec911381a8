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
    pub cronjob: batch::cronjob::Options,
    /// Of the daemonset controller.
    pub daemonset: apps::daemonset::Options,
    /// Of the deployment controller.
    pub deployment: apps::deployment::Options,
    /// Of the controller of disruption budgets.
    pub poddisruptionbudget: policy::poddisruptionbudget::Options,
    /// Of the controller of Endpoints.
    pub endpoints: discovery::endpoints::Options,
    /// Of the controller of EndpointSlices.
    pub endpointslice: discovery::endpointslice::Options,
    /// Of the controller of mirrored slices.
    pub endpointslicemirroring: discovery::endpointslicemirroring::Options,
    /// Of the controller of ephemeral volumes.
    pub ephemeral_volume: storage::ephemeral_volume::Options,
    /// Of the garbage collector.
    pub garbagecollector: core::garbagecollector::Options,
    /// Of the autoscaler.
    pub horizontalpodautoscaler: autoscaling::horizontalpodautoscaler::Options,
    /// Of the job controller.
    pub job: batch::job::Options,
    /// Of the cleaner of legacy tokens.
    pub legacytokencleaner: core::legacytokencleaner::Options,
    /// Of the namespace controller.
    pub namespace: core::namespace::Options,
    /// Of the controller of nodes' ranges.
    pub nodeipam: core::nodeipam::Options,
    /// Of the controller of nodes' health.
    pub nodelifecycle: core::nodelifecycle::Options,
    /// Of the collector of pods.
    pub podgc: core::podgc::Options,
    /// Of the replicaset controller.
    pub replicaset: apps::replicaset::Options,
    /// Of the replicationcontroller controller.
    pub replicationcontroller: apps::replicationcontroller::Options,
    /// Of the controller of claims to devices.
    pub resourceclaim: resource::resourceclaim::Options,
    /// Of the controller of quotas.
    pub resourcequota: core::resourcequota::Options,
    /// Of the publisher of the cluster's CA.
    pub rootcacertpublisher: core::rootcacertpublisher::Options,
    /// Of the token controller.
    pub serviceaccounttoken: core::serviceaccounttoken::Options,
    /// Of the controller that signs certificates.
    pub signing: certificates::signing::Options,
    /// Of the statefulset controller.
    pub statefulset: apps::statefulset::Options,
    /// Of the controller that deletes Jobs that have ended.
    pub ttlafterfinished: batch::ttlafterfinished::Options,
}

impl Options {
    /// Reads the options from the command-line flags.
    pub fn read(flags: &dyn Flags) -> Self {
        Self {
            attach_detach: storage::attach_detach::Options::read(flags),
            binder: storage::binder::Options::read(flags),
            cronjob: Workers::read(flags, batch::cronjob::WORKERS),
            daemonset: Workers::read(flags, apps::daemonset::WORKERS),
            deployment: Workers::read(flags, apps::deployment::WORKERS),
            poddisruptionbudget: Workers::read(flags, policy::poddisruptionbudget::WORKERS),
            endpoints: discovery::endpoints::Options::read(flags),
            endpointslice: discovery::endpointslice::Options::read(flags),
            endpointslicemirroring: discovery::endpointslicemirroring::Options::read(flags),
            ephemeral_volume: Workers::read(flags, storage::ephemeral_volume::WORKERS),
            garbagecollector: core::garbagecollector::Options::read(flags),
            horizontalpodautoscaler: autoscaling::horizontalpodautoscaler::Options::read(flags),
            job: Workers::read(flags, batch::job::WORKERS),
            legacytokencleaner: core::legacytokencleaner::Options::read(flags),
            namespace: Periodic::read(flags, core::namespace::FLAGS),
            nodeipam: core::nodeipam::Options::read(flags),
            nodelifecycle: core::nodelifecycle::Options::read(flags),
            podgc: core::podgc::Options::read(flags),
            replicaset: Workers::read(flags, apps::replicaset::WORKERS),
            replicationcontroller: Workers::read(flags, apps::replicationcontroller::WORKERS),
            resourceclaim: Workers::read(flags, resource::resourceclaim::WORKERS),
            resourcequota: Periodic::read(flags, core::resourcequota::FLAGS),
            // The CA is a file's content, which the program reads.
            rootcacertpublisher: core::rootcacertpublisher::Options::default(),
            serviceaccounttoken: core::serviceaccounttoken::Options::read(flags),
            signing: certificates::signing::Options::read(flags),
            statefulset: Workers::read(flags, apps::statefulset::WORKERS),
            ttlafterfinished: Workers::read(flags, batch::ttlafterfinished::WORKERS),
        }
    }
}
