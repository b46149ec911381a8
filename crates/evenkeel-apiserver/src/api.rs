//! Shared state of the server, and the attributes of a request for admission.

use std::sync::{Arc, Mutex, PoisonError};

use evenkeel_apimachinery::time::seconds;
use evenkeel_kinds::service::IpFamily;
use evenkeel_kinds::strategy;
use http::{Response, StatusCode};
use jiff::Timestamp;
use rand::rngs::StdRng;
use serde_json::Value;

use crate::admission::plugins::Plugins;
use crate::admission::policy::compiled::Compiled;
use crate::aggregation::remotes::Aggregation;
use crate::audit::{Auditor, RequestAudit};
use crate::auth::impersonation::LastModes;
use crate::auth::{Answers, Attributes, Authenticator, Authorizer};
use crate::budget::Budget;
use crate::clock::Clock;
use crate::components::Components;
use crate::custom::served::Served;
use crate::draws::{Draws, Origin, Use};
use crate::encryption::kms::Kms;
use crate::flow::Flows;
use crate::kubelet::Kubelets;
use crate::metrics::Metrics;
use crate::request::WriteOptions;
use crate::resource::{ResourceType, Table, key};
use crate::response::Body;
use crate::store::{Store, WriteError};
use crate::streaming::StreamLimits;
use crate::tasks::Tasks;
use crate::webhook::budget::Budgets;
use evenkeel_apimachinery::group_version::GroupVersionKind;
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::user::User;

/// Attributes of a request for admission plug-ins, and for the allocation of cluster IPs and node ports.
pub(crate) struct Context<'a> {
    /// The server's shared state.
    pub(crate) api: &'a Arc<Api>,
    /// Resource in its storage version.
    pub(crate) resource: &'a ResourceType,
    /// Resource in the group and version of the request's path. The group may differ from that of `resource`: core
    /// Events can also be written through `events.k8s.io`.
    pub(crate) requested: &'a ResourceType,
    /// Time at which the request arrived.
    pub(crate) now: Timestamp,
    /// User that sent the request.
    pub(crate) user: &'a User,
    /// Namespace; empty for cluster-scoped objects.
    pub(crate) namespace: &'a str,
    /// Name; empty until it is generated.
    pub(crate) name: &'a str,
    /// Subresource; empty for the object itself.
    pub(crate) subresource: &'a str,
    /// Budget for the cost of the request's CEL expressions.
    pub(crate) budget: &'a Budget,
    /// Takes annotations for the request's audit event.
    pub(crate) audit: &'a RequestAudit,
    /// Answers of authorization webhooks to this request.
    pub(crate) answers: &'a Answers,
    /// Whether the request is a dry run, which stores nothing.
    pub(crate) dry_run: bool,
    /// Options of the request.
    pub(crate) options: Options<'a>,
    /// Whether the resource has a `status` subresource.
    pub(crate) has_status: bool,
    /// Whether defaulting copied the pod template's labels to a new object without labels. Labels that the server then
    /// generates for the template are also added to the object; see [`strategy::Context`].
    pub(crate) has_template_labels: bool,
}

/// Options of a write, for admission.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Options<'a> {
    /// Options of a create, an update, a patch or an apply.
    Write(&'a WriteOptions),
    /// `DeleteOptions` of a deletion.
    Delete(&'a Value),
}

impl Context<'_> {
    /// Returns whether the authorizers would also allow the user another request, with these attributes.
    pub(crate) fn allows(&self, attributes: &Attributes<'_>) -> bool {
        let (authorizer, store) = (&self.api.authorizer, &self.api.store);
        authorizer.decide(store, self.user, attributes, self.answers, false).is_allowed()
    }

    /// Returns the kind of the object that admission plug-ins get:
    ///
    /// - `pods/binding`, `pods/eviction`, `serviceaccounts/token`: kind of the posted object, such as `Binding`.
    /// - `exec`, `attach`, `portforward`, `proxy`: kind of the connection's options, such as `PodExecOptions`.
    /// - The object itself, and other subresources such as `status` and `scale`: kind of the stored object.
    ///
    /// Upstream: `Attributes.GetKind`.
    pub(crate) fn object_kind(&self) -> &GroupVersionKind {
        let has_own_kind = matches!(
            self.subresource,
            "binding" | "eviction" | "token" | "exec" | "attach" | "portforward" | "proxy"
        );
        match self.resource.subresource(self.subresource) {
            Some(subresource) if has_own_kind => &subresource.kind,
            _ => &self.resource.gvk,
        }
    }

    /// Returns the stored Namespace of the request, or null if it does not exist.
    pub(crate) fn stored_namespace(&self) -> Value {
        let entry = self.api.store.get("/namespaces", self.namespace);
        entry.and_then(|entry| entry.decode().ok()).unwrap_or_default()
    }

    /// Returns the attributes of the request that the kind's strategy reads.
    pub(crate) fn strategy_context(&self) -> strategy::Context<'_> {
        strategy::Context {
            now: seconds(self.now),
            user: self.user,
            request_group: &self.requested.gvk.group,
            subresource: self.subresource,
            has_status: self.has_status,
            has_template_labels: self.has_template_labels,
        }
    }
}

/// Request to the handler of a subresource that does more than read or write the stored object.
pub(crate) struct Call<'a> {
    /// Attributes of the request, as admission plug-ins get them.
    pub(crate) cx: Context<'a>,
    /// Decoded query parameters, in order.
    pub(crate) query: &'a [(String, String)],
    /// Decoded body; `Null` if the request has none.
    pub(crate) body: Value,
}

/// Response to a [`Call`].
pub(crate) enum Answer {
    /// Object, encoded in the client's media type.
    Object(StatusCode, Value),
    /// Status 204 without a body.
    Nothing,
    /// Status 200 with a body that is no API object, such as a log.
    Raw {
        /// Media type of the body.
        content_type: &'static str,
        /// Complete body or stream.
        body: Body,
    },
    /// Complete response: the switch to another protocol, or the response of a proxied service.
    Response(Response<Body>),
}

/// Shared state of the server.
pub(crate) struct Api {
    /// All served resources, built-in and custom.
    pub(crate) table: Table,
    /// Store of all objects, with their revisions and events.
    pub(crate) store: Store,
    /// Source of time; tests pass their own.
    pub(crate) clock: Clock,
    /// Determines the user of a request.
    pub(crate) authenticator: Authenticator,
    /// Decides whether a user may make a request.
    pub(crate) authorizer: Authorizer,
    /// Cache of the impersonation mode that last allowed each user's request. The server tries it first for the next
    /// one.
    pub(crate) impersonation_modes: LastModes,
    /// Policy and destinations of audit events; `None` without auditing.
    pub(crate) auditor: Option<Arc<Auditor>>,
    /// KMS plugins that encrypt stored values.
    pub(crate) kms_plugins: Vec<Arc<Kms>>,
    /// Counters and histograms of requests.
    pub(crate) metrics: Metrics,
    /// Established CustomResourceDefinitions. `table` contains their resources, and watches end when they change.
    pub(crate) served: Served,
    /// Enabled admission plug-ins.
    pub(crate) plugins: Plugins,
    /// IP families of the cluster's Service networks, the default first.
    pub(crate) service_families: Vec<IpFamily>,
    /// Cache of compiled admission policies.
    pub(crate) policies: Compiled,
    /// Limits on concurrent requests (API Priority and Fairness).
    pub(crate) flows: Flows,
    /// Control plane components in this process.
    pub(crate) components: Components,
    /// Client of kubelets, for logs and commands in containers.
    pub(crate) kubelets: Kubelets,
    /// Limits on open exec, attach, port-forward and proxied upgrade connections.
    pub(crate) streams: StreamLimits,
    /// Limits on open connections to ports of pods: each port-forward stream and proxied request has its own.
    pub(crate) connections: StreamLimits,
    /// APIs of extension API servers.
    pub(crate) aggregation: Aggregation,
    /// Whether `shardSelector` of lists and watches has an effect: the feature gate `ShardedListAndWatch`.
    pub(crate) sharded_list_and_watch: bool,
    /// Whether new objects have managed fields.
    pub(crate) tracks_field_managers: bool,
    /// Limits on concurrent calls of each webhook.
    pub(crate) webhooks: Budgets,
    /// Background tasks of the server.
    pub(crate) tasks: Tasks,
    /// Random number generator for all values except new objects' UIDs and names, which `draws` generates.
    pub(crate) rng: Mutex<StdRng>,
    /// Generators for new objects' UIDs and names. `None` if the server has no seed, and `rng` serves.
    pub(crate) draws: Option<Draws>,
}

impl Api {
    /// Returns a stored object in its storage version; `None` if it does not exist.
    pub(crate) fn read(
        &self,
        resource: &ResourceType,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>, StatusError> {
        let Some(entry) =
            self.store.get(&resource.resource_prefix, &key(resource, namespace, name))
        else {
            return Ok(None);
        };
        entry.decode().map(Some).map_err(StatusError::internal)
    }

    /// Draws a random value from the server's random number generator.
    pub(crate) fn random<T>(&self, draw: impl FnOnce(&mut StdRng) -> T) -> T {
        draw(&mut self.rng.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Draws a random value for a new object. On a seeded server, requests about objects of other origins do not change
    /// it.
    pub(crate) fn random_of<T>(
        &self,
        value_use: Use,
        origin: Origin,
        draw: impl FnOnce(&mut StdRng) -> T,
    ) -> T {
        match &self.draws {
            Some(draws) => draw(&mut draws.next(value_use, origin, self.clock.now())),
            None => self.random(draw),
        }
    }

    /// Returns a random version 4 UUID.
    pub(crate) fn uid(&self) -> String {
        uuid(self.random(rand::Rng::random))
    }

    /// Returns the UID of a new object.
    pub(crate) fn uid_of(&self, origin: Origin) -> String {
        uuid(self.random_of(Use::Uid, origin, rand::Rng::random))
    }
}

/// Returns the version 4 UUID of random bytes.
fn uuid(mut bytes: [u8; 16]) -> String {
    // Version 4 and variant 10 (RFC 9562).
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let mut text = String::with_capacity(36);
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from(b"0123456789abcdef"[digit as usize]));
        }
    }
    text
}

impl From<WriteError> for StatusError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::TooDeep => Self::bad_request(error.to_string()),
            WriteError::Storage(why) => Self::insufficient_storage(&*why),
            // Upstream returns this error without a reason.
            WriteError::TooLarge | WriteError::Etcd(_) => Self::plain_internal(error.to_string()),
            WriteError::TimedOut(_) => Self::timeout(error, 0),
            error => Self::internal(error),
        }
    }
}
