//! Waiting for a condition on objects, with a list and a watch.

use futures::{StreamExt as _, future::BoxFuture, pin_mut};
use kube::{
    Api, Resource, ResourceExt as _,
    api::{ListParams, WatchEvent, WatchParams},
};
use serde::{Serialize, de::DeserializeOwned};
use std::{collections::BTreeMap, fmt::Debug, time::Duration};

/// Time after which a [`Wait`] fails, on tokio's clock.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// Status code of a watch whose resource version is no longer in the server's history.
const GONE: u16 = 410;

/// Error of waiting for a condition.
#[derive(Debug, thiserror::Error)]
pub enum WaitError {
    /// The server refused the list or the watch.
    #[error("{url} cannot be watched: {source}")]
    Watch {
        /// URL of the collection.
        url: String,
        /// Error of the request.
        source: Box<kube::Error>,
    },
    /// The condition did not hold in time.
    #[error("{url} did not become as expected within {timeout:?}; last seen: {seen}")]
    Timeout {
        /// URL of the collection.
        url: String,
        /// Duration of the observation.
        timeout: Duration,
        /// JSON of the observed objects.
        seen: String,
    },
}

/// Future of a condition. Fails after [`TIMEOUT`], or the duration of [`Wait::within`].
#[must_use = "a wait does nothing until it is awaited"]
pub struct Wait<'a, T> {
    timeout: Duration,
    run: Box<dyn FnOnce(Duration) -> BoxFuture<'a, Result<T, WaitError>> + Send + 'a>,
}

impl<T> Wait<'_, T> {
    /// Sets the duration after which waiting fails, on tokio's clock.
    pub fn within(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

impl<'a, T> IntoFuture for Wait<'a, T> {
    type Output = Result<T, WaitError>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        (self.run)(self.timeout)
    }
}

impl<T> Debug for Wait<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wait").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// Objects whose conditions can be waited for.
pub trait Watched:
    Resource + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
}

impl<K: Resource + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static> Watched
    for K
{
}

/// Waits until the object of this name exists and satisfies `condition`, and returns it.
///
/// ```
/// use evenkeel_test::{TestServer, eventually};
/// use k8s_openapi::api::core::v1::Namespace;
/// use kube::Api;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> anyhow::Result<()> {
/// let server = TestServer::start().await?;
/// let namespaces: Api<Namespace> = Api::all(server.client());
/// let active = |namespace: &Namespace| {
///     namespace.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Active")
/// };
/// eventually(&namespaces, "default", active).await?;
/// # Ok(())
/// # }
/// ```
pub fn eventually<'a, K: Watched>(
    api: &Api<K>,
    name: &str,
    mut condition: impl FnMut(&K) -> bool + Send + 'a,
) -> Wait<'a, K> {
    let decide =
        move |objects: &Objects<K>| objects.values().find(|object| condition(object)).cloned();
    wait(api, by_name(name), decide)
}

/// Waits until no object of this name exists.
pub fn eventually_gone<'a, K: Watched>(api: &Api<K>, name: &str) -> Wait<'a, ()> {
    wait(api, by_name(name), |objects: &Objects<K>| objects.is_empty().then_some(()))
}

/// Waits until all objects that `params` select satisfy `condition` together, and returns them, sorted by namespace
/// and name.
pub fn eventually_all<'a, K: Watched>(
    api: &Api<K>,
    params: ListParams,
    mut condition: impl FnMut(&[K]) -> bool + Send + 'a,
) -> Wait<'a, Vec<K>> {
    let decide = move |objects: &Objects<K>| {
        let objects: Vec<K> = objects.values().cloned().collect();
        condition(&objects).then_some(objects)
    };
    wait(api, params, decide)
}

/// Observed objects by namespace and name.
type Objects<K> = BTreeMap<(Option<String>, String), K>;

fn by_name(name: &str) -> ListParams {
    ListParams::default().fields(&format!("metadata.name={name}"))
}

/// Returns a wait that lists and watches the objects that `params` select, until `decide` returns a value.
fn wait<'a, K: Watched, T>(
    api: &Api<K>,
    params: ListParams,
    decide: impl FnMut(&Objects<K>) -> Option<T> + Send + 'a,
) -> Wait<'a, T> {
    let (api, url) = (api.clone(), api.resource_url().to_owned());
    let run = move |timeout| -> BoxFuture<'a, Result<T, WaitError>> {
        Box::pin(async move {
            let mut objects = Objects::new();
            let observation = observe(&api, &params, &mut objects, decide);
            match tokio::time::timeout(timeout, observation).await {
                Ok(observed) => {
                    observed.map_err(|source| WaitError::Watch { url, source: Box::new(source) })
                }
                Err(_) => Err(WaitError::Timeout { url, timeout, seen: to_json(&objects) }),
            }
        })
    };
    Wait { timeout: TIMEOUT, run: Box::new(run) }
}

/// Keeps `objects` current until `decide` returns a value.
async fn observe<K: Watched, T>(
    api: &Api<K>,
    params: &ListParams,
    objects: &mut Objects<K>,
    mut decide: impl FnMut(&Objects<K>) -> Option<T>,
) -> kube::Result<T> {
    let watch_params = WatchParams {
        label_selector: params.label_selector.clone(),
        field_selector: params.field_selector.clone(),
        ..WatchParams::default()
    };
    loop {
        let list = api.list(params).await?;
        *objects = list.items.into_iter().map(|object| (key(&object), object)).collect();
        let version = list.metadata.resource_version.unwrap_or_default();
        let events = api.watch(&watch_params, &version).await?;
        pin_mut!(events);
        loop {
            if let Some(decided) = decide(objects) {
                return Ok(decided);
            }
            match events.next().await.transpose()? {
                Some(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                    objects.insert(key(&object), object);
                }
                Some(WatchEvent::Deleted(object)) => {
                    objects.remove(&key(&object));
                }
                Some(WatchEvent::Bookmark(_)) => {}
                Some(WatchEvent::Error(status)) if status.code != GONE => {
                    return Err(kube::Error::Api(status));
                }
                // The server ends a watch after some minutes. List and watch again.
                Some(WatchEvent::Error(_)) | None => break,
            }
        }
    }
}

fn key<K: Resource>(object: &K) -> (Option<String>, String) {
    (object.namespace(), object.name_any())
}

fn to_json<K: Watched>(objects: &Objects<K>) -> String {
    let objects: Vec<&K> = objects.values().collect();
    serde_json::to_string_pretty(&objects).unwrap_or_else(|error| error.to_string())
}
