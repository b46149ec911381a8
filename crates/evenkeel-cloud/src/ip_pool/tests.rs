//! Tests of the allocation, which must never allocate an address twice.

use super::{
    Config, POOL_ANNOTATION,
    config::ValidConfig,
    plan::{AllocationError, Reserved, allocate},
};
use crate::fixtures::{balanced, service};
use evenkeel_api::views::Service;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::{net::IpAddr, sync::Arc};

fn pools(text: &str) -> ValidConfig {
    ValidConfig::of(&Config::of_addresses(text)).unwrap()
}

fn allocated(
    pools: &ValidConfig,
    others: &[Arc<Service>],
    service: &Service,
) -> Result<Vec<String>, AllocationError> {
    let given = allocate(&pools.pools, others, &Reserved::default(), service)?;
    Ok(given.iter().map(IpAddr::to_string).collect())
}

fn with_ingress(name: &str, ips: &[&str]) -> Value {
    let mut service = balanced(name);
    let ingress: Vec<Value> = ips.iter().map(|ip| json!({"ip": ip})).collect();
    service["status"]["loadBalancer"]["ingress"] = ingress.into();
    service
}

fn families(mut service: Value, policy: &str, families: &[&str]) -> Arc<Service> {
    service["spec"]["ipFamilyPolicy"] = json!(policy);
    service["spec"]["ipFamilies"] = json!(families);
    super::tests::service(&service)
}

#[test]
fn first_free_address_is_allocated_and_kept() {
    let pools = pools("198.18.0.0/30, 198.18.1.5-198.18.1.6");
    let taken = |ips: &[&str]| vec![service(&with_ingress("other", ips))];
    let new = service(&balanced("s"));
    assert_eq!(allocated(&pools, &[], &new).unwrap(), ["198.18.0.1"], "not the network address");
    assert_eq!(allocated(&pools, &taken(&["198.18.0.1"]), &new).unwrap(), ["198.18.0.2"]);
    let both = ["198.18.0.1", "198.18.0.2"];
    assert_eq!(allocated(&pools, &taken(&both), &new).unwrap(), ["198.18.1.5"]);
    let mut all = both.to_vec();
    all.extend(["198.18.1.5", "198.18.1.6"]);
    let full = allocated(&pools, &taken(&all), &new).unwrap_err();
    assert!(matches!(full, AllocationError::Exhausted("IPv4", _)) && full.is_transient(), "{full}");
    assert!(full.to_string().contains("198.18.1.5-198.18.1.6"), "{full}");
    let kept = service(&with_ingress("s", &["198.18.1.6"]));
    assert_eq!(allocated(&pools, &taken(&["198.18.0.1"]), &kept).unwrap(), ["198.18.1.6"]);
    let moved = service(&with_ingress("s", &["203.0.113.1"]));
    assert_eq!(
        allocated(&pools, &[], &moved).unwrap(),
        ["198.18.0.1"],
        "its address is no longer in a pool"
    );
}

#[test]
fn load_balancer_ip_is_allocated_or_refused() {
    let pools = pools("198.18.0.0/29,fd00::/126");
    let allocate_requested = |ip: &str, others: &[Arc<Service>]| {
        let mut requesting = with_ingress("s", &["198.18.0.1"]);
        requesting["spec"]["loadBalancerIP"] = json!(ip);
        allocated(&pools, others, &service(&requesting))
    };
    assert_eq!(allocate_requested("198.18.0.5", &[]).unwrap(), ["198.18.0.5"]);
    let other = [service(&with_ingress("other", &["198.18.0.5"]))];
    let taken = allocate_requested("198.18.0.5", &other).unwrap_err();
    assert!(
        taken.is_transient() && taken.to_string().ends_with("is taken by service ns/other"),
        "{taken}"
    );
    for (ip, why) in [
        ("203.0.113.1", "is in none of the pools"),
        ("here", "is no IP address"),
        ("fd00::1", "is of a family that the service does not have"),
    ] {
        let error = allocate_requested(ip, &[]).unwrap_err();
        assert!(!error.is_transient() && error.to_string().contains(why), "{error}");
    }
}

#[test]
fn ip_family_policy_decides_about_families() {
    let (both, four) = (pools("198.18.0.0/29,fd00::/126"), pools("198.18.0.0/29"));
    let two = ["IPv6", "IPv4"];
    let require = families(balanced("s"), "RequireDualStack", &two);
    assert_eq!(allocated(&both, &[], &require).unwrap(), ["fd00::1", "198.18.0.1"]);
    assert!(matches!(allocated(&four, &[], &require), Err(AllocationError::NoFamily("IPv6", _))));
    let prefer = families(balanced("s"), "PreferDualStack", &["IPv4", "IPv6"]);
    assert_eq!(allocated(&both, &[], &prefer).unwrap(), ["198.18.0.1", "fd00::1"]);
    assert_eq!(allocated(&four, &[], &prefer).unwrap(), ["198.18.0.1"]);
    let six = families(balanced("s"), "SingleStack", &["IPv6"]);
    assert!(matches!(allocated(&four, &[], &six), Err(AllocationError::NoFamily("IPv6", _))));
    let none = families(balanced("s"), "", &[]);
    assert_eq!(allocated(&both, &[], &none).unwrap(), ["198.18.0.1"]);
}

#[test]
fn pool_annotation_selects_the_pool() {
    let text = "pools: [{name: a, addresses: [198.18.0.1]}, {name: b, addresses: [198.18.1.1]}]";
    let pools = ValidConfig::of(&Config::parse(text).unwrap()).unwrap();
    let mut requesting = balanced("s");
    requesting["metadata"]["annotations"] = json!({POOL_ANNOTATION: "b"});
    assert_eq!(allocated(&pools, &[], &service(&requesting)).unwrap(), ["198.18.1.1"]);
    requesting["metadata"]["annotations"] = json!({POOL_ANNOTATION: "c"});
    assert_eq!(
        allocated(&pools, &[], &service(&requesting)),
        Err(AllocationError::NoPool("c".into()))
    );
}

#[test]
fn external_ips_of_other_services_are_not_allocated() {
    let pools = pools("198.18.0.1-198.18.0.3");
    let mut claiming = balanced("other");
    claiming["spec"]["externalIPs"] = json!(["198.18.0.1"]);
    let claiming = [service(&claiming)];
    assert_eq!(allocated(&pools, &claiming, &service(&balanced("s"))).unwrap(), ["198.18.0.2"]);
    let keeping = service(&with_ingress("s", &["198.18.0.1"]));
    assert_eq!(allocated(&pools, &claiming, &keeping).unwrap(), ["198.18.0.1"]);
}

#[test]
fn older_of_two_services_keeps_a_shared_address() {
    let pools = pools("198.18.0.1-198.18.0.3");
    let aged = |name: &str, time: &str| {
        let mut service = with_ingress(name, &["198.18.0.1"]);
        service["metadata"]["creationTimestamp"] = json!(time);
        super::tests::service(&service)
    };
    let (old, young) = (aged("z", "2026-01-01T00:00:00Z"), aged("a", "2026-01-02T00:00:00Z"));
    let all = [Arc::clone(&old), Arc::clone(&young)];
    assert_eq!(allocated(&pools, &all, &old).unwrap(), ["198.18.0.1"]);
    assert_eq!(allocated(&pools, &all, &young).unwrap(), ["198.18.0.2"]);
}

#[test]
fn invalid_configurations_are_rejected() {
    let invalid = [
        ("pools: [{name: a, addresses: [198.18.0.1-fd00::1]}]", "198.18.0.1-fd00::1"),
        ("pools: [{name: a, addresses: [198.18.0.9-198.18.0.1]}]", "198.18.0.9"),
        (
            "pools: [{name: a, addresses: [10.0.0.0/8]}, {name: b, addresses: [10.1.2.3]}]",
            "overlap",
        ),
        ("pools: [{name: a}, {name: a}]", "only once"),
        ("pools: [{addresses: [10.0.0.1]}]", "must be given"),
        ("pool: []", "pool"),
        ("nodes: {machines: [{name: m, internal: [x]}]}", "\"x\" is not an IP address"),
        ("nodes: {machines: [{name: m}, {name: m}]}", "only once"),
    ];
    for (text, why) in invalid {
        let error = Config::parse(text).and_then(|config| ValidConfig::of(&config)).unwrap_err();
        assert!(error.to_string().contains(why), "{text}: {error}");
    }
}

#[derive(Debug, Clone)]
enum Step {
    Ensure(usize, Option<u8>),
    WriteStatus(usize),
    Release(usize),
    Restart,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]
    /// Allocates addresses to services, writes them to the services' statuses, and releases them, in any order. The
    /// provider restarts only when the statuses contain all addresses.
    #[test]
    fn no_address_is_allocated_twice(steps in proptest::collection::vec(prop_oneof![
        4 => (0usize..5, proptest::option::of(1u8..6)).prop_map(|(index, ip)| Step::Ensure(index, ip)),
        3 => (0usize..5).prop_map(Step::WriteStatus),
        2 => (0usize..5).prop_map(Step::Release),
        1 => Just(Step::Restart),
    ], 0..40)) {
        let pools = pools("198.18.0.1-198.18.0.4");
        let mut objects: Vec<Value> = (0..5).map(|index| balanced(&index.to_string())).collect();
        let mut reserved = Reserved::default();
        let mut given: Vec<Vec<IpAddr>> = vec![Vec::new(); 5];
        for step in steps {
            match step {
                Step::Ensure(index, ip) => {
                    let requested_ip = ip.map_or(Value::Null, |ip| json!(format!("198.18.0.{ip}")));
                    objects[index]["spec"]["loadBalancerIP"] = requested_ip;
                    let all: Vec<_> = objects.iter().map(service).collect();
                    if let Ok(addresses) = allocate(&pools.pools, &all, &reserved, &all[index]) {
                        prop_assert_eq!(addresses.len(), 1);
                        let twice = given.iter().enumerate().any(|(other, other_addresses)| {
                                        other != index && other_addresses.contains(&addresses[0])
                        });
                        prop_assert!(!twice, "{:?} for {index}, of {given:?}", addresses);
                        reserved.reserve(&index.to_string(), addresses.clone());
                        given[index] = addresses;
                    }
                }
                Step::WriteStatus(index) => {
                    let ingress: Vec<Value> = given[index].iter().map(|ip| json!({"ip": ip.to_string()})).collect();
                    objects[index]["status"]["loadBalancer"]["ingress"] = ingress.into();
                }
                Step::Release(index) => {
                    reserved.release(&index.to_string());
                    given[index].clear();
                    objects[index]["status"]["loadBalancer"]["ingress"] = json!([]);
                }
                Step::Restart => {
                    for (index, object) in objects.iter_mut().enumerate() {
                        let ingress: Vec<Value> = given[index].iter().map(|ip| json!({"ip": ip.to_string()})).collect();
                        object["status"]["loadBalancer"]["ingress"] = ingress.into();
                    }
                    reserved = Reserved::default();
                }
            }
        }
    }
}
