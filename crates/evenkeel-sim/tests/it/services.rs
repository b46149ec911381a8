//! Under faults, Services have the addresses of exactly their pods.

use crate::fixtures::{
    DEPLOYMENTS, KINDS, MINUTE, PODS, REST, SILENCE, deployment, each_of, every_kind, is_ready,
    ready, several, web_pods,
};
use evenkeel_sim::{FaultKind, Faults, Options, World, part};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const SERVICES: &str = "/api/v1/namespaces/default/services";
const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const CIDRS: &str = "/apis/networking.k8s.io/v1/servicecidrs";

/// Returns options that leave the times of endpoint changes out of comparisons.
pub(crate) fn options() -> Options {
    let coalesced = "changes that are seen together have one time or none";
    Options::default()
        .ignores("EndpointSlice/metadata/annotations", coalesced)
        .ignores("Endpoints/metadata/annotations", coalesced)
}

fn service(name: &str, spec: &Value) -> Value {
    json!({"metadata": {"name": name, "labels": {"team": "a"}}, "spec": spec})
}

fn selecting(labels: &Value) -> Value {
    json!({"selector": labels, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]})
}

async fn slices_of(world: &World, service: &str) -> Vec<Value> {
    let all = world.list(SLICES).await;
    all.into_iter()
        .filter(|slice| slice["metadata"]["labels"]["kubernetes.io/service-name"] == service)
        .collect()
}

fn texts<'a>(values: impl Iterator<Item = &'a Value>) -> BTreeSet<String> {
    values.filter_map(|value| value.as_str().map(str::to_owned)).collect()
}

fn inside<'a>(list: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    list[field].as_array().into_iter().flatten()
}

/// Checks that the Endpoints and the EndpointSlices of a Service name exactly the ready pods, each once.
async fn check_addresses(world: &World, service: &str, n: usize) {
    let pods = world.list(PODS).await;
    let ips = texts(pods.iter().filter(|pod| is_ready(pod)).map(|pod| &pod["status"]["podIP"]));
    assert_eq!(ips.len(), n, "{ips:?}");
    let slices = slices_of(world, service).await;
    let endpoints: Vec<&Value> =
        slices.iter().flat_map(|slice| inside(slice, "endpoints")).collect();
    assert!(
        endpoints.iter().all(|endpoint| endpoint["conditions"]["ready"] == true),
        "{endpoints:#?}"
    );
    assert_eq!(endpoints.len(), n, "{endpoints:#?}");
    assert_eq!(texts(endpoints.iter().map(|endpoint| &endpoint["addresses"][0])), ips);
    let whole = world.get(&format!("{ENDPOINTS}/{service}")).await.expect("it is there");
    let addresses: Vec<&Value> =
        inside(&whole, "subsets").flat_map(|subset| inside(subset, "addresses")).collect();
    assert_eq!(addresses.len(), n, "{whole:#}");
    assert_eq!(texts(addresses.into_iter().map(|address| &address["ip"])), ips);
}

/// Endpoints and EndpointSlices follow pods that are created, deleted and replaced, and are deleted with the Service.
pub(crate) async fn follow(world: &mut World, faults: Faults) {
    let pods = web_pods(world).await;
    world.settle(REST).await;
    world.arm(faults);
    world.create(SERVICES, &service("web", &selecting(&json!({"app": "web"})))).await;
    world.create(DEPLOYMENTS, &deployment(3, "a")).await;
    ready(world, &pods, 3).await;
    world.settle(REST).await;
    check_addresses(world, "web", 3).await;
    world.merge(&format!("{DEPLOYMENTS}/web"), &json!({"spec": {"replicas": 1}})).await;
    ready(world, &pods, 1).await;
    world.settle(REST).await;
    check_addresses(world, "web", 1).await;
    world
        .merge(&format!("{SERVICES}/web"), &json!({"spec": {"selector": {"app": "nobody"}}}))
        .await;
    world.settle(REST).await;
    let slices = slices_of(world, "web").await;
    assert_eq!(slices.len(), 1, "{slices:#?}");
    assert_eq!(inside(&slices[0], "endpoints").count(), 0, "{slices:#?}");
    world.delete(&format!("{SERVICES}/web"), "Background").await;
    world.settle(MINUTE).await;
    assert!(slices_of(world, "web").await.is_empty(), "slices are collected");
    assert!(world.get(&format!("{ENDPOINTS}/web")).await.is_none(), "Endpoints are deleted");
    world.stays_silent(SILENCE).await;
}

/// The controller mirrors the Endpoints that a user writes for a Service without a selector, until they are deleted.
pub(crate) async fn mirror(world: &mut World, faults: Faults) {
    world.settle(REST).await;
    world.arm(faults);
    let ports = json!({"ports": [{"name": "http", "port": 80}]});
    world.create(SERVICES, &service("manual", &ports)).await;
    let subset =
        |ip: &str| json!({"addresses": [{"ip": ip}], "ports": [{"name": "http", "port": 8080}]});
    let endpoints = json!({
        "metadata": {"name": "manual"},
        "subsets": [subset("10.9.0.1"), {"addresses": [{"ip": "fd00::1"}], "ports": [{"name": "http", "port": 8081}]}],
    });
    world.create(ENDPOINTS, &endpoints).await;
    world.settle(REST).await;
    assert_eq!(slices_of(world, "manual").await.len(), 2);
    world.merge(&format!("{ENDPOINTS}/manual"), &json!({"subsets": [subset("10.9.0.2")]})).await;
    world.settle(REST).await;
    let slices = slices_of(world, "manual").await;
    assert_eq!(slices.len(), 1, "{slices:#?}");
    assert_eq!(slices[0]["endpoints"][0]["addresses"], json!(["10.9.0.2"]));
    world.delete(&format!("{ENDPOINTS}/manual"), "Background").await;
    world.settle(MINUTE).await;
    assert!(slices_of(world, "manual").await.is_empty());
    world.stays_silent(SILENCE).await;
}

/// A deleted ServiceCIDR exists until no Service uses an address of it.
pub(crate) async fn ranges(world: &mut World, faults: Faults) {
    world.settle(REST).await;
    world.arm(faults);
    let range = json!({"metadata": {"name": "more"}, "spec": {"cidrs": ["10.97.0.0/24"]}});
    world.create(CIDRS, &range).await;
    world.settle(REST).await;
    let mut spec = selecting(&json!({"app": "nobody"}));
    spec["clusterIP"] = "10.97.0.9".into();
    world.create(SERVICES, &service("far", &spec)).await;
    world.delete(&format!("{CIDRS}/more"), "Background").await;
    world.settle(REST).await;
    let range = world.get(&format!("{CIDRS}/more")).await.expect("it is in use");
    assert_eq!(range["status"]["conditions"][0]["reason"], "Terminating", "{range:#}");
    world.delete(&format!("{SERVICES}/far"), "Background").await;
    world.settle(MINUTE).await;
    assert!(world.get(&format!("{CIDRS}/more")).await.is_none());
    world.stays_silent(SILENCE).await;
}

#[test]
fn endpoints_with_a_crash_after_each_write() {
    each_of(&options(), part::CONTROLLERS, FaultKind::CrashAfter, 10, &follow);
}

#[test]
fn endpoints_with_each_answer_lost() {
    each_of(&options(), part::CONTROLLERS, FaultKind::LoseAnswer, 10, &follow);
}

#[test]
fn mirroring_with_a_crash_before_each_write() {
    each_of(&options(), part::CONTROLLERS, FaultKind::CrashBefore, 3, &mirror);
}

#[test]
fn service_cidrs_with_a_crash_after_each_write() {
    each_of(&options(), part::CONTROLLERS, FaultKind::CrashAfter, 3, &ranges);
}

#[test]
fn services_with_random_faults() {
    several(&options(), 8, (6, 30), &KINDS, &follow);
    several(&options(), 8, (6, 30), &KINDS, &mirror);
}

#[test]
fn endpoints_with_every_kind_of_fault() {
    every_kind(&options(), &follow);
}

#[test]
fn mirroring_with_every_kind_of_fault() {
    every_kind(&options(), &mirror);
}

#[test]
fn service_cidrs_with_every_kind_of_fault() {
    every_kind(&options(), &ranges);
}
