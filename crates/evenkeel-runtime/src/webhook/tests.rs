//! Requests within the process.

use super::*;
use crate::{clock::Clock, scripted::Script};
use http::StatusCode;
use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::core::NamespaceResourceScope;
use serde::Deserialize;
use serde_json::{Value, json};
use std::{borrow::Cow, time::Duration};

/// An app whose `size` is a number, under the field name of one version.
macro_rules! app {
    ($module:ident, $version:literal, $field:ident: $type:ty) => {
        mod $module {
            use super::*;

            #[derive(Debug, Clone, Serialize, Deserialize)]
            #[serde(rename_all = "camelCase")]
            pub(super) struct App {
                #[serde(default)]
                pub(super) metadata: ObjectMeta,
                pub(super) $field: $type,
            }

            impl Resource for App {
                type DynamicType = ();
                type Scope = NamespaceResourceScope;

                fn kind(_: &()) -> Cow<'_, str> {
                    "App".into()
                }

                fn group(_: &()) -> Cow<'_, str> {
                    "apps.example.com".into()
                }

                fn version(_: &()) -> Cow<'_, str> {
                    $version.into()
                }

                fn plural(_: &()) -> Cow<'_, str> {
                    "apps".into()
                }

                fn meta(&self) -> &ObjectMeta {
                    &self.metadata
                }

                fn meta_mut(&mut self) -> &mut ObjectMeta {
                    &mut self.metadata
                }
            }
        }
    };
}

app!(v2, "v2", size: i32);
app!(v1, "v1", replicas: i32);
app!(v1alpha1, "v1alpha1", count: String);

impl From<v1::App> for v2::App {
    fn from(app: v1::App) -> Self {
        Self { metadata: app.metadata, size: app.replicas }
    }
}

impl From<v2::App> for v1::App {
    fn from(app: v2::App) -> Self {
        Self { metadata: app.metadata, replicas: app.size }
    }
}

impl TryFrom<v1alpha1::App> for v2::App {
    type Error = String;

    fn try_from(app: v1alpha1::App) -> Result<Self, String> {
        let size =
            app.count.parse().map_err(|_| format!("count {:?} is not a number", app.count))?;
        let mut metadata = app.metadata;
        if size == 666 {
            metadata.name = Some("beast".to_owned());
        }
        Ok(Self { metadata, size })
    }
}

impl From<v2::App> for v1alpha1::App {
    fn from(app: v2::App) -> Self {
        assert_ne!(app.size, 13, "no app has 13");
        let annotations = Some([("sized".to_owned(), "yes".to_owned())].into());
        let metadata = ObjectMeta { annotations, ..ObjectMeta::default() };
        Self { metadata, count: app.size.to_string() }
    }
}

fn server() -> WebhookServer {
    WebhookServer::new(0, Certificates::self_managed("app-hooks"))
}

async fn post(hooks: &WebhookServer, path: &str, body: impl Into<Bytes>) -> (StatusCode, Value) {
    let request = Request::post(path).header("content-type", "application/json");
    let answer = hooks.handle(request.body(body.into()).unwrap()).await;
    (answer.status(), serde_json::from_slice(answer.body()).unwrap_or_default())
}

#[expect(clippy::needless_pass_by_value, reason = "callers make the values")]
fn review(operation: &str, version: &str, object: Value, old: Value) -> String {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u1", "operation": operation, "name": "shop", "namespace": "default",
        "kind": {"group": "apps.example.com", "version": version, "kind": "App"},
        "resource": {"group": "apps.example.com", "version": version, "resource": "apps"},
        "userInfo": {"username": "alice"}, "dryRun": null,
        "object": object, "oldObject": old,
    }})
    .to_string()
}

fn app(size: i32) -> Value {
    json!({"apiVersion": "apps.example.com/v2", "kind": "App", "metadata": {"name": "shop"}, "size": size, "new": [1]})
}

/// Returns the result of the JSON patch in a response.
fn patched(response: &Value, object: &Value) -> Value {
    use base64::{Engine as _, prelude::BASE64_STANDARD};
    assert_eq!(response["patchType"], "JSONPatch");
    let patch = BASE64_STANDARD.decode(response["patch"].as_str().unwrap()).unwrap();
    let mut patched = object.clone();
    let patch: json_patch::Patch = serde_json::from_slice(&patch).unwrap();
    json_patch::patch(&mut patched, &patch).unwrap();
    patched
}

#[tokio::test]
async fn defaults_are_a_patch_that_keeps_unknown_fields() {
    let hooks = server();
    hooks.webhook::<v2::App>().defaults(|app, request| {
        if app.size == 0 {
            app.size = 1;
        }
        if app.size < 0 {
            return Err(format!(
                "{} must not shrink it",
                request.user_info.username.as_deref().unwrap()
            )
            .into());
        }
        Ok(())
    });
    let path = "/mutate-apps-example-com-v2-app";
    let (code, answer) = post(&hooks, path, review("CREATE", "v2", app(0), Value::Null)).await;
    assert_eq!((code, &answer["response"]["uid"]), (StatusCode::OK, &json!("u1")));
    assert_eq!(patched(&answer["response"], &app(0)), app(1));
    let ok = json!({"uid": "u1", "allowed": true, "status": {"metadata": {}, "code": 200}});
    let unchanged = post(&hooks, path, review("UPDATE", "v2", app(1), app(0))).await.1;
    assert_eq!(unchanged["response"], ok);
    let deletion = post(&hooks, path, review("DELETE", "v2", Value::Null, app(0))).await.1;
    assert_eq!(deletion["response"], ok);
    let denied = post(&hooks, path, review("CREATE", "v2", app(-1), Value::Null)).await.1;
    let status = json!({"metadata": {}, "code": 403, "reason": "Forbidden", "message": "alice must not shrink it"});
    assert_eq!(denied["response"], json!({"uid": "u1", "allowed": false, "status": status}));
}

#[tokio::test]
async fn validators_see_writes_and_deletions_separately() {
    let hooks = server();
    hooks
        .webhook::<v2::App>()
        .validates(|app, old, _| match old {
            Some(old) if old.size > app.size => {
                Err(FieldError::invalid("size", app.size, "it must not shrink").into())
            }
            _ => Ok(if app.size > 9 { "it is large".into() } else { Warnings::default() }),
        })
        .validates_deletions(|app, _| {
            if app.size > 0 {
                Err(Denied::new("it runs").with_warnings("stop it first"))
            } else {
                Ok(())
            }
        });
    let path = "/validate-apps-example-com-v2-app";
    for (operation, version, object, old, code, warnings, message) in [
        ("CREATE", "v2", app(1), Value::Null, 200, Value::Null, ""),
        ("CREATE", "v2", app(10), Value::Null, 200, json!(["it is large"]), ""),
        ("UPDATE", "v2", app(3), app(2), 200, Value::Null, ""),
        (
            "UPDATE",
            "v2",
            app(1),
            app(2),
            422,
            Value::Null,
            "App.apps.example.com \"shop\" is invalid: size: Invalid value: 1: it must not shrink",
        ),
        ("DELETE", "v2", Value::Null, app(2), 403, json!(["stop it first"]), "it runs"),
        ("DELETE", "v2", Value::Null, app(0), 200, Value::Null, ""),
        ("CONNECT", "v2", json!({}), Value::Null, 200, Value::Null, ""),
        (
            "CREATE",
            "v2",
            json!({"metadata": {}, "size": "x"}),
            Value::Null,
            400,
            Value::Null,
            "object: size: invalid type: string \"x\", expected i32 at line 1 column 25",
        ),
        (
            "UPDATE",
            "v2",
            app(1),
            Value::Null,
            400,
            Value::Null,
            "oldObject: there is no content to decode",
        ),
        (
            "CREATE",
            "v1",
            app(1),
            Value::Null,
            400,
            Value::Null,
            "this webhook is for App of apps.example.com/v2, not for App of apps.example.com/v1; \
             correct the rules of its configuration",
        ),
    ] {
        let (http, answer) = post(&hooks, path, review(operation, version, object, old)).await;
        let response = &answer["response"];
        assert_eq!(http, StatusCode::OK, "{operation} {message}");
        assert_eq!(response["status"]["code"], code, "{operation} {message}");
        assert_eq!(response["allowed"], code == 200, "{operation} {message}");
        assert_eq!(response["warnings"], warnings, "{operation} {message}");
        assert_eq!(response["status"]["message"].as_str().unwrap_or_default(), message);
    }
}

#[tokio::test]
async fn a_webhook_without_a_validator_of_deletions_allows_them() {
    let hooks = server();
    hooks.webhook::<v2::App>().validates(|_, _, _| Err::<(), _>("never".into()));
    let path = "/validate-apps-example-com-v2-app";
    let answer = post(&hooks, path, review("DELETE", "v2", Value::Null, app(2))).await.1;
    assert_eq!(answer["response"]["allowed"], true);
    let answer = post(&hooks, path, review("CREATE", "v2", app(2), Value::Null)).await.1;
    assert_eq!(answer["response"]["status"]["message"], "never");
}

#[tokio::test]
async fn requests_that_cannot_be_read_are_answered_as_by_controller_runtime() {
    let hooks = server();
    hooks.admits("/raw", |_| async { AdmissionResponse::allowed() });
    let large = vec![b' '; 7 * 1024 * 1024 + 1];
    for (body, code, message) in [
        (Bytes::new(), 400, "request body is empty"),
        (Bytes::from(large), 413, "request entity is too large; limit is 7340032 bytes"),
        (
            Bytes::from_static(b"{}"),
            400,
            "this server answers AdmissionReview of admission.k8s.io/v1",
        ),
    ] {
        let (http, answer) = post(&hooks, "/raw", body).await;
        let response = &answer["response"];
        assert_eq!((http, &response["uid"]), (StatusCode::OK, &json!("")));
        assert_eq!(
            (&response["allowed"], &response["status"]["code"]),
            (&json!(false), &json!(code))
        );
        let text = response["status"]["message"].as_str().unwrap();
        assert!(text.starts_with(message), "{text}");
    }
    let plain = Request::post("/raw").body(Bytes::from_static(b"{}")).unwrap();
    let answer: Value = serde_json::from_slice(hooks.handle(plain).await.body()).unwrap();
    assert_eq!(answer["response"]["status"]["message"], "contentType=, expected application/json");
    assert_eq!(post(&hooks, "/unknown", "").await.0, StatusCode::NOT_FOUND);
    assert_eq!(post(&hooks, "/convert", "").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test(start_paused = true)]
async fn panics_and_time_outs_are_answered_and_counted() {
    let registry = prometheus::Registry::new();
    let hooks = server();
    hooks.admits("/panics", |request| async move { panic!("no {}", request.name) });
    hooks.admits("/hangs", |_| std::future::pending());
    let metrics = metrics::Metrics::register(&registry);
    hooks.shared.routes.instrument(Clock::system(), metrics);
    let body = || review("CREATE", "v2", app(1), Value::Null);
    let (code, answer) = post(&hooks, "/panics", body()).await;
    assert_eq!(code, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(answer["message"], "the webhook /panics panicked: no shop [recovered]");
    let (code, answer) = post(&hooks, "/hangs?timeout=3s", body()).await;
    assert_eq!(code, StatusCode::GATEWAY_TIMEOUT);
    assert_eq!(answer["message"], "the webhook /hangs did not answer within 3s");
    let text = crate::metrics::answer(&http::HeaderMap::new(), &registry.gather());
    let text = String::from_utf8(text.into_body().to_vec()).unwrap();
    for line in [
        "controller_runtime_webhook_panics_total 1",
        "controller_runtime_webhook_requests_total{code=\"500\",webhook=\"/panics\"} 1",
        "controller_runtime_webhook_requests_total{code=\"200\",webhook=\"/panics\"} 0",
        "controller_runtime_webhook_requests_total{code=\"504\",webhook=\"/hangs\"} 1",
        "controller_runtime_webhook_requests_in_flight{webhook=\"/hangs\"} 0",
        "controller_runtime_webhook_latency_seconds_count{webhook=\"/hangs\"} 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
}

#[tokio::test]
async fn async_handlers_are_awaited() {
    let hooks = server();
    hooks
        .webhook::<ConfigMap>()
        .defaults_async(|mut map, _| async move {
            tokio::task::yield_now().await;
            map.immutable = Some(true);
            Ok(map)
        })
        .validates_async(|map, _, _| async move {
            tokio::task::yield_now().await;
            if map.data.is_none() { Err("it is empty".into()) } else { Ok(()) }
        });
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u1", "operation": "CREATE", "object": map,
        "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        "resource": {"group": "", "version": "v1", "resource": "configmaps"},
    }})
    .to_string();
    let answer = post(&hooks, "/mutate--v1-configmap", body.clone()).await.1;
    assert_eq!(patched(&answer["response"], &map)["immutable"], true);
    let answer = post(&hooks, "/validate--v1-configmap", body).await.1;
    assert_eq!(answer["response"]["status"]["message"], "it is empty");
}

#[test]
#[should_panic(expected = "/validate-apps-example-com-v2-app is registered twice")]
fn a_path_has_one_webhook() {
    let hooks = server();
    hooks.webhook::<v2::App>().validates(|_, _, _| Ok(()));
    hooks.webhook::<v2::App>().validates(|_, _, _| Ok(()));
}

fn conversion(desired: &str, objects: &[Value]) -> String {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request":
        {"uid": "u1", "desiredAPIVersion": format!("apps.example.com/{desired}"), "objects": objects}})
    .to_string()
}

#[expect(clippy::needless_pass_by_value, reason = "callers make the values")]
fn object(version: &str, name: &str, field: &str, value: Value) -> Value {
    json!({
        "apiVersion": format!("apps.example.com/{version}"), "kind": "App", field: value,
        "metadata": {"name": name, "namespace": "default", "uid": "1", "future": true, "labels": {"a": "b"}},
    })
}

#[tokio::test]
async fn any_version_is_converted_to_any_other() {
    let hooks = server();
    hooks.webhook::<v2::App>().converts::<v1::App>().converts::<v1alpha1::App>();
    let app = |version: &str| match version {
        "v2" => object("v2", "shop", "size", json!(3)),
        "v1" => object("v1", "shop", "replicas", json!(3)),
        _ => object("v1alpha1", "shop", "count", json!("3")),
    };
    for from in ["v2", "v1", "v1alpha1"] {
        for to in ["v2", "v1", "v1alpha1"] {
            let body = conversion(to, &[app(from), app(from)]);
            let (code, answer) = post(&hooks, "/convert", body).await;
            assert_eq!((code, &answer["kind"]), (StatusCode::OK, &json!("ConversionReview")));
            let mut expected = app(to);
            if to == "v1alpha1" && from != to {
                expected["metadata"]["annotations"] = json!({"sized": "yes"});
            }
            let response = &answer["response"];
            assert_eq!(response["result"]["status"], "Success", "{answer}");
            assert_eq!(response["convertedObjects"], json!([expected, expected]), "{from} to {to}");
            assert_eq!(response["uid"], "u1");
        }
    }
}

#[tokio::test]
async fn failed_conversions_name_their_objects() {
    let hooks = server();
    hooks.webhook::<v2::App>().converts::<v1alpha1::App>();
    let good = || object("v1alpha1", "good", "count", json!("3"));
    for (objects, message) in [
        (
            vec![
                good(),
                object("v1alpha1", "a", "count", json!("x")),
                object("v1alpha1", "b", "count", json!(1)),
            ],
            "App default/a: count \"x\" is not a number; \
             App default/b: count: invalid type: integer `1`, expected a string",
        ),
        (
            vec![object("v1alpha1", "c", "count", json!("666"))],
            "App default/c: the conversion must not change metadata.name to \"beast\"",
        ),
        (
            vec![object("v9", "d", "count", json!("1"))],
            "App default/d: no conversion is known for App of apps.example.com/v9, only for versions [\"v1alpha1\", \"v2\"]",
        ),
        (
            vec![object("v1alpha1", "e", "count", json!("x")); 12],
            "App default/e: count \"x\" is not a number",
        ),
    ] {
        let (code, answer) = post(&hooks, "/convert", conversion("v2", &objects)).await;
        let result = &answer["response"]["result"];
        assert_eq!((code, &result["status"]), (StatusCode::OK, &json!("Failed")));
        let text = result["message"].as_str().unwrap();
        assert!(text.starts_with(message), "{text}");
        assert_eq!(text.contains("2 more objects"), objects.len() == 12);
    }
    let unlucky = conversion("v1alpha1", &[object("v2", "f", "size", json!(13))]);
    let (code, answer) = post(&hooks, "/convert", unlucky).await;
    assert_eq!(code, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(answer["message"].as_str().unwrap().contains("no app has 13"));
    let old = conversion("v2", &[]).replace("k8s.io/v1", "k8s.io/v1beta1");
    let (code, answer) = post(&hooks, "/convert", old).await;
    assert_eq!(code, StatusCode::BAD_REQUEST);
    assert!(
        answer["message"].as_str().unwrap().ends_with("set conversionReviewVersions to [\"v1\"]")
    );
}

#[tokio::test(start_paused = true)]
async fn a_missing_namespace_stops_the_program_in_words() {
    let manager = crate::manager::Manager::builder(Script::new([]).kube()).build().unwrap();
    manager.add_webhooks(server());
    assert_eq!(
        manager.readiness().failures()[0],
        ("webhooks".to_owned(), "there is no certificate yet".to_owned())
    );
    let ended = tokio::time::timeout(Duration::from_secs(60), manager.run(std::future::pending()));
    let error = ended.await.unwrap().unwrap_err();
    let text = crate::client::full_text(&error);
    assert!(text.contains("the namespace of the Service app-hooks is unknown"), "{text}");
}
