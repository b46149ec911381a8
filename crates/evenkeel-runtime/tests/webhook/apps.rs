//! A custom resource with two versions, the webhooks of its operator, and the objects that call them.

use evenkeel_runtime::webhook::{Certificates, FieldError, Warnings, WebhookServer};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Name of the Service in front of the webhooks.
pub(crate) const SERVICE: &str = "app-hooks";
/// Name of the Secret with the certificates.
pub(crate) const SECRET: &str = "app-hooks-tls";

pub(crate) mod v1 {
    use super::*;

    #[derive(CustomResource, Debug, Clone, Serialize, Deserialize)]
    #[kube(group = "example.com", version = "v1", kind = "App", namespaced, schema = "disabled")]
    pub(crate) struct Spec {
        #[serde(default)]
        pub(crate) size: i32,
    }
}

pub(crate) mod v1beta1 {
    use super::*;

    #[derive(CustomResource, Debug, Clone, Serialize, Deserialize)]
    #[kube(
        group = "example.com",
        version = "v1beta1",
        kind = "App",
        namespaced,
        schema = "disabled"
    )]
    pub(crate) struct Spec {
        #[serde(default)]
        pub(crate) replicas: i32,
    }
}

impl From<v1beta1::App> for v1::App {
    fn from(app: v1beta1::App) -> Self {
        Self { metadata: app.metadata, spec: v1::Spec { size: app.spec.replicas } }
    }
}

impl TryFrom<v1::App> for v1beta1::App {
    type Error = String;

    fn try_from(app: v1::App) -> Result<Self, String> {
        if app.spec.size > 1000 {
            return Err(format!("v1beta1 has no size of {}", app.spec.size));
        }
        let spec = v1beta1::Spec { replicas: app.spec.size };
        // A conversion need not copy the metadata.
        Ok(Self { metadata: ObjectMeta::default(), spec })
    }
}

/// Returns the webhooks of apps on a free port.
pub(crate) fn webhooks() -> WebhookServer {
    let hooks = WebhookServer::new(0, Certificates::self_managed(SERVICE).in_namespace("default"));
    hooks
        .webhook::<v1::App>()
        .defaults(|app, _| {
            if app.spec.size == 0 {
                app.spec.size = 1;
            }
            Ok(())
        })
        .validates(|app, _, _| match app.spec.size {
            ..0 => {
                Err(FieldError::invalid("spec.size", app.spec.size, "must be at least 0").into())
            }
            100.. => Ok("the app is very large".into()),
            _ => Ok(Warnings::default()),
        })
        .converts::<v1beta1::App>();
    hooks
}

/// Returns the CustomResourceDefinition of apps, whose conversion webhook is at this port of the Service.
pub(crate) fn definition(port: u16) -> Value {
    let version = |name: &str, field: &str, storage: bool| {
        let spec = json!({"type": "object", "properties": {field: {"type": "integer"}}});
        let schema = json!({"type": "object", "properties": {"spec": spec}});
        json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": schema}})
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "apps.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"kind": "App", "plural": "apps", "singular": "app"},
            "versions": [version("v1", "size", true), version("v1beta1", "replicas", false)],
            "conversion": {"strategy": "Webhook", "webhook": {
                "conversionReviewVersions": ["v1"],
                "clientConfig": {"service": service(port, "/convert")},
            }},
        },
    })
}

/// Returns a webhook configuration of the kind `mutating` or `validating`.
pub(crate) fn configuration(port: u16, path: &str) -> Value {
    let rule = json!({"apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE", "DELETE"],
        "resources": ["apps"]});
    json!({"metadata": {"name": "apps"}, "webhooks": [{
        "name": "apps.example.com",
        "clientConfig": {"service": service(port, path)},
        "rules": [rule],
        "matchPolicy": "Exact",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }]})
}

fn service(port: u16, path: &str) -> Value {
    json!({"namespace": "default", "name": SERVICE, "port": port, "path": path})
}

/// Returns the Service, which routes to this machine.
pub(crate) fn service_object() -> Value {
    json!({"metadata": {"name": SERVICE}, "spec": {"type": "ExternalName", "externalName": "localhost"}})
}

/// Returns an app in the version v1.
pub(crate) fn app(name: &str, size: i32) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "App", "metadata": {"name": name, "labels": {"a": "b"}}, "spec": {"size": size}})
}
