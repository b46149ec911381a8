//! Defects that a simulation plants, to show that its checks find them. A program without the feature `test-util` has no
//! defects.

/// Defect of one member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Defect {
    /// A pass (one reconcile) and its writes continue after the end of the term.
    NoFence,
    /// A shard is released while its passes run.
    ReleaseBeforeDrain,
    /// The lease lasts from the response to a renewal, not from its request.
    ExpiryFromAnswer,
    /// The terms outlive a lapse of the lease.
    TermsOutliveLapse,
    /// Another member counts as dead after a fifth of its lease duration.
    EarlyTakeover,
    /// A new term does not begin with the shard's objects.
    NoReplay,
    /// A shard is served before the caches have listed its objects.
    ServeUnlisted,
}
