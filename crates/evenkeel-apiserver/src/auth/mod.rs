//! Who asks, and whether they may.

/// Who sends a request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct User {
    /// Name, such as `system:serviceaccount:default:web`.
    pub(crate) name: Box<str>,
    /// Unique id, empty where there is none.
    pub(crate) uid: Box<str>,
    /// Groups.
    pub(crate) groups: Box<[Box<str>]>,
    /// More facts.
    pub(crate) extra: Box<[(Box<str>, Box<[Box<str>]>)]>,
}
