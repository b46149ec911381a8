//! Registry of cloud providers: the names that `--cloud-provider` accepts, and how each is built.

use crate::{
    CloudProvider,
    ip_pool::{self, Config, IpPool},
};
use std::{collections::BTreeMap, error::Error, path::PathBuf, sync::Arc};

/// Options that configure a provider.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProviderOptions {
    /// Value of `--cloud-config`: file with the provider's configuration.
    pub config: Option<PathBuf>,
    /// Value of `--load-balancer-pool`: addresses for load balancers.
    pub pool: Option<String>,
}

/// Function that builds a provider from its options.
///
/// Upstream: `cloudprovider.Factory`.
type ProviderFactory = Box<
    dyn Fn(&ProviderOptions) -> Result<Arc<dyn CloudProvider>, Box<dyn Error + Send + Sync>>
        + Send
        + Sync,
>;

/// Factories of cloud providers, by their name in `--cloud-provider`.
pub struct ProviderRegistry(BTreeMap<&'static str, ProviderFactory>);

impl ProviderRegistry {
    /// Returns a registry of the providers that are part of Evenkeel.
    pub fn builtin() -> Self {
        Self(BTreeMap::new()).register(ip_pool::NAME, |options| {
            let provider = match (&options.config, &options.pool) {
                (Some(path), None) => IpPool::from_file(path)?,
                (None, Some(pool)) => IpPool::new(&Config::of_addresses(pool))?,
                (Some(_), Some(_)) => {
                    return Err("--load-balancer-pool and --cloud-config exclude each other".into());
                }
                (None, None) => {
                    return Err(
                        "--cloud-config or --load-balancer-pool must say which addresses there are"
                            .into(),
                    );
                }
            };
            Ok(Arc::new(provider))
        })
    }

    /// Adds a provider, and replaces one of the same name.
    ///
    /// Upstream: `RegisterCloudProvider`.
    #[must_use]
    pub fn register(
        mut self,
        name: &'static str,
        factory: impl Fn(
            &ProviderOptions,
        ) -> Result<Arc<dyn CloudProvider>, Box<dyn Error + Send + Sync>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.0.insert(name, Box::new(factory));
        self
    }

    /// Builds the provider of this name.
    ///
    /// Upstream: `InitCloudProvider`.
    ///
    /// # Errors
    /// Fails if no provider has that name, or its options are invalid.
    pub fn init_provider(
        &self,
        name: &str,
        options: &ProviderOptions,
    ) -> Result<Arc<dyn CloudProvider>, Box<dyn Error + Send + Sync>> {
        match self.0.get(name) {
            Some(factory) => factory(options),
            None => {
                let names: Vec<&str> = self.0.keys().copied().collect();
                Err(format!("unknown cloud provider {name:?}; known are {}", names.join(", "))
                    .into())
            }
        }
    }
}
