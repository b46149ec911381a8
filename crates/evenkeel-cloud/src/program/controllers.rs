//! The cloud controllers as the leader starts them.

use crate::{CloudContext, CloudProvider, Descriptor, Options, context::Started as CloudStarted};
use anyhow::Result;
use evenkeel_component::{
    connection::{ClientSettings, Connection},
    leading::{Controllers, Ready, Started},
};
use evenkeel_runtime::{client::LeaderFence, controller::Env, health::Health, tasks::Tasks};
use prometheus::Registry;
use std::sync::{Arc, OnceLock};

/// Parts of the program that the controllers need.
pub(super) struct CloudControllers {
    pub(super) connection: Connection,
    pub(super) env: Env,
    /// Controllers that `--controllers` enables.
    pub(super) enabled: Vec<Descriptor>,
    pub(super) registry: Registry,
    pub(super) health: Health,
    pub(super) provider: Arc<dyn CloudProvider>,
    /// Set once the provider is initialized, which all leases share.
    pub(super) initialized: OnceLock<()>,
    pub(super) options: Arc<Options>,
}

impl Controllers for CloudControllers {
    type Ready = ReadyControllers;

    async fn ready(&self, fence: &LeaderFence, tasks: &Tasks) -> ReadyControllers {
        let context = CloudContext {
            env: Env { client: self.env.client.fenced(fence), ..self.env.clone() },
            clients: self.connection.clients(fence, tasks, ClientSettings::default()),
            tasks: tasks.clone(),
            registry: self.registry.clone(),
            provider: self.provider.clone(),
            options: self.options.clone(),
        };
        self.initialized.get_or_init(|| context.initialize());
        ReadyControllers { enabled: self.enabled.clone(), context, health: self.health.clone() }
    }
}

/// Controllers of one lease that are ready to start, with their context.
pub(super) struct ReadyControllers {
    enabled: Vec<Descriptor>,
    context: CloudContext,
    health: Health,
}

impl Ready for ReadyControllers {
    fn start(&self, controller: &'static str) -> Result<Started> {
        let Some(descriptor) = self.enabled.iter().find(|descriptor| descriptor.name == controller)
        else {
            return Ok(Started::Never("not implemented".to_owned()));
        };
        match (descriptor.start)(&self.context)? {
            CloudStarted::Yes => {
                self.health.add(controller, || Ok(()));
                Ok(Started::Yes)
            }
            CloudStarted::No => {
                Ok(Started::Never("the cloud has nothing for it, or it is switched off".to_owned()))
            }
        }
    }

    /// Does nothing: the controllers do not depend on any discovered resource.
    async fn rediscover(&mut self) {}
}
