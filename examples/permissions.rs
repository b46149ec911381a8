//! Permissions of an operator's manifest, in tests.

use kube::{
    Api, Client, Discovery,
    api::{DynamicObject, PostParams},
    discovery::Scope,
};

/// Creates the objects of a manifest, and returns a service account's groups. Objects in `namespace` are created in the
/// namespace `default` instead, where simulated operators run.
pub(crate) async fn grant(client: &Client, manifest: &str, namespace: &str) -> [&'static str; 2] {
    let manifest = manifest.replace(&format!("namespace: {namespace}"), "namespace: default");
    let objects: Vec<DynamicObject> = serde_saphyr::from_multiple(&manifest).expect("a manifest");
    let known = Discovery::new(client.clone()).run().await.expect("a discovery");
    for object in objects {
        let types = object.types.as_ref().and_then(|types| types.try_into().ok());
        let (resource, served) =
            known.resolve_gvk(&types.expect("a type")).expect("a kind that the server serves");
        let api: Api<DynamicObject> = match served.scope {
            Scope::Cluster => Api::all_with(client.clone(), &resource),
            Scope::Namespaced => Api::default_namespaced_with(client.clone(), &resource),
        };
        api.create(&PostParams::default(), &object).await.expect("a valid object");
    }
    ["system:serviceaccounts", "system:serviceaccounts:default"]
}
