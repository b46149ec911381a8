//! Transactions in the queue for the next commit.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::state::Staged;
use crate::resource::ResourcePrefix;

/// Outcome of a commit. The error is the reason of a refusal.
pub(super) type Outcome = Result<(), Arc<str>>;

/// Transaction in the queue for the next commit.
pub(super) struct QueuedTransaction {
    pub(super) writes: Vec<Staged>,
    /// Resources in which the transaction requires values that no other object has.
    pub(super) unique_in: Vec<ResourcePrefix>,
    /// Sends the outcome to the caller.
    pub(super) done: oneshot::Sender<Outcome>,
}
