//! Webhooks of databases, and the objects that make an API server call them.

use crate::{Database, v1, v1beta1};
use evenkeel_runtime::webhook::{Certificates, Denied, FieldError, WebhookServer};
use kube::{CustomResourceExt as _, core::crd::merge_crds};
use serde_json::{Value, json};

/// Name of the Service in front of the webhooks.
const SERVICE: &str = "database-webhooks";
/// Maximum number of instances.
const MAX_INSTANCES: i32 = 9;

/// Returns the webhooks, which listen on a port. Their certificates are in a Secret of a namespace.
pub fn webhooks(port: u16, namespace: &str) -> WebhookServer {
    let certificates = Certificates::self_managed(SERVICE).in_namespace(namespace);
    let hooks = WebhookServer::new(port, certificates);
    hooks
        .webhook::<Database>()
        .defaults(|database, _| {
            if database.spec.instances == 0 {
                database.spec.instances = 1;
            }
            Ok(())
        })
        .validates(|database, old, _| validate(database, old))
        .converts::<v1beta1::Database>();
    hooks
}

fn validate(database: &Database, old: Option<&Database>) -> Result<(), Denied> {
    let spec = &database.spec;
    let mut errors = Vec::new();
    if !(1..=MAX_INSTANCES).contains(&spec.instances) {
        let detail = format!("must be between 1 and {MAX_INSTANCES}");
        errors.push(FieldError::invalid("spec.instances", spec.instances, &detail));
    }
    if old.is_some_and(|old| old.spec.storage != spec.storage) {
        errors.push(FieldError::immutable("spec.storage", spec.storage.clone()));
    }
    if errors.is_empty() { Ok(()) } else { Err(Denied::invalid(errors)) }
}

/// Returns the CustomResourceDefinition of databases. `port` is the port of the webhooks' Service in the namespace.
///
/// # Errors
/// Fails if the versions cannot be merged.
pub fn definition(namespace: &str, port: u16) -> anyhow::Result<Value> {
    let merged = merge_crds(vec![v1::Database::crd(), v1beta1::Database::crd()], "v1")?;
    let mut definition = serde_json::to_value(merged)?;
    definition["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
        "conversionReviewVersions": ["v1"],
        "clientConfig": {"service": service(namespace, port, "/convert")},
    }});
    Ok(definition)
}

/// Returns the MutatingWebhookConfiguration and the ValidatingWebhookConfiguration. The operator sets their `caBundle`.
pub fn configurations(namespace: &str, port: u16) -> [Value; 2] {
    [("Mutating", "mutate"), ("Validating", "validate")].map(|(kind, verb)| {
        let path = format!("/{verb}-data-example-com-v1-database");
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": format!("{kind}WebhookConfiguration"),
            "metadata": {"name": "databases"},
            "webhooks": [{
                "name": "databases.data.example.com",
                "clientConfig": {"service": service(namespace, port, &path)},
                "rules": [{
                    "apiGroups": ["data.example.com"],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE", "UPDATE"],
                    "resources": ["databases"],
                }],
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }],
        })
    })
}

fn service(namespace: &str, port: u16, path: &str) -> Value {
    json!({"namespace": namespace, "name": SERVICE, "port": port, "path": path})
}
