//! LimitRanger: bounds the resources of each pod and claim of a namespace, and sets defaults.

use super::objects::{decoded, namespaced};
use crate::api::Context;
use evenkeel_api::map::Map;
use evenkeel_api::quantity::Quantity;
use evenkeel_api::views::{
    LimitRange, LimitRangeItem, PersistentVolumeClaim, Pod, ResourceRequirements,
};
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::value::{self, Object, list, object, object_mut, set, text};
use evenkeel_component_helpers::resource::{Amounts, aggregate, amounts};
use serde_json::Value;

const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// Largest number of units whose thousandths fit an `i64`.
const MOST_IN_MILLIS: i64 = i64::MAX / 1000;

/// Sets the defaults of the namespace's LimitRanges on a pod's containers.
pub(super) fn complete(cx: &Context<'_>, pod: &mut Value) -> Result<(), StatusError> {
    for range in ranges(cx)? {
        let mut set_here = Vec::new();
        for (path, what) in
            [("spec.containers", "container"), ("spec.initContainers", "init container")]
        {
            let mut containers = list(pod, path).to_vec();
            let before = set_here.len();
            for container in &mut containers {
                complete_container(container, what, &range, &mut set_here);
            }
            if set_here.len() > before {
                set(pod, path, containers);
            }
        }
        if !set_here.is_empty()
            && let Some(annotations) = object_mut(pod, "metadata.annotations")
        {
            let text = format!("LimitRanger plugin set: {}", set_here.join("; "));
            annotations.insert(ANNOTATION.to_owned(), Value::from(text));
        }
    }
    Ok(())
}

fn complete_container(
    container: &mut Value,
    what: &str,
    range: &LimitRange,
    applied_defaults: &mut Vec<String>,
) {
    let name = text(container, "name").to_owned();
    let of_containers = || range.spec.limits.iter().filter(|item| &*item.type_ == "Container");
    let mut fill = |path: &str, defaults: fn(&LimitRangeItem) -> &Map<Quantity>, noun: &str| {
        let mut wanted = Object::new();
        for (resource, amount) in of_containers().flat_map(|item| defaults(item).iter()) {
            wanted.insert(resource.to_owned(), Value::from(amount.to_string()));
        }
        wanted.retain(|resource, _| {
            object(container, path).is_none_or(|given| !given.contains_key(resource))
        });
        if wanted.is_empty() {
            return;
        }
        let mut names: Vec<&str> = wanted.keys().map(String::as_str).collect();
        names.sort_unstable();
        applied_defaults.push(format!("{} {noun} for {what} {name}", names.join(", ")));
        if let Some(given) = object_mut(container, path) {
            given.extend(wanted);
        }
    };
    fill("resources.requests", |item| &item.default_request, "request");
    fill("resources.limits", |item| &item.default, "limit");
}

/// Refuses pods and claims that violate the namespace's LimitRanges.
pub(super) fn check(cx: &Context<'_>, new: &Value, old: Option<&Value>) -> Result<(), StatusError> {
    let looked_at = match (cx.resource.kind(), cx.subresource) {
        ("Pod", "") => old.is_none(),
        ("Pod", "resize") | ("PersistentVolumeClaim", "") => true,
        _ => false,
    };
    let going = old.is_some_and(|old| value::get(old, "metadata.deletionTimestamp").is_some());
    if !looked_at || going {
        return Ok(());
    }
    for range in ranges(cx)? {
        let wrong = if cx.resource.kind() == "Pod" {
            let pod: Pod = decoded(new)?;
            wrong_of_pod(&range, &pod)
        } else {
            let claim: PersistentVolumeClaim = decoded(new)?;
            wrong_of_claim(&range, &claim)
        };
        if let Some(wrong) = in_one(wrong) {
            return Err(StatusError::forbidden(&cx.resource.name, cx.name, wrong));
        }
    }
    Ok(())
}

fn ranges(cx: &Context<'_>) -> Result<Vec<LimitRange>, StatusError> {
    Ok(namespaced(cx, "/limitranges")?.into_iter().map(|(_, range)| range).collect())
}

/// Joins several errors into one message, as upstream does.
fn in_one(mut wrong: Vec<String>) -> Option<String> {
    let mut seen = std::collections::BTreeSet::new();
    wrong.retain(|text| seen.insert(text.clone()));
    match wrong.len() {
        0 => None,
        1 => wrong.pop(),
        _ => Some(format!("[{}]", wrong.join(", "))),
    }
}

fn wrong_of_claim(range: &LimitRange, claim: &PersistentVolumeClaim) -> Vec<String> {
    let requests = amounts(&claim.spec.resources.requests);
    let mut wrong = Vec::new();
    for item in range.spec.limits.iter().filter(|item| &*item.type_ == "PersistentVolumeClaim") {
        let use_ = Use { sort: &item.type_, requests: &requests, limits: &[] };
        wrong.extend(item.min.iter().filter_map(|(name, least)| use_.below(name, *least)));
        wrong.extend(item.max.iter().filter_map(|(name, most)| use_.asks_above(name, *most)));
    }
    wrong
}

fn wrong_of_pod(range: &LimitRange, pod: &Pod) -> Vec<String> {
    let mut wrong = Vec::new();
    for item in &range.spec.limits {
        match &*item.type_ {
            "Container" => {
                for container in pod.spec.containers.iter().chain(&*pod.spec.init_containers) {
                    let requests = amounts(&container.resources.requests);
                    let limits = amounts(&container.resources.limits);
                    outside(item, &requests, &limits, &mut wrong);
                }
            }
            "Pod" => {
                let whole = |of: fn(&ResourceRequirements) -> &Map<Quantity>| {
                    let mut total =
                        aggregate(pod, |container, _| amounts(of(&container.resources)));
                    let whole = pod.spec.resources.iter().flat_map(|whole| of(whole).iter());
                    for (name, amount) in
                        whole.filter(|(name, _)| matches!(*name, "cpu" | "memory"))
                    {
                        total.retain(|(own, _)| *own != name);
                        total.push((name, *amount));
                    }
                    total
                };
                outside(item, &whole(|r| &r.requests), &whole(|r| &r.limits), &mut wrong);
            }
            _ => {}
        }
    }
    wrong
}

fn outside(
    item: &LimitRangeItem,
    requests: &Amounts<'_>,
    limits: &Amounts<'_>,
    wrong: &mut Vec<String>,
) {
    let use_ = Use { sort: &item.type_, requests, limits };
    wrong.extend(item.min.iter().filter_map(|(name, least)| use_.below(name, *least)));
    wrong.extend(item.max.iter().filter_map(|(name, most)| use_.above(name, *most)));
    let ratios = item.max_limit_request_ratio.iter();
    wrong.extend(ratios.filter_map(|(name, most)| use_.beyond_ratio(name, *most)));
}

/// Requests and limits of a container, a pod or a claim.
struct Use<'a> {
    /// Type of the limit: `Container`, `Pod` or `PersistentVolumeClaim`.
    sort: &'a str,
    requests: &'a [(&'a str, Quantity)],
    limits: &'a [(&'a str, Quantity)],
}

impl Use<'_> {
    fn of(amounts: &[(&str, Quantity)], name: &str) -> Option<Quantity> {
        amounts.iter().find(|(own, _)| *own == name).map(|(_, amount)| *amount)
    }

    fn request(&self, name: &str) -> Option<Quantity> {
        Self::of(self.requests, name)
    }

    fn limit(&self, name: &str) -> Option<Quantity> {
        Self::of(self.limits, name)
    }

    /// Returns request, limit and bound in thousandths if all three fit, else in units.
    fn numbers(&self, name: &str, bound: Quantity) -> [i64; 3] {
        let all =
            [self.request(name).unwrap_or_default(), self.limit(name).unwrap_or_default(), bound];
        let fits = all.iter().all(|amount| amount.value() <= MOST_IN_MILLIS);
        all.map(|amount| if fits { amount.milli_value() } else { amount.value() })
    }

    fn below(&self, name: &str, least: Quantity) -> Option<String> {
        let [request, limit, bound] = self.numbers(name, least);
        let begin = format!("minimum {name} usage per {} is {least}", self.sort);
        match (self.request(name), self.limit(name)) {
            (None, _) => Some(format!("{begin}.  No request is specified")),
            (Some(asked), _) if request < bound => Some(format!("{begin}, but request is {asked}")),
            (_, Some(given)) if limit < bound => Some(format!("{begin}, but limit is {given}")),
            _ => None,
        }
    }

    fn above(&self, name: &str, most: Quantity) -> Option<String> {
        let [request, limit, bound] = self.numbers(name, most);
        let begin = format!("maximum {name} usage per {} is {most}", self.sort);
        match (self.limit(name), self.request(name)) {
            (None, _) => Some(format!("{begin}.  No limit is specified")),
            (Some(given), _) if limit > bound => Some(format!("{begin}, but limit is {given}")),
            (_, Some(asked)) if request > bound => Some(format!("{begin}, but request is {asked}")),
            _ => None,
        }
    }

    /// As [`Self::above`], for claims, which have no limits.
    fn asks_above(&self, name: &str, most: Quantity) -> Option<String> {
        let [request, _, bound] = self.numbers(name, most);
        let begin = format!("maximum {name} usage per {} is {most}", self.sort);
        match self.request(name) {
            None => Some(format!("{begin}.  No request is specified")),
            Some(asked) if request > bound => Some(format!("{begin}, but request is {asked}")),
            Some(_) => None,
        }
    }

    fn beyond_ratio(&self, name: &str, most: Quantity) -> Option<String> {
        let [request, limit, _] = self.numbers(name, most);
        let begin = format!("{name} max limit to request ratio per {} is {most}", self.sort);
        if request == 0 {
            return Some(format!("{begin}, but no request is specified or request is 0"));
        }
        if limit == 0 {
            return Some(format!("{begin}, but no limit is specified or limit is 0"));
        }
        let ratio = limit as f64 / request as f64;
        let exceeds = if most.value() <= MOST_IN_MILLIS {
            ratio * 1000.0 > most.milli_value() as f64
        } else {
            ratio > most.value() as f64
        };
        exceeds.then(|| format!("{begin}, but provided ratio is {ratio:.6}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn range(items: &Value) -> LimitRange {
        decoded(&json!({"spec": {"limits": items}})).expect("a LimitRange")
    }

    #[test]
    fn defaults_are_filled_in_and_reported() {
        let range = range(
            &json!([{"type": "Container", "default": {"cpu": "500m", "memory": "1Gi"}, "defaultRequest": {"cpu": "100m"}}]),
        );
        let mut applied_defaults = Vec::new();
        let mut container = json!({"name": "c", "resources": {"limits": {"cpu": "1"}}});
        complete_container(&mut container, "container", &range, &mut applied_defaults);
        assert_eq!(
            container["resources"],
            json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "100m"}})
        );
        assert_eq!(
            applied_defaults,
            ["cpu request for container c", "memory limit for container c"]
        );
        complete_container(&mut container, "container", &range, &mut applied_defaults);
        assert_eq!(applied_defaults.len(), 2, "values that are set stay");
    }

    #[test]
    fn what_is_outside_is_reported() {
        let container = |resources: &str| {
            let resources: Value = serde_json::from_str(resources).expect("JSON");
            decoded::<Pod>(
                &json!({"spec": {"containers": [{"name": "c", "resources": resources}]}}),
            )
            .expect("a pod")
        };
        let table = [
            (
                r#"{"min": {"cpu": "100m"}}"#,
                "{}",
                Some("minimum cpu usage per Container is 100m.  No request is specified"),
            ),
            (
                r#"{"min": {"cpu": "100m"}}"#,
                r#"{"requests": {"cpu": "50m"}}"#,
                Some("minimum cpu usage per Container is 100m, but request is 50m"),
            ),
            (
                r#"{"min": {"cpu": "100m"}}"#,
                r#"{"requests": {"cpu": "0.2"}, "limits": {"cpu": "50m"}}"#,
                Some("minimum cpu usage per Container is 100m, but limit is 50m"),
            ),
            (r#"{"min": {"cpu": "100m"}}"#, r#"{"requests": {"cpu": "100m"}}"#, None),
            (
                r#"{"max": {"memory": "1Gi"}}"#,
                r#"{"requests": {"memory": "1Gi"}}"#,
                Some("maximum memory usage per Container is 1Gi.  No limit is specified"),
            ),
            (
                r#"{"max": {"memory": "1Gi"}}"#,
                r#"{"limits": {"memory": "2Gi"}}"#,
                Some("maximum memory usage per Container is 1Gi, but limit is 2Gi"),
            ),
            (r#"{"max": {"memory": "1Gi"}}"#, r#"{"limits": {"memory": "1Gi"}}"#, None),
            (
                r#"{"maxLimitRequestRatio": {"cpu": "2"}}"#,
                r#"{"limits": {"cpu": "1"}}"#,
                Some(
                    "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0",
                ),
            ),
            (
                r#"{"maxLimitRequestRatio": {"cpu": "2"}}"#,
                r#"{"requests": {"cpu": "1"}}"#,
                Some(
                    "cpu max limit to request ratio per Container is 2, but no limit is specified or limit is 0",
                ),
            ),
            (
                r#"{"maxLimitRequestRatio": {"cpu": "1500m"}}"#,
                r#"{"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}"#,
                Some(
                    "cpu max limit to request ratio per Container is 1500m, but provided ratio is 2.000000",
                ),
            ),
            (
                r#"{"maxLimitRequestRatio": {"cpu": "2"}}"#,
                r#"{"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}"#,
                None,
            ),
        ];
        for (item, resources, want) in table {
            let mut item: Value = serde_json::from_str(item).expect("JSON");
            item["type"] = json!("Container");
            let wrong = in_one(wrong_of_pod(&range(&json!([item])), &container(resources)));
            assert_eq!(wrong.as_deref(), want, "{item} {resources}");
        }
    }

    #[test]
    fn a_pod_is_taken_whole_and_a_claim_by_its_request() {
        let pod: Pod = decoded(&json!({"spec": {
            "initContainers": [{"name": "i", "resources": {"limits": {"cpu": "3"}}}],
            "containers": [{"name": "a", "resources": {"limits": {"cpu": "1"}}}, {"name": "b", "resources": {"limits": {"cpu": "1"}}}],
        }}))
        .expect("a pod");
        let most = |cpu: &str| range(&json!([{"type": "Pod", "max": {"cpu": cpu}}]));
        assert_eq!(in_one(wrong_of_pod(&most("3"), &pod)), None);
        assert_eq!(
            in_one(wrong_of_pod(&most("2"), &pod)).as_deref(),
            Some("maximum cpu usage per Pod is 2, but limit is 3")
        );
        let claim: PersistentVolumeClaim =
            decoded(&json!({"spec": {"resources": {"requests": {"storage": "5Gi"}}}}))
                .expect("a claim");
        let range = range(&json!([
            {"type": "PersistentVolumeClaim", "min": {"storage": "6Gi"}, "max": {"storage": "4Gi"}},
            {"type": "PersistentVolumeClaim", "max": {"storage": "4Gi"}},
        ]));
        assert_eq!(
            in_one(wrong_of_claim(&range, &claim)).as_deref(),
            Some(
                "[minimum storage usage per PersistentVolumeClaim is 6Gi, but request is 5Gi, \
                 maximum storage usage per PersistentVolumeClaim is 4Gi, but request is 5Gi]"
            )
        );
    }
}
