//! Command-line options of all controllers.

use crate::{
    apps, autoscaling, batch, certificates, core, discovery, machinery, policy, resource, storage,
};
use std::time::Duration;

/// Parsed and validated command-line flags, by name without dashes. Each controller's module reads the flags of that
/// controller.
pub trait Flags {
    /// Returns a boolean flag.
    fn bool(&self, flag: &str) -> bool;
    /// Returns an integer flag.
    fn int(&self, flag: &str) -> i64;
    /// Returns a floating-point flag.
    fn float(&self, flag: &str) -> f64;
    /// Returns a duration flag.
    fn duration(&self, flag: &str) -> Duration;
    /// Returns a string flag.
    fn text(&self, flag: &str) -> String;
    /// Returns a list flag.
    fn list(&self, flag: &str) -> Vec<String>;
    /// Returns an integer flag whose value must be above zero.
    fn positive(&self, flag: &str) -> usize;
    /// Returns whether the feature gate is enabled.
    fn enabled(&self, gate: &str) -> bool;
    /// Records that a flag's value is invalid, so that the program does not start. `message` is the error and names the
    /// flag.
    fn record_invalid(&self, flag: &str, message: String);

    /// Returns a string flag, `None` if empty.
    fn non_empty_text(&self, flag: &str) -> Option<String> {
        Some(self.text(flag)).filter(|text| !text.is_empty())
    }
}

/// Options of a controller whose only flag is the number of workers. `DEFAULT` is the default of that flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Workers<const DEFAULT: usize> {
    /// Number of objects that are reconciled concurrently.
    pub concurrent_syncs: usize,
}

impl<const DEFAULT: usize> Default for Workers<DEFAULT> {
    fn default() -> Self {
        Self { concurrent_syncs: DEFAULT }
    }
}

impl<const DEFAULT: usize> Workers<DEFAULT> {
    /// Reads the options from this flag.
    fn read(flags: &dyn Flags, flag: &str) -> Self {
        Self { concurrent_syncs: flags.positive(flag) }
    }
}

/// Options of a controller with a number of workers, by default `DEFAULT`, and a sync period, by default 5 minutes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Periodic<const DEFAULT: usize> {
    /// Number of objects that are reconciled concurrently.
    pub concurrent_syncs: usize,
    /// Period after which all objects are reconciled again.
    pub sync_period: Duration,
}

impl<const DEFAULT: usize> Default for Periodic<DEFAULT> {
    fn default() -> Self {
        Self { concurrent_syncs: DEFAULT, sync_period: Duration::from_mins(5) }
    }
}

impl<const DEFAULT: usize> Periodic<DEFAULT> {
    /// Reads the options from these two flags.
    fn read(flags: &dyn Flags, [workers_flag, period_flag]: [&str; 2]) -> Self {
        Self {
            concurrent_syncs: flags.positive(workers_flag),
            sync_period: flags.duration(period_flag),
        }
    }
}

/// Options of all controllers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Options {
    /// Options of the attach-detach controller.
    pub attachdetach: storage::attachdetach::Options,
    /// Options of the persistent volume controller.
    pub binder: storage::binder::Options,
    /// Options of the CronJob controller.
    pub cronjob: batch::cronjob::Options,
    /// Options of the DaemonSet controller.
    pub daemonset: apps::daemonset::Options,
    /// Options of the Deployment controller.
    pub deployment: apps::deployment::Options,
    /// Options of the device taint eviction controller.
    #[cfg(k8s_v1_37)]
    pub devicetainteviction: resource::devicetainteviction::Options,
    /// Options of the disruption controller.
    pub poddisruptionbudget: policy::poddisruptionbudget::Options,
    /// Options of the Endpoints controller.
    pub endpoints: discovery::endpoints::Options,
    /// Options of the EndpointSlice controller.
    pub endpointslice: discovery::endpointslice::Options,
    /// Options of the EndpointSlice mirroring controller.
    pub endpointslicemirroring: discovery::endpointslicemirroring::Options,
    /// Options of the ephemeral volume controller.
    pub ephemeralvolume: storage::ephemeralvolume::Options,
    /// Options of the garbage collector.
    pub garbagecollector: core::garbagecollector::Options,
    /// Options of the horizontal pod autoscaler.
    pub horizontalpodautoscaler: autoscaling::horizontalpodautoscaler::Options,
    /// Options of the Job controller.
    pub job: batch::job::Options,
    /// Options of the cleaner of legacy service account tokens.
    pub legacytokencleaner: core::legacytokencleaner::Options,
    /// Options of the namespace controller.
    pub namespace: core::namespace::Options,
    /// Options of the node IPAM controller.
    pub nodeipam: core::nodeipam::Options,
    /// Options of the node lifecycle controller.
    pub nodelifecycle: core::nodelifecycle::Options,
    /// Heartbeats of nodes that renew no Leases. No flag sets it.
    pub heartbeats: core::nodelifecycle::Heartbeats,
    /// Options of the pod garbage collector.
    pub podgc: core::podgc::Options,
    /// Options of the ReplicaSet controller.
    pub replicaset: apps::replicaset::Options,
    /// Options of the ReplicationController controller.
    pub replicationcontroller: apps::replicationcontroller::Options,
    /// Options of the ResourceClaim controller.
    pub resourceclaim: resource::resourceclaim::Options,
    /// Options of the resource quota controller.
    pub resourcequota: core::resourcequota::Options,
    /// Options of the root CA certificate publisher.
    pub rootcacertpublisher: core::rootcacertpublisher::Options,
    /// Options of the service account token controller.
    pub serviceaccounttoken: core::serviceaccounttoken::Options,
    /// Options of the CertificateSigningRequest signing controller.
    pub signing: certificates::signing::Options,
    /// Options of the StatefulSet controller.
    pub statefulset: apps::statefulset::Options,
    /// Options of the TTL-after-finished controller.
    pub ttlafterfinished: batch::ttlafterfinished::Options,
    /// Options of the ValidatingAdmissionPolicy status controller.
    pub validatingadmissionpolicystatus: machinery::validatingadmissionpolicystatus::Options,
}

impl Options {
    /// Reads the options from the command-line flags.
    pub fn read(flags: &dyn Flags) -> Self {
        Self {
            attachdetach: storage::attachdetach::Options::read(flags),
            binder: storage::binder::Options::read(flags),
            cronjob: Workers::read(flags, batch::cronjob::WORKERS),
            daemonset: Workers::read(flags, apps::daemonset::WORKERS),
            deployment: Workers::read(flags, apps::deployment::WORKERS),
            #[cfg(k8s_v1_37)]
            devicetainteviction: Workers::read(flags, resource::devicetainteviction::WORKERS),
            poddisruptionbudget: Workers::read(flags, policy::poddisruptionbudget::WORKERS),
            endpoints: discovery::endpoints::Options::read(flags),
            endpointslice: discovery::endpointslice::Options::read(flags),
            endpointslicemirroring: discovery::endpointslicemirroring::Options::read(flags),
            ephemeralvolume: Workers::read(flags, storage::ephemeralvolume::WORKERS),
            garbagecollector: core::garbagecollector::Options::read(flags),
            horizontalpodautoscaler: autoscaling::horizontalpodautoscaler::Options::read(flags),
            job: Workers::read(flags, batch::job::WORKERS),
            legacytokencleaner: core::legacytokencleaner::Options::read(flags),
            namespace: Periodic::read(flags, core::namespace::FLAGS),
            nodeipam: core::nodeipam::Options::read(flags),
            nodelifecycle: core::nodelifecycle::Options::read(flags),
            heartbeats: core::nodelifecycle::Heartbeats::default(),
            podgc: core::podgc::Options::read(flags),
            replicaset: Workers::read(flags, apps::replicaset::WORKERS),
            replicationcontroller: Workers::read(flags, apps::replicationcontroller::WORKERS),
            resourceclaim: Workers::read(flags, resource::resourceclaim::WORKERS),
            resourcequota: Periodic::read(flags, core::resourcequota::FLAGS),
            // The program sets these options after it has read the CA file.
            rootcacertpublisher: core::rootcacertpublisher::Options::default(),
            serviceaccounttoken: core::serviceaccounttoken::Options::read(flags),
            signing: certificates::signing::Options::read(flags),
            statefulset: Workers::read(flags, apps::statefulset::WORKERS),
            ttlafterfinished: Workers::read(flags, batch::ttlafterfinished::WORKERS),
            validatingadmissionpolicystatus: Workers::read(
                flags,
                machinery::validatingadmissionpolicystatus::WORKERS,
            ),
        }
    }
}
