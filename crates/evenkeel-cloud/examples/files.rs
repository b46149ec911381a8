//! Example of a cloud provider: writes an haproxy configuration file for each load balancer.
//!
//! Run it with `cargo run --example files -- --kubeconfig FILE --cloud-provider files --cloud-config FOLDER`. The
//! folder must contain a file `address` with the IP address of the haproxy.

use async_trait::async_trait;
use evenkeel_api::views::{LoadBalancerIngress, LoadBalancerStatus, Node, Service};
use evenkeel_cloud::{CloudError, CloudProvider, LoadBalancer};
use std::{fmt::Write, io::ErrorKind, path::PathBuf, sync::Arc};

/// Provider that writes configuration files for an haproxy.
pub struct Files {
    /// Folder of the configuration files.
    folder: PathBuf,
    /// IP address of the haproxy.
    address: String,
}

impl Files {
    /// Returns a provider that writes to an existing folder.
    pub fn new(folder: impl Into<PathBuf>, address: &str) -> Self {
        Self { folder: folder.into(), address: address.to_owned() }
    }

    fn path(&self, cluster: &str, service: &Service) -> PathBuf {
        self.folder.join(self.load_balancer_name(cluster, service)).with_extension("cfg")
    }

    fn status(&self) -> LoadBalancerStatus {
        let ip = self.address.as_str().into();
        // The balancer forwards connections to nodes, so packets do not reach nodes with its address as their
        // destination.
        let ip_mode = "Proxy".into();
        let ingress = LoadBalancerIngress { ip, ip_mode, ..LoadBalancerIngress::default() };
        LoadBalancerStatus { ingress: Box::new([ingress]) }
    }
}

impl CloudProvider for Files {
    fn name(&self) -> &str {
        "files"
    }

    fn load_balancer(&self) -> Option<&dyn LoadBalancer> {
        Some(self)
    }
}

#[async_trait]
impl LoadBalancer for Files {
    async fn get(
        &self,
        cluster: &str,
        service: &Service,
    ) -> Result<Option<LoadBalancerStatus>, CloudError> {
        Ok(self.path(cluster, service).exists().then(|| self.status()))
    }

    async fn ensure(
        &self,
        cluster: &str,
        service: &Service,
        nodes: &[Arc<Node>],
    ) -> Result<LoadBalancerStatus, CloudError> {
        self.update(cluster, service, nodes).await?;
        Ok(self.status())
    }

    async fn update(
        &self,
        cluster: &str,
        service: &Service,
        nodes: &[Arc<Node>],
    ) -> Result<(), CloudError> {
        let text = configuration(&self.load_balancer_name(cluster, service), service, nodes)?;
        let path = self.path(cluster, service);
        // Write a temporary file first, so that the haproxy never reads an incomplete file.
        let temporary = path.with_extension("new");
        std::fs::write(&temporary, text)
            .and_then(|()| std::fs::rename(&temporary, &path))
            .map_err(|error| CloudError::because(format!("cannot write {}", path.display()), error))
    }

    async fn ensure_deleted(&self, cluster: &str, service: &Service) -> Result<(), CloudError> {
        let path = self.path(cluster, service);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(CloudError::because(format!("cannot remove {}", path.display()), error))
            }
            _ => Ok(()),
        }
    }
}

/// Returns the configuration: a `listen` section for each port, with a server for each node.
fn configuration(name: &str, service: &Service, nodes: &[Arc<Node>]) -> Result<String, CloudError> {
    let mut text = String::new();
    for port in &service.spec.ports {
        if &*port.protocol == "UDP" {
            return Err(CloudError::failed(format!(
                "port {}: UDP is not balanced here",
                port.port
            )));
        }
        // Writing to a string cannot fail.
        let _ =
            writeln!(text, "listen {name}-{}\n    mode tcp\n    bind :{}", port.port, port.port);
        for node in nodes {
            let addresses = &node.status.addresses;
            let Some(address) = addresses.iter().find(|address| &*address.type_ == "InternalIP")
            else {
                continue;
            };
            let (node, address) = (&node.meta.name, &address.address);
            let _ = writeln!(text, "    server {node} {address}:{} check", port.node_port);
        }
    }
    Ok(text)
}

#[cfg(not(test))]
fn main() -> std::process::ExitCode {
    use evenkeel_cloud::program::{self, ProviderRegistry};

    let providers = ProviderRegistry::builtin().register("files", |options| {
        let folder = options.config.clone().ok_or("--cloud-config must name a folder")?;
        let address = std::fs::read_to_string(folder.join("address"))?;
        Ok(Arc::new(Files::new(folder, address.trim())))
    });
    program::main(std::env::args().skip(1), &providers)
}
