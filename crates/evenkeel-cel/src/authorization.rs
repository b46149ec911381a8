//! Values of authorization checks: the variable `authorizer`, and the results of its methods.
//!
//! Upstream: `cel/library/authz.go`.

use std::fmt::Debug;
use std::rc::Rc;

/// Backend of the authorization checks of expressions.
pub trait Authorize: Debug {
    /// Decides whether a subject may make a request.
    fn authorize(&self, subject: &Subject, request: &AccessRequest) -> Decision;
}

/// Subject of an authorization check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// User who sent the request that the expression is evaluated for.
    Requester,
    /// Service account that the expression names.
    ServiceAccount {
        /// Namespace of the service account, a DNS label.
        namespace: String,
        /// Name of the service account, a DNS subdomain.
        name: String,
    },
}

/// Request of an authorization check: a verb with a resource or a path. Empty fields are unset.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessRequest {
    /// Path of a non-resource request; `None` for a resource request.
    pub path: Option<String>,
    /// API group of the resource; empty for the core group.
    pub group: String,
    /// Plural name of the resource.
    pub resource: String,
    /// Subresource of the resource.
    pub subresource: String,
    /// Namespace of the request; empty for the cluster scope.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// Field selector in the expression's spelling; an invalid one has no requirements.
    pub field_selector: String,
    /// Label selector in the expression's spelling; an invalid one has no requirements.
    pub label_selector: String,
    /// API verb, or the HTTP method of a non-resource request in lower case.
    pub verb: String,
}

/// Result of an authorization check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether an authorizer allows the request.
    pub allowed: bool,
    /// Reason of the decision; often empty.
    pub reason: String,
    /// Error of the authorizers; `None` if they decided.
    pub error: Option<String>,
}

/// Authorizer that an expression calls, with the subject of its checks.
#[derive(Debug, Clone)]
pub struct Authorizer<'a> {
    backend: &'a dyn Authorize,
    subject: Rc<Subject>,
}

impl<'a> Authorizer<'a> {
    /// Returns an authorizer that checks the user of the request.
    pub fn of_requester(backend: &'a dyn Authorize) -> Self {
        Self { backend, subject: Rc::new(Subject::Requester) }
    }

    /// Returns an authorizer that checks a service account instead.
    pub(crate) fn service_account(&self, namespace: &str, name: &str) -> Self {
        let subject =
            Subject::ServiceAccount { namespace: namespace.to_owned(), name: name.to_owned() };
        Self { backend: self.backend, subject: Rc::new(subject) }
    }

    pub(crate) fn check(&self, request: &AccessRequest, verb: &str) -> Decision {
        let request = AccessRequest { verb: verb.to_owned(), ..request.clone() };
        self.backend.authorize(&self.subject, &request)
    }
}

/// Step of an authorization check.
#[derive(Debug, Clone)]
pub enum Authorization<'a> {
    /// The variable `authorizer`, or an authorizer for a service account.
    Authorizer(Authorizer<'a>),
    /// Check of a path, before its verb is known.
    PathCheck(Authorizer<'a>, AccessRequest),
    /// Check within an API group, before its resource is known.
    GroupCheck(Authorizer<'a>, AccessRequest),
    /// Check of a resource, before its verb is known, such as the variable `authorizer.requestResource`.
    ResourceCheck(Authorizer<'a>, AccessRequest),
    /// Decision of a check.
    Decision(Decision),
}

impl Authorization<'_> {
    /// Returns the name of the value's type.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Authorizer(_) => AUTHORIZER,
            Self::PathCheck(..) => PATH_CHECK,
            Self::GroupCheck(..) => GROUP_CHECK,
            Self::ResourceCheck(..) => RESOURCE_CHECK,
            Self::Decision(_) => DECISION,
        }
    }
}

/// Name of the type of the variable `authorizer`.
pub const AUTHORIZER: &str = "kubernetes.authorization.Authorizer";
/// Name of the type of a check of a path.
pub(crate) const PATH_CHECK: &str = "kubernetes.authorization.PathCheck";
/// Name of the type of a check within a group.
pub(crate) const GROUP_CHECK: &str = "kubernetes.authorization.GroupCheck";
/// Name of the type of the variable `authorizer.requestResource`.
pub const RESOURCE_CHECK: &str = "kubernetes.authorization.ResourceCheck";
/// Name of the type of a check's result.
pub(crate) const DECISION: &str = "kubernetes.authorization.Decision";
