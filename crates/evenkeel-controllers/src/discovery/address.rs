//! IP addresses and IP families.

pub(super) use evenkeel_api::address::parse;
use evenkeel_api::views::Service;
use std::net::IpAddr;

/// IP family. Its names are those of `spec.ipFamilies` and of a slice's `addressType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    /// Both families, in the order in which they are reconciled.
    pub(super) const BOTH: [Self; 2] = [Self::V4, Self::V6];

    /// Returns the family's name in the API.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    /// Returns the family with this name.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::BOTH.into_iter().find(|family| family.name() == name)
    }

    /// Returns the family of an address.
    pub(super) fn of(ip: IpAddr) -> Self {
        if ip.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

/// Returns whether the Service has a cluster IP.
pub(super) fn has_cluster_ip(service: &Service) -> bool {
    !matches!(&*service.spec.cluster_ip, "" | "None")
}

/// Returns the families for which a Service has slices. Old API servers did not set `ipFamilies`: then it is the family
/// of the cluster IP, or both families for a headless Service. Upstream: `getAddressTypesForService`.
pub(super) fn families(service: &Service) -> Vec<Family> {
    let names = &service.spec.ip_families;
    let is_listed = |family: &Family| names.iter().any(|name| **name == *family.name());
    let families: Vec<Family> = Family::BOTH.into_iter().filter(is_listed).collect();
    if !families.is_empty() {
        return families;
    }
    cluster_ip_family(service).map_or_else(|| Family::BOTH.to_vec(), |family| vec![family])
}

/// Returns the IP family of a Service's Endpoints: the first of `ipFamilies`, or without `ipFamilies` the family of the
/// cluster IP. `None` means that the `podIP` of each pod decides.
pub(super) fn first_family(service: &Service) -> Option<Family> {
    let first = service.spec.ip_families.first();
    match first {
        // Any name except `IPv6` counts as IPv4.
        Some(name) => Some(Family::from_name(name).unwrap_or(Family::V4)),
        None => cluster_ip_family(service),
    }
}

/// Returns the family of the cluster IP, or `None` without one. An address that cannot be parsed counts as IPv4.
fn cluster_ip_family(service: &Service) -> Option<Family> {
    if !has_cluster_ip(service) {
        return None;
    }
    Some(parse(&service.spec.cluster_ip).map_or(Family::V4, Family::of))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_default_to_those_of_the_cluster_ip() {
        let service = |families: &[&str], ip: &str| {
            let mut service = Service::default();
            service.spec.ip_families = families.iter().map(|name| (*name).into()).collect();
            service.spec.cluster_ip = ip.into();
            service
        };
        // Service, its families, and its first family.
        let table = [
            (service(&["IPv6", "IPv4"], "fd00::1"), vec![Family::V4, Family::V6], Some(Family::V6)),
            (service(&["IPv4"], "None"), vec![Family::V4], Some(Family::V4)),
            (service(&[], "fd00::1"), vec![Family::V6], Some(Family::V6)),
            (service(&[], "10.0.0.1"), vec![Family::V4], Some(Family::V4)),
            (service(&[], "None"), vec![Family::V4, Family::V6], None),
        ];
        for (service, all, first) in table {
            assert_eq!((families(&service), first_family(&service)), (all, first), "{service:?}");
        }
    }
}
