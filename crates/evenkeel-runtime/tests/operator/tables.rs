//! The tables of the page on operators name items that exist: each name in their right columns stands in code that compiles.

use evenkeel_runtime::{
    client::Metadata, operator::ApiObject, prelude::*, queue::Backoff, webhook,
};
use futures::stream;
use k8s_openapi::api::{
    apps::v1::{Deployment, DeploymentStatus},
    core::v1::{ConfigMap, Pod, Secret},
};
use kube::{api::DynamicObject, core::object::HasStatus};
use serde_json::Value;

/// The page on operators.
const PAGE: &str = include_str!("../../docs/operators.md");

/// Compiles items, and returns their text without white space.
macro_rules! compiled {
    ($($code:item)*) => {{
        $(#[allow(dead_code, reason = "it is compiled, and never run")] $code)*
        concat!($(stringify!($code)),*).split_whitespace().collect::<String>()
    }};
}

/// Code with every item that the page names.
fn code() -> String {
    compiled! {
        fn of_manager(kube: kube::Client, manager: &Manager) -> Result<()> {
            let _ = Manager::builder(kube)
                .leader_election_id("id")
                .sharding(Sharding::new("id", 4))
                .namespaces(["web"])
                .controller_defaults(ControllerDefaults::default())
                .cache_sync_timeout(Duration::from_secs(60))
                .grace_period(Duration::from_secs(20))
                .probes(8081)
                .metrics(Metrics::plain(8080))
                .metrics(Metrics::secure(8443));
            manager.health_check("disk", || Ok(()));
            manager.ready_check("disk", || Ok(()));
            let _elected = manager.elected();
            let _ = CacheOptions::<Secret>::in_namespace("web");
            let _ = CacheOptions::<Secret>::in_namespaces(["web", "shop"]);
            let cached: Cache<Full<ConfigMap>> = manager.cached::<ConfigMap>();
            let _: Index<Full<ConfigMap>> = Cache::index(&cached, "name", |_, _| {});
            let kind = || Kind::new("example.com", "v1", "Widget", "widgets", true);
            let keys = || vec![Key::new("ns", "name")];
            manager
                .controller::<ConfigMap>()
                .when(generation_changed())
                .owns::<Secret>().optional()
                .owns_by_any_reference::<Secret>()
                .owns_metadata(kind())
                .watches(move |_: &Secret| keys())
                .watches_metadata(kind(), move |_| keys())
                .watches_dynamic(kind(), move |_| keys())
                .source(stream::empty())
                .resync_every(Duration::from_secs(60))
                .max_concurrent(2).max_retries(3).warm_up()
                .backoff(Backoff::default())
                .state(0_u8)
                .finalizer("example.com/cleanup", async |_: Arc<ConfigMap>, _: Context<u8>| Ok(()))
                .reconcile(async |_: Arc<ConfigMap>, _: Context<u8>| Ok(Outcome::Settled));
            let _: ControllerHandle = manager
                .controller_of_dynamic(kind())
                .reconcile_requests(async |_: Request, _: Context| Ok(Outcome::Settled));
            Ok(())
        }
        async fn of_clusters<P: ClusterProvider>(manager: &Manager, provider: P, cx: Context) {
            let _: FixedClusters = FixedClusters::new([("east", cx.kube().clone())]);
            let _: ProfileClusters = ProfileClusters::of_consumer("test");
            let _: SecretClusters = SecretClusters::in_namespace("fleet");
            let _: Clusters = manager.clusters(provider, |_: &Cluster| {});
            let _ = cx.cluster();
        }
        async fn of_later(controller: ControllerHandle) {
            let watch: WatchHandle = controller.watches(|_: &Secret| Vec::new());
            WatchHandle::stop(watch);
            ControllerHandle::remove(controller).await;
        }
        async fn of_pass<K>(cx: Context<u8>, map: &ConfigMap, mut secret: Secret, app: &K) -> Result<Outcome>
        where
            K: ApiObject + HasStatus<Status = Value>,
        {
            let _ = (cx.state(), cx.kube());
            cx.get::<Secret>("ns", "name")?;
            cx.get_live::<Secret>("ns", "name").await?;
            OwnerExt::controlled_by(&mut secret, map)?;
            cx.apply(&secret).await?;
            cx.merge_patch(map, map).await?;
            cx.create_or_update(secret, |_| Ok(())).await?;
            let condition = conditions::of(map, "Ready", true, "Reason", "message");
            conditions::set(&mut Vec::new(), condition, cx.now());
            cx.status(app).patch_if_changed().await?;
            cx.event(map, "Reason", "message");
            cx.warning(map, "Reason", "message");
            if map.data.is_none() {
                return Err(Error::terminal("no data"));
            }
            Ok(Outcome::again(Duration::from_secs(1)))
        }
        async fn of_dynamic(manager: &Manager, kind: Kind, cx: Context, mut map: ConfigMap) -> Result<()> {
            let options = || CacheOptions::<DynamicObject>::in_namespace("web");
            let _ = Manager::builder(cx.kube().clone())
                .cache_dynamic(kind.clone(), options().transform_dynamic(|_| ()))
                .cache_metadata(kind.clone(), CacheOptions::<Metadata>::default());
            let _ = (manager.cached_dynamic(kind.clone()), manager.cached_metadata(kind.clone()));
            manager
                .controller_of_dynamic(kind.clone())
                .owns_dynamic(kind.clone())
                .when(on_dynamic_change(|old, new| old.data != new.data))
                .reads_dynamic(kind.clone())
                .reads_metadata(kind.clone())
                .reads::<ConfigMap>()
                .finalizer("example.com/cleanup", async |_: Arc<DynamicObject>, _: Context| Ok(()))
                .reconcile_dynamic(async |_: Arc<DynamicObject>, _: Context| Ok(Outcome::Settled));
            let controller = manager
                .controller_of_metadata(kind.clone())
                .reconcile_metadata(async |_: Arc<Metadata>, _: Context| Ok(Outcome::Settled));
            let watch = controller.new_watch().when(labels_changed()).optional().owns::<ConfigMap>();
            watch.synced().await;
            let index = manager.cached::<ConfigMap>().index("name", |_, _| {});
            let _ = (cx.index(&index)?, cx.has_synced::<ConfigMap>()?);
            let objects = cx.dynamic(kind.clone());
            let object = objects.new_object("web", "name");
            cx.get_dynamic(&kind, "web", "name")?;
            cx.get_metadata(&kind, "web", "name")?;
            objects.warning(&object, "Reason", "message");
            objects.status(&object).patch_if_changed().await?;
            cx.status_of(&Deployment::default())
                .set(|status: &mut DeploymentStatus| status.replicas = Some(1))
                .patch_if_changed()
                .await?;
            let _ = map.has_owner(&object) || map.remove_owner(&object);
            cx.merge_patch_with_lock(&map, &map).await?;
            cx.json_patch(&map, &map).await?;
            cx.subresource(&map, "token").get().await?;
            cx.scale(&map, 1).await?;
            cx.get_scale(&map).await?;
            cx.list_live::<ConfigMap>("web", &ListOptions::default()).await?;
            cx.evict(&Pod::default()).await?;
            cx.delete_with(&map, DeleteOptions::default()).await?;
            let _ = cx.in_namespace("web").dry_run();
            Ok(())
        }
        #[allow(unused_imports, reason = "only its name counts")]
        use evenkeel_test::explore;
        const PORTS: bool = cfg!(feature = "serve");
        type Webhooks = webhook::WebhookServer;
        type Tests = evenkeel_test::TestCluster;
    }
}

/// The code spans in the last column of each table's rows, and their number.
fn last_columns(page: &str) -> Vec<String> {
    let rows = page.lines().filter(|line| line.starts_with("| "));
    let cells = rows.filter_map(|row| {
        let row = row.replace("\\|", "\u{b6}");
        row.trim_end_matches([' ', '|']).rsplit_once('|').map(|(_, last)| last.to_owned())
    });
    cells
        .flat_map(|cell| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>())
        .collect()
}

/// The names in a code span: those that are called, have type arguments or stand alone. Arguments are none.
fn names(span: &str) -> Vec<String> {
    let span = span.replace('-', "_");
    let part = |c: char| c.is_alphanumeric() || "_.:".contains(c);
    let mut rest = &*span;
    let mut names = Vec::new();
    while let Some(start) = rest.find(part) {
        let end = rest[start..].find(|c| !part(c)).map_or(rest.len(), |length| start + length);
        let name = rest[start..end].trim_end_matches(':');
        rest = &rest[end..];
        if rest.is_empty() || rest.starts_with(['(', '<']) {
            names.push(name.to_owned());
        }
    }
    names
}

/// Whether code without white space has the name, as a whole.
fn has(code: &str, name: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(name).any(|(at, _)| {
        let before = name.starts_with('.') || !code[..at].ends_with(part);
        before && !code[at + name.len()..].starts_with(part)
    })
}

#[test]
fn tables_name_items_that_exist() {
    let code = code();
    // The names of faults are text.
    let sections = PAGE.split("\n## ").filter(|section| !section.starts_with("Testing it under"));
    let spans = last_columns(&sections.collect::<Vec<_>>().join("\n"));
    assert!(spans.len() >= 60, "{} names: the tables are not found", spans.len());
    let is_missing = |name: &String| !has(&code, name);
    let missing: Vec<_> = spans.iter().flat_map(|span| names(span)).filter(is_missing).collect();
    assert!(missing.is_empty(), "no compiled code has {missing:?}; see `code`");
}

#[test]
fn names_are_read_from_code_spans() {
    let table =
        "| a | b |\n|---|---|\n| `x` | `cx.status(…).patch_if_changed()`, `when(changed())` |\n";
    assert_eq!(last_columns(table), ["cx.status(…).patch_if_changed()", "when(changed())"]);
    assert_eq!(names("cx.status(…).patch_if_changed()"), ["cx.status", ".patch_if_changed"]);
    assert_eq!(names("when(changed())"), ["when", "changed"]);
    assert_eq!(names("manager.controller::<K>()"), ["manager.controller"]);
    assert_eq!(names("Outcome::again(d)"), ["Outcome::again"]);
    assert_eq!(names("evenkeel-test"), ["evenkeel_test"]);
    assert!(has("letx=cx.get_live(1)", "cx.get_live") && !has("letx=cx.get_live(1)", "cx.get"));
}
