//! Replica calculator. Values of metrics and their targets are in thousandths. Upstream: `replica_calculator.go`.

use super::{
    Options,
    samples::{Groups, Sample, Samples, calculate_requests},
};
use crate::pods::is_ready;
use evenkeel_api::{Text, time::Timestamp, views::Pod};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Largest deviations from the target, as fractions, that cause no scaling.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Tolerances {
    pub(super) down: f64,
    pub(super) up: f64,
}

impl Tolerances {
    /// Returns whether the ratio of a metric to its target is within the tolerances.
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
    /// The metric's value: the total for [`CalculatorInputs::by_value`], else the average per pod.
    pub(super) usage: i64,
    /// The usage in percent of requests, for a utilization target.
    pub(super) utilization: Option<i32>,
}

/// Rounds a number of replicas up.
fn ceil(number: f64) -> i32 {
    number.ceil() as i32
}

impl CalculatorInputs<'_> {
    /// Returns the replicas by utilization, the usage in percent of requests. Requests are those of whole pods, or of
    /// one container in each pod if `container` is not empty. Upstream: `GetResourceReplicas`.
    pub(super) fn by_utilization(
        &self,
        resource: &str,
        container: &str,
        samples: Samples,
        target_percent: i32,
    ) -> Result<ReplicaCount, String> {
        let (samples, groups) = self.group_pods(samples, resource)?;
        let requests = calculate_requests(self.pods, container, resource, self.options)?;
        let current = utilization(&samples, &requests, target_percent)?;
        let full_percent = i64::from(target_percent.max(100));
        let full_use =
            |pod: &str| requests.get(pod).map_or(0, |request| request * full_percent / 100);
        let ratio_of =
            |samples: &Samples| Ok(utilization(samples, &requests, target_percent)?.ratio);
        let replicas =
            self.desired_replicas(samples, &groups, current.ratio, full_use, ratio_of)?;
        Ok(ReplicaCount { replicas, usage: current.average, utilization: Some(current.percent) })
    }

    /// Returns the replicas by average value per pod. `resource` is empty unless the metric is a resource metric.
    /// Upstream: `GetRawResourceReplicas`, `GetMetricReplicas`.
    pub(super) fn by_average(
        &self,
        resource: &str,
        samples: Samples,
        target: i64,
    ) -> Result<ReplicaCount, String> {
        let (samples, groups) = self.group_pods(samples, resource)?;
        let usage = average(&samples);
        let ratio_of = |samples: &Samples| Ok(average(samples) as f64 / target as f64);
        let ratio = ratio_of(&samples)?;
        let full_use = |_: &str| target;
        let replicas = self.desired_replicas(samples, &groups, ratio, full_use, ratio_of)?;
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
            ceil(ratio * self.count_ready_pods()? as f64)
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
        // A saturated sum stays the maximum.
        let usage_per_pod = if usage == i64::MAX {
            usage
        } else {
            (usage as f64 / f64::from(self.status_replicas)).ceil() as i64
        };
        ReplicaCount { replicas, usage: usage_per_pod, utilization: None }
    }

    /// Returns the samples without those of unready and ignored pods, and the groups of pods. Upstream: `groupPods`.
    fn group_pods(
        &self,
        mut samples: Samples,
        resource: &str,
    ) -> Result<(Samples, Groups<'_>), String> {
        if self.pods.is_empty() {
            return Err("no pods returned by selector while calculating replica count".to_owned());
        }
        let groups = Groups::new(self.pods, &samples, resource, self.options, self.now);
        let counts = |pod: &str| !groups.ignored.contains(pod) && !groups.unready.contains(pod);
        samples.retain(|pod, _| counts(pod));
        if samples.is_empty() {
            return Err(
                "did not receive metrics for targeted pods (pods might be unready)".to_owned()
            );
        }
        Ok((samples, groups))
    }

    /// Returns the desired replicas from `samples` and their `ratio` to the target. Upstream:
    /// `calcPlainMetricReplicas`.
    ///
    /// - If no pod is missing or unready: `ceil(ready pods × ratio)`, unless the ratio is within the tolerance.
    /// - A pod without a sample counts as `full_use` when scaling down, and as 0 when scaling up. For a
    ///   utilization, `full_use` is 100 % of the pod's request, or the target if that is more.
    /// - An unready pod counts as 0 when scaling up, and is ignored otherwise.
    /// - `ratio_of` computes the ratio again with these values. The replicas stay if the new ratio is within the
    ///   tolerance or reverses the direction, or if the result moves against the new ratio.
    fn desired_replicas(
        &self,
        mut samples: Samples,
        groups: &Groups<'_>,
        ratio: f64,
        full_use: impl Fn(&str) -> i64,
        ratio_of: impl Fn(&Samples) -> Result<f64, String>,
    ) -> Result<i32, String> {
        let scales_up_with_unready = !groups.unready.is_empty() && ratio > 1.0;
        if !scales_up_with_unready && groups.missing.is_empty() {
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
        if scales_up_with_unready {
            groups.unready.iter().for_each(|pod| assume(pod, 0));
        }
        let new_ratio = ratio_of(&samples)?;
        let is_reversed = (ratio < 1.0 && new_ratio > 1.0) || (ratio > 1.0 && new_ratio < 1.0);
        if self.tolerances.is_within(new_ratio) || is_reversed {
            return Ok(self.spec_replicas);
        }
        let replicas = ceil(new_ratio * samples.len() as f64);
        let contradicts_ratio = (new_ratio < 1.0 && replicas > self.spec_replicas)
            || (new_ratio > 1.0 && replicas < self.spec_replicas);
        Ok(if contradicts_ratio { self.spec_replicas } else { replicas })
    }

    /// Counts the running and ready pods. Upstream: `getReadyPodsCount`.
    fn count_ready_pods(&self) -> Result<usize, String> {
        if self.pods.is_empty() {
            return Err("unable to calculate ready pods: no pods returned by selector while calculating replica count".to_owned());
        }
        let is_running_and_ready =
            |pod: &&Arc<Pod>| &*pod.status.phase == "Running" && is_ready(pod);
        Ok(self.pods.iter().filter(is_running_and_ready).count())
    }
}

/// Usage in relation to requests, over all pods with a sample and a request.
struct Utilization {
    /// Ratio of `percent` to the target.
    ratio: f64,
    /// Usage in percent of the requests.
    percent: i32,
    /// Average usage of a pod.
    average: i64,
}

/// Returns the utilization of the pods in percent of their requests.
fn utilization(
    samples: &Samples,
    requests: &BTreeMap<Text, i64>,
    target_percent: i32,
) -> Result<Utilization, String> {
    let mut used = 0_i64;
    let mut requested = 0_i64;
    let mut n_pods = 0_i64;
    for (pod, sample) in samples {
        let Some(request) = requests.get(pod) else { continue };
        used = used.saturating_add(sample.value);
        requested = requested.saturating_add(*request);
        n_pods += 1;
    }
    if requested == 0 {
        return Err("no metrics returned matched known pods".to_owned());
    }
    let percent = i128::from(used) * 100 / i128::from(requested);
    let percent = i32::try_from(percent).unwrap_or(i32::MAX);
    let ratio = f64::from(percent) / f64::from(target_percent);
    Ok(Utilization { ratio, percent, average: used / n_pods })
}

/// Returns the average of the samples, rounded toward zero; 0 without samples.
fn average(samples: &Samples) -> i64 {
    let sum = samples.values().fold(0_i64, |sum, sample| sum.saturating_add(sample.value));
    sum / i64::try_from(samples.len()).unwrap_or(i64::MAX).max(1)
}
