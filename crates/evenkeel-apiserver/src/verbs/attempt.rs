//! State of a write in progress and of its attempts.

use std::sync::Arc;

use evenkeel_apimachinery::patch::{self, Writer};
use evenkeel_apimachinery::schema;
use evenkeel_apimachinery::status::StatusError;
use serde_json::Value;

use super::meta;
use crate::api::{Context, Options};
use crate::auth::Answers;
use crate::budget::Budget;
use crate::request::{RequestContext, WriteOptions};
use crate::resource::ResourceType;
use crate::store::{Entry, WriteError};

/// Maximum number of attempts of a write whose transaction conflicts with others.
pub(super) const MAX_WRITE_ATTEMPTS: usize = 32;

/// Create or update in progress, with the state that its attempts share.
pub(super) struct Write<'a> {
    pub(super) request: &'a RequestContext<'a>,
    /// Options of the request.
    pub(super) options: WriteOptions,
    /// Resource in the storage version.
    pub(super) stored: Arc<ResourceType>,
    /// Whether defaulting copied the labels of a new object from its pod template; see
    /// [`Context::has_template_labels`].
    pub(super) has_template_labels: bool,
    /// Budget for the cost of CEL expressions in all attempts.
    budget: Budget,
    /// Responses of authorization webhooks in all attempts. An attempt that records a review is repeated.
    pub(super) answers: Answers,
}

/// Result of a write.
pub(super) struct Written {
    /// Object in the storage version.
    pub(super) object: Value,
    /// Stored state; `None` for a dry run, or if the write deleted the object.
    pub(super) entry: Option<Arc<Entry>>,
    /// Whether the write created the object.
    pub(super) created: bool,
}

/// Kind of request that creates an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CreatedBy {
    /// A POST on the collection.
    Post,
    /// A PUT of an object that does not exist.
    Put,
    /// A server-side apply of an object that does not exist. It has already set the managed fields.
    Apply,
}

/// Reason why an attempt did not write.
pub(super) enum AttemptError {
    /// Another write changed the object in the meantime. The caller may retry on the new state.
    Race,
    /// Another object got the same unique value in the meantime, such as a cluster IP. The caller may retry with
    /// another value.
    Taken,
    /// The request is invalid or forbidden.
    Refused(StatusError),
}

impl From<StatusError> for AttemptError {
    fn from(error: StatusError) -> Self {
        Self::Refused(error)
    }
}

impl From<WriteError> for AttemptError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Mismatch { .. } => Self::Race,
            WriteError::Taken { .. } => Self::Taken,
            WriteError::TooDeep
            | WriteError::TooLarge
            | WriteError::Etcd(_)
            | WriteError::TimedOut(_)
            | WriteError::Storage(_) => Self::Refused(error.into()),
        }
    }
}

impl<'a> Write<'a> {
    pub(super) fn new(request: &'a RequestContext<'a>, options: WriteOptions) -> Self {
        let stored = request.api.table.stored_version(request.resource());
        Self {
            request,
            options,
            stored,
            has_template_labels: false,
            budget: Budget::default(),
            answers: Answers::default(),
        }
    }

    /// Returns the attributes of the write for admission plug-ins and allocation.
    pub(super) fn context(&'a self, name: &'a str) -> Context<'a> {
        Context {
            api: self.request.api,
            resource: &self.stored,
            requested: self.request.resource(),
            now: self.request.now,
            user: self.request.user,
            namespace: self.request.target.namespace,
            name,
            subresource: self.request.target.subresource,
            budget: &self.budget,
            audit: self.request.audit,
            answers: &self.answers,
            dry_run: self.options.dry_run,
            options: Options::Write(&self.options),
            has_status: self.has_status(),
            has_template_labels: self.has_template_labels,
        }
    }

    /// Returns whether the resource has a `status` subresource.
    pub(super) fn has_status(&self) -> bool {
        self.stored.subresource("status").is_some()
    }

    /// Returns the schema of the storage version.
    pub(super) fn schema(&self) -> Option<schema::Schema> {
        self.stored.schema(&self.stored.gvk)
    }

    /// Returns the field manager that writes, for managed fields.
    pub(super) fn writer(&self) -> Writer<'_> {
        Writer {
            manager: &self.options.manager,
            subresource: self.request.target.subresource,
            now: self.request.now,
        }
    }

    /// Updates the managed fields of `new`, which replaces `old` (`None` for a create). Both objects are in the storage
    /// version. The paths in managed fields are paths in the request's version. `sent_typed` is whether the object that
    /// the client sent has the types of its schema; otherwise the managers do not change.
    ///
    /// Upstream: `structuredMergeManager.Update`.
    pub(super) fn update_managed_fields(
        &self,
        old: Option<&Value>,
        new: &mut Value,
        sent_typed: bool,
    ) {
        let (writer, schema) = (self.writer(), self.schema());
        if old.is_none() && !self.request.api.tracks_field_managers {
            return patch::null_empty(schema.as_ref(), new);
        }
        if !self.request.resource().converts() {
            let schema = schema.as_ref();
            return patch::update_managed_fields_if(schema, old, new, &writer, sent_typed);
        }
        let to_request_version = |object: &Value| {
            let mut object = object.clone();
            self.convert_out(&mut object);
            object
        };
        let old = old.map(to_request_version);
        let mut new_in_request_version = to_request_version(new);
        let request_schema = self.request.resource().schema(&self.request.kind());
        patch::update_managed_fields_if(
            request_schema.as_ref(),
            old.as_ref(),
            &mut new_in_request_version,
            &writer,
            sent_typed,
        );
        meta::copy_field(new, &new_in_request_version, "managedFields");
        patch::null_empty(schema.as_ref(), new);
    }

    /// Sets the managed fields of an object that is only returned and never stored, such as a review.
    pub(super) fn set_managed_fields_of_unstored(&self, object: &mut Value) {
        let schema = self.request.resource().schema(&self.request.kind());
        patch::update_managed_fields(schema.as_ref(), None, object, &self.writer());
    }

    /// Converts an object from the storage version to the request's version.
    pub(super) fn convert_out(&self, object: &mut Value) {
        if self.request.resource().converts() {
            self.stored.strategy.convert_out(&self.request.resource().gvk, object);
        }
    }
}

/// One attempt to write an object. A conflict with another write causes another attempt.
pub(super) struct Attempt<'a> {
    /// Name of the object.
    pub(super) name: &'a str,
    /// Stored object that the new one replaces, encoded and decoded; `None` for a create.
    pub(super) old: Option<(&'a Arc<Entry>, &'a Value)>,
    /// New object in the storage version.
    pub(super) new: Value,
    /// Request that creates the object; `None` for an update.
    pub(super) created_by: Option<CreatedBy>,
    /// Whether upstream's stored form of the object differs from the form that reads return. The next write then
    /// changes the stored form even if it changes no field.
    pub(super) is_normalized_later: bool,
}

impl<'a> Attempt<'a> {
    /// Returns the stored object that the new one replaces.
    pub(super) fn old(&self) -> Option<&'a Value> {
        self.old.map(|(_, old)| old)
    }
}

/// Returns the resource version in an object, or 0 if it has none. The error has the message of Go's `strconv`.
///
/// Upstream: `APIObjectVersioner.ObjectResourceVersion`.
pub(super) fn object_version(object: &Value) -> Result<u64, String> {
    let text = meta::text(object, "resourceVersion");
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let why = match text.parse() {
        Ok(version) if is_number => return Ok(version),
        Err(_) if text.is_empty() => return Ok(0),
        Err(_) if is_number => "value out of range",
        _ => "invalid syntax",
    };
    Err(format!("strconv.ParseUint: parsing {}: {why}", evenkeel_apimachinery::status::quote(text)))
}
