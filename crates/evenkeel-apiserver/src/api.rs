//! The server's state, which everything above the store shares, and the attributes of a request for admission.

use std::sync::{Arc, Mutex, PoisonError};

use evenkeel_apimachinery::time::seconds;
use evenkeel_kinds::strategy;
use http::{Response, StatusCode};
use jiff::Timestamp;
use rand::rngs::StdRng;
use serde_json::Value;

use crate::admission::plugins::Plugins;
use crate::admission::policy::compiled::Compiled;
use crate::auth::impersonation::LastModes;
use crate::auth::{Attributes, Authenticator, Authorizer};
use crate::budget::Budget;
use crate::clock::Clock;
use crate::components::Components;
use crate::custom::served::Served;
use crate::flow::Flows;
use crate::kubelet::Kubelets;
use crate::metrics::Metrics;
use crate::resource::{ResourceType, Table, key};
use crate::response::Body;
use crate::store::{Store, WriteError};
use crate::streaming::StreamLimits;
use crate::tasks::Tasks;
use crate::webhook::budget::Budgets;
use evenkeel_apimachinery::group_version::GroupVersionKind;
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::user::User;

/// Attributes of a write for admission plug-ins and allocation.
pub(crate) struct Context<'a> {
    /// The server's shared state.
    pub(crate) api: &'a Arc<Api>,
    /// The resource, in its stored version.
    pub(crate) resource: &'a ResourceType,
    /// The same in the group and version of the request.
    pub(crate) requested: &'a ResourceType,
    /// When the request came.
    pub(crate) now: Timestamp,
    /// User that sent the request.
    pub(crate) user: &'a User,
    /// Namespace, empty for cluster-scoped objects.
    pub(crate) namespace: &'a str,
    /// Name, empty until one is generated.
    pub(crate) name: &'a str,
    /// API group of the request's path.
    pub(crate) request_group: &'a str,
    /// Sub-resource, empty for the object itself.
    pub(crate) subresource: &'a str,
    /// What the request may cost.
    pub(crate) budget: &'a Budget,
    /// Whether nothing will be stored.
    pub(crate) dry_run: bool,
    /// Whether the resource has a `status` sub-resource.
    pub(crate) has_status: bool,
    /// As in [`strategy::Context`].
    pub(crate) has_template_labels: bool,
}

impl Context<'_> {
    /// Whether the authorizers allow the user something besides the request itself.
    pub(crate) fn allows(&self, attributes: &Attributes<'_>) -> bool {
        self.api.authorizer.authorize(&self.api.store, self.user, attributes)
    }

    /// Kind of the objects that admission sees: the resource's, or that of what is posted to a subresource and not stored, or of
    /// the options of a connection. A view of the object, such as its scale, is seen as the object.
    ///
    /// Upstream: `Attributes.GetKind`.
    pub(crate) fn object_kind(&self) -> &GroupVersionKind {
        let posted = matches!(
            self.subresource,
            "binding" | "eviction" | "token" | "exec" | "attach" | "portforward" | "proxy"
        );
        let part = posted.then(|| self.resource.subresource(self.subresource)).flatten();
        part.map_or(&self.resource.gvk, |part| &part.kind)
    }

    /// The stored namespace of the request; null where there is none.
    pub(crate) fn stored_namespace(&self) -> Value {
        let entry = self.api.store.get("/namespaces", self.namespace);
        entry.and_then(|entry| entry.decode().ok()).unwrap_or_default()
    }

    /// The part of it that a kind's strategy needs.
    pub(crate) fn strategy(&self) -> strategy::Context<'_> {
        strategy::Context {
            now: seconds(self.now),
            user: self.user,
            request_group: self.request_group,
            subresource: self.subresource,
            has_status: self.has_status,
            has_template_labels: self.has_template_labels,
        }
    }
}

/// A call of what is no plain verb on a stored object.
pub(crate) struct Call<'a> {
    /// As for a write.
    pub(crate) cx: Context<'a>,
    /// Query parameters, decoded, in order.
    pub(crate) query: &'a [(String, String)],
    /// The decoded body, `Null` where there was none.
    pub(crate) body: Value,
}

/// What a call answers.
pub(crate) enum Answer {
    /// An object, to be encoded as the client asked.
    Object(StatusCode, Value),
    /// Status 204 without a body.
    Nothing,
    /// 200 with a body of a media type of its own, such as a log.
    Stream(&'static str, Body),
    /// A switch to another protocol.
    Upgrade(Response<Body>),
}

/// The server's shared state.
pub(crate) struct Api {
    /// All resources that are served, built-in and custom.
    pub(crate) table: Table,
    /// All objects, with their revisions and events.
    pub(crate) store: Store,
    /// Source of the time; tests pass their own.
    pub(crate) clock: Clock,
    /// Who is who.
    pub(crate) authenticator: Authenticator,
    /// Decides whether a user may make a request.
    pub(crate) authorizer: Authorizer,
    /// The mode that last allowed each user to impersonate.
    pub(crate) impersonation_modes: LastModes,
    /// Counters and histograms of requests.
    pub(crate) metrics: Metrics,
    /// The custom resources that are served.
    pub(crate) served: Served,
    /// Admission plug-ins that are off by default, and are on here.
    pub(crate) plugins: Plugins,
    /// Admission policies, compiled.
    pub(crate) policies: Compiled,
    /// How many requests are executed at once.
    pub(crate) flows: Flows,
    /// The parts of the control plane in this process.
    pub(crate) components: Components,
    /// Whom to ask for logs, and to execute commands.
    pub(crate) kubelets: Kubelets,
    /// Streams that are open.
    pub(crate) streams: StreamLimits,
    /// Calls of webhooks in flight.
    pub(crate) webhooks: Budgets,
    /// What goes on beside requests.
    pub(crate) tasks: Tasks,
    /// Source of uids and generated names.
    pub(crate) rng: Mutex<StdRng>,
}

impl Api {
    /// A stored object, in its stored version; `None` when it is not there.
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

    /// Draws from the server's source of chance.
    pub(crate) fn random<T>(&self, draw: impl FnOnce(&mut StdRng) -> T) -> T {
        draw(&mut self.rng.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A random version 4 UUID.
    pub(crate) fn uid(&self) -> String {
        let mut bytes: [u8; 16] = self.random(rand::Rng::random);
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        let mut text = String::with_capacity(36);
        for (at, byte) in bytes.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                text.push('-');
            }
            for digit in [byte >> 4, byte & 15] {
                text.push(char::from(b"0123456789abcdef"[digit as usize]));
            }
        }
        text
    }
}

impl From<WriteError> for StatusError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::TooDeep => Self::bad_request(error.to_string()),
            WriteError::Storage(why) => Self::insufficient_storage(&*why),
            WriteError::TooLarge => Self::plain_internal(error.to_string()),
            error => Self::internal(error),
        }
    }
}
