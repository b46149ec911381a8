//! Status of a ResourcePoolStatusRequest. Upstream: `syncRequest`, `shouldDeleteRequest`.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | `spec.driver`, `spec.poolName`, `spec.limit` | `status` |
//! | devices of a pool: total, allocated, unavailable, available | `./pool.rs` |
//! | `partitionSummary`, `shareableSummary` | `./views.rs` |
//! | the status of a request is written once | `plan` |
//! | a driver that still publishes slices delays the status | `plan` |
//! | requests with a status are deleted after 1 h, pending ones after 24 h | `expiration_reason` |

use super::pool::{Inventory, Pool};
use crate::{
    resource::{podclaims::Claim, rules::Rule},
    wire::{self, whole_second},
};
use evenkeel_api::{
    View as _,
    time::{SignedDuration, Timestamp},
};
use evenkeel_runtime::{
    cache::Full,
    introspect::Description,
    plan::{Plan, Update},
};
use k8s_openapi::{
    api::resource::{
        v1::ResourceSlice,
        v1alpha3::{PoolStatus, ResourcePoolStatusRequest, ResourcePoolStatusRequestStatus},
    },
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use std::sync::Arc;

/// A ResourcePoolStatusRequest with all fields, because an update sends the whole object.
pub(super) type Request = Full<ResourcePoolStatusRequest>;
/// A ResourceSlice with all its devices.
pub(super) type Slice = Full<ResourceSlice>;

/// Maximum number of pools in a status without `spec.limit`. Upstream: `ResourcePoolStatusRequestLimitDefault`.
const DEFAULT_LIMIT: i32 = 100;
/// Time after which a processed request is deleted. Upstream: `completedRequestTTL`.
const COMPLETED_REQUEST_TTL: SignedDuration = SignedDuration::from_hours(1);
/// Time for which a pending request is kept. Upstream: `pendingRequestTTL`.
const PENDING_REQUEST_TTL: SignedDuration = SignedDuration::from_hours(24);
/// Types of the conditions of a processed request.
const FINAL_CONDITIONS: [&str; 2] = ["Complete", "Failed"];

/// A request, and the objects on which its status depends. They are omitted if the request already has a status.
pub(super) struct Observed {
    pub(super) request: Arc<Request>,
    pub(super) slices: Vec<Arc<Slice>>,
    pub(super) claims: Vec<Arc<Claim>>,
    pub(super) rules: Vec<Arc<Rule>>,
}

/// Writes the status of a request without one. If a pool is incomplete, fails, so that the request is retried.
pub(super) fn plan(observed: &Observed, now: Timestamp) -> Plan {
    let request = &*observed.request;
    if request.status.is_some() {
        return Plan::nothing();
    }
    let status = status(observed, now);
    if status.pools.iter().flatten().any(is_incomplete) {
        return Plan::failure("incomplete pools detected, requeueing");
    }
    let mut body = wire::copy_for_update(&**request);
    body.status = Some(status);
    Plan::one(Update::status(wire::target(request), wire::json(&body)))
}

fn is_incomplete(pool: &PoolStatus) -> bool {
    let error = pool.validation_error.as_deref();
    error.is_some_and(|error| error.starts_with(super::pool::POOL_INCOMPLETE))
}

/// Returns the status that the request gets. Upstream: `calculatePoolStatus`.
fn status(observed: &Observed, now: Timestamp) -> ResourcePoolStatusRequestStatus {
    let spec = &observed.request.spec;
    let inventory = Inventory::new(&spec.driver, &observed.claims, &observed.rules);
    let name = spec.pool_name.as_deref().filter(|name| !name.is_empty());
    let pools = Pool::all(&spec.driver, name, &observed.slices);
    let attribute = spec.default_partition_type_attribute.as_deref();
    let limit = usize::try_from(spec.limit.unwrap_or(DEFAULT_LIMIT)).unwrap_or_default();
    let statuses: Vec<PoolStatus> =
        pools.iter().take(limit).map(|pool| pool.status(&inventory, attribute)).collect();
    let n_invalid = statuses.iter().filter(|pool| pool.validation_error.is_some()).count();
    let mut message = format!("Calculated status for {} pools", statuses.len());
    if n_invalid > 0 {
        message += &format!(" ({n_invalid} incomplete)");
    }
    ResourcePoolStatusRequestStatus {
        conditions: Some(vec![Condition {
            type_: "Complete".to_owned(),
            status: "True".to_owned(),
            reason: "CalculationComplete".to_owned(),
            message,
            last_transition_time: Time(whole_second(now)),
            observed_generation: None,
        }]),
        pool_count: wire::to_i32(pools.len()),
        pools: (!statuses.is_empty()).then_some(statuses),
    }
}

/// Returns the reason to delete a request, if it expired. Upstream: `shouldDeleteRequest`.
pub(super) fn expiration_reason(request: &Request, now: Timestamp) -> Option<&'static str> {
    let (since, ttl, reason) = match &request.status {
        None => (request.meta().creation, PENDING_REQUEST_TTL, "request was pending for too long"),
        Some(status) => {
            let mut conditions = status.conditions.iter().flatten();
            let answered =
                conditions.find(|condition| FINAL_CONDITIONS.contains(&&*condition.type_));
            let answered = answered.map(|condition| condition.last_transition_time.0);
            let since = answered.or(request.meta().creation);
            (since, COMPLETED_REQUEST_TTL, "request was answered")
        }
    };
    since.filter(|since| now.duration_since(*since) > ttl).map(|_| reason)
}

/// Describes the request.
pub(super) fn describe(observed: &Observed) -> Description {
    let mut description = Description::new();
    description.fact("driver", &observed.request.spec.driver);
    if observed.request.status.is_some() {
        description.waits("the request is answered");
    } else {
        description.fact("slices of the driver", observed.slices.len());
    }
    description
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{T0, at, object};
    use evenkeel_api::time::seconds;
    use evenkeel_runtime::plan::{Action, lint};
    use serde_json::{Value, json};

    fn request(spec: &Value, status: &Value) -> Request {
        let mut object: Value = json!({
            "metadata": {"name": "q", "uid": "q", "resourceVersion": "7", "creationTimestamp": seconds(T0)},
            "spec": {"driver": "gpu.test"},
        });
        for (field, value) in spec.as_object().unwrap() {
            object["spec"][field] = value.clone();
        }
        if !status.is_null() {
            object["status"] = status.clone();
        }
        crate::fixtures::object(&object)
    }

    fn slice(driver: &str, pool: &str, count: i64) -> Arc<Slice> {
        Arc::new(object(&json!({
            "metadata": {"name": format!("{pool}-slice")},
            "spec": {
                "driver": driver, "devices": [{"name": "d"}],
                "pool": {"name": pool, "generation": 1, "resourceSliceCount": count},
            },
        })))
    }

    fn observed(spec: &Value, slices: Vec<Arc<Slice>>) -> Observed {
        let request = Arc::new(request(spec, &Value::Null));
        Observed { request, slices, claims: Vec::new(), rules: Vec::new() }
    }

    /// Returns the status that the plan writes.
    fn written(plan: &Plan) -> Value {
        let [Action::Update(update)] = &plan.actions[..] else { panic!("{plan:?}") };
        assert_eq!(update.subresource, "status");
        let body: Value = serde_json::from_slice(&update.body).unwrap();
        assert_eq!(body["metadata"]["resourceVersion"], "7");
        body["status"].clone()
    }

    #[test]
    fn pools_of_the_driver_are_sorted_filtered_and_limited() {
        let slices = || {
            let pools = ["b", "a", "c"].map(|pool| slice("gpu.test", pool, 1));
            pools.into_iter().chain([slice("other.test", "z", 1)]).collect::<Vec<_>>()
        };
        // Spec, names of the pools, number of pools and message.
        let table = [
            (json!({}), vec!["a", "b", "c"], 3, "Calculated status for 3 pools"),
            (json!({"limit": 2}), vec!["a", "b"], 3, "Calculated status for 2 pools"),
            (json!({"poolName": "b"}), vec!["b"], 1, "Calculated status for 1 pools"),
            (json!({"poolName": "none"}), vec![], 0, "Calculated status for 0 pools"),
        ];
        for (spec, names, count, message) in table {
            let plan = plan(&observed(&spec, slices()), T0);
            assert!(lint(&plan).is_empty());
            let status = written(&plan);
            let pools = status["pools"].as_array().cloned().unwrap_or_default();
            let found: Vec<_> =
                pools.iter().map(|pool| pool["poolName"].as_str().unwrap()).collect();
            assert_eq!((found, &status["poolCount"]), (names, &json!(count)), "{spec}");
            let condition = &status["conditions"][0];
            assert_eq!(condition["type"], "Complete");
            assert_eq!(condition["reason"], "CalculationComplete");
            assert_eq!(condition["message"], message);
        }
    }

    #[test]
    fn incomplete_pool_is_retried_and_an_answer_is_final() {
        let incomplete = observed(&json!({}), vec![slice("gpu.test", "a", 2)]);
        assert_eq!(plan(&incomplete, T0), Plan::failure("incomplete pools detected, requeueing"));
        let answered = request(&json!({}), &json!({"poolCount": 0}));
        let answered = Observed { request: Arc::new(answered), ..incomplete };
        assert_eq!(plan(&answered, T0), Plan::nothing());
    }

    #[test]
    fn requests_expire_after_their_answer_or_a_day() {
        let answered = |type_: &str| {
            json!({"poolCount": 0, "conditions": [{
                "type": type_, "status": "True", "reason": "R", "message": "", "lastTransitionTime": seconds(at(100)),
            }]})
        };
        // Status, and the highest age in seconds at which the request is still kept.
        let table = [
            (Value::Null, 24 * 3600),
            (answered("Complete"), 3700),
            (answered("Failed"), 3700),
            (answered("Other"), 3600),
            (json!({"poolCount": 0}), 3600),
        ];
        for (status, last) in table {
            let request = request(&json!({}), &status);
            assert_eq!(expiration_reason(&request, at(last)), None, "{status}");
            assert!(expiration_reason(&request, at(last + 1)).is_some(), "{status}");
        }
    }
}
