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
//! | A pass (one reconcile) sees the key's own writes; only the leader writes | `write::Writer` |
//! | Server-side apply sends nothing if neither the object nor the intent has changed | `applied::is_current` |
//! | A cache that is not declared, or has not synced, is an error and not empty | `context::NotDeclared`, `unsynced::NotSynced` |
//! | A finalizer is added before the first pass and removed after its cleanup | `finalizers::next_step` |
//! | A status is patched only if it has changed; lists are patched under optimistic lock | `status::status_patch` |
//! | `SetStatusCondition`: the transition time changes with the status | `conditions::set` |
//! | `SetControllerReference`: one controller, no owner in another namespace | `owners::set_owner` |
//! | A patch that replaces a list or indexes its entries has an optimistic lock | `patches::locked_merge_patch`, `patches::locked_json_patch` |
//! | Predicates filter events, not passes | `predicates::Predicate` |

mod applied;
mod builder;
pub mod conditions;
mod context;
mod diff;
mod dynamic;
mod finalizers;
mod handle;
mod object;
mod owners;
mod patches;
mod predicates;
mod status;
mod subresource;
mod unsynced;
mod views;
mod write;

pub use builder::{ControllerBuilder, Requests};
pub use context::{CachedForm, Context, NotDeclared};
pub use dynamic::DynamicObjects;
pub use finalizers::FinalizerError;
pub use handle::{ControllerHandle, EnqueueOptions, NewWatch, WatchHandle};
pub use object::{ApiObject, Identified};
pub use owners::{KindSource, OwnerError, OwnerExt};
pub use predicates::{
    Predicate, annotations_changed, generation_changed, labels_changed, on_change,
    on_dynamic_change, resource_version_changed,
};
pub use status::StatusPatch;
pub use subresource::SubResource;
pub use unsynced::NotSynced;

/// Result of a reconcile function and of the methods of [`Context`].
pub type Result<T = crate::controller::Outcome, E = crate::controller::Error> =
    std::result::Result<T, E>;
