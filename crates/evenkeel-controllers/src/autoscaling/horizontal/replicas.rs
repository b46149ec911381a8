//! How many pods it takes for a metric to be as it should.
//!
//! Upstream: `replica_calculator.go`. Values are in thousandths.

use super::{
    Options,
    samples::{Groups, Sample, Samples, requested},
};
use crate::pods::is_ready;
use evenkeel_api::{Text, time::Timestamp, views::Pod};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// How far a metric may be off without anything being done, as shares of the target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Tolerances {
    pub(super) down: f64,
    pub(super) up: f64,
}

impl Tolerances {
    fn bears(self, ratio: f64) -> bool {
        (1.0 - self.down) <= ratio && ratio <= (1.0 + self.up)
    }
}

/// What the calculation looks at besides the metric.
pub(super) struct Scene<'a> {
    /// The pods of what is scaled.
    pub(super) pods: &'a [Arc<Pod>],
    /// Pods asked for.
    pub(super) wanted: i32,
    /// Pods there, as the scale says.
    pub(super) there: i32,
    pub(super) tolerances: Tolerances,
    pub(super) options: &'a Options,
    pub(super) now: Timestamp,
}

/// What a metric asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) replicas: i32,
    /// What the metric was.
    pub(super) usage: i64,
    /// In percent of what is requested, where that is what it is measured by.
    pub(super) utilization: Option<i32>,
}

fn ceil(number: f64) -> i32 {
    number.ceil() as i32
}

impl Scene<'_> {
    /// By what pods (or one container of each) use in percent of what they request.
    pub(super) fn by_utilization(
        &self,
        resource: &str,
        container: &str,
        samples: Samples,
        target: i32,
    ) -> Result<Answer, String> {
        let (samples, groups) = self.sorted(samples, resource)?;
        let requests = requested(self.pods, container, resource, self.options)?;
        let share = |samples: &Samples| utilization(samples, &requests, target);
        let first = share(&samples)?;
        let (utilization, usage) = (Some(first.percent), first.average);
        // A pod without a figure is taken to use all that it requests, or the target where that is more.
        let most = i64::from(target.max(100));
        let full = |pod: &str| requests.get(pod).map_or(0, |request| request * most / 100);
        let ratio = |samples: &Samples| share(samples).map(|share| share.ratio);
        let replicas = self.settle(samples, &groups, first.ratio, full, ratio)?;
        Ok(Answer { replicas, usage, utilization })
    }

    /// By what each pod has on average; `resource` is empty where it is of no resource.
    pub(super) fn by_average(
        &self,
        resource: &str,
        samples: Samples,
        target: i64,
    ) -> Result<Answer, String> {
        let (samples, groups) = self.sorted(samples, resource)?;
        let usage = average(&samples);
        let ratio = |samples: &Samples| Ok(average(samples) as f64 / target as f64);
        let first = ratio(&samples)?;
        let replicas = self.settle(samples, &groups, first, |_| target, ratio)?;
        Ok(Answer { replicas, usage, utilization: None })
    }

    /// By one value, of which each ready pod has its part.
    pub(super) fn by_value(&self, usage: i64, target: i64) -> Result<Answer, String> {
        let ratio = usage as f64 / target as f64;
        let replicas = if self.wanted == 0 {
            ceil(ratio)
        } else if self.tolerances.bears(ratio) {
            self.wanted
        } else {
            ceil(ratio * self.ready()? as f64)
        };
        Ok(Answer { replicas, usage, utilization: None })
    }

    /// By one value, of which each pod should have so much.
    pub(super) fn by_value_per_pod(&self, usage: i64, target: i64) -> Answer {
        let ratio = usage as f64 / (target as f64 * f64::from(self.there));
        let replicas = if self.tolerances.bears(ratio) {
            self.there
        } else {
            ceil(usage as f64 / target as f64)
        };
        let each = if usage == i64::MAX {
            usage
        } else {
            (usage as f64 / f64::from(self.there)).ceil() as i64
        };
        Answer { replicas, usage: each, utilization: None }
    }

    /// The samples that count, and the pods' groups.
    fn sorted(
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

    /// How many pods it takes. Of pods that say nothing the more cautious is assumed: that those without a figure use much
    /// where it would shrink (`full`), and nothing where it would grow, as do those that are not ready.
    fn settle(
        &self,
        mut samples: Samples,
        groups: &Groups<'_>,
        ratio: f64,
        full: impl Fn(&str) -> i64,
        again: impl Fn(&Samples) -> Result<f64, String>,
    ) -> Result<i32, String> {
        let grows_with_unready = !groups.unready.is_empty() && ratio > 1.0;
        if !grows_with_unready && groups.missing.is_empty() {
            let bears = self.tolerances.bears(ratio);
            return Ok(if bears { self.wanted } else { ceil(ratio * groups.ready as f64) });
        }
        let mut assume = |pod: &str, value| {
            samples.insert(pod.into(), Sample { value, at: self.now, window: Duration::ZERO });
        };
        if ratio < 1.0 {
            groups.missing.iter().for_each(|pod| assume(pod, full(pod)));
        } else if ratio > 1.0 {
            groups.missing.iter().for_each(|pod| assume(pod, 0));
        }
        if grows_with_unready {
            groups.unready.iter().for_each(|pod| assume(pod, 0));
        }
        let second = again(&samples)?;
        let turned = (ratio < 1.0 && second > 1.0) || (ratio > 1.0 && second < 1.0);
        if self.tolerances.bears(second) || turned {
            return Ok(self.wanted);
        }
        let replicas = ceil(second * samples.len() as f64);
        let against =
            (second < 1.0 && replicas > self.wanted) || (second > 1.0 && replicas < self.wanted);
        Ok(if against { self.wanted } else { replicas })
    }

    /// Pods that run and are ready.
    fn ready(&self) -> Result<usize, String> {
        if self.pods.is_empty() {
            return Err("unable to calculate ready pods: no pods returned by selector while calculating replica count".to_owned());
        }
        let works = |pod: &&Arc<Pod>| &*pod.status.phase == "Running" && is_ready(pod);
        Ok(self.pods.iter().filter(works).count())
    }
}

struct Share {
    ratio: f64,
    percent: i32,
    average: i64,
}

fn utilization(
    samples: &Samples,
    requests: &BTreeMap<Text, i64>,
    target: i32,
) -> Result<Share, String> {
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
    Ok(Share { ratio, percent, average: used / count })
}

/// Of samples of which there is one at least.
fn average(samples: &Samples) -> i64 {
    let sum = samples.values().fold(0_i64, |sum, sample| sum.saturating_add(sample.value));
    sum / i64::try_from(samples.len()).unwrap_or(i64::MAX).max(1)
}
