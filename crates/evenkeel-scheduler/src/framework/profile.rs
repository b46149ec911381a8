//! A scheduler's name with its plugins and their weights.

use std::sync::Arc;

use super::{Handle, Plugin, SortKey};
use crate::{plugins, pod::PodInfo};
use evenkeel_api::time::Timestamp;

/// The plugins under one `schedulerName`. Order matters: filters are asked in it.
#[derive(Clone)]
pub struct Profile {
    name: Box<str>,
    percentage_of_nodes_to_score: u32,
    plugins: Vec<(Arc<dyn Plugin>, i64)>,
    points: Points,
}

/// For each extension point, the plugins that take part, as indexes.
#[derive(Debug, Clone, Default)]
struct Points {
    queue_sort: Vec<usize>,
    pre_enqueue: Vec<usize>,
    pre_filter: Vec<usize>,
    filter: Vec<usize>,
    post_filter: Vec<usize>,
    pre_score: Vec<usize>,
    score: Vec<usize>,
    reserve: Vec<usize>,
    permit: Vec<usize>,
    pre_bind: Vec<usize>,
    bind: Vec<usize>,
    post_bind: Vec<usize>,
}

impl Points {
    fn at_mut(&mut self, point: Point) -> &mut Vec<usize> {
        match point {
            Point::QueueSort => &mut self.queue_sort,
            Point::PreEnqueue => &mut self.pre_enqueue,
            Point::PreFilter => &mut self.pre_filter,
            Point::Filter => &mut self.filter,
            Point::PostFilter => &mut self.post_filter,
            Point::PreScore => &mut self.pre_score,
            Point::Score => &mut self.score,
            Point::Reserve => &mut self.reserve,
            Point::Permit => &mut self.permit,
            Point::PreBind => &mut self.pre_bind,
            Point::Bind => &mut self.bind,
            Point::PostBind => &mut self.post_bind,
        }
    }
}

/// An extension point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Point {
    QueueSort,
    PreEnqueue,
    PreFilter,
    Filter,
    PostFilter,
    PreScore,
    Score,
    Reserve,
    Permit,
    PreBind,
    Bind,
    PostBind,
}

impl Point {
    /// Upstream's name.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::QueueSort => "QueueSort",
            Self::PreEnqueue => "PreEnqueue",
            Self::PreFilter => "PreFilter",
            Self::Filter => "Filter",
            Self::PostFilter => "PostFilter",
            Self::PreScore => "PreScore",
            Self::Score => "Score",
            Self::Reserve => "Reserve",
            Self::Permit => "Permit",
            Self::PreBind => "PreBind",
            Self::Bind => "Bind",
            Self::PostBind => "PostBind",
        }
    }

    /// Whether a plugin takes part in it.
    pub(crate) fn has(self, plugin: &dyn Plugin) -> bool {
        match self {
            Self::QueueSort => plugin.as_queue_sort().is_some(),
            Self::PreEnqueue => plugin.as_pre_enqueue().is_some(),
            Self::PreFilter => plugin.as_pre_filter().is_some(),
            Self::Filter => plugin.as_filter().is_some(),
            Self::PostFilter => plugin.as_post_filter().is_some(),
            Self::PreScore => plugin.as_pre_score().is_some(),
            Self::Score => plugin.as_score().is_some(),
            Self::Reserve => plugin.as_reserve().is_some(),
            Self::Permit => plugin.as_permit().is_some(),
            Self::PreBind => plugin.as_pre_bind().is_some(),
            Self::Bind => plugin.as_bind().is_some(),
            Self::PostBind => plugin.as_post_bind().is_some(),
        }
    }
}

impl Profile {
    /// Plugins with their weights, and which of them (as indexes) take part in each point, in order.
    pub(crate) fn assembled(
        name: &str,
        plugins: Vec<(Arc<dyn Plugin>, i64)>,
        points: Vec<(Point, Vec<usize>)>,
    ) -> Self {
        let mut profile = Self { plugins, ..Self::new(name) };
        for (point, list) in points {
            *profile.points.at_mut(point) = list;
        }
        profile
    }

    /// Without plugins.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            percentage_of_nodes_to_score: 0,
            plugins: Vec::new(),
            points: Points::default(),
        }
    }

    /// With the plugins and weights that upstream has by default, as far as they exist here.
    pub fn with_defaults(name: &str) -> Self {
        plugins::defaults()
            .into_iter()
            .fold(Self::new(name), |profile, (plugin, weight)| profile.with(plugin, weight))
    }

    /// Adds a plugin. `weight` multiplies its score; 0 leaves the score out.
    #[must_use]
    pub fn with(mut self, plugin: Arc<dyn Plugin>, weight: i64) -> Self {
        let n = self.plugins.len();
        let points = &mut self.points;
        for (takes_part, list) in [
            (plugin.as_queue_sort().is_some(), &mut points.queue_sort),
            (plugin.as_pre_enqueue().is_some(), &mut points.pre_enqueue),
            (plugin.as_pre_filter().is_some(), &mut points.pre_filter),
            (plugin.as_filter().is_some(), &mut points.filter),
            (plugin.as_post_filter().is_some(), &mut points.post_filter),
            (plugin.as_pre_score().is_some(), &mut points.pre_score),
            (plugin.as_score().is_some() && weight != 0, &mut points.score),
            (plugin.as_reserve().is_some(), &mut points.reserve),
            (plugin.as_permit().is_some(), &mut points.permit),
            (plugin.as_pre_bind().is_some(), &mut points.pre_bind),
            (plugin.as_bind().is_some(), &mut points.bind),
            (plugin.as_post_bind().is_some(), &mut points.post_bind),
        ] {
            if takes_part {
                list.push(n);
            }
        }
        self.plugins.push((plugin, weight));
        self
    }

    /// How many of a hundred nodes are looked at for a node to be chosen; 0 (the default) for a share that falls with the
    /// number of nodes.
    #[must_use]
    pub fn percentage_of_nodes_to_score(mut self, percentage: u32) -> Self {
        self.percentage_of_nodes_to_score = percentage.min(100);
        self
    }

    /// Pods with this `schedulerName` are its own.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Gives the plugins what they may use.
    pub(crate) fn connect(&self, handle: &Handle) {
        self.plugins.iter().for_each(|(plugin, _)| plugin.connect(handle));
    }

    pub(crate) fn percentage(&self) -> u32 {
        self.percentage_of_nodes_to_score
    }

    /// How many plugins there are.
    pub(crate) fn len(&self) -> usize {
        self.plugins.len()
    }

    /// All plugins.
    pub(crate) fn plugins(&self) -> impl Iterator<Item = (usize, &dyn Plugin)> {
        self.plugins.iter().map(|(plugin, _)| &**plugin).enumerate()
    }

    /// Where a pod stands in the queue.
    pub(crate) fn sort_key(&self, pod: &PodInfo, queued: Timestamp) -> SortKey {
        match self.points.queue_sort.last() {
            Some(n) => {
                let sort = self.plugin(*n).as_queue_sort();
                sort.map_or([0; 2], |sort| sort.key(pod, queued))
            }
            None => plugins::by_priority(pod, queued),
        }
    }

    /// The `n`th plugin.
    pub(crate) fn plugin(&self, n: usize) -> &dyn Plugin {
        &*self.plugins[n].0
    }

    pub(crate) fn weight(&self, n: usize) -> i64 {
        self.plugins[n].1
    }

    /// The plugins that take part in a point.
    pub(crate) fn at(&self, point: Point) -> impl DoubleEndedIterator<Item = (usize, &dyn Plugin)> {
        let points = &self.points;
        let list = match point {
            Point::QueueSort => &points.queue_sort,
            Point::PreEnqueue => &points.pre_enqueue,
            Point::PreFilter => &points.pre_filter,
            Point::Filter => &points.filter,
            Point::PostFilter => &points.post_filter,
            Point::PreScore => &points.pre_score,
            Point::Score => &points.score,
            Point::Reserve => &points.reserve,
            Point::Permit => &points.permit,
            Point::PreBind => &points.pre_bind,
            Point::Bind => &points.bind,
            Point::PostBind => &points.post_bind,
        };
        list.iter().map(|n| (*n, self.plugin(*n)))
    }
}

impl std::fmt::Debug for Profile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let plugins: Vec<(&str, i64)> =
            self.plugins.iter().map(|(plugin, weight)| (plugin.name(), *weight)).collect();
        f.debug_struct("Profile")
            .field("name", &self.name)
            .field("plugins", &plugins)
            .finish_non_exhaustive()
    }
}
