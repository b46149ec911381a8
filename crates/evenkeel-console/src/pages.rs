//! The content of each page.

use crate::{
    Console,
    route::{ListQuery, ObjectPath, Route, list_href, scheduling_href},
    source::PageError,
    view::{
        Chip, Link,
        attention::{Workloads, attention},
        controller::controller,
        events::{self, EventsPage},
        explain,
        heatmap::heat_map,
        list::{self, MAX_ROWS},
        nodepage::node_facts,
        object::{self, ObjectPage},
        overview::overview,
        podlist::{PodTable, pod_table},
        podstatus::PodStatus,
        scheduling::scheduling,
        switches::switches,
        tree::{Look, tree},
    },
};
use askama::Template;
use evenkeel_api::{
    Kind,
    selector::Selector,
    views::{Deployment, Job, Namespace, Node, Pod, StatefulSet},
};
use evenkeel_runtime::{
    cache::Caches,
    discovery::ServerResources,
    introspect::{Introspection, ObjectReport, Subject},
};
use http::StatusCode;
use std::collections::HashMap;

/// Maximum number of namespaces to choose from.
const MAX_NAMESPACES: usize = 500;
/// Maximum number of listed pods of a node.
const MAX_NODE_PODS: usize = 200;

/// A page without its frame.
pub(crate) struct Content {
    /// Title of the page.
    pub(crate) title: String,
    /// Content in HTML.
    pub(crate) html: String,
}

impl Content {
    fn render(title: impl Into<String>, template: &impl Template) -> Result<Self, PageError> {
        let html = template.render().map_err(|error| PageError {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            message: format!("The page cannot be rendered: {error}"),
        })?;
        Ok(Self { title: title.into(), html })
    }
}

impl Console {
    /// Returns the content of a page.
    pub(crate) async fn content(&self, route: &Route) -> Result<Content, PageError> {
        match route {
            Route::Overview => self.overview().await,
            Route::Kinds => self.kinds().await,
            Route::List(query) => self.list(query).await,
            Route::Object(path) => self.object(path).await,
            Route::Scheduling { namespace, name } => self.scheduling(namespace, name).await,
            Route::Controller(name) => self.controller(name),
            Route::Events { namespace, warnings } => self.events(namespace, *warnings).await,
        }
    }

    async fn overview(&self) -> Result<Content, PageError> {
        let caches = &self.source.caches;
        let pods = caches.of::<Pod>().list();
        let workloads = Workloads {
            deployments: caches.of::<Deployment>().list(),
            statefulsets: caches.of::<StatefulSet>().list(),
            jobs: caches.of::<Job>().list(),
        };
        let listing = self.source.introspection.listing();
        let nodes = caches.of::<Node>().list();
        let attention = attention(listing.now, &nodes, &workloads, &pods);
        let nodes = heat_map(nodes, &pods, listing.now);
        let warnings = self.source.warnings().await.ok();
        let warnings =
            warnings.map(|(events, more)| (events::count_recent(listing.now, &events), more));
        let plots = self.samples().plots(self.clock.now());
        let workloads = (&workloads, warnings);
        let page = overview(&self.cluster, nodes, &pods, workloads, attention, &listing, plots);
        Content::render("Overview", &page)
    }

    async fn kinds(&self) -> Result<Content, PageError> {
        let resources = self.source.resources().await?;
        let listable = resources.preferred().filter(|resource| resource.supports_verb("list"));
        Content::render("Objects", &list::kinds(listable.map(|resource| &resource.kind)))
    }

    async fn list(&self, query: &ListQuery) -> Result<Content, PageError> {
        let resources = self.source.resources().await?;
        let mut kinds = resources.preferred().map(|resource| &resource.kind);
        let Some(kind) = kinds.find(|kind| list::resource_name(kind) == query.resource) else {
            let message = format!("The API server has no resource {}.", query.resource);
            return Err(PageError::not_found(message));
        };
        let (now, namespaces) = (self.clock.now(), self.namespaces());
        let page = if kind.group.is_empty() && kind.kind == "Pod" {
            // The API server decides who may list pods, and whether the selector is one. The cache has them all, so that
            // those with problems can be first.
            self.source.table(kind, &query.namespace, &query.labels, (1, "")).await?;
            let labels = Selector::parse(&query.labels).unwrap_or_default();
            let pods = self.source.caches.of::<Pod>().list();
            let PodTable { table, statuses } = pod_table(now, &pods, query, &labels);
            list::list(now, kind, query.clone(), namespaces, &table, Some(statuses))
        } else {
            let page = (MAX_ROWS, &*query.after);
            let table = self.source.table(kind, &query.namespace, &query.labels, page).await?;
            list::list(now, kind, query.clone(), namespaces, &table, None)
        };
        Content::render(page.kind.clone(), &page)
    }

    fn namespaces(&self) -> Vec<String> {
        let namespaces = self.source.caches.of::<Namespace>().list();
        let mut names: Vec<String> =
            namespaces.iter().map(|namespace| namespace.meta.name.to_string()).collect();
        names.sort();
        names.truncate(MAX_NAMESPACES);
        names
    }

    async fn object(&self, path: &ObjectPath) -> Result<Content, PageError> {
        let (source, now) = (&self.source, self.clock.now());
        let resources = source.resources().await?;
        let kind = resources.resources.iter().map(|resource| &resource.kind).find(|kind| {
            (&*kind.group, &*kind.version, &*kind.plural)
                == (&*path.group, &*path.version, &*path.resource)
        });
        let Some(kind) = kind else {
            let message = format!(
                "The API server has no resource {} in {}/{}.",
                path.resource, path.group, path.version
            );
            return Err(PageError::not_found(message));
        };
        let object = source.object(kind, &path.namespace, &path.name).await?;
        let owners = source.owners(&resources, &object).await;
        let subject_of = |kind: &Kind, namespace: &str, name: &str| {
            Subject::new(&kind.group, &kind.kind, namespace, name)
        };
        let owners: Vec<Subject> = owners
            .iter()
            .map(|(kind, namespace, name)| subject_of(kind, namespace, name))
            .collect();
        let subject = subject_of(kind, &path.namespace, &path.name);
        let look = LiveLook::new(&source.introspection, &source.caches, &resources);
        let (loud, quiet) = explain::cards(now, source.introspection.object_reports(&subject));
        let events = source.events_of(kind, path).await?;
        let (events, _) = events::rows(now, &events, false, |version, name| {
            Some(resources.of_kind(version, name)?.kind.clone())
        });
        let is_core = |name: &str| path.group.is_empty() && kind.kind == name;
        let pods = if is_core("Node") { self.pods_of(&path.name, &look) } else { Vec::new() };
        let scheduling = match is_core("Pod") {
            true => scheduling_href(&path.namespace, &path.name),
            false => String::new(),
        };
        let query = ListQuery {
            resource: list::resource_name(kind),
            namespace: path.namespace.clone(),
            ..ListQuery::default()
        };
        let pod_status = is_core("Pod")
            .then(|| self.source.caches.of::<Pod>().get(&path.namespace, &path.name))
            .flatten()
            .map(|pod| PodStatus::of(&pod).chip());
        let page = ObjectPage {
            kind: kind.kind.to_string(),
            namespace: path.namespace.clone(),
            name: path.name.clone(),
            list: Link::new(query.resource.clone(), list_href(&query)),
            chips: object::chips(&object, pod_status.as_ref()),
            created: object::created(now, &object),
            scheduling,
            tree: tree(&look, &subject, &owners),
            loud,
            quiet,
            node: self
                .source
                .caches
                .of::<Node>()
                .get("", &path.name)
                .filter(|_| is_core("Node"))
                .map(|node| node_facts(now, &node, &self.source.caches.of::<Pod>().list())),
            more_pods: pods.len().saturating_sub(MAX_NODE_PODS),
            pods: pods.into_iter().take(MAX_NODE_PODS).collect(),
            events,
            switches: switches(&object),
            form_token: self.form_token().to_owned(),
            fields: object::yaml(&object::shown(object)),
        };
        Content::render(format!("{} {}", page.kind, page.name), &page)
    }

    /// Returns the pods on a node, by name.
    fn pods_of(&self, node: &str, look: &LiveLook<'_>) -> Vec<Link> {
        let mut pods = self.source.caches.of::<Pod>().list();
        pods.retain(|pod| &*pod.spec.node_name == node);
        pods.sort_by(|a, b| {
            (&a.meta.namespace, &a.meta.name).cmp(&(&b.meta.namespace, &b.meta.name))
        });
        let link = |pod: &Pod| {
            let subject = Subject::new("", "Pod", &pod.meta.namespace, &pod.meta.name);
            Link::new(subject.key().to_string(), look.href(&subject))
        };
        pods.iter().map(|pod| link(pod)).collect()
    }

    async fn scheduling(&self, namespace: &str, name: &str) -> Result<Content, PageError> {
        const PODS: Kind = Kind::new("", "v1", "Pod", "pods", true);
        let pod = self.source.object(&PODS, namespace, name).await?;
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        let explained = self.scheduler.explain(namespace, name).await?;
        let page = scheduling(namespace, name, node, &explained);
        Content::render(format!("Scheduling of {name}"), &page)
    }

    fn controller(&self, name: &str) -> Result<Content, PageError> {
        let report = self.source.introspection.controller(name);
        let report = report
            .ok_or_else(|| PageError::not_found(format!("No controller {name} runs here.")))?;
        Content::render(name, &controller(self.clock.now(), report))
    }

    async fn events(&self, namespace: &str, warnings: bool) -> Result<Content, PageError> {
        let resources = self.source.resources().await?;
        let (all, cut) = self.source.events(namespace).await?;
        let (events, more) = events::rows(self.clock.now(), &all, warnings, |version, kind| {
            Some(resources.of_kind(version, kind)?.kind.clone())
        });
        let namespaces = self.namespaces();
        let namespace = namespace.to_owned();
        let page = EventsPage { events, namespace, warnings, namespaces, more, cut };
        Content::render("Events", &page)
    }
}

/// What a tree reads: the controllers of this process, and the caches.
struct LiveLook<'a> {
    introspection: &'a Introspection,
    caches: &'a Caches,
    /// Kinds by group and name.
    kinds: HashMap<(&'a str, &'a str), &'a Kind>,
}

impl<'a> LiveLook<'a> {
    fn new(
        introspection: &'a Introspection,
        caches: &'a Caches,
        resources: &'a ServerResources,
    ) -> Self {
        let kinds = resources.preferred().map(|resource| &resource.kind);
        let kinds = kinds.map(|kind| ((&*kind.group, &*kind.kind), kind)).collect();
        Self { introspection, caches, kinds }
    }
}

impl Look for LiveLook<'_> {
    fn reports(&self, subject: &Subject) -> Vec<ObjectReport> {
        self.introspection.object_reports(subject)
    }

    fn href(&self, subject: &Subject) -> String {
        let kind = self.kinds.get(&(&*subject.group, &*subject.kind));
        kind.map(|kind| ObjectPath::of(kind, &subject.namespace, &subject.name).href())
            .unwrap_or_default()
    }

    fn state(&self, subject: &Subject) -> Option<Chip> {
        if (&*subject.group, &*subject.kind) != ("", "Pod") {
            return None;
        }
        let pod = self.caches.of::<Pod>().get(&subject.namespace, &subject.name)?;
        Some(PodStatus::of(&pod).chip())
    }
}
