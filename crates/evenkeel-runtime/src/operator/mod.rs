//! Operators: controllers over whole objects of `k8s-openapi` or derived types, and their typed writes.
//!
//! ```no_run
//! use evenkeel_runtime::prelude::*;
//! use k8s_openapi::api::core::v1::{ConfigMap, Secret};
//!
//! /// Copies each ConfigMap `<name>` into a Secret of the same name.
//! async fn reconcile(map: Arc<ConfigMap>, cx: Context) -> Result<Outcome> {
//!     let mut secret = Secret { string_data: map.data.clone(), ..Secret::default() };
//!     secret.metadata.name = map.metadata.name.clone();
//!     secret.controlled_by(&*map)?;
//!     cx.apply(&secret).await?;
//!     Ok(Outcome::Settled)
//! }
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let manager = Manager::builder(kube::Client::try_default().await?)
//!     .component("secret-copier")
//!     .leader_election_id("secret-copier")
//!     .build()?;
//! manager.controller::<ConfigMap>().owns::<Secret>().reconcile(reconcile);
//! manager.run(shutdown_signal()).await?;
//! # Ok(())
//! # }
//! ```
//!
//! | documented rule | implemented in |
//! |---|---|
//! | A pass sees the key's own writes; the leader alone writes | `write::Writer` |
//! | Server-side apply sends nothing if neither the object nor the intent has changed | `applied::is_current` |
//! | A finalizer is added before the first pass and removed after its cleanup | `finalizers::next_step` |
//! | A status is patched only if it has changed; lists are patched under optimistic lock | `status::status_patch` |
//! | `SetStatusCondition`: the transition time changes with the status | `conditions::set` |
//! | `SetControllerReference`: one controller, no owner in another namespace | `owners::set_owner` |
//! | Predicates filter events, not passes | `predicates::Predicate` |

mod applied;
mod builder;
pub mod conditions;
mod context;
mod diff;
mod finalizers;
mod handle;
mod object;
mod owners;
mod predicates;
mod status;
mod write;

pub use builder::{ControllerBuilder, Requests};
pub use context::{Context, NotDeclared};
pub use finalizers::FinalizerError;
pub use handle::{ControllerHandle, EnqueueOptions, WatchHandle};
pub use object::ApiObject;
pub use owners::{OwnerError, OwnerExt};
pub use predicates::{
    Predicate, annotations_changed, generation_changed, labels_changed, on_change,
    resource_version_changed,
};
pub use status::StatusPatch;
pub use write::DynamicObjects;

/// Result of a reconcile function and of the methods of [`Context`].
pub type Result<T = crate::controller::Outcome, E = crate::controller::Error> =
    std::result::Result<T, E>;
