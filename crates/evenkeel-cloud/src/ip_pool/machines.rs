//! What the table says of nodes.

use super::{IpPool, Machine, NAME, Nodes};
use crate::{CloudError, InstanceMetadata, Instances};
use async_trait::async_trait;
use evenkeel_api::views::{Node, NodeAddress};

#[async_trait]
impl Instances for IpPool {
    async fn exists(&self, node: &Node) -> Result<bool, CloudError> {
        let config = self.config();
        let nodes = config.nodes.as_ref();
        Ok(nodes.is_none_or(|nodes| {
            find(nodes, node).is_some() || !(nodes.complete || own_id(node).is_some())
        }))
    }

    async fn shut_down(&self, node: &Node) -> Result<bool, CloudError> {
        let config = self.config();
        let machine = config.nodes.as_ref().and_then(|nodes| find(nodes, node));
        Ok(machine.is_some_and(|machine| machine.shut_down))
    }

    /// A node that is not in the table stays as it is, uninitialised as may be, until it is.
    async fn metadata(&self, node: &Node) -> Result<Option<InstanceMetadata>, CloudError> {
        let config = self.config();
        Ok(config.nodes.as_ref().and_then(|nodes| find(nodes, node)).map(metadata))
    }
}

/// The machine of a node: by the provider id where it is ours, else by name.
fn find<'a>(nodes: &'a Nodes, node: &Node) -> Option<&'a Machine> {
    let name = own_id(node).unwrap_or(&node.meta.name);
    nodes.machines.iter().find(|machine| machine.name == name)
}

/// What this provider calls the machine of a node that it has initialised.
fn own_id(node: &Node) -> Option<&str> {
    node.spec.provider_id.strip_prefix(NAME).and_then(|id| id.strip_prefix("://"))
}

fn metadata(machine: &Machine) -> InstanceMetadata {
    let of_type = |type_: &'static str| {
        move |address: &String| NodeAddress {
            type_: type_.into(),
            address: address.as_str().into(),
        }
    };
    let internal = machine.internal.iter().map(of_type("InternalIP"));
    let external = machine.external.iter().map(of_type("ExternalIP"));
    InstanceMetadata {
        provider_id: format!("{NAME}://{}", machine.name),
        instance_type: machine.instance_type.clone(),
        addresses: internal.chain(external).collect(),
        zone: machine.zone.clone(),
        region: machine.region.clone(),
        labels: machine.labels.clone(),
    }
}
