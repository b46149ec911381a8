//! Replica calculator. Upstream: `replica_calculator.go`. Values are in thousandths.

use super::{
    Options,
    samples::{Groups, Sample, Samples, calculate_requests},
};
use crate::pods::is_ready;
use evenkeel_api::{Text, time::Timestamp, views::Pod};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Deviations from the target, as fractions, that cause no scaling.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Tolerances {
    pub(super) down: f64,
    pub(super) up: f64,
}

impl Tolerances {
    /// Whether the ratio of a metric to its target is within the tolerance of its direction.
    fn is_within(self, ratio: f64) -> bool {
        (1.0 - self.down) <= ratio && ratio <= (1.0 + self.up)
    }
}

/// Inputs of the calculation besides the metric.
pub(super) struct CalculatorInputs<'a> {
    /// Pods of the scale target.
    pub(super) pods: &'a [Arc<Pod>],
    /// `spec.replicas` of the scale.
    pub(super) spec_replicas: i32,
    /// `status.replicas` of the scale.
    pub(super) status_replicas: i32,
    pub(super) tolerances: Tolerances,
    pub(super) options: &'a Options,
    pub(super) now: Timestamp,
}

/// Replicas that one metric proposes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ReplicaCount {
    pub(super) replicas: i32,
    /// The metric's value.
    pub(super) usage: i64,
    /// The value in percent of requests, for a utilization target.
    pub(super) utilization: Option<i32>,
}

fn ceil(number: f64) -> i32 {
    number.ceil() as i32
}

impl CalculatorInputs<'_> {
    /// Returns the replicas by utilization: usage in percent of the requests, of pods or one container of
    /// each. Upstream: `GetResourceReplicas`.
    pub(super) fn by_utilization(
        &self,
        resource: &str,
        container: &str,
        samples: Samples,
        target: i32,
    ) -> Result<ReplicaCount, String> {
        let (samples, groups) = self.group_pods(samples, resource)?;
        let requests = calculate_requests(self.pods, container, resource, self.options)?;
        let utilization_of = |samples: &Samples| utilization(samples, &requests, target);
        let first = utilization_of(&samples)?;
        let (utilization, usage) = (Some(first.percent), first.average);
        // 100 % of a pod's request, or the target if higher.
        let percent = i64::from(target.max(100));
        let full_use = |pod: &str| requests.get(pod).map_or(0, |request| request * percent / 100);
        let ratio_of =
            |samples: &Samples| utilization_of(samples).map(|utilization| utilization.ratio);
        let replicas = self.desired_replicas(samples, &groups, first.ratio, full_use, ratio_of)?;
        Ok(ReplicaCount { replicas, usage, utilization })
    }

    /// Returns the replicas by average value per pod; `resource` is empty for other metrics. Upstream:
    /// `GetRawResourceReplicas`, `GetMetricReplicas`.
    pub(super) fn by_average(
        &self,
        resource: &str,
        samples: Samples,
        target: i64,
    ) -> Result<ReplicaCount, String> {
        let (samples, groups) = self.group_pods(samples, resource)?;
        let usage = average(&samples);
        let ratio_of = |samples: &Samples| Ok(average(samples) as f64 / target as f64);
        let first = ratio_of(&samples)?;
        let replicas = self.desired_replicas(samples, &groups, first, |_| target, ratio_of)?;
        Ok(ReplicaCount { replicas, usage, utilization: None })
    }

    /// Returns the replicas by one value: the ready pods times the ratio of the value to its target. Upstream:
    /// `GetObjectMetricReplicas`, `GetExternalMetricReplicas`.
    pub(super) fn by_value(&self, usage: i64, target: i64) -> Result<ReplicaCount, String> {
        let ratio = usage as f64 / target as f64;
        let replicas = if self.spec_replicas == 0 {
            ceil(ratio)
        } else if self.tolerances.is_within(ratio) {
            self.spec_replicas
        } else {
            ceil(ratio * self.ready()? as f64)
        };
        Ok(ReplicaCount { replicas, usage, utilization: None })
    }

    /// Returns the replicas by one value, with a target per pod. Upstream: `GetObjectPerPodMetricReplicas`,
    /// `GetExternalPerPodMetricReplicas`.
    pub(super) fn by_value_per_pod(&self, usage: i64, target: i64) -> ReplicaCount {
        let ratio = usage as f64 / (target as f64 * f64::from(self.status_replicas));
        let replicas = if self.tolerances.is_within(ratio) {
            self.status_replicas
        } else {
            ceil(usage as f64 / target as f64)
        };
        let each = if usage == i64::MAX {
            usage
        } else {
            (usage as f64 / f64::from(self.status_replicas)).ceil() as i64
        };
        ReplicaCount { replicas, usage: each, utilization: None }
    }

    /// Returns the samples that count, and the groups of pods. Upstream: `groupPods`.
    fn group_pods(
        &self,
        mut samples: Samples,
        resource: &str,
    ) -> Result<(Samples, Groups<'_>), String> {
        if self.pods.is_empty() {
            return Err("no pods returned by selector while calculating replica count".to_owned());
        }
        let groups = Groups::new(self.pods, &samples, resource, self.options, self.now);
        samples
            .retain(|pod, _| !groups.ignored.contains(&**pod) && !groups.unready.contains(&**pod));
        if samples.is_empty() {
            return Err(
                "did not receive metrics for targeted pods (pods might be unready)".to_owned()
            );
        }
        Ok((samples, groups))
    }

    /// Returns the desired replicas from the samples that count and their `ratio` to the target. Upstream:
    /// `calcPlainMetricReplicas`.
    ///
    /// - If all pods count: `ceil(pods × ratio)`, unless the ratio is within the tolerance.
    /// - A missing metric counts as `full_use` when scaling down, and as 0 when scaling up. For a
    ///   utilization, `full_use` is 100 % of the pod's request, or the target if that is more.
    /// - An unready pod counts as 0 % when scaling up, and is ignored otherwise.
    /// - `ratio_of` computes the ratio again with these values. If the new ratio reverses the direction or is
    ///   within the tolerance, or if the result moves the other way, the replicas stay.
    fn desired_replicas(
        &self,
        mut samples: Samples,
        groups: &Groups<'_>,
        ratio: f64,
        full_use: impl Fn(&str) -> i64,
        ratio_of: impl Fn(&Samples) -> Result<f64, String>,
    ) -> Result<i32, String> {
        let up_with_unready = !groups.unready.is_empty() && ratio > 1.0;
        if !up_with_unready && groups.missing.is_empty() {
            let is_near_target = self.tolerances.is_within(ratio);
            return Ok(if is_near_target {
                self.spec_replicas
            } else {
                ceil(ratio * groups.ready as f64)
            });
        }
        let mut assume = |pod: &str, value| {
            samples.insert(pod.into(), Sample { value, at: self.now, window: Duration::ZERO });
        };
        if ratio < 1.0 {
            groups.missing.iter().for_each(|pod| assume(pod, full_use(pod)));
        } else if ratio > 1.0 {
            groups.missing.iter().for_each(|pod| assume(pod, 0));
        }
        if up_with_unready {
            groups.unready.iter().for_each(|pod| assume(pod, 0));
        }
        let new_ratio = ratio_of(&samples)?;
        let reversed = (ratio < 1.0 && new_ratio > 1.0) || (ratio > 1.0 && new_ratio < 1.0);
        if self.tolerances.is_within(new_ratio) || reversed {
            return Ok(self.spec_replicas);
        }
        let replicas = ceil(new_ratio * samples.len() as f64);
        let other_way = (new_ratio < 1.0 && replicas > self.spec_replicas)
            || (new_ratio > 1.0 && replicas < self.spec_replicas);
        Ok(if other_way { self.spec_replicas } else { replicas })
    }

    /// Returns the number of running and ready pods. Upstream: `getReadyPodsCount`.
    fn ready(&self) -> Result<usize, String> {
        if self.pods.is_empty() {
            return Err("unable to calculate ready pods: no pods returned by selector while calculating replica count".to_owned());
        }
        let is_running_and_ready =
            |pod: &&Arc<Pod>| &*pod.status.phase == "Running" && is_ready(pod);
        Ok(self.pods.iter().filter(is_running_and_ready).count())
    }
}

/// Usage in relation to requests, over all samples.
struct Utilization {
    /// Ratio of `percent` to the target.
    ratio: f64,
    /// Usage in percent of the requests.
    percent: i32,
    /// Average usage of a pod.
    average: i64,
}

fn utilization(
    samples: &Samples,
    requests: &BTreeMap<Text, i64>,
    target: i32,
) -> Result<Utilization, String> {
    let known =
        samples.iter().filter_map(|(pod, sample)| Some((sample.value, *requests.get(pod)?)));
    let (mut used, mut requested, mut count) = (0_i64, 0_i64, 0_i64);
    for (value, request) in known {
        used = used.saturating_add(value);
        requested = requested.saturating_add(request);
        count += 1;
    }
    if requested == 0 {
        return Err("no metrics returned matched known pods".to_owned());
    }
    let percent = i128::from(used) * 100 / i128::from(requested);
    let percent = i32::try_from(percent).unwrap_or(i32::MAX);
    let ratio = f64::from(percent) / f64::from(target);
    Ok(Utilization { ratio, percent, average: used / count })
}

/// Returns the average of the samples, rounded toward zero; there must be at least one.
fn average(samples: &Samples) -> i64 {
    let sum = samples.values().fold(0_i64, |sum, sample| sum.saturating_add(sample.value));
    sum / i64::try_from(samples.len()).unwrap_or(i64::MAX).max(1)
}
