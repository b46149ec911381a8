//! Provider for machines without a cloud: load balancer addresses from pools, and nodes' metadata from a table.
//!
//! A service of type `LoadBalancer` gets addresses from the pools. The network has to route them by other means,
//! such as a static route, BGP or ARP. The provider stores no state: the services' statuses contain the allocated
//! addresses.

mod config;
mod machines;
mod plan;
mod pool;
#[cfg(test)]
mod tests;

use crate::{
    CloudError, CloudProvider, InstanceMetadata, Instances, LoadBalancer, ProviderContext,
    change::target,
};
use async_trait::async_trait;
use config::ValidConfig;
pub use config::{Config, ConfigError, Machine, Nodes, PoolConfig};
use evenkeel_api::views::{LoadBalancerIngress, LoadBalancerStatus, Node, Service};
use evenkeel_runtime::{cache::Cache, clock::Clock, events::EventRecorder, plan::EventRecord};
use plan::Reserved;
use std::{
    net::IpAddr,
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock, PoisonError, RwLock},
    time::Duration,
};

/// Name of the provider.
pub const NAME: &str = "ip-pool";

/// Annotation of a Service with the pool for its addresses.
pub const POOL_ANNOTATION: &str = "evenkeel.dev/address-pool";

/// Interval at which a service without a free address is retried.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// Interval at which the configuration file is reread.
const CONFIG_POLL_INTERVAL: Duration = Duration::from_secs(10);

/// Cloud provider that assigns load balancer addresses from pools.
pub struct IpPool {
    config: Arc<RwLock<Arc<ValidConfig>>>,
    /// The configuration file, which is reread when it changes.
    file: Option<PathBuf>,
    /// Addresses allocated to Services whose status may not show them yet.
    reserved: Mutex<Reserved>,
    cluster: OnceLock<Cluster>,
}

/// The provider's cache of Services, and its event recorder.
struct Cluster {
    services: Cache<Service>,
    events: EventRecorder,
}

impl IpPool {
    /// Creates a provider with these pools and nodes.
    ///
    /// # Errors
    /// Fails if the configuration is invalid, for example because two ranges overlap.
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        Ok(Self {
            config: Arc::new(RwLock::new(Arc::new(ValidConfig::of(config)?))),
            file: None,
            reserved: Mutex::default(),
            cluster: OnceLock::new(),
        })
    }

    /// Creates a provider that follows a configuration file, see [`Config`].
    ///
    /// # Errors
    /// Fails if the file cannot be read, or the configuration is invalid.
    pub fn from_file(path: impl Into<PathBuf>) -> Result<Self, ConfigError> {
        let path = path.into();
        let text = std::fs::read_to_string(&path)
            .map_err(|source| ConfigError::File { path: path.clone(), source })?;
        Ok(Self { file: Some(path), ..Self::new(&Config::parse(&text)?)? })
    }

    /// Replaces pools and nodes. Services keep their current addresses.
    ///
    /// # Errors
    /// Fails if the configuration is invalid. The current one then stays.
    pub fn set(&self, config: &Config) -> Result<(), ConfigError> {
        replace_config(&self.config, config)
    }

    fn config(&self) -> Arc<ValidConfig> {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn cluster(&self) -> Result<&Cluster, CloudError> {
        self.cluster.get().ok_or_else(|| CloudError::failed("the provider was not initialized"))
    }

    /// Allocates addresses to a service and reserves them.
    fn allocate(&self, service: &Service) -> Result<Vec<IpAddr>, CloudError> {
        let config = self.config();
        let services = self.cluster()?.services.list();
        let mut reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        reserved.drop_deleted(&services, service);
        let addresses = plan::allocate(&config.pools, &services, &reserved, service);
        match addresses {
            Ok(addresses) => {
                reserved.reserve(&service.meta.uid, addresses.clone());
                Ok(addresses)
            }
            Err(error) if error.is_transient() => {
                Err(CloudError::retry_after(error.to_string(), RETRY_INTERVAL))
            }
            Err(error) => Err(CloudError::failed(error.to_string())),
        }
    }
}

impl CloudProvider for IpPool {
    fn name(&self) -> &str {
        NAME
    }

    fn initialize(&self, context: &ProviderContext) {
        let services = context.caches.of::<Service>();
        // A second call has no effect.
        let cluster = Cluster { services, events: context.events.clone() };
        if self.cluster.set(cluster).is_err() {
            return;
        }
        if let Some(path) = self.file.clone() {
            let (config, clock) = (Arc::clone(&self.config), context.clock.clone());
            context.tasks.spawn_restarting_until_cancelled("cloud configuration", move || {
                follow_config_file(path.clone(), Arc::clone(&config), clock.clone())
            });
        }
    }

    fn load_balancer(&self) -> Option<&dyn LoadBalancer> {
        (!self.config().pools.is_empty()).then_some(self)
    }

    fn instances(&self) -> Option<&dyn Instances> {
        self.config().nodes.is_some().then_some(self)
    }
}

/// Validates a configuration and replaces the current one.
fn replace_config(current: &RwLock<Arc<ValidConfig>>, config: &Config) -> Result<(), ConfigError> {
    let checked = Arc::new(ValidConfig::of(config)?);
    *current.write().unwrap_or_else(PoisonError::into_inner) = checked;
    Ok(())
}

/// Rereads a configuration file whenever its content changes. Never returns.
async fn follow_config_file(path: PathBuf, config: Arc<RwLock<Arc<ValidConfig>>>, clock: Clock) {
    let mut last_text = tokio::fs::read_to_string(&path).await.ok();
    loop {
        clock.sleep(CONFIG_POLL_INTERVAL).await;
        let text = match tokio::fs::read_to_string(&path).await {
            Ok(text) => text,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "the cloud configuration cannot be read; the last one stays in use");
                continue;
            }
        };
        if last_text.as_deref() == Some(&*text) {
            continue;
        }
        match Config::parse(&text).and_then(|parsed| replace_config(&config, &parsed)) {
            Ok(()) => tracing::info!(path = %path.display(), "the cloud configuration has changed"),
            Err(error) => {
                tracing::error!(path = %path.display(), %error, "the cloud configuration is invalid; the last one stays in use");
            }
        }
        last_text = Some(text);
    }
}

#[async_trait]
impl LoadBalancer for IpPool {
    async fn get(
        &self,
        _: &str,
        service: &Service,
    ) -> Result<Option<LoadBalancerStatus>, CloudError> {
        let reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        let reserved_status = reserved.of(&service.meta.uid).map(load_balancer_status);
        let status = &service.status.load_balancer;
        Ok(reserved_status.or_else(|| (!status.ingress.is_empty()).then(|| status.clone())))
    }

    async fn ensure(
        &self,
        _: &str,
        service: &Service,
        _: &[Arc<Node>],
    ) -> Result<LoadBalancerStatus, CloudError> {
        let addresses = self.allocate(service)?;
        if !service.spec.load_balancer_source_ranges.is_empty() {
            let message = "spec.loadBalancerSourceRanges has no effect: the ip-pool provider lets all callers through";
            let event =
                EventRecord::warning(target(service), "LoadBalancerSourceRangesIgnored", message);
            self.cluster()?.events.record(&event);
        }
        Ok(load_balancer_status(&addresses))
    }

    async fn update(&self, _: &str, _: &Service, _: &[Arc<Node>]) -> Result<(), CloudError> {
        // This provider does not decide which node receives an address's traffic.
        Ok(())
    }

    async fn ensure_deleted(&self, _: &str, service: &Service) -> Result<(), CloudError> {
        self.reserved.lock().unwrap_or_else(PoisonError::into_inner).release(&service.meta.uid);
        Ok(())
    }
}

#[async_trait]
impl Instances for IpPool {
    async fn exists(&self, node: &Node) -> Result<bool, CloudError> {
        Ok(machines::exists(self.config().nodes.as_ref(), node))
    }

    async fn shut_down(&self, node: &Node) -> Result<bool, CloudError> {
        Ok(machines::is_shut_down(self.config().nodes.as_ref(), node))
    }

    /// Returns `None` for a node that the table lacks, so that the node stays uninitialized until the table has it.
    async fn metadata(&self, node: &Node) -> Result<Option<InstanceMetadata>, CloudError> {
        Ok(machines::instance_metadata(self.config().nodes.as_ref(), node))
    }
}

/// Returns the load balancer status with these addresses.
fn load_balancer_status(addresses: &[IpAddr]) -> LoadBalancerStatus {
    let ingress = addresses.iter().map(|address| LoadBalancerIngress {
        ip: address.to_string().into(),
        ip_mode: "VIP".into(),
        ..LoadBalancerIngress::default()
    });
    LoadBalancerStatus { ingress: ingress.collect() }
}
