//! Calls of the webhooks by an API server: defaults, denials and conversions.

use database_operator::{Database, v1beta1};
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{from_value, json};

/// Returns a database named `orders`.
pub(crate) fn database(instances: i32, schedule: Option<&str>) -> Database {
    from_value(json!({
        "apiVersion": "data.example.com/v1", "kind": "Database", "metadata": {"name": "orders"},
        "spec": {"version": "17", "instances": instances, "storage": "10Gi", "backupSchedule": schedule},
    }))
    .unwrap()
}

/// Asserts that a server with the webhook configurations calls the webhooks.
pub(crate) async fn the_server_calls_the_webhooks(client: Client) {
    let post = PostParams::default();
    let current: Api<Database> = Api::default_namespaced(client.clone());
    let old: Api<v1beta1::Database> = Api::default_namespaced(client);

    let created = current.create(&post, &database(0, Some("0 3 * * *"))).await.unwrap();
    assert_eq!(created.spec.instances, 1, "the default");
    let Err(kube::Error::Api(denied)) = current.create(&post, &database(10, None)).await else {
        panic!("a database with ten instances is created");
    };
    assert!(
        denied.message.contains("spec.instances: Invalid value: 10: must be between 1 and 9"),
        "{denied:?}"
    );
    let larger = Patch::Merge(json!({"spec": {"storage": "20Gi"}}));
    let Err(kube::Error::Api(denied)) =
        current.patch("orders", &PatchParams::default(), &larger).await
    else {
        panic!("the volumes of a database are resized");
    };
    assert!(denied.message.contains("spec.storage"), "{denied:?}");

    let converted = old.get("orders").await.unwrap();
    assert_eq!((converted.spec.replicas, converted.spec.storage_gi), (1, 10));
    assert_eq!(converted.metadata.annotations.unwrap()[v1beta1::BACKUP_SCHEDULE], "0 3 * * *");
    let more = Patch::Merge(json!({"spec": {"replicas": 2}}));
    old.patch("orders", &PatchParams::default(), &more).await.unwrap();
    let stored = current.get("orders").await.unwrap();
    assert_eq!(
        (stored.spec.instances, stored.spec.backup_schedule.as_deref()),
        (2, Some("0 3 * * *"))
    );
    assert_eq!(old.list(&ListParams::default()).await.unwrap().items.len(), 1);
}
