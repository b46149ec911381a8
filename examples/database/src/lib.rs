//! Operator of databases: each `Database` gets a StatefulSet with volumes, a headless Service, and a CronJob for backups.
//!
//! Version v1 is stored, and v1beta1 is converted by a webhook. Two more webhooks set defaults and validate.

pub mod v1;
pub mod v1beta1;
mod webhooks;

use evenkeel_runtime::{plan::Propagation, prelude::*, webhook::WebhookServer};
use k8s_openapi::api::{
    apps::v1::StatefulSet,
    batch::v1::CronJob,
    core::v1::{Service, Volume},
};
use kube::ResourceExt as _;
use serde_json::json;
pub use v1::{Database, DatabaseSpec};
pub use webhooks::{configurations, definition, webhooks};

/// Finalizer of databases.
///
/// The garbage collector deletes the children of a database in any case. But without a finalizer, a reconcile whose cache does
/// not show the deletion yet could create the StatefulSet again, and leave a claim without an owner. With the finalizer, the
/// cleanup is the last reconcile: the runtime waits until the cache shows the cleanup's write, which ends the database.
const FINALIZER: &str = "data.example.com/instances";

/// Builds the operator with its webhooks.
///
/// # Errors
/// Fails if the manager cannot be built.
pub fn operator(
    kube: kube::Client,
    setup: Setup,
    webhooks: WebhookServer,
) -> anyhow::Result<Manager> {
    let manager = Manager::builder(kube)
        .component("database-operator")
        .setup(setup)
        .leader_election_id("databases.data.example.com")
        .build()?;
    manager.add_webhooks(webhooks);
    manager
        .controller::<Database>()
        .when(generation_changed())
        .owns::<StatefulSet>()
        .owns::<Service>()
        .owns::<CronJob>()
        .finalizer(FINALIZER, clean_up)
        .reconcile(reconcile);
    Ok(manager)
}

async fn reconcile(database: Arc<Database>, cx: Context) -> Result<Outcome> {
    cx.apply(&service(&database)?).await?;
    let instances = cx.apply(&instances(&database)?).await?;
    let backups = match backups(&database)? {
        Some(backups) => Some(cx.apply(&backups).await?),
        None => {
            let namespace = database.namespace().unwrap_or_default();
            if let Some(backups) = cx.get::<CronJob>(&namespace, &backups_name(&database))? {
                cx.delete(&*backups).await?;
            }
            None
        }
    };
    let ready = instances.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0);
    let last_backup = backups.and_then(|backups| backups.status.clone()?.last_successful_time);
    let wanted = database.spec.instances;
    let message = format!("{ready} of {wanted} instances are ready");
    cx.status(&*database)
        .set(|status| {
            status.ready_instances = ready;
            status.last_backup = last_backup.map(|time| time.0.to_string());
        })
        .condition(conditions::of(&*database, "Ready", ready == wanted, "Instances", message))
        .patch_if_changed()
        .await?;
    Ok(Outcome::Settled)
}

/// Ends the backups of a database that is being deleted, and then its instances.
async fn clean_up(database: Arc<Database>, cx: Context) -> Result<()> {
    let namespace = database.namespace().unwrap_or_default();
    // Foreground deletion: a CronJob is deleted when its backups have ended, a StatefulSet when its instances have ended.
    let foreground =
        || DeleteOptions { propagation: Some(Propagation::Foreground), ..DeleteOptions::default() };
    if let Some(backups) = cx.get::<CronJob>(&namespace, &backups_name(&database))? {
        cx.delete_with(&*backups, foreground()).await?;
    }
    if let Some(instances) = cx.get::<StatefulSet>(&namespace, &database.name_any())? {
        cx.delete_with(&*instances, foreground()).await?;
    }
    Ok(())
}

/// Returns the Service that gives each instance a DNS name.
fn service(database: &Database) -> Result<Service> {
    let mut service: Service = serde_json::from_value(json!({
        "metadata": {"name": database.name_any()},
        "spec": {
            "clusterIP": "None",
            "selector": {"database": database.name_any()},
            "ports": [{"name": "sql", "port": 5432}],
        },
    }))?;
    service.controlled_by(database)?;
    Ok(service)
}

/// Returns the StatefulSet of the instances. Their volumes are deleted with it.
fn instances(database: &Database) -> Result<StatefulSet> {
    let spec = &database.spec;
    let labels = json!({"database": database.name_any()});
    let mut instances: StatefulSet = serde_json::from_value(json!({
        "metadata": {"name": database.name_any()},
        "spec": {
            "serviceName": database.name_any(),
            "replicas": spec.instances,
            "podManagementPolicy": "OrderedReady",
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Retain"},
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{
                    "name": "database",
                    "image": format!("postgres:{}", spec.version),
                    "ports": [{"name": "sql", "containerPort": 5432}],
                    "volumeMounts": [{"name": "data", "mountPath": "/var/lib/postgresql"}],
                }]},
            },
            "volumeClaimTemplates": [{
                "metadata": {"name": "data"},
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": spec.storage}},
                },
            }],
        },
    }))?;
    instances.controlled_by(database)?;
    Ok(instances)
}

/// Returns the CronJob of the backups, or `None` if the database wants none.
fn backups(database: &Database) -> Result<Option<CronJob>> {
    let Some(schedule) = &database.spec.backup_schedule else { return Ok(None) };
    let host = format!("--host={0}-0.{0}", database.name_any());
    let mut backups: CronJob = serde_json::from_value(json!({
        "metadata": {"name": backups_name(database)},
        "spec": {
            "schedule": schedule,
            "concurrencyPolicy": "Forbid",
            "jobTemplate": {"spec": {"template": {"spec": {
                "restartPolicy": "OnFailure",
                "containers": [{
                    "name": "backup",
                    "image": format!("postgres:{}", database.spec.version),
                    "command": ["pg_dump", host, "--file=/backups/dump"],
                    "volumeMounts": [{"name": "backups", "mountPath": "/backups"}],
                }],
                "volumes": [backup_volume()],
            }}}},
        },
    }))?;
    backups.controlled_by(database)?;
    Ok(Some(backups))
}

/// Returns the volume that holds the dumps. A real operator would upload them.
fn backup_volume() -> Volume {
    Volume { name: "backups".to_owned(), empty_dir: Some(Default::default()), ..Volume::default() }
}

fn backups_name(database: &Database) -> String {
    format!("{}-backup", database.name_any())
}
