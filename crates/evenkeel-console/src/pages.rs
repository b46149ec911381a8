//! The content of each page.

use crate::{
    Console,
    route::{ListQuery, ObjectPath, Route, list_href, scheduling_href},
    source::PageError,
    view::{
        Chip, Link,
        controller::controller,
        events::{self, EventsPage},
        explain,
        heatmap::heat_map,
        list::{self, MAX_ROWS},
        object::{self, ObjectPage},
        overview::overview,
        scheduling::scheduling,
        switches::switches,
        tree::{Look, tree},
    },
};
use askama::Template;
use evenkeel_api::{
    Kind,
    views::{Namespace, Node, Pod},
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
            Route::Overview => self.overview(),
            Route::Kinds => self.kinds().await,
            Route::List(query) => self.list(query).await,
            Route::Object(path) => self.object(path).await,
            Route::Scheduling { namespace, name } => self.scheduling(namespace, name).await,
            Route::Controller(name) => self.controller(name),
            Route::Events { namespace, warnings } => self.events(namespace, *warnings).await,
        }
    }

    fn overview(&self) -> Result<Content, PageError> {
        let caches = &self.source.caches;
        let pods = caches.of::<Pod>().list();
        let listing = self.source.introspection.listing();
        let nodes = heat_map(caches.of::<Node>().list(), &pods, listing.now);
        let plots = self.samples().plots(self.clock.now());
        Content::render("Overview", &overview(&self.cluster, nodes, &pods, &listing, plots))
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
        let page = (MAX_ROWS, &*query.after);
        let table = self.source.table(kind, &query.namespace, &query.labels, page).await?;
        let page = list::list(self.clock.now(), kind, query.clone(), self.namespaces(), &table);
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
        let page = ObjectPage {
            kind: kind.kind.to_string(),
            namespace: path.namespace.clone(),
            name: path.name.clone(),
            list: Link::new(query.resource.clone(), list_href(&query)),
            chips: object::chips(&object),
            created: object::created(now, &object),
            scheduling,
            tree: tree(&look, &subject, &owners),
            loud,
            quiet,
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
        let state = if pod.meta.deleting() { "Terminating" } else { &*pod.status.phase };
        Some(Chip::of_state(state))
    }
}
