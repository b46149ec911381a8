//! The `caBundle`s of objects that call a Service.
//!
//! cert-manager's CA injector and cert-controller's rotator do the same for other servers.

use super::material::Names;
use crate::plan::PatchType;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use evenkeel_api::{DecodeError, Encoding, Kind, Meta, View, json, views::Metadata};
use serde::Deserialize;
use serde_json::json;
use std::marker::PhantomData;

const REGISTRATION: &str = "admissionregistration.k8s.io";

/// Kind of objects with client configurations.
pub(super) trait Caller: Send + Sync + 'static {
    /// Returns the kind of the objects.
    fn kind() -> Kind;
}

/// Marks the kind MutatingWebhookConfiguration.
pub(super) struct Mutating;
/// Marks the kind ValidatingWebhookConfiguration.
pub(super) struct Validating;
/// Marks CustomResourceDefinitions, which call conversion webhooks.
pub(super) struct Conversions;

impl Caller for Mutating {
    fn kind() -> Kind {
        let plural = "mutatingwebhookconfigurations";
        Kind::new(REGISTRATION, "v1", "MutatingWebhookConfiguration", plural, false)
    }
}

impl Caller for Validating {
    fn kind() -> Kind {
        let plural = "validatingwebhookconfigurations";
        Kind::new(REGISTRATION, "v1", "ValidatingWebhookConfiguration", plural, false)
    }
}

impl Caller for Conversions {
    fn kind() -> Kind {
        let plural = "customresourcedefinitions";
        Kind::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition", plural, false)
    }
}

/// The part of an object that names the webhooks that it calls.
pub(super) struct Calls<C> {
    meta: Meta,
    clients: Vec<Client>,
    caller: PhantomData<fn() -> C>,
}

/// Client configuration of a webhook.
struct Client {
    /// Name of the webhook. A conversion webhook has none.
    name: Option<String>,
    config: ClientConfig,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct ClientConfig {
    service: Option<Service>,
    ca_bundle: Option<String>,
}

#[derive(Deserialize)]
struct Service {
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
}

/// Fields of the three kinds.
#[derive(Deserialize)]
struct Object {
    #[serde(default)]
    webhooks: Vec<Webhook>,
    spec: Option<Spec>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Webhook {
    name: String,
    #[serde(default)]
    client_config: ClientConfig,
}

#[derive(Deserialize)]
struct Spec {
    conversion: Option<Conversion>,
}

#[derive(Deserialize)]
struct Conversion {
    webhook: Option<ConversionWebhook>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConversionWebhook {
    client_config: Option<ClientConfig>,
}

impl<C: Caller> View for Calls<C> {
    const PROTOBUF: bool = false;

    fn kind() -> Kind {
        C::kind()
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn decode(bytes: &[u8], encoding: Encoding) -> Result<Self, DecodeError> {
        let failed = |reason: String| DecodeError {
            kind: C::kind().kind.into(),
            field: ".".into(),
            reason: reason.into(),
        };
        if encoding != Encoding::Json {
            return Err(failed("it is read from JSON only".to_owned()));
        }
        let Metadata { meta } = Metadata::decode(bytes, encoding)?;
        let object: Object = json::from_slice(bytes).map_err(|error| failed(error.to_string()))?;
        let webhooks = object.webhooks.into_iter();
        let admission = webhooks
            .map(|webhook| Client { name: Some(webhook.name), config: webhook.client_config });
        let conversion = object.spec.and_then(|spec| spec.conversion?.webhook?.client_config);
        let conversion = conversion.map(|config| Client { name: None, config });
        Ok(Self { meta, clients: admission.chain(conversion).collect(), caller: PhantomData })
    }
}

/// Patch that sets the `caBundle`s of an object.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Injection {
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) form: PatchType,
    /// The patch as JSON. The server refuses it if the object has changed meanwhile.
    pub(super) body: String,
}

impl<C: Caller> Calls<C> {
    /// Returns the patch that makes all of the object's webhooks behind the Service trust `bundle` (PEM), or `None` if they
    /// already do.
    pub(super) fn injection(&self, names: &Names, bundle: &[u8]) -> Option<Injection> {
        let bundle = BASE64_STANDARD.encode(bundle);
        let is_ours = |service: &Service| {
            service.name == names.service && service.namespace == names.namespace
        };
        let differing: Vec<&Client> = self
            .clients
            .iter()
            .filter(|client| client.config.service.as_ref().is_some_and(is_ours))
            .filter(|client| client.config.ca_bundle.as_deref() != Some(&*bundle))
            .collect();
        if differing.is_empty() {
            return None;
        }
        let metadata = json!({"resourceVersion": &*self.meta.resource_version});
        let config = json!({"caBundle": bundle});
        let webhooks: Vec<_> = differing
            .iter()
            .filter_map(|client| client.name.as_ref())
            .map(|name| json!({"name": name, "clientConfig": config}))
            .collect();
        let (form, body) = if webhooks.is_empty() {
            let spec = json!({"conversion": {"webhook": {"clientConfig": config}}});
            (PatchType::Merge, json!({"metadata": metadata, "spec": spec}))
        } else {
            (PatchType::Strategic, json!({"metadata": metadata, "webhooks": webhooks}))
        };
        let (kind, name) = (C::kind(), self.meta.name.to_string());
        Some(Injection { kind, name, form, body: body.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names::new("hooks".into(), "default".into(), None).unwrap()
    }

    fn decode<C: Caller>(object: &serde_json::Value) -> Calls<C> {
        Calls::decode(object.to_string().as_bytes(), Encoding::Json).unwrap()
    }

    #[test]
    fn bundles_of_webhooks_behind_the_service_are_set() {
        let bundle = BASE64_STANDARD.encode("pem");
        let config = |namespace: &str, name: &str, bundle: Option<&str>| json!({"service": {"namespace": namespace, "name": name}, "caBundle": bundle});
        let hook =
            |name: &str, config: serde_json::Value| json!({"name": name, "clientConfig": config});
        let metadata = json!({"name": "x", "resourceVersion": "7"});
        for (case, hooks, changed) in [
            ("none", json!([]), json!([])),
            ("another namespace", json!([hook("a", config("other", "hooks", None))]), json!([])),
            ("another Service", json!([hook("a", config("default", "other", None))]), json!([])),
            ("a URL", json!([hook("a", json!({"url": "https://example.com"}))]), json!([])),
            (
                "it is there",
                json!([hook("a", config("default", "hooks", Some(&bundle)))]),
                json!([]),
            ),
            (
                "missing and old",
                json!([
                    hook("a", config("default", "hooks", None)),
                    hook("b", config("default", "hooks", Some(&bundle))),
                    hook("c", config("default", "hooks", Some("b2xk"))),
                ]),
                json!([
                    {"name": "a", "clientConfig": {"caBundle": bundle}},
                    {"name": "c", "clientConfig": {"caBundle": bundle}},
                ]),
            ),
        ] {
            let calls: Calls<Mutating> = decode(&json!({"metadata": metadata, "webhooks": hooks}));
            let injection = calls.injection(&names(), b"pem");
            let body = injection.map(|injection| {
                assert_eq!((injection.form, &*injection.name), (PatchType::Strategic, "x"));
                serde_json::from_str::<serde_json::Value>(&injection.body).unwrap()
            });
            let expected = (changed != json!([]))
                .then(|| json!({"metadata": {"resourceVersion": "7"}, "webhooks": changed}));
            assert_eq!(body, expected, "{case}");
        }
    }

    #[test]
    fn bundles_of_conversion_webhooks_are_set() {
        let metadata = json!({"name": "x", "resourceVersion": "7"});
        let crd = |conversion: serde_json::Value| {
            let crd =
                json!({"metadata": metadata, "spec": {"conversion": conversion, "group": "g"}});
            decode::<Conversions>(&crd).injection(&names(), b"pem")
        };
        assert_eq!(crd(json!({"strategy": "None"})), None);
        let service = json!({"namespace": "default", "name": "hooks"});
        let injection = crd(json!({"webhook": {"clientConfig": {"service": service}}})).unwrap();
        assert_eq!(injection.form, PatchType::Merge);
        let body: serde_json::Value = serde_json::from_str(&injection.body).unwrap();
        let config = json!({"caBundle": BASE64_STANDARD.encode("pem")});
        let expected = json!({
            "metadata": {"resourceVersion": "7"},
            "spec": {"conversion": {"webhook": {"clientConfig": config}}},
        });
        assert_eq!(body, expected);
    }
}
