//! Operator of policies: each `FieldPolicy` names a kind and the fields that its objects must have.
//!
//! Policies may name any kind, even one whose CustomResourceDefinition is installed later. The operator watches the kinds that
//! policies name, audits their objects, and writes violations of a policy to its status.

mod audit;
mod resource;
mod watches;

pub use audit::{MAX_LISTED, Report, audit};
use evenkeel_runtime::{operator::conditions::Status, prelude::*};
use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::ResourceExt as _;
pub use resource::{FieldPolicy, FieldPolicySpec, FieldPolicyStatus, Rule, TargetKind, Violation};
use watches::Watches;

/// Maximum age of a discovery that a reconcile uses.
const DISCOVERY_AGE: Duration = Duration::from_secs(10);

/// Interval at which a policy looks for its kind again. A CustomResourceDefinition's event arrives before the server serves the
/// change.
const REDISCOVERY_INTERVAL: Duration = Duration::from_secs(30);

/// Delay of a reconcile that waits until the cache of a kind has filled.
const FILL_DELAY: Duration = Duration::from_secs(1);

/// Builds the operator.
///
/// # Errors
/// Fails if the manager cannot be built.
pub fn operator(kube: kube::Client, setup: Setup) -> anyhow::Result<Manager> {
    let manager = Manager::builder(kube)
        .component("policy-operator")
        .setup(setup)
        .leader_election_id("policy.example.com")
        .probes(8081)
        .metrics(Metrics::secure(8443))
        .build()?;
    let watches = Arc::new(Watches::new(&manager));
    let of_definition = Arc::clone(&watches);
    let controller = manager
        .controller::<FieldPolicy>()
        .when(generation_changed())
        .watches(move |definition: &CustomResourceDefinition| {
            let (group, kind) = (&definition.spec.group, &definition.spec.names.kind);
            of_definition.policies(&TargetKind { group: group.clone(), kind: kind.clone() })
        })
        .state(Arc::clone(&watches))
        .reconcile(reconcile);
    watches.begin(controller);
    Ok(manager)
}

async fn reconcile(policy: Arc<FieldPolicy>, cx: Context<Arc<Watches>>) -> Result<Outcome> {
    let (target, env) = (&policy.spec.target, &cx.inner().env);
    let served = env.client.recent_api_resources(DISCOVERY_AGE).await?;
    let resource = served.preferred().find(|resource| {
        let kind = &resource.kind;
        *kind.kind == *target.kind
            && *kind.group == *target.group
            && resource.supports_verb("watch")
    });
    let Some(resource) = resource else {
        let message = format!("the server does not serve {target}");
        let unwatched = conditions::of(&*policy, "Watching", false, "NotServed", message);
        report(&policy, &cx, None, unwatched).await?;
        return Ok(Outcome::again(REDISCOVERY_INTERVAL));
    };
    let objects = cx.state().watch(&env.caches, &resource.kind);
    if !objects.has_synced() {
        // Before the server has responded, the status stays unchanged.
        if let Some(trouble) = objects.state().trouble {
            let unwatched = conditions::of(&*policy, "Watching", false, "NotListed", trouble);
            report(&policy, &cx, None, unwatched).await?;
        }
        return Ok(Outcome::again(FILL_DELAY));
    }
    let present = objects.list();
    let audited = audit(&policy.spec, present.iter().map(|object| &**object.object()));
    let message =
        format!("{} are watched as {}", resource.kind.plural, resource.kind.api_version());
    let watching = conditions::of(&*policy, "Watching", true, "Watched", message);
    let listed_before = policy.status.as_ref().map_or(&[][..], |status| &status.violations);
    if report(&policy, &cx, Some(&audited), watching).await? {
        for violation in audited.listed.iter().filter(|listed| !listed_before.contains(listed)) {
            let Some(object) = objects.get(&violation.namespace, &violation.name) else { continue };
            let message = format!("{}: {}", policy.name_any(), violation.message);
            cx.dynamic(resource.kind.clone()).warning(
                &**object.object(),
                "PolicyViolated",
                message,
            );
        }
    }
    Ok(Outcome::again(REDISCOVERY_INTERVAL))
}

/// Writes the status of a policy. Returns whether it has changed.
async fn report(
    policy: &FieldPolicy,
    cx: &Context<Arc<Watches>>,
    audited: Option<&Report>,
    watching: Condition,
) -> Result<bool> {
    let (compliant, reason, message) = match audited {
        None => (Status::Unknown, "NotWatched", "the objects are unknown".to_owned()),
        Some(Report { total: 0, .. }) => {
            (Status::True, "NoViolations", "all objects have the fields".to_owned())
        }
        Some(Report { total, .. }) => {
            (Status::False, "Violations", format!("{total} objects violate the policy"))
        }
    };
    let compliant = conditions::of(policy, "Compliant", compliant, reason, message);
    let written = cx
        .status(policy)
        .set(|status| {
            status.total_violations = audited.map_or(0, |audited| audited.total);
            status.violations = audited.map(|audited| audited.listed.clone()).unwrap_or_default();
        })
        .condition(watching)
        .condition(compliant)
        .patch_if_changed()
        .await?;
    Ok(written.is_some())
}
