//! ImageLocality: prefers nodes that have the pod's images.
//!
//! Upstream: `plugins/imagelocality`.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | images of containers, init containers and image volumes (KEP-4639) | `images` |
//! | an image without a tag is `:latest` | `normalized_image_name` |
//! | an image scores by its size and by the fraction of nodes that have it (`scaledImageScore`) | `pre_score` |
//! | sizes count from a sum of 23 MiB up to 1000 MiB for each image (`calculatePriority`) | `score` |

use evenkeel_api::views::Pod;

use crate::{
    framework::{
        ClusterEvent, CycleState, MAX_NODE_SCORE, Plugin, PreScore, PreScoreResult, Score,
    },
    nodes::{Image, NodeRef, NodeTable},
    pod::PodInfo,
};

/// Bytes of a mebibyte.
const MIB: i64 = 1024 * 1024;
/// Sum of image sizes up to which a node scores 0.
const MIN_THRESHOLD: i64 = 23 * MIB;
/// Sum of image sizes at which a node scores 100, divided by the number of images of the pod.
const MAX_CONTAINER_THRESHOLD: i64 = 1000 * MIB;

/// The ImageLocality plugin.
#[derive(Debug, Clone, Copy)]
pub struct ImageLocality;

/// The pod's images that are on at least one node, each with its score.
struct ImageScores(Vec<(Image, i64)>);

impl Plugin for ImageLocality {
    fn name(&self) -> &'static str {
        "ImageLocality"
    }

    fn events_to_register(&self) -> Vec<ClusterEvent> {
        Vec::new()
    }

    fn as_pre_score(&self) -> Option<&dyn PreScore> {
        Some(self)
    }
    fn as_score(&self) -> Option<&dyn Score> {
        Some(self)
    }
}

impl PreScore for ImageLocality {
    fn pre_score(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        nodes: &NodeTable,
        _: &[NodeRef<'_>],
    ) -> PreScoreResult {
        let scaled_score = |image: &Image| {
            let fraction = f64::from(image.n_nodes()) / nodes.len().max(1) as f64;
            (image.size() as f64 * fraction) as i64
        };
        let image_scores: Vec<(Image, i64)> = images(&pod.pod)
            .filter_map(|name| nodes.image(&normalized_image_name(name)))
            .map(|image| (image.clone(), scaled_score(image)))
            .collect();
        if image_scores.is_empty() {
            return PreScoreResult::Skip;
        }
        state.put(ImageScores(image_scores));
        PreScoreResult::All
    }
}

impl Score for ImageLocality {
    fn score(&self, state: &CycleState, pod: &PodInfo, node: NodeRef<'_>) -> i64 {
        let Some(ImageScores(image_scores)) = state.get::<ImageScores>() else { return 0 };
        let with_image = image_scores.iter().filter(|(image, _)| image.is_on(node.slot()));
        let sum: i64 = with_image.map(|(_, scaled_score)| scaled_score).sum();
        let max_threshold = MAX_CONTAINER_THRESHOLD * images(&pod.pod).count() as i64;
        MAX_NODE_SCORE
            * (sum.clamp(MIN_THRESHOLD, max_threshold.max(MIN_THRESHOLD)) - MIN_THRESHOLD)
            / (max_threshold - MIN_THRESHOLD).max(1)
    }
}

/// Returns the images of init containers, containers and image volumes.
fn images(pod: &Pod) -> impl Iterator<Item = &str> {
    let spec = &pod.spec;
    let containers =
        spec.init_containers.iter().chain(&*spec.containers).map(|container| &*container.image);
    let volumes = spec.volumes.iter().filter_map(|volume| volume.source.image.as_deref());
    containers.chain(volumes.map(|image| &*image.reference))
}

/// Appends `:latest` to an image name without a tag.
///
/// Upstream: `normalizedImageName`.
fn normalized_image_name(image: &str) -> String {
    if image.rfind(':') <= image.rfind('/') { format!("{image}:latest") } else { image.to_owned() }
}
