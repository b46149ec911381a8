//! Runs the examples in the documentation of `evenkeel-runtime`, which are tests, on a server in virtual time.

use crate::{BoxError, TestServer, simulation::in_virtual_time};
use evenkeel_runtime::{
    clusters::{Cluster, FixedClusters},
    controller::Outcome,
    k8s_openapi::{
        api::core::v1::{ConfigMap, Secret},
        apimachinery::pkg::apis::meta::v1::Condition,
    },
    manager::{BuildError, Manager, ManagerBuilder, Setup},
    operator::{Context, Result},
    tasks::{catch_call_panic, catch_panic},
};
use kube::{
    Api, Client, Resource,
    api::{ObjectMeta, PostParams, TypeMeta},
    core::{NamespaceResourceScope, object::HasStatus},
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{
    borrow::Cow,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::sync::oneshot;

/// Time after which an example has failed.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Sends one value, from any clone.
type Once<T> = Arc<Mutex<Option<oneshot::Sender<T>>>>;

fn take<T>(sender: &Once<T>) -> Option<oneshot::Sender<T>> {
    sender.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Does nothing for an object.
///
/// # Errors
/// Never fails.
pub async fn reconcile<K, S>(_: Arc<K>, _: Context<S>) -> Result<Outcome> {
    Ok(Outcome::Settled)
}

/// Result of a function that the operator calls. A panic becomes an error with its message.
type End = std::result::Result<(), String>;

async fn end_of(ended: oneshot::Receiver<End>) -> Result<(), BoxError> {
    Ok(ended.await??)
}

/// Runs an operator until `check` has succeeded, and stops it.
async fn drive(
    server: &TestServer,
    build: impl Fn(ManagerBuilder) -> Result<Manager, BuildError> + Send + Sync + 'static,
    check: impl Future<Output = Result<(), BoxError>>,
) {
    let running = server.run(move |kube: Client, setup: Setup| {
        build(Manager::builder(kube).setup(setup).component("example"))
    });
    let checked = tokio::time::timeout(TIMEOUT, check).await;
    checked.expect("the example ends").expect("the example succeeds");
    running.stop().await.expect("the operator stops gracefully");
}

/// Runs an operator beside a server with the ConfigMap `settings`, whose data is `color: blue`. Calls `check` once the
/// operator's controllers have started, and stops the operator when `check` has ended.
///
/// # Panics
/// Panics if one of them fails.
pub fn operator(
    build: impl Fn(ManagerBuilder) -> Result<Manager, BuildError> + Send + Sync + 'static,
    check: impl AsyncFnOnce(Client) -> Result<(), BoxError>,
) {
    in_virtual_time(async {
        let server = TestServer::start().await.expect("a server");
        let client = server.client();
        let settings = json!({"metadata": {"name": "settings"}, "data": {"color": "blue"}});
        let settings: ConfigMap = serde_json::from_value(settings).expect("a ConfigMap");
        let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
        maps.create(&PostParams::default(), &settings).await.expect("a new object");
        let (built, elected) = oneshot::channel();
        let built: Once<_> = Arc::new(Mutex::new(Some(built)));
        let build = move |builder: ManagerBuilder| {
            let manager = build(builder)?;
            if let Some(built) = take(&built) {
                // The example may have failed.
                let _ = built.send(manager.elected());
            }
            Ok(manager)
        };
        let checked = async {
            elected.await?.await;
            check(client).await
        };
        drive(&server, build, checked).await;
    });
}

/// Runs a manager with the controllers and runnables that `declare` adds, until it has started.
///
/// # Panics
/// Panics if it does not start.
pub fn starts(declare: impl Fn(&Manager) + Send + Sync + 'static) {
    let build = move |builder: ManagerBuilder| {
        let manager = builder.build()?;
        declare(&manager);
        Ok(manager)
    };
    operator(build, async |_| Ok(()));
}

/// Runs a manager whose only cluster is `east`, until `declare` has returned for it.
///
/// # Panics
/// Panics if `declare` is not called, or panics.
pub fn cluster(declare: impl Fn(&Cluster) + Send + Sync + 'static) {
    let (end, ended) = oneshot::channel::<End>();
    let (declare, end) = (Arc::new(declare), Arc::new(Mutex::new(Some(end))));
    let build = move |builder: ManagerBuilder| {
        let manager = builder.build()?;
        let east = manager.unfenced_client().kube();
        let (declare, end) = (Arc::clone(&declare), Arc::clone(&end));
        manager.clusters(FixedClusters::new([("east", east)]), move |cluster: &Cluster| {
            let result = catch_call_panic(|| declare(cluster));
            if let Some(end) = take(&end) {
                // The example may have failed.
                let _ = end.send(result);
            }
        });
        Ok(manager)
    };
    operator(build, async |_| end_of(ended).await);
}

/// Runs a controller of ConfigMaps that owns Secrets, until `pass` has succeeded for the ConfigMap `settings`.
///
/// # Panics
/// Panics if the pass fails or panics.
pub fn pass<F, Fut>(pass: F)
where
    F: Fn(Arc<ConfigMap>, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<()>> + Send + 'static,
{
    let (pass, ended) = Pass::new(pass);
    let build = move |builder: ManagerBuilder| {
        let manager = builder.build()?;
        let pass = pass.clone();
        let maps = manager.controller::<ConfigMap>().owns::<Secret>();
        maps.reconcile(move |map: Arc<ConfigMap>, cx: Context| {
            let is_settings = map.metadata.name.as_deref() == Some("settings");
            pass.run(is_settings, map, cx)
        });
        Ok(manager)
    };
    operator(build, async |_| end_of(ended).await);
}

/// Function of one pass (reconcile), and the receiver of its result.
struct Pass<F> {
    function: Arc<F>,
    end: Once<End>,
}

impl<F> Clone for Pass<F> {
    fn clone(&self) -> Self {
        Self { function: Arc::clone(&self.function), end: Arc::clone(&self.end) }
    }
}

impl<F> Pass<F> {
    fn new(function: F) -> (Self, oneshot::Receiver<End>) {
        let (end, ended) = oneshot::channel();
        (Self { function: Arc::new(function), end: Arc::new(Mutex::new(Some(end))) }, ended)
    }

    /// Calls the function for the first object for which `is_meant` is true. Does nothing for other objects.
    fn run<K, Fut>(
        &self,
        is_meant: bool,
        object: Arc<K>,
        cx: Context,
    ) -> impl Future<Output = Result<Outcome>> + Send + use<K, Fut, F>
    where
        K: Send + Sync + 'static,
        F: Fn(Arc<K>, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        let this = self.clone();
        async move {
            if let Some(end) = is_meant.then(|| take(&this.end)).flatten() {
                let result = catch_panic(async { (this.function)(object, cx).await }).await;
                // The example may have failed.
                let _ = end.send(result.and_then(|ended| ended.map_err(|error| error.to_string())));
            }
            Ok(Outcome::Settled)
        }
    }
}

/// Kind with a status.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct WebApp {
    /// `apiVersion` and `kind`, without which the API server refuses a new custom resource.
    #[serde(flatten)]
    types: Option<TypeMeta>,
    metadata: ObjectMeta,
    /// State that the operator observed.
    pub status: Option<WebAppStatus>,
}

/// Observed state of a [`WebApp`].
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct WebAppStatus {
    /// Number of replicas that are ready.
    pub ready: i32,
    /// Conditions of the application.
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

impl Resource for WebApp {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "WebApp".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "example.com".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "webapps".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl HasStatus for WebApp {
    type Status = WebAppStatus;

    fn status(&self) -> Option<&WebAppStatus> {
        self.status.as_ref()
    }

    fn status_mut(&mut self) -> &mut Option<WebAppStatus> {
        &mut self.status
    }
}

/// Runs a controller of [`WebApp`]s until `pass` has succeeded for a new one, `shop`, and returns that.
///
/// # Panics
/// Panics if the pass fails or panics.
pub fn app<F, Fut>(pass: F) -> WebApp
where
    F: Fn(Arc<WebApp>, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<()>> + Send + 'static,
{
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "webapps.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"kind": "WebApp", "plural": "webapps"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": schema,
                "subresources": {"status": {}},
            }],
        },
    });
    in_virtual_time(async {
        let server = TestServer::builder().crd_value(&definition).start().await.expect("a server");
        let apps: Api<WebApp> = Api::default_namespaced(server.client());
        let mut shop = WebApp { types: Some(TypeMeta::resource::<WebApp>()), ..WebApp::default() };
        shop.metadata.name = Some("shop".to_owned());
        apps.create(&PostParams::default(), &shop).await.expect("a new object");
        let (pass, ended) = Pass::new(pass);
        let build = move |builder: ManagerBuilder| {
            let manager = builder.build()?;
            let pass = pass.clone();
            manager
                .controller::<WebApp>()
                .reconcile(move |app: Arc<WebApp>, cx: Context| pass.run(true, app, cx));
            Ok(manager)
        };
        drive(&server, build, end_of(ended)).await;
        apps.get("shop").await.expect("it exists")
    })
}
