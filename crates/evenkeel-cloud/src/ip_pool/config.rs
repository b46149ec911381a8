//! Configuration of the provider: address pools and a table of machines.

use super::pool::{Pool, Range};
use serde::Deserialize;
use std::{collections::BTreeMap, path::PathBuf};

/// Configuration of the provider, the content of `--cloud-config` in YAML or JSON:
///
/// ```
/// use evenkeel_cloud::ip_pool::Config;
///
/// let config = Config::parse(r#"
/// pools:
/// - name: public
///   addresses: [192.0.2.16/28, 192.0.2.40-192.0.2.49, "2001:db8::/120"]
/// nodes:
///   complete: true
///   machines:
///   - name: rack-1
///     internal: [10.0.0.1]
///     external: [192.0.2.1]
///     zone: cellar
/// "#).unwrap();
/// assert_eq!(config.pools[0].addresses.len(), 3);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Config {
    /// Address pools, tried in this order.
    pub pools: Vec<PoolConfig>,
    /// Table of machines. Without it, nodes are not changed.
    pub nodes: Option<Nodes>,
}

/// Pool of addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct PoolConfig {
    /// Name of the pool, which a service may request.
    pub name: String,
    /// Addresses of the pool, IPv4 or IPv6. Each entry is a single address, a range `first-last`, or a network
    /// `address/length`.
    pub addresses: Vec<String>,
}

/// Table of machines.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Nodes {
    /// Whether the table contains all existing machines. If so, any node that it lacks is deleted once the node
    /// is not ready. Otherwise this holds only for nodes that this provider has initialized.
    pub complete: bool,
    /// Machines of the provider, one for each node.
    pub machines: Vec<Machine>,
}

/// Machine that a node runs on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Machine {
    /// Name of the machine's node.
    pub name: String,
    /// Addresses inside the cluster's network.
    pub internal: Vec<String>,
    /// Addresses outside the cluster's network.
    pub external: Vec<String>,
    /// Zone of the machine, for the label `topology.kubernetes.io/zone`.
    pub zone: String,
    /// Region of the machine, for the label `topology.kubernetes.io/region`.
    pub region: String,
    /// Instance type of the machine, for the node's label.
    pub instance_type: String,
    /// Additional labels of the machine's node.
    pub labels: BTreeMap<String, String>,
    /// Whether the machine was shut down on purpose.
    pub shut_down: bool,
}

/// Error of a configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the read.
        source: std::io::Error,
    },
    /// The file is not a valid [`Config`].
    #[error("the configuration is not valid: {0}")]
    Text(String),
    /// An entry is not an address, a range or a network.
    #[error("{0:?} is not an address, range (first-last) or network (address/length)")]
    Range(String),
    /// Two ranges overlap, so an address would be in both.
    #[error("addresses {0} and {1} overlap")]
    Overlap(String, String),
    /// A pool or machine has no name, or two have the same name.
    #[error("{0} {1:?}: a name must be given, and only once")]
    Name(&'static str, String),
    /// A machine's address is invalid.
    #[error("machine {0}: {1:?} is not an IP address")]
    Address(String, String),
}

impl Config {
    /// Parses a configuration.
    ///
    /// # Errors
    /// Fails if the configuration is invalid; the error contains the position.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        serde_saphyr::from_str(text).map_err(|error| ConfigError::Text(error.to_string()))
    }

    /// Returns a configuration with a single pool of these comma-separated addresses.
    pub fn of_addresses(addresses: &str) -> Self {
        let addresses = addresses.split(',').map(|text| text.trim().to_owned()).collect();
        let pool = PoolConfig { name: "default".to_owned(), addresses };
        Self { pools: vec![pool], nodes: None }
    }
}

/// Configuration after its validation.
#[derive(Debug, Default)]
pub(super) struct ValidConfig {
    pub(super) pools: Vec<Pool>,
    pub(super) nodes: Option<Nodes>,
}

impl ValidConfig {
    pub(super) fn of(config: &Config) -> Result<Self, ConfigError> {
        check_unique("pool", config.pools.iter().map(|pool| &pool.name))?;
        let pools: Vec<Pool> = config.pools.iter().map(parse_pool).collect::<Result<_, _>>()?;
        let ranges: Vec<&Range> = pools.iter().flat_map(|pool| &pool.ranges).collect();
        for (index, range) in ranges.iter().enumerate() {
            if let Some(other) = ranges[index + 1..].iter().find(|other| range.overlaps(other)) {
                return Err(ConfigError::Overlap(range.to_string(), other.to_string()));
            }
        }
        if let Some(nodes) = &config.nodes {
            check_unique("machine", nodes.machines.iter().map(|machine| &machine.name))?;
            nodes.machines.iter().try_for_each(check_addresses)?;
        }
        Ok(Self { pools, nodes: config.nodes.clone() })
    }
}

fn parse_pool(config: &PoolConfig) -> Result<Pool, ConfigError> {
    let ranges = config.addresses.iter().map(|text| Range::parse(text));
    Ok(Pool { name: config.name.clone(), ranges: ranges.collect::<Result<_, _>>()? })
}

/// Checks that each name is not empty and occurs once. `kind` is the kind of the named entries in the error.
fn check_unique<'a>(
    kind: &'static str,
    names: impl Iterator<Item = &'a String>,
) -> Result<(), ConfigError> {
    let mut seen = std::collections::BTreeSet::new();
    for name in names {
        if name.is_empty() || !seen.insert(name) {
            return Err(ConfigError::Name(kind, name.clone()));
        }
    }
    Ok(())
}

/// Checks that all addresses of a machine are valid.
fn check_addresses(machine: &Machine) -> Result<(), ConfigError> {
    let invalid = machine
        .internal
        .iter()
        .chain(&machine.external)
        .find(|address| address.parse::<std::net::IpAddr>().is_err());
    match invalid {
        Some(address) => Err(ConfigError::Address(machine.name.clone(), address.clone())),
        None => Ok(()),
    }
}
