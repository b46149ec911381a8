//! Steps that read and write scales and discover the scaled kind. Upstream: `client-go/scale`.

use super::{KindLookupError, Scale, decode, update_body};
use crate::client_go_error;
use evenkeel_api::Kind;
use evenkeel_runtime::{
    discovery::{Resource, ServerResources},
    plan::{Failure, LiveRead, OnError, Plan, Steps, Target, Update},
};
use std::{sync::Arc, time::Duration};

/// Maximum age of a discovery. Upstream resets its REST mapper at this interval.
const MAX_DISCOVERY_AGE: Duration = Duration::from_secs(30);

/// Maximum age of a discovery that lacks the kind. An older discovery is repeated.
const MAX_AGE_WITHOUT_KIND: Duration = Duration::from_secs(5);

/// Result of a step, or the plan that the runtime must carry out before the step has a result.
pub(crate) type Step<T, E> = Result<Result<T, E>, Plan>;

/// Finds the resource of a kind in one version of its group.
pub(crate) fn resource_for_version(
    api_version: &str,
    kind: &str,
    steps: &mut Steps<'_>,
) -> Step<Resource, KindLookupError> {
    let of_kind = |found: &ServerResources| found.of_kind(api_version, kind).cloned();
    let found = lookup(of_kind, steps)?;
    Ok(found.and_then(|found| {
        found.ok_or_else(|| KindLookupError::NoKind {
            kind: kind.to_owned(),
            place: format!("version {api_version:?}"),
        })
    }))
}

/// Finds the resources of a kind in its group, each in the preferred version.
pub(crate) fn resources_in_group(
    group: &str,
    kind: &str,
    steps: &mut Steps<'_>,
) -> Step<Vec<Resource>, KindLookupError> {
    let of_kind = |found: &ServerResources| {
        let has_kind =
            |resource: &&Resource| resource.kind.group == group && resource.kind.kind == kind;
        let resources: Vec<Resource> = found.preferred().filter(has_kind).cloned().collect();
        (!resources.is_empty()).then_some(resources)
    };
    let found = lookup(of_kind, steps)?;
    Ok(found.and_then(|found| {
        found.ok_or_else(|| KindLookupError::NoKind {
            kind: kind.to_owned(),
            place: format!("group {group:?}"),
        })
    }))
}

/// Applies `find` to a discovery. If it finds nothing, applies it to a newer discovery.
fn lookup<T>(
    find: impl Fn(&ServerResources) -> Option<T>,
    steps: &mut Steps<'_>,
) -> Step<Option<T>, KindLookupError> {
    for max_age in [MAX_DISCOVERY_AGE, MAX_AGE_WITHOUT_KIND] {
        let read = steps.one(with_ignored_error(LiveRead::resources(max_age)))?;
        if let Some(error) = &read.error {
            return Ok(Err(KindLookupError::Discovery(error.clone())));
        }
        let resources: Option<&Arc<ServerResources>> =
            read.reply.as_ref().and_then(|reply| reply.resources());
        if let Some(found) = resources.and_then(|resources| find(resources)) {
            return Ok(Ok(Some(found)));
        }
    }
    Ok(Ok(None))
}

/// Reads the scale of an object after `delay`. If the kind has no scale, the error is NotFound.
pub(crate) fn get(
    kind: &Kind,
    namespace: &str,
    name: &str,
    delay: Duration,
    steps: &mut Steps<'_>,
) -> Step<Scale, Failure> {
    let path = format!("{}/{name}/scale", kind.path(namespace));
    let read = steps.one(LiveRead { delay, ..with_ignored_error(LiveRead::json(&path)) })?;
    if let Some(error) = &read.error {
        return Ok(Err(Failure { message: client_go_error::message(error, ""), ..error.clone() }));
    }
    let body = read.reply.as_ref().map(|reply| reply.body().clone()).unwrap_or_default();
    Ok(decode(&body).map_err(|error| {
        let plural = &kind.plural;
        Failure::local(format!("the scale of {plural} {namespace}/{name} cannot be read: {error}"))
    }))
}

/// Updates the replicas. Fails if the resource version differs from the resource version of `scale`.
pub(crate) fn update(
    kind: &Kind,
    namespace: &str,
    scale: &Scale,
    replicas: i32,
    steps: &mut Steps<'_>,
) -> Step<(), Failure> {
    let target = Target::new(kind.clone(), namespace, &scale.name, &scale.uid);
    let update = Update {
        subresource: "scale",
        on_error: OnError::Ignore,
        ..Update::new(target, update_body(namespace, scale, replicas))
    };
    Ok(match &steps.one(update)?.error {
        Some(error) => {
            Err(Failure { message: client_go_error::message(error, ""), ..error.clone() })
        }
        None => Ok(()),
    })
}

/// Returns the read with its errors ignored by the runtime, because the caller handles them.
fn with_ignored_error(read: LiveRead) -> LiveRead {
    LiveRead { on_error: OnError::Ignore, ..read }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{deployments, discovered};
    use evenkeel_runtime::plan::{Action, Outcome, Outcomes, ReadRequest, Reply};

    fn failed(code: u16) -> Outcome {
        Outcome::failure(Failure { code, ..Failure::local("no") })
    }

    /// Returns the plural of the found kind, the error, or the maximum age of the discovery to read next.
    fn found(outcomes: Vec<Outcome>) -> Result<Result<String, String>, Duration> {
        let outcomes = Outcomes(outcomes);
        match resources_in_group("apps", "Deployment", &mut Steps::of(&outcomes)) {
            Ok(Ok(found)) => Ok(Ok(found[0].kind.plural.to_string())),
            Ok(Err(error)) => Ok(Err(error.to_string())),
            Err(step) => match &step.actions[..] {
                [Action::Read(LiveRead { request: ReadRequest::Discovery { max_age }, .. })] => {
                    Err(*max_age)
                }
                other => panic!("{other:?}"),
            },
        }
    }

    #[test]
    fn missing_kind_is_rediscovered() {
        let (served, missing) = (discovered(vec![deployments()]), discovered(Vec::new()));
        let no_matches = "no matches for kind \"Deployment\" in group \"apps\"";
        assert_eq!(found(vec![]), Err(MAX_DISCOVERY_AGE));
        assert_eq!(found(vec![served.clone()]), Ok(Ok("deployments".to_owned())));
        assert_eq!(found(vec![missing.clone()]), Err(MAX_AGE_WITHOUT_KIND));
        assert_eq!(found(vec![missing.clone(), served]), Ok(Ok("deployments".to_owned())));
        assert_eq!(found(vec![missing.clone(), missing]), Ok(Err(no_matches.to_owned())));
        assert_eq!(found(vec![failed(500)]), Ok(Err("no".to_owned())));
    }

    #[test]
    fn scale_update_has_the_read_resource_version() {
        let kind = deployments().kind;
        let read = Outcome {
            reply: Some(Reply::json(
                r#"{"metadata":{"name":"web","uid":"u","resourceVersion":"7"},"spec":{"replicas":3}}"#,
            )),
            ..Outcome::success()
        };
        let outcomes = Outcomes(vec![read]);
        let mut steps = Steps::of(&outcomes);
        let scale =
            get(&kind, "ns", "web", Duration::ZERO, &mut steps).expect("done").expect("a scale");
        assert_eq!((scale.replicas, &*scale.resource_version), (3, "7"));
        let step = update(&kind, "ns", &scale, 5, &mut steps).expect_err("the step");
        let [Action::Update(update)] = &step.actions[..] else { panic!("{step:?}") };
        let body: serde_json::Value = serde_json::from_slice(&update.body).expect("JSON");
        assert_eq!(body["metadata"]["resourceVersion"], "7");
        assert_eq!((update.subresource, &body["spec"]["replicas"]), ("scale", &5.into()));
    }

    #[test]
    fn failed_read_has_upstreams_message() {
        let kind = deployments().kind;
        let outcomes = Outcomes(vec![failed(404)]);
        let read = get(&kind, "ns", "web", Duration::ZERO, &mut Steps::of(&outcomes));
        let failure = read.expect("done").expect_err("missing");
        assert_eq!(failure.code, 404);
        assert_eq!(failure.message, "the server could not find the requested resource");
    }
}
