//! Authorizers that a file or flags configure, webhooks among them.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | The rules for the configuration file | `validation::validate` |
//! | `matchConditions` exclude requests from a webhook | `conditions::matches` |
//! | The review that a webhook gets | `review::spec` |
//! | `timeout`, `authorizedTTL`, `unauthorizedTTL`, `failurePolicy` | `webhook::ask` |
//! | The server applies a changed file without a restart | `source::reload` |
//! | The first authorizer that allows or denies decides | `../authorizer.rs` |

mod answers;
mod authorizing;
mod conditions;
mod config;
pub(super) mod decision;
mod metrics;
mod review;
mod source;
mod validation;
mod webhook;

pub(crate) use answers::{Answers, settled};
pub(super) use authorizing::{Authorizing, Named};
pub(crate) use decision::{Decision, Effect};
pub(super) use metrics::Metrics;
pub(super) use review::spec;
pub use source::AuthorizationWebhookOptions;
pub(super) use source::{Source, of_modes};
