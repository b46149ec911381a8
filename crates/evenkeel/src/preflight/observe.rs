//! Reads the inputs of the preflight check from the cluster: version, leases, and the permissions of the programs' users.

use super::{
    Program, Subject,
    flags::LeaseName,
    permissions::{self, Permission, SERVICE_ACCOUNT},
};
use anyhow::{Context as _, Result};
use evenkeel_api::time::Timestamp;
use evenkeel_runtime::{client, clock::Clock, discovery::ServerResources};
use futures::{StreamExt as _, stream};
use k8s_openapi::api::{
    authentication::v1::SelfSubjectReview,
    authorization::v1::{
        ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
        SubjectAccessReview, SubjectAccessReviewSpec,
    },
    coordination::v1::Lease,
};
use kube::{Api, Client, api::PostParams};
use std::time::Duration;

/// Maximum number of concurrent reviews. A controller manager has hundreds of permissions.
const CONCURRENT_REVIEWS: usize = 16;

/// Everything that the decision reads.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Observed {
    /// URL of the API server.
    pub(super) server: String,
    pub(super) version: ServerVersion,
    /// User of the kubeconfig.
    pub(super) user: String,
    pub(super) now: Timestamp,
    pub(super) programs: Vec<ObservedProgram>,
}

/// Version of the API server.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ServerVersion {
    /// Major and minor version. `None` if the server's version has no numbers.
    pub(super) numbers: Option<(u32, u32)>,
    /// Complete version, such as `v1.37.1`.
    pub(super) text: String,
}

/// Known facts about a program.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ObservedProgram {
    pub(super) subject: Subject,
    /// Name of the lease: by the flags, or else upstream's default.
    pub(super) lease_name: LeaseName,
    pub(super) lease: Answer<Option<LeaseState>>,
    /// Reviewed permissions: whether each is allowed.
    pub(super) permissions: Vec<(Permission, Answer<bool>)>,
}

/// Response of the API server, or the error.
pub(super) type Answer<T> = Result<T, String>;

/// State of a leader election lease.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LeaseState {
    /// Identity of the leader. Empty after a release.
    pub(super) holder: String,
    pub(super) renewed: Option<Timestamp>,
    /// Time for which a renewal is valid.
    pub(super) duration: Duration,
    /// Whether the API server chooses the leader (coordinated leader election).
    pub(super) is_coordinated: bool,
}

/// Reads the cluster.
///
/// # Errors
/// Fails if the server does not respond, or the kubeconfig's user is not authenticated. Other errors are part of the result.
pub(super) async fn observe(
    kube: Client,
    server: String,
    subjects: Vec<Subject>,
    clock: &Clock,
) -> Result<Observed> {
    let version = kube
        .apiserver_version()
        .await
        .with_context(|| format!("the API server at {server} does not tell its version"))?;
    let version = ServerVersion {
        numbers: number(&version.major).zip(number(&version.minor)),
        text: version.git_version,
    };
    let user = own_user(&kube).await.context("the user of the kubeconfig is unknown")?;
    let discovery = client::Client::builder(kube.clone(), clock.clone()).qps(-1.0).build();
    let served = discovery.api_resources().await;
    let served = served.context("the API server's resources cannot be discovered")?;
    let mut programs = Vec::new();
    for subject in subjects {
        programs.push(observe_program(&kube, &user, &served, subject).await?);
    }
    Ok(Observed { server, version, user, now: clock.now(), programs })
}

/// Parses a number with a suffix: some providers report `37+`.
fn number(text: &str) -> Option<u32> {
    text.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().ok()
}

async fn own_user(kube: &Client) -> Result<String> {
    let review = Api::<SelfSubjectReview>::all(kube.clone())
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await?;
    let info = review.status.and_then(|status| status.user_info);
    Ok(info.and_then(|info| info.username).unwrap_or_default())
}

async fn observe_program(
    kube: &Client,
    own_user: &str,
    served: &ServerResources,
    subject: Subject,
) -> Result<ObservedProgram> {
    let lease_name = subject.checked.lease.clone().unwrap_or_else(|| LeaseName {
        namespace: "kube-system".to_owned(),
        name: subject.program.name().to_owned(),
    });
    // kubeadm, k3s, Talos and kOps set the flag. It is assumed if the flags are unknown.
    let uses_service_accounts = subject.program == Program::KubeControllerManager
        && (subject.source.is_none() || subject.checked.uses_service_accounts);
    let elects = !subject.checked.leader_election_is_off;
    let mut needed = permissions::needed(
        subject.program,
        elects.then_some(&lease_name),
        &subject.checked.controller_accounts,
        uses_service_accounts,
    )?;
    needed.retain(|permission| permission.is_served(served));
    let reviews = needed.into_iter().map(|permission| async {
        let user = match permission.account {
            Some(account) => format!("{SERVICE_ACCOUNT}kube-system:{account}"),
            None => subject.user.clone(),
        };
        let answer = review(kube, own_user, user, &permission).await;
        (permission, answer.map_err(|error| text(&error)))
    });
    let permissions = stream::iter(reviews).buffered(CONCURRENT_REVIEWS).collect().await;
    let lease = read_lease(kube, &lease_name).await.map_err(|error| text(&error));
    Ok(ObservedProgram { subject, lease_name, lease, permissions })
}

async fn read_lease(kube: &Client, name: &LeaseName) -> kube::Result<Option<LeaseState>> {
    let lease = Api::<Lease>::namespaced(kube.clone(), &name.namespace).get_opt(&name.name).await?;
    let Some(spec) = lease.and_then(|lease| lease.spec) else { return Ok(None) };
    let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    Ok(Some(LeaseState {
        holder: spec.holder_identity.unwrap_or_default(),
        renewed: spec.renew_time.map(|time| time.0),
        duration: Duration::from_secs(seconds.unwrap_or_default()),
        is_coordinated: spec.strategy.is_some(),
    }))
}

/// Reviews whether a user has a permission. A review of another user needs the permission to create SubjectAccessReviews.
async fn review(
    kube: &Client,
    own_user: &str,
    user: String,
    permission: &Permission,
) -> kube::Result<bool> {
    let (resource, subresource) = match permission.resource.split_once('/') {
        Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
        None => (&*permission.resource, None),
    };
    let attributes = Some(ResourceAttributes {
        verb: Some(permission.verb.clone()),
        group: Some(permission.group.clone()),
        resource: Some(resource.to_owned()),
        subresource,
        namespace: permission.namespace.clone(),
        name: permission.name.clone(),
        ..ResourceAttributes::default()
    });
    let params = PostParams::default();
    if user == own_user {
        let spec = SelfSubjectAccessReviewSpec {
            resource_attributes: attributes,
            ..SelfSubjectAccessReviewSpec::default()
        };
        let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
        let review = Api::all(kube.clone()).create(&params, &review).await?;
        return Ok(review.status.is_some_and(|status| status.allowed));
    }
    let spec = SubjectAccessReviewSpec {
        groups: Some(groups(&user)),
        user: Some(user),
        resource_attributes: attributes,
        ..SubjectAccessReviewSpec::default()
    };
    let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    let review = Api::all(kube.clone()).create(&params, &review).await?;
    Ok(review.status.is_some_and(|status| status.allowed))
}

/// Returns the groups that the API server assigns to a user of this name.
fn groups(user: &str) -> Vec<String> {
    let mut groups = vec!["system:authenticated".to_owned()];
    let account = user.strip_prefix(SERVICE_ACCOUNT).and_then(|account| account.split_once(':'));
    if let Some((namespace, _)) = account {
        groups.push("system:serviceaccounts".to_owned());
        groups.push(format!("system:serviceaccounts:{namespace}"));
    }
    groups
}

fn text(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}
