//! Which clouds a program knows.

use crate::{
    CloudProvider,
    ip_pool::{self, Config, IpPool},
};
use std::{collections::BTreeMap, error::Error, path::PathBuf, sync::Arc};

/// What a provider is made from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProviderOptions {
    /// Value of `--cloud-config`: file with the provider's configuration.
    pub config: Option<PathBuf>,
    /// Value of `--load-balancer-pool`: addresses for load balancers.
    pub pool: Option<String>,
}

/// Makes a provider.
type Make = Box<
    dyn Fn(&ProviderOptions) -> Result<Arc<dyn CloudProvider>, Box<dyn Error + Send + Sync>>
        + Send
        + Sync,
>;

/// The clouds that `--cloud-provider` may name.
pub struct Providers(BTreeMap<&'static str, Make>);

impl Providers {
    /// Those that come with Evenkeel.
    pub fn builtin() -> Self {
        Self(BTreeMap::new()).with(ip_pool::NAME, |options| {
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

    /// These, and one more.
    #[must_use]
    pub fn with(
        mut self,
        name: &'static str,
        make: impl Fn(&ProviderOptions) -> Result<Arc<dyn CloudProvider>, Box<dyn Error + Send + Sync>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.0.insert(name, Box::new(make));
        self
    }

    /// Makes the provider of this name.
    ///
    /// # Errors
    /// When there is none of that name, or it cannot be made from the options.
    pub fn make(
        &self,
        name: &str,
        options: &ProviderOptions,
    ) -> Result<Arc<dyn CloudProvider>, Box<dyn Error + Send + Sync>> {
        match self.0.get(name) {
            Some(make) => make(options),
            None => {
                let known: Vec<&str> = self.0.keys().copied().collect();
                Err(format!("unknown cloud provider {name:?}; known are {}", known.join(", "))
                    .into())
            }
        }
    }
}
