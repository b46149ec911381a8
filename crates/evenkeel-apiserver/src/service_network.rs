//! Ranges of cluster IPs, and the objects that publish the server's own address: the Service `kubernetes`, its
//! endpoints and the default ServiceCIDR.

use std::net::{IpAddr, SocketAddr};

use evenkeel_api::cidr::{Cidr, from_number, number};
use evenkeel_kinds::service::IpFamily;
use serde_json::{Value, json};

/// Default range of cluster IPs if the server advertises an IPv4 address.
const DEFAULT_IPV4_RANGE: &str = "10.96.0.0/16";

/// Default range of cluster IPs if the server advertises an IPv6 address.
const DEFAULT_IPV6_RANGE: &str = "fd00:10:96::/112";

/// Name of the ServiceCIDR that lists the ranges of `--service-cluster-ip-range`.
pub(crate) const DEFAULT_SERVICE_CIDR: &str = "kubernetes";

/// Minimum number of addresses in a range of cluster IPs.
const MIN_ADDRESSES: u128 = 8;

/// Shortest prefix of an IPv6 range, in bits.
const MIN_IPV6_PREFIX: u8 = 64;

/// Ranges of cluster IPs, and the address that the server advertises.
pub(crate) struct ServiceNetwork {
    advertised: SocketAddr,
    primary: Cidr,
    /// Range of the other IP family, in a dual-stack cluster.
    secondary: Option<Cidr>,
}

impl ServiceNetwork {
    /// Parses one range, or two of different IP families, in the syntax of `--service-cluster-ip-range`. The first one
    /// has the family of the advertised address; by default there is one range of that family.
    ///
    /// Upstream: `getServiceIPAndRanges`, `validateClusterIPFlags`, `validatePublicIPServiceClusterIPRangeIPFamilies`.
    pub(crate) fn new(advertised: SocketAddr, ranges: Option<&str>) -> Result<Self, String> {
        let default = if advertised.is_ipv4() { DEFAULT_IPV4_RANGE } else { DEFAULT_IPV6_RANGE };
        let ranges = ranges.unwrap_or(default);
        let ranges: Vec<Cidr> = ranges.split(',').map(parse_range).collect::<Result<_, _>>()?;
        let (primary, secondary) = match ranges[..] {
            [primary] => (primary, None),
            [primary, secondary] if primary.is_ipv4() != secondary.is_ipv4() => {
                (primary, Some(secondary))
            }
            [_, _] => return Err("both ranges must be of different IP families".to_owned()),
            _ => return Err("there must be one range or two".to_owned()),
        };
        let range_family = family(&primary).name();
        let address_family = IpFamily::of(advertised.ip()).name();
        if range_family != address_family {
            return Err(format!(
                "the IP family of the first range, {range_family}, must be that of the advertised address, {address_family}"
            ));
        }
        Ok(Self { advertised, primary, secondary })
    }

    /// Returns the IP families of the ranges, the cluster's default family first.
    pub(crate) fn families(&self) -> Vec<IpFamily> {
        self.ranges().map(family).collect()
    }

    /// Returns the ranges as `spec.cidrs` of the default ServiceCIDR lists them.
    pub(crate) fn cidrs(&self) -> Vec<Value> {
        self.ranges().map(|range| range.to_string().into()).collect()
    }

    fn ranges(&self) -> impl Iterator<Item = &Cidr> {
        [&self.primary].into_iter().chain(&self.secondary)
    }

    /// Returns the cluster IP of the Service `kubernetes`: the first address after the network address.
    pub(crate) fn service_address(&self) -> IpAddr {
        from_number(number(self.primary.first()) + 1, self.primary.is_ipv4())
    }

    /// Returns the Service `kubernetes`, whose cluster IP is [`service_address`](Self::service_address).
    pub(crate) fn service(&self) -> Value {
        let ip = self.service_address().to_string();
        json!({
            "metadata": {
                "name": "kubernetes",
                "namespace": "default",
                "labels": {"component": "apiserver", "provider": "kubernetes"},
            },
            "spec": {
                "clusterIP": ip,
                "clusterIPs": [ip],
                "internalTrafficPolicy": "Cluster",
                "ipFamilies": [family(&self.primary).name()],
                "ipFamilyPolicy": "SingleStack",
                "ports": [{
                    "name": "https",
                    "port": 443,
                    "protocol": "TCP",
                    "targetPort": self.advertised.port(),
                }],
                "sessionAffinity": "None",
                "type": "ClusterIP",
            },
            "status": {"loadBalancer": {}},
        })
    }

    /// Returns the default ServiceCIDR.
    pub(crate) fn service_cidr(&self, now: &str) -> Value {
        json!({
            "metadata": {"name": DEFAULT_SERVICE_CIDR},
            "spec": {"cidrs": self.cidrs()},
            "status": {"conditions": [{
                "type": "Ready",
                "status": "True",
                "reason": "",
                "message": "Kubernetes default Service CIDR is ready",
                "lastTransitionTime": now,
            }]},
        })
    }

    /// Returns the address that the server advertises.
    pub(crate) fn advertised_address(&self) -> IpAddr {
        self.advertised.ip()
    }

    /// Returns the Endpoints with the addresses of the servers. Their label makes the EndpointSlice mirroring controller ignore
    /// them, because the server writes its EndpointSlice itself.
    pub(crate) fn endpoints(&self, addresses: &[String]) -> Value {
        let addresses: Vec<Value> = addresses.iter().map(|ip| json!({"ip": ip})).collect();
        json!({
            "metadata": {
                "name": "kubernetes",
                "namespace": "default",
                "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"},
            },
            "subsets": [{
                "addresses": addresses,
                "ports": [{"name": "https", "port": self.advertised.port(), "protocol": "TCP"}],
            }],
        })
    }

    /// Returns the EndpointSlice with the addresses of the servers.
    pub(crate) fn endpoint_slice(&self, addresses: &[String]) -> Value {
        let endpoint = |ip| json!({"addresses": [ip], "conditions": {"ready": true}});
        let endpoints: Vec<Value> = addresses.iter().map(endpoint).collect();
        json!({
            "metadata": {
                "name": "kubernetes",
                "namespace": "default",
                "generation": 1,
                "labels": {"kubernetes.io/service-name": "kubernetes"},
            },
            "addressType": IpFamily::of(self.advertised.ip()).name(),
            "endpoints": endpoints,
            "ports": [{"name": "https", "port": self.advertised.port(), "protocol": "TCP"}],
        })
    }
}

fn family(range: &Cidr) -> IpFamily {
    IpFamily::of(range.first())
}

/// Parses a range of cluster IPs, and checks its size.
fn parse_range(text: &str) -> Result<Cidr, String> {
    let range = Cidr::parse(text)
        .ok_or_else(|| format!("{text:?} is not a range in CIDR notation (10.96.0.0/16)"))?;
    if !range.is_ipv4() && range.length() < MIN_IPV6_PREFIX {
        return Err(format!(
            "{range}: the prefix of an IPv6 range has at least {MIN_IPV6_PREFIX} bits"
        ));
    }
    if number(range.last()) - number(range.first()) + 1 < MIN_ADDRESSES {
        return Err(format!("{range}: it must have at least {MIN_ADDRESSES} addresses"));
    }
    Ok(range)
}
