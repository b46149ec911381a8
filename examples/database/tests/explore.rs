//! The operator under faults, one at each of its writes. The test includes the certificates of its webhooks, but not their
//! calls, because a server in virtual time opens no connections.

use database_operator::{Database, configurations, definition, operator, webhooks};
use evenkeel_test::Exploration;
use k8s_openapi::api::{
    admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
    batch::v1::CronJob,
    core::v1::Pod,
};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{from_value, json};

/// Controllers that a database needs until its instances are ready, besides those of any cluster.
const CONTROLLERS: [&str; 6] = [
    "node-lifecycle-controller",
    "persistentvolume-binder-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
    "serviceaccount-controller",
    "statefulset-controller",
];

#[test]
fn the_operator_survives_a_fault_at_any_write() {
    let crd = definition("default", 443).expect("a definition");
    Exploration::new(|kube, setup| operator(kube, setup, webhooks(0, "default")))
        .server(move |builder| builder.crd_value(&crd))
        .controllers(CONTROLLERS)
        .nodes(1)
        .keeps("persistentvolumes") // Nobody runs that would reclaim them.
        .ignores_field("/webhooks/0/clientConfig/caBundle") // Keys are random.
        .max_runs(18) // EVENKEEL_RUNS=1000 does more.
        .run(async |user| {
            let post = PostParams::default();
            let [mut mutating, mut validating] = configurations("default", 443);
            for configuration in [&mut mutating, &mut validating] {
                configuration["webhooks"][0]["failurePolicy"] = json!("Ignore");
            }
            let mutations: Api<MutatingWebhookConfiguration> = Api::all(user.client());
            mutations.create(&post, &from_value(mutating)?).await?;
            let validations: Api<ValidatingWebhookConfiguration> = Api::all(user.client());
            validations.create(&post, &from_value(validating)?).await?;
            let databases = user.api::<Database>();
            let database = json!({
                "apiVersion": "data.example.com/v1", "kind": "Database",
                "metadata": {"name": "orders"},
                "spec": {
                    "version": "17", "instances": 1, "storage": "1Gi",
                    "backupSchedule": "0 3 1 1 *",
                },
            });
            databases.create(&post, &from_value(database)?).await?;
            user.settle().await;
            let hooks = mutations.get("databases").await?.webhooks.unwrap_or_default();
            assert!(hooks.iter().all(|hook| hook.client_config.ca_bundle.is_some()));
            user.api::<CronJob>().get("orders-backup").await?;
            let change = Patch::Merge(json!({"spec": {"version": "18", "backupSchedule": null}}));
            databases.patch("orders", &PatchParams::default(), &change).await?;
            user.settle().await;
            let status = databases.get("orders").await?.status.expect("a status");
            assert_eq!(status.ready_instances, 1);
            let pod = user.api::<Pod>().get("orders-0").await?.spec.expect("a spec");
            assert_eq!(pod.containers[0].image.as_deref(), Some("postgres:18"));
            assert!(user.api::<CronJob>().get_opt("orders-backup").await?.is_none());
            Ok(())
        });
}
