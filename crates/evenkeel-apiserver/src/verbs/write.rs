//! Creation and replacement of objects. All create, update, patch and apply requests use these functions.

use std::sync::Arc;

use rand::rngs::StdRng;
use serde_json::Value;

use super::attempt::{
    Attempt, AttemptError, CreatedBy, MAX_WRITE_ATTEMPTS, Write, Written, object_version,
};
use super::precondition::Precondition;
use super::{meta, stages};
use crate::admission::attributes::Operation;
use crate::admission::{Mutating, noderestriction};
use crate::auth::Attributes;
use crate::auth::permit;
use crate::draws::{Origin, Use};
use crate::resource::{GroupResource, key};
use crate::store::Entry;
use evenkeel_apimachinery::patch;
use evenkeel_apimachinery::reset::reset_field;
use evenkeel_apimachinery::schema;
use evenkeel_apimachinery::status::{FieldError, StatusError};
use evenkeel_apimachinery::time::seconds;
use evenkeel_apimachinery::value::{is_empty, list};
use evenkeel_kinds::strategy::{StatusStrategy, reset_for_status_update};

/// Maximum number of generated names to try for one object.
const MAX_GENERATED_NAMES: usize = 8;

impl Write<'_> {
    /// Checks the permission `create`, which an update or an apply needs in addition if the object does not exist.
    ///
    /// Upstream: `withAuthorization`.
    fn permit_create(&self, created_by: CreatedBy) -> Result<(), StatusError> {
        if created_by == CreatedBy::Post {
            return Ok(());
        }
        let (resource, target) = (self.request.resource(), &self.request.target);
        let attributes = Attributes {
            verb: "create",
            group: resource.group(),
            version: &resource.gvk.version,
            resource: resource.plural(),
            namespace: target.namespace,
            name: target.name,
            ..Attributes::default()
        };
        permit(
            &self.request.api.authorizer,
            &self.request.api.store,
            self.request.user,
            &attributes,
            &self.answers,
        )
    }

    /// Creates an object.
    pub(super) async fn create(
        &mut self,
        mut object: Value,
        created_by: CreatedBy,
    ) -> Result<Written, StatusError> {
        self.permit_create(created_by)?;
        let had_labels = !is_empty(&object, "metadata.labels");
        stages::default(self, &mut object);
        self.check_absent_preconditions(&object, created_by)?;
        super::namespace::admit_create(self.request, meta::text(&object, "name"))?;
        meta::wipe_system_fields(&mut object);
        let name = meta::text(&object, "name").to_owned();
        let cx = self.context(&name);
        let admission = Mutating::new(&cx, Operation::Create);
        if created_by != CreatedBy::Apply {
            // Decoding checks the types of built-in kinds.
            let is_typed =
                self.stored.custom.is_none() || patch::is_typed(self.schema().as_ref(), &object);
            self.update_managed_fields(None, &mut object, is_typed);
        }
        let was_mutated = match stages::mutate(self, admission, &mut object, None).await {
            Ok(was_mutated) => was_mutated,
            Err(error) => return Err(named_after_prefix(error, &self.stored.name, &object)),
        };
        // See `has_template_labels`. Upstream copies the object when admission mutates it and in a PUT, so that the
        // object no longer shares its labels with the template.
        self.has_template_labels = !had_labels && !was_mutated && created_by != CreatedBy::Put;
        self.reset_status(&mut object);
        let origin = Origin::of(&self.stored.name, self.request.target.namespace, &object);
        let metadata = meta::metadata(&mut object);
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
            metadata.remove(field);
        }
        metadata.insert("uid".to_owned(), Value::from(self.request.api.uid_of(origin)));
        metadata.insert("creationTimestamp".to_owned(), Value::from(seconds(self.request.now)));
        if metadata.get("generation") == Some(&Value::from(0)) {
            metadata.remove("generation");
        }
        if self.stored.strategy.has_generation(self.has_status()) {
            metadata.insert("generation".to_owned(), Value::from(1));
        }
        let prefix = meta::text(&object, "generateName").to_owned();
        if self.stored.strategy.generates_uuid_name()
            && prefix.is_empty()
            && meta::text(&object, "name").is_empty()
        {
            meta::set(&mut object, "name", &self.request.api.uid());
        }
        if meta::text(&object, "name").is_empty() && !prefix.is_empty() {
            return self.create_with_generated_name(&object, &prefix, origin, created_by).await;
        }
        let name = meta::text(&object, "name").to_owned();
        match self.insert(object, &name, created_by).await {
            Ok(written) => Ok(written),
            Err(AttemptError::Refused(error)) => Err(error),
            Err(AttemptError::Taken) => Err(StatusError::modified(&self.stored.name, &name)),
            Err(AttemptError::Race) => Err(self.already_exists(&name)),
        }
    }

    /// Returns the error of a create if an object with this name exists.
    fn already_exists(&self, name: &str) -> StatusError {
        let mut error = StatusError::already_exists(&self.request.resource().name, name);
        let key = key(&self.stored, self.request.target.namespace, name);
        let existing = self.request.api.store.get(&self.stored.resource_prefix, &key);
        let existing = existing.and_then(|entry| entry.decode().ok());
        if existing.is_some_and(|object| meta::is_being_deleted(&object)) {
            error.0.message = format!("object is being deleted: {}", error.0.message);
        }
        error
    }

    /// Removes the status of a new object, unless its kind may be created with one.
    fn reset_status(&self, object: &mut Value) {
        if self.has_status() && !self.stored.strategy.creates_with_status() {
            schema::reset_field(self.schema().as_ref(), object, "status");
        }
    }

    /// Creates an object with a generated name. Tries other names if objects with these names exist.
    async fn create_with_generated_name(
        &mut self,
        object: &Value,
        prefix: &str,
        origin: Origin,
        created_by: CreatedBy,
    ) -> Result<Written, StatusError> {
        let mut last_name = String::new();
        for _ in 0..MAX_GENERATED_NAMES {
            let mut object = object.clone();
            let generate = |rng: &mut StdRng| meta::generate_name(prefix, rng);
            let name = self.request.api.random_of(Use::Name, origin, generate);
            meta::set(&mut object, "name", &name);
            match self.insert(object, &name, created_by).await {
                Ok(written) => return Ok(written),
                Err(AttemptError::Refused(error)) => return Err(error),
                Err(AttemptError::Race | AttemptError::Taken) => last_name = name,
            }
        }
        Err(StatusError::generate_name_conflict(&self.stored.name, &last_name))
    }

    /// Runs the stages of a create. Retries with other allocated values if another object got the same values in the
    /// meantime.
    async fn insert(
        &mut self,
        object: Value,
        name: &str,
        created_by: CreatedBy,
    ) -> Result<Written, AttemptError> {
        let attempt = |new| Attempt {
            name,
            old: None,
            new,
            created_by: Some(created_by),
            is_normalized_later: false,
        };
        if !self.request.api.store.is_indexed(&self.stored.resource_prefix) {
            return stages::run(self, attempt(object)).await;
        }
        for _ in 0..MAX_WRITE_ATTEMPTS {
            match stages::run(self, attempt(object.clone())).await {
                Err(AttemptError::Taken) => {}
                result => return result,
            }
        }
        Err(AttemptError::Taken)
    }

    /// Replaces `old`, the object of `entry`, with `new`, which is in the request's version. `has_managed_fields` is
    /// whether the caller has already updated the managed fields of `new`, as a server-side apply does.
    pub(super) async fn replace(
        &mut self,
        entry: &Arc<Entry>,
        old: &Value,
        mut new: Value,
        has_managed_fields: bool,
    ) -> Result<Written, AttemptError> {
        stages::default(self, &mut new);
        self.check_preconditions(entry, old, &new)?;
        let name = self.request.target.name;
        let cx = self.context(name);
        let admission = Mutating::new(&cx, Operation::Update);
        let sent = if admission.is_configured() { Some(new.clone()) } else { None };
        meta::keep_system_fields(&mut new, old);
        // NodeRestriction checks the object as the client sent it, including changes that `reset_fields` undoes.
        noderestriction::admit(&cx, Operation::Update, &new, old)?;
        // Decoding checks the types of built-in kinds. Upstream compares custom objects as they were sent.
        let sent_typed =
            self.stored.custom.is_none() || patch::is_typed(self.schema().as_ref(), &new);
        let loses_metadata = self.stored.custom.is_some() && has_managed_fields;
        let loses_metadata = loses_metadata && loses_metadata_field(&new, old);
        self.reset_fields(&mut new, old);
        if !has_managed_fields {
            self.update_managed_fields(Some(old), &mut new, sent_typed);
        }
        restore_sent_object(&mut new, sent);
        stages::mutate(self, admission, &mut new, Some(old)).await?;
        meta::keep_system_fields(&mut new, old);
        let old = Some((entry, old));
        let attempt =
            Attempt { name, old, new, created_by: None, is_normalized_later: loses_metadata };
        stages::run(self, attempt).await
    }

    /// Restores the fields that a request for this subresource may not change, so that the writer does not become their
    /// manager. The stage `prepare` then applies the kind's full strategy.
    ///
    /// Upstream: `ResetFieldsStrategy.GetResetFields`.
    fn reset_fields(&self, new: &mut Value, old: &Value) {
        match self.request.target.subresource {
            "status" => {
                let is_custom = self.stored.custom.is_some();
                let strategy = if is_custom {
                    StatusStrategy::StatusOnly
                } else {
                    StatusStrategy::StatusAndMetadata
                };
                reset_for_status_update(strategy, new, old);
            }
            // The approval is part of a CertificateSigningRequest's status. The kind's strategy accepts only that part.
            "approval" => {}
            // The strategies of these subresources reset no fields in upstream's `GetResetFields`.
            "ephemeralcontainers" | "resize" => {}
            _ if self.has_status() => reset_field(new, old, "status"),
            _ => {}
        }
    }

    /// Checks the preconditions of a request whose object does not exist. A POST ignores them.
    ///
    /// Upstream: `Store.Update` in `registry/generic/registry/store.go` and `patcher.applyPatch` in `endpoints/handlers`.
    fn check_absent_preconditions(
        &self,
        object: &Value,
        created_by: CreatedBy,
    ) -> Result<(), StatusError> {
        if created_by == CreatedBy::Post {
            return Ok(());
        }
        self.check_absent_uid(object, created_by)?;
        object_version(object).map(drop).map_err(StatusError::plain_internal)
    }

    /// Refuses a uid in a request whose object does not exist, because the uid is a precondition.
    pub(super) fn check_absent_uid(
        &self,
        object: &Value,
        created_by: CreatedBy,
    ) -> Result<(), StatusError> {
        let (name, uid) = (self.request.target.name, meta::text(object, "uid"));
        match created_by {
            _ if uid.is_empty() => Ok(()),
            CreatedBy::Apply => Err(StatusError::conflict(
                &self.request.resource().name,
                name,
                format!(
                    "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                ),
            )),
            CreatedBy::Put | CreatedBy::Post => Err(self.failed_uid_precondition(uid, "")),
        }
    }

    /// Checks the resource version and the UID of the new object against the stored one.
    fn check_preconditions(
        &self,
        entry: &Entry,
        old: &Value,
        new: &Value,
    ) -> Result<(), StatusError> {
        let name = self.request.target.name;
        // Validation checks the uid of a patched object.
        if self.request.method == http::Method::PUT {
            self.check_uid(old, new)?;
        }
        let version = object_version(new).map_err(StatusError::plain_internal)?;
        if version == 0 {
            if !self.stored.strategy.allow_unconditional_update() {
                let error = FieldError::invalid(
                    "metadata.resourceVersion",
                    0,
                    "must be specified for an update",
                );
                let kind = crate::resource::GroupKind {
                    group: self.stored.name.group.clone(),
                    kind: self.stored.name.resource.clone(),
                };
                return Err(StatusError::invalid(&kind, name, &[error]));
            }
        } else if version != entry.revision {
            return Err(StatusError::modified(&self.request.resource().name, name));
        }
        Ok(())
    }

    /// Refuses a uid, which is a precondition, unless it equals the stored object's.
    pub(super) fn check_uid(&self, old: &Value, sent: &Value) -> Result<(), StatusError> {
        let (uid, old_uid) = (meta::text(sent, "uid"), meta::text(old, "uid"));
        if uid.is_empty() || uid == old_uid {
            return Ok(());
        }
        Err(self.failed_uid_precondition(uid, old_uid))
    }

    /// Returns the error for a uid that differs from the stored object's, which may be absent.
    fn failed_uid_precondition(&self, uid: &str, old_uid: &str) -> StatusError {
        let target = &self.request.target;
        let precondition = Precondition {
            resource: &self.stored,
            requested: &self.request.resource().name,
            namespace: target.namespace,
            name: target.name,
            dry_run: self.options.dry_run,
        };
        precondition.failed("UID", uid, old_uid)
    }
}

/// Returns whether an apply removed all entries of a map or list in `metadata` that a manager still owns as a whole.
/// Upstream stores null in its place, which the next write removes.
fn loses_metadata_field(new: &Value, old: &Value) -> bool {
    ["labels", "annotations", "finalizers", "ownerReferences"].iter().any(|field| {
        let path = format!("metadata.{field}");
        let is_owned =
            |entry: &Value| entry.pointer(&format!("/fieldsV1/f:metadata/f:{field}")).is_some();
        !is_empty(old, &path)
            && is_empty(new, &path)
            && list(new, "metadata.managedFields").iter().any(is_owned)
    })
}

/// Replaces `object` with the object that the client sent, but keeps the managed fields of `object`. Policies and
/// webhooks get this object: it contains changes of fields that the write cannot change, such as the status. `sent` is
/// `None` if no policy or webhook is configured.
fn restore_sent_object(object: &mut Value, sent: Option<Value>) {
    if let Some(mut sent) = sent {
        meta::copy_field(&mut sent, object, "managedFields");
        *object = sent;
    }
}

/// Names the object in a refusal of admission before the object has a name: by its `generateName`, or as `Unknown`.
///
/// Upstream: `extractResourceName` of `admission`.
fn named_after_prefix(error: StatusError, resource: &GroupResource, object: &Value) -> StatusError {
    let why = error.message().split_once(" is forbidden: ").and_then(|(refused, why)| {
        let is_unnamed = !refused.contains([' ', '"']) && meta::text(object, "name").is_empty();
        is_unnamed.then_some(why)
    });
    match (why, meta::text(object, "generateName")) {
        (None, _) => error,
        (Some(why), "") => StatusError::forbidden(resource, "Unknown", why),
        (Some(why), prefix) => StatusError::forbidden(resource, prefix, why),
    }
}
