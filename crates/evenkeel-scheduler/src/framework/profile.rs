//! Scheduler profile: a scheduler name with its plugins and their weights.

use std::sync::Arc;

use super::{Handle, Plugin, SortKey, Status, catch_plugin_panic};
use crate::{plugins, pod::PodInfo};
use evenkeel_api::time::Timestamp;

/// Plugins of one `schedulerName`. They run in the order in which they were added, unless [`Profile::from_parts`] sets
/// another.
#[derive(Clone)]
pub struct Profile {
    name: Box<str>,
    percentage_of_nodes_to_score: u32,
    /// Plugins, each with the weight of its score.
    plugins: Vec<(Arc<dyn Plugin>, i64)>,
    points: Points,
}

/// Indexes of the plugins at each extension point.
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
    /// Returns the list of the indexes of an extension point, to replace it.
    fn indexes_mut(&mut self, point: ExtensionPoint) -> &mut Vec<usize> {
        match point {
            ExtensionPoint::QueueSort => &mut self.queue_sort,
            ExtensionPoint::PreEnqueue => &mut self.pre_enqueue,
            ExtensionPoint::PreFilter => &mut self.pre_filter,
            ExtensionPoint::Filter => &mut self.filter,
            ExtensionPoint::PostFilter => &mut self.post_filter,
            ExtensionPoint::PreScore => &mut self.pre_score,
            ExtensionPoint::Score => &mut self.score,
            ExtensionPoint::Reserve => &mut self.reserve,
            ExtensionPoint::Permit => &mut self.permit,
            ExtensionPoint::PreBind => &mut self.pre_bind,
            ExtensionPoint::Bind => &mut self.bind,
            ExtensionPoint::PostBind => &mut self.post_bind,
        }
    }
}

/// An extension point of the scheduling framework.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExtensionPoint {
    /// `QueueSortPlugin` of the framework.
    QueueSort,
    /// `PreEnqueuePlugin` of the framework.
    PreEnqueue,
    /// `PreFilterPlugin` of the framework.
    PreFilter,
    /// `FilterPlugin` of the framework.
    Filter,
    /// `PostFilterPlugin` of the framework.
    PostFilter,
    /// `PreScorePlugin` of the framework.
    PreScore,
    /// `ScorePlugin` of the framework.
    Score,
    /// `ReservePlugin` of the framework.
    Reserve,
    /// `PermitPlugin` of the framework.
    Permit,
    /// `PreBindPlugin` of the framework.
    PreBind,
    /// `BindPlugin` of the framework.
    Bind,
    /// `PostBindPlugin` of the framework.
    PostBind,
}

impl ExtensionPoint {
    /// Returns upstream's name, used in metric labels.
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

    /// Returns whether a plugin implements the extension point.
    pub fn is_implemented_by(self, plugin: &dyn Plugin) -> bool {
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

/// Panic of a QueueSort plugin.
#[derive(Debug)]
pub(crate) struct QueueSortPanic {
    /// Index of the plugin that panicked.
    pub(crate) plugin: usize,
    pub(crate) status: Status,
    /// Key that the default plugin returns for the pod. The queue uses it instead.
    pub(crate) default_key: SortKey,
}

impl Profile {
    /// Returns a profile with these weighted plugins. `points` lists the indexes of the plugins that run at each
    /// extension point, in order.
    pub fn from_parts(
        name: &str,
        plugins: Vec<(Arc<dyn Plugin>, i64)>,
        points: Vec<(ExtensionPoint, Vec<usize>)>,
    ) -> Self {
        let mut profile = Self { plugins, ..Self::new(name) };
        for (point, indexes) in points {
            *profile.points.indexes_mut(point) = indexes;
        }
        profile
    }

    /// Returns a profile without plugins.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            percentage_of_nodes_to_score: 0,
            plugins: Vec::new(),
            points: Points::default(),
        }
    }

    /// Returns a profile with upstream's default plugins and weights.
    pub fn with_defaults(name: &str) -> Self {
        plugins::defaults()
            .into_iter()
            .fold(Self::new(name), |profile, (plugin, weight)| profile.with(plugin, weight))
    }

    /// Adds a plugin at all of its extension points. The framework multiplies its scores by `weight`; 0 disables its
    /// Score.
    #[must_use]
    pub fn with(mut self, plugin: Arc<dyn Plugin>, weight: i64) -> Self {
        let index = self.plugins.len();
        let points = &mut self.points;
        for (runs_here, indexes) in [
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
            if runs_here {
                indexes.push(index);
            }
        }
        self.plugins.push((plugin, weight));
        self
    }

    /// Sets `percentageOfNodesToScore`. Values above 100 become 100. Default: 0, a percentage that decreases with the
    /// number of nodes.
    #[must_use]
    pub fn percentage_of_nodes_to_score(mut self, percentage: u32) -> Self {
        self.percentage_of_nodes_to_score = percentage.min(100);
        self
    }

    /// Returns the `spec.schedulerName` of the pods that the profile schedules.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Connects every plugin to the scheduler ([`Plugin::connect`]).
    pub(crate) fn connect(&self, handle: &Handle) {
        self.plugins.iter().for_each(|(plugin, _)| plugin.connect(handle));
    }

    /// Returns the profile's own `percentageOfNodesToScore`.
    pub(crate) fn percentage(&self) -> u32 {
        self.percentage_of_nodes_to_score
    }

    /// Returns the number of plugins.
    pub(crate) fn len(&self) -> usize {
        self.plugins.len()
    }

    /// Returns the plugins with their indexes.
    pub(crate) fn plugins(&self) -> impl Iterator<Item = (usize, &dyn Plugin)> {
        self.plugins.iter().map(|(plugin, _)| &**plugin).enumerate()
    }

    /// Returns the pod's sort key in the active queue.
    ///
    /// # Errors
    /// Fails if the QueueSort plugin panics.
    pub(crate) fn sort_key(
        &self,
        pod: &PodInfo,
        queued: Timestamp,
    ) -> Result<SortKey, QueueSortPanic> {
        let default_key = || plugins::priority_sort_key(pod, queued);
        // Only the plugin that was added last sorts the queue, so an added plugin replaces the default one.
        let Some(&index) = self.points.queue_sort.last() else { return Ok(default_key()) };
        let queue_sort = self.plugin(index).as_queue_sort();
        let key = catch_plugin_panic(|| match queue_sort {
            Some(queue_sort) => queue_sort.sort_key(pod, queued),
            // `from_parts` accepts plugins that do not implement QueueSort. With equal keys, the first pod in is first
            // out.
            None => [0; 2],
        });
        key.map_err(|status| QueueSortPanic { plugin: index, status, default_key: default_key() })
    }

    /// Returns the plugin with this index.
    pub(crate) fn plugin(&self, index: usize) -> &dyn Plugin {
        let (plugin, _) = &self.plugins[index];
        &**plugin
    }

    /// Returns the weight of the plugin with this index.
    pub(crate) fn weight(&self, index: usize) -> i64 {
        let (_, weight) = self.plugins[index];
        weight
    }

    /// Returns the plugins of an extension point with their indexes, in the order in which they run.
    pub(crate) fn at(
        &self,
        point: ExtensionPoint,
    ) -> impl DoubleEndedIterator<Item = (usize, &dyn Plugin)> {
        let points = &self.points;
        let indexes = match point {
            ExtensionPoint::QueueSort => &points.queue_sort,
            ExtensionPoint::PreEnqueue => &points.pre_enqueue,
            ExtensionPoint::PreFilter => &points.pre_filter,
            ExtensionPoint::Filter => &points.filter,
            ExtensionPoint::PostFilter => &points.post_filter,
            ExtensionPoint::PreScore => &points.pre_score,
            ExtensionPoint::Score => &points.score,
            ExtensionPoint::Reserve => &points.reserve,
            ExtensionPoint::Permit => &points.permit,
            ExtensionPoint::PreBind => &points.pre_bind,
            ExtensionPoint::Bind => &points.bind,
            ExtensionPoint::PostBind => &points.post_bind,
        };
        indexes.iter().map(|index| (*index, self.plugin(*index)))
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
