//! The content of each page.

use crate::{
    Console, Scheduling,
    permissions::{CONTROLLERS, METRICS, Permission},
    route::{ListQuery, ObjectPath, Route, list_href, scheduling_href},
    samples::pods_by_queue,
    session::Session,
    source::{EVENTS, PageError},
    time::TimedReports,
    view::{
        Chip, Link,
        attention::{Workloads, attention},
        controller::controller,
        events::{self, EventsPage},
        explain::{causes, reports},
        heatmap::heat_map,
        list::{self, MAX_ROWS},
        nodepage::node_facts,
        object::{self, ObjectPage},
        overview::{VisibleObjects, overview},
        pending::{PendingPage, pending},
        plot::Plot,
        podlist::{PodTable, pod_table},
        podstatus::PodStatus,
        scheduling::scheduling,
        switches::switches,
        tree::{Look, tree},
        whatif::WhatIfForm,
    },
};
use askama::Template;
use evenkeel_api::{
    Kind, View,
    selector::Selector,
    views::{Deployment, Job, Namespace, Node, Pod, ReplicaSet, StatefulSet},
};
use evenkeel_explain::{Explained, Limits, explain};
use evenkeel_runtime::{
    cache::Cache,
    discovery::{Resource, ServerResources},
    introspect::Subject,
};
use http::StatusCode;
use std::{collections::HashMap, sync::Arc};

/// Maximum number of namespaces to choose from.
const MAX_NAMESPACES: usize = 500;
/// Maximum number of listed pods of a node.
const MAX_NODE_PODS: usize = 200;

/// Content of a page, without the frame around it.
pub(crate) struct Content {
    /// Title of the page.
    pub(crate) title: String,
    /// Content in HTML.
    pub(crate) html: String,
}

impl Content {
    pub(crate) fn render(
        title: impl Into<String>,
        template: &impl Template,
    ) -> Result<Self, PageError> {
        let html = template.render().map_err(|error| PageError {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            message: format!("The page cannot be rendered: {error}"),
        })?;
        Ok(Self { title: title.into(), html })
    }
}

impl Console {
    /// Returns the content of a page.
    pub(crate) async fn content(
        &self,
        session: &Session,
        route: &Route,
    ) -> Result<Content, PageError> {
        match route {
            Route::Overview => self.overview(session).await,
            Route::Kinds => Self::kinds(session).await,
            Route::List(query) => self.list(session, query).await,
            Route::Object(path) => self.object(session, path).await,
            Route::Edit(path) => self.edit(session, path, None).await,
            Route::WhatIf => self.what_if_page(session, WhatIfForm::default(), "").await,
            // A report is a separate page, without the frame of other pages.
            Route::WhatIfReport(_) => Err(PageError::not_found("The report is no part of a page.")),
            Route::Simulation => self.simulation_page(session).await,
            Route::Scheduling { namespace, name } => {
                self.scheduling(session, namespace, name).await
            }
            Route::Controller(name) => self.controller(session, name).await,
            Route::Pending { namespace } => self.pending(session, namespace).await,
            Route::Events { namespace, warnings } => {
                self.events(session, namespace, *warnings).await
            }
        }
    }

    async fn overview(&self, session: &Session) -> Result<Content, PageError> {
        let mut refused = Vec::new();
        let nodes = self.visible::<Node>(session, &mut refused).await?;
        let pods = self.visible::<Pod>(session, &mut refused).await?;
        let deployments = self.visible::<Deployment>(session, &mut refused).await?;
        let statefulsets = self.visible::<StatefulSet>(session, &mut refused).await?;
        let jobs = self.visible::<Job>(session, &mut refused).await?;
        // If the user may not list ReplicaSets, pods that ended and were replaced stay listed.
        let replicasets = self.visible::<ReplicaSet>(session, &mut Vec::new()).await?;
        let sees_all = nodes.is_some()
            && pods.is_some()
            && deployments.is_some()
            && statefulsets.is_some()
            && jobs.is_some();
        let sees_controllers = self.sees_controllers(session, &mut refused).await?;
        let sees_metrics = session.check(&Permission::Path(METRICS), &mut refused).await?;
        // The read fails if the user may not list events.
        let warnings = session.source.warnings().await.ok();
        let listing = self.time.within(|| self.introspection.listing());
        let now = listing.now;
        let workloads = Workloads {
            deployments: deployments.clone().unwrap_or_default(),
            replicasets: replicasets.unwrap_or_default(),
            statefulsets: statefulsets.unwrap_or_default(),
            jobs: jobs.unwrap_or_default(),
        };
        let visible_pods = pods.as_deref().unwrap_or_default();
        let visible_nodes = nodes.as_deref().unwrap_or_default();
        let objects = VisibleObjects {
            attention: attention(&self.node_faults, now, visible_nodes, &workloads, visible_pods),
            sees_all,
            nodes: nodes.map(|nodes| heat_map(nodes, visible_pods, &self.node_faults, now)),
            pods: pods.as_deref(),
            deployments: deployments.as_deref(),
            warnings: warnings.map(|(events, more)| (events::count_recent(now, &events), more)),
        };
        let listing = sees_controllers.then_some(listing);
        let plots = if sees_metrics { self.plots() } else { Vec::new() };
        let heading = match &self.program {
            Some(_) => self.cluster.clone(),
            None => format!("Cluster {}", self.cluster),
        };
        let mut page = overview(heading, objects, listing.as_ref(), plots, refused);
        if sees_metrics {
            page.history = self.samples().history();
        }
        page.standby = self.standby(session).await?;
        Content::render("Overview", &page)
    }

    /// Returns the plots. A program has none before there is something to draw.
    fn plots(&self) -> Vec<Plot> {
        let samples = self.samples();
        match self.program.is_none() || samples.has_interval() {
            true => samples.plots(self.clock.now()),
            false => Vec::new(),
        }
    }

    /// Returns the names of the profiles of the cluster's schedulers. A program does not know the profiles of other programs.
    fn schedulers(&self) -> Option<&[String]> {
        self.scheduling.as_ref().filter(|_| self.program.is_none()).map(Scheduling::names)
    }

    /// Returns whether the user may see the reports of controllers. Without controllers, there is nothing to see or to refuse.
    async fn sees_controllers(
        &self,
        session: &Session,
        refused: &mut Vec<String>,
    ) -> Result<bool, PageError> {
        Ok(self.has_controllers() && session.check(&Permission::Path(CONTROLLERS), refused).await?)
    }

    /// Returns the reason why the process is on standby. Empty if it is active.
    async fn standby(&self, session: &Session) -> Result<String, PageError> {
        let Some(program) = &self.program else { return Ok(String::new()) };
        let standing = program.standing(session).await?;
        Ok(standing.map(|standing| standing.standby()).unwrap_or_default())
    }

    /// Returns the pods that wait for a node.
    async fn pending(&self, session: &Session, namespace: &str) -> Result<Content, PageError> {
        if !self.has_pending() {
            return Err(PageError::not_found("There is no page /pending."));
        }
        session.require(&Permission::list(&Pod::kind(), namespace)).await?;
        let pods = self.cached::<Pod>().map(|pods| pods.list());
        let is_read = pods.is_some();
        let (rows, more) = pending(self.time.now(), pods.unwrap_or_default(), namespace);
        let queues = match session.check(&Permission::Path(METRICS), &mut Vec::new()).await? {
            true => pods_by_queue(&self.families()),
            false => Vec::new(),
        };
        let page = PendingPage {
            namespace: namespace.to_owned(),
            namespaces: self.namespaces(session).await?,
            queues,
            standby: self.standby(session).await?,
            is_read,
            rows,
            more,
        };
        Content::render("Pending pods", &page)
    }

    /// Returns the objects of a kind in all namespaces. `None` if the user may not list them, or the process does not have them.
    pub(crate) async fn visible<V: View>(
        &self,
        session: &Session,
        refused: &mut Vec<String>,
    ) -> Result<Option<Vec<Arc<V>>>, PageError> {
        let Some(cache) = self.cached::<V>() else { return Ok(None) };
        let sees = session.check(&Permission::list(&V::kind(), ""), refused).await?;
        Ok(sees.then(|| cache.list()))
    }

    async fn kinds(session: &Session) -> Result<Content, PageError> {
        let resources = session.source.resources().await?;
        let listable = resources.preferred().filter(|resource| resource.supports_verb("list"));
        Content::render("Objects", &list::kinds(listable.map(|resource| &resource.kind)))
    }

    async fn list(&self, session: &Session, query: &ListQuery) -> Result<Content, PageError> {
        let resources = session.source.resources().await?;
        let mut kinds = resources.preferred().map(|resource| &resource.kind);
        let Some(kind) = kinds.find(|kind| list::resource_name(kind) == query.resource) else {
            let message = format!("The API server has no resource {}.", query.resource);
            return Err(PageError::not_found(message));
        };
        let (now, namespaces) = (self.time.now(), self.namespaces(session).await?);
        let is_pod = kind.group.is_empty() && kind.kind == "Pod";
        let page = if let Some(pods) = self.cached::<Pod>().filter(|_| is_pod) {
            // The API server decides who may list pods, and whether the selector is valid. The cache has all pods, so that
            // those with problems can be first.
            session.source.table(kind, &query.namespace, &query.labels, (1, "")).await?;
            let labels = Selector::parse(&query.labels).unwrap_or_default();
            let PodTable { table, statuses } = pod_table(now, &pods.list(), query, &labels);
            list::list(now, kind, query.clone(), namespaces, &table, Some(statuses))
        } else {
            let page = (MAX_ROWS, &*query.after);
            let table = session.source.table(kind, &query.namespace, &query.labels, page).await?;
            list::list(now, kind, query.clone(), namespaces, &table, None)
        };
        Content::render(page.kind.clone(), &page)
    }

    /// Returns the namespaces to choose from. None if the user may not list them.
    async fn namespaces(&self, session: &Session) -> Result<Vec<String>, PageError> {
        let Some(namespaces) = self.visible::<Namespace>(session, &mut Vec::new()).await? else {
            return Ok(Vec::new());
        };
        let mut names: Vec<String> =
            namespaces.iter().map(|namespace| namespace.meta.name.to_string()).collect();
        names.sort();
        names.truncate(MAX_NAMESPACES);
        Ok(names)
    }

    /// Returns the reports of the controllers in the cluster's time.
    fn reports(&self) -> TimedReports<'_> {
        TimedReports { time: &self.time, introspection: &self.introspection }
    }

    /// Returns the resource of an object's path.
    ///
    /// # Errors
    /// Fails if the API server does not serve it.
    pub(crate) fn resource_at<'a>(
        resources: &'a ServerResources,
        path: &ObjectPath,
    ) -> Result<&'a Resource, PageError> {
        let is_of_path = |kind: &Kind| {
            (&*kind.group, &*kind.version, &*kind.plural)
                == (&*path.group, &*path.version, &*path.resource)
        };
        let found = resources.resources.iter().find(|resource| is_of_path(&resource.kind));
        found.ok_or_else(|| {
            let message = format!(
                "The API server has no resource {} in {}/{}.",
                path.resource, path.group, path.version
            );
            PageError::not_found(message)
        })
    }

    async fn object(&self, session: &Session, path: &ObjectPath) -> Result<Content, PageError> {
        let (source, now) = (&session.source, self.time.now());
        let resources = source.resources().await?;
        let resource = Self::resource_at(&resources, path)?;
        let kind = &resource.kind;
        let object = source.object(kind, &path.namespace, &path.name).await?;
        let mut refused = Vec::new();
        let sees_reports = self.sees_controllers(session, &mut refused).await?;
        let standby = self.standby(session).await?;
        refused.extend(Some(standby).filter(|standby| !standby.is_empty()));
        let sees_events =
            session.check(&Permission::list(&EVENTS, &path.namespace), &mut refused).await?;
        let sees_pods = session
            .check(&Permission::list(&Pod::kind(), &path.namespace), &mut Vec::new())
            .await?;
        let needs_attention = |owner: &Subject| {
            let reports = self.time.within(|| self.introspection.object_reports(owner));
            sees_reports && reports.iter().any(evenkeel_explain::needs_attention)
        };
        let owners = source.owners(&resources, &object).await;
        let owners: Vec<(Subject, bool)> = owners
            .into_iter()
            .map(|owner| {
                let attention = needs_attention(&owner);
                (owner, attention)
            })
            .collect();
        let subject = Subject::new(&kind.group, &kind.kind, &path.namespace, &path.name);
        let visible_in = sees_pods.then(|| path.namespace.clone());
        let cached_pods = self.cached::<Pod>();
        let look = LiveLook::new(cached_pods.clone(), &resources, visible_in);
        let explained = match sees_reports {
            true => {
                let Ok(explained) =
                    explain(&self.reports(), subject, String::new(), Limits::PAGE).await;
                explained
            }
            false => Explained { object: subject, ..Explained::default() },
        };
        let why = source.causes(&resources, &explained, self.schedulers(), now).await?;
        let href = |subject: &Subject| look.href(subject);
        let (why, more_causes) = causes(&explained.object, why, href);
        let kind_of =
            |version: &str, name: &str| Some(resources.of_kind(version, name)?.kind.clone());
        let events = match sees_events {
            true => {
                let events = source.events_of(kind, path).await?;
                Some(events::rows(now, &events, false, kind_of).0)
            }
            false => None,
        };
        let is_core = |name: &str| path.group.is_empty() && kind.kind == name;
        let visible_pods = match &cached_pods {
            Some(pods)
                if is_core("Node")
                    && session.check(&Permission::list(&Pod::kind(), ""), &mut refused).await? =>
            {
                Some(pods.list())
            }
            _ => None,
        };
        let pods =
            visible_pods.as_deref().map_or_else(Vec::new, |all| pods_of(all, &path.name, &look));
        let scheduling = match is_core("Pod") && self.scheduling.is_some() {
            true => scheduling_href(&path.namespace, &path.name),
            false => String::new(),
        };
        let query = ListQuery {
            resource: list::resource_name(kind),
            namespace: path.namespace.clone(),
            ..ListQuery::default()
        };
        let pod_status = is_core("Pod")
            .then(|| cached_pods.as_ref()?.get(&path.namespace, &path.name))
            .flatten()
            .map(|pod| PodStatus::of(&pod).chip());
        let node = is_core("Node")
            .then(|| self.cached::<Node>()?.get("", &path.name))
            .flatten()
            .map(|node| node_facts(&self.node_faults, now, &node, visible_pods.as_deref()));
        let page = ObjectPage {
            kind: kind.kind.to_string(),
            namespace: path.namespace.clone(),
            name: path.name.clone(),
            list: Link::new(query.resource.clone(), list_href(&query)),
            chips: object::chips(&object, pod_status.as_ref()),
            created: object::created(now, &object),
            scheduling,
            edit: if self.previews(resource) { path.edit_href() } else { String::new() },
            tree: self.time.within(|| tree(&look, &explained, &owners)),
            why,
            more_causes,
            refused,
            reports: sees_reports.then(|| reports(now, &explained.reports)),
            node,
            more_pods: pods.len().saturating_sub(MAX_NODE_PODS),
            pods: pods.into_iter().take(MAX_NODE_PODS).collect(),
            events,
            switches: switches(&object),
            form_token: self.switch_token(session).to_owned(),
            fields: object::yaml(&object::shown(object)),
        };
        Content::render(format!("{} {}", page.kind, page.name), &page)
    }

    async fn scheduling(
        &self,
        session: &Session,
        namespace: &str,
        name: &str,
    ) -> Result<Content, PageError> {
        let Some(scheduling_of) = &self.scheduling else {
            return Err(PageError::not_found("This process schedules no pods."));
        };
        let pod = session.source.object(&Pod::kind(), namespace, name).await?;
        // The page shows nodes, and pods of all namespaces.
        session.require(&Permission::list(&Node::kind(), "")).await?;
        session.require(&Permission::list(&Pod::kind(), "")).await?;
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        let explained = scheduling_of.explain(namespace, name).await?;
        let page = scheduling(namespace, name, node, &explained);
        Content::render(format!("Scheduling of {name}"), &page)
    }

    async fn controller(&self, session: &Session, name: &str) -> Result<Content, PageError> {
        session.require(&Permission::Path(CONTROLLERS)).await?;
        let report = self.time.within(|| self.introspection.controller(name));
        let report = report
            .ok_or_else(|| PageError::not_found(format!("No controller {name} runs here.")))?;
        Content::render(name, &controller(self.time.now(), report))
    }

    async fn events(
        &self,
        session: &Session,
        namespace: &str,
        warnings: bool,
    ) -> Result<Content, PageError> {
        let resources = session.source.resources().await?;
        let (all, cut) = session.source.events(namespace).await?;
        let (events, more) = events::rows(self.time.now(), &all, warnings, |version, kind| {
            Some(resources.of_kind(version, kind)?.kind.clone())
        });
        let namespaces = self.namespaces(session).await?;
        let namespace = namespace.to_owned();
        let page = EventsPage { events, namespace, warnings, namespaces, more, cut };
        Content::render("Events", &page)
    }
}

/// Returns the pods on a node, by name.
fn pods_of(pods: &[Arc<Pod>], node: &str, look: &LiveLook<'_>) -> Vec<Link> {
    let mut pods: Vec<&Pod> =
        pods.iter().map(|pod| &**pod).filter(|pod| *pod.spec.node_name == *node).collect();
    pods.sort_by(|a, b| (&a.meta.namespace, &a.meta.name).cmp(&(&b.meta.namespace, &b.meta.name)));
    let link = |pod: &&Pod| {
        let subject = Subject::new("", "Pod", &pod.meta.namespace, &pod.meta.name);
        Link::new(subject.key().to_string(), look.href(&subject))
    };
    pods.iter().map(link).collect()
}

/// Source of the kinds of a tree's objects, and of the pods.
struct LiveLook<'a> {
    /// Namespace whose pods the user may see; empty for all. `None` for no pods.
    pods_of: Option<String>,
    /// Pods of the process, if it has them.
    pods: Option<Cache<Pod>>,
    /// Kinds by group and name.
    kinds: HashMap<(&'a str, &'a str), &'a Kind>,
}

impl<'a> LiveLook<'a> {
    fn new(
        pods: Option<Cache<Pod>>,
        resources: &'a ServerResources,
        pods_of: Option<String>,
    ) -> Self {
        let kinds = resources.preferred().map(|resource| &resource.kind);
        let kinds = kinds.map(|kind| ((&*kind.group, &*kind.kind), kind)).collect();
        Self { pods_of, pods, kinds }
    }
}

impl Look for LiveLook<'_> {
    fn href(&self, subject: &Subject) -> String {
        let kind = self.kinds.get(&(&*subject.group, &*subject.kind));
        kind.map(|kind| ObjectPath::of(kind, &subject.namespace, &subject.name).href())
            .unwrap_or_default()
    }

    fn state(&self, subject: &Subject) -> Option<Chip> {
        if (&*subject.group, &*subject.kind) != ("", "Pod") {
            return None;
        }
        let namespace = self.pods_of.as_ref()?;
        if !namespace.is_empty() && *namespace != subject.namespace {
            return None;
        }
        let pod = self.pods.as_ref()?.get(&subject.namespace, &subject.name)?;
        Some(PodStatus::of(&pod).chip())
    }
}
