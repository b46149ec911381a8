//! Defaulters and validators of one type.

use super::{
    AdmissionRequest, AdmissionResponse, Denied, Hooked, Operation, Warnings, patch::carry_over,
};
use futures::future::BoxFuture;
use http::StatusCode;
use serde_json::Value;
use std::sync::Arc;

/// Answers admission requests of one path.
pub(super) type AdmissionHandler =
    Arc<dyn Fn(AdmissionRequest) -> BoxFuture<'static, AdmissionResponse> + Send + Sync>;

/// Sets the defaults of an object, and returns it.
pub(super) type SetDefaults<K> =
    Arc<dyn Fn(K, AdmissionRequest) -> BoxFuture<'static, Result<K, Denied>> + Send + Sync>;

/// Validates an object, with the old object if it is an update.
pub(super) type Validate<K> = Arc<
    dyn Fn(K, Option<K>, AdmissionRequest) -> BoxFuture<'static, Result<Warnings, Denied>>
        + Send
        + Sync,
>;

/// Returns the path of a type's webhook. `verb` is `mutate` or `validate`.
///
/// Upstream: `generateMutatePath`, `generateValidatePath`.
pub(super) fn path<K: Hooked>(verb: &str) -> String {
    let group = K::group(&()).replace('.', "-");
    format!("/{verb}-{group}-{}-{}", K::version(&()), K::kind(&()).to_lowercase())
}

/// Returns the handler of a mutating webhook. It ignores deletions, which have no object to change.
///
/// Upstream: `defaulterForType.Handle`.
pub(super) fn defaulter<K: Hooked>(default: SetDefaults<K>) -> AdmissionHandler {
    Arc::new(move |request| {
        let default = Arc::clone(&default);
        Box::pin(async move { apply_default(&*default, request).await.unwrap_or_else(Into::into) })
    })
}

async fn apply_default<K: Hooked>(
    default: &(dyn Fn(K, AdmissionRequest) -> BoxFuture<'static, Result<K, Denied>> + Send + Sync),
    request: AdmissionRequest,
) -> Result<AdmissionResponse, Denied> {
    if request.operation == Operation::Delete {
        return Ok(AdmissionResponse::allowed());
    }
    check_kind::<K>(&request)?;
    let (raw, object): (Value, K) = (request.object()?, request.object()?);
    let before = encode(&object)?;
    let after = encode(&default(object, request).await?)?;
    Ok(AdmissionResponse::changed(&raw, &carry_over(&raw, &before, &after)))
}

/// Validators of a type's writes and of its deletions.
pub(super) struct Validators<K> {
    pub(super) writes: Option<Validate<K>>,
    pub(super) deletions: Option<Validate<K>>,
}

impl<K> Clone for Validators<K> {
    fn clone(&self) -> Self {
        Self { writes: self.writes.clone(), deletions: self.deletions.clone() }
    }
}

/// Returns the handler of a validating webhook.
///
/// Upstream: `validatorForType.Handle`.
pub(super) fn validator<K: Hooked>(validators: Validators<K>) -> AdmissionHandler {
    Arc::new(move |request| {
        let validators = validators.clone();
        Box::pin(async move { validate(&validators, request).await.unwrap_or_else(Into::into) })
    })
}

async fn validate<K: Hooked>(
    validators: &Validators<K>,
    request: AdmissionRequest,
) -> Result<AdmissionResponse, Denied> {
    let validate = match request.operation {
        Operation::Create | Operation::Update => &validators.writes,
        Operation::Delete => &validators.deletions,
        Operation::Connect => &None,
    };
    let Some(validate) = validate else { return Ok(AdmissionResponse::allowed()) };
    check_kind::<K>(&request)?;
    let (object, old) = match request.operation {
        Operation::Delete => (request.old_object()?, None),
        Operation::Update => (request.object()?, Some(request.old_object()?)),
        Operation::Create | Operation::Connect => (request.object()?, None),
    };
    let warnings = validate(object, old, request).await?;
    Ok(AdmissionResponse::allowed().with_warnings(warnings))
}

/// Refuses objects of another kind or version, which would be decoded incorrectly.
fn check_kind<K: Hooked>(request: &AdmissionRequest) -> Result<(), Denied> {
    let (group, version, kind) = (K::group(&()), K::version(&()), K::kind(&()));
    let sent = &request.kind;
    if (&*sent.group, &*sent.version, &*sent.kind) == (&*group, &*version, &*kind) {
        return Ok(());
    }
    let message = format!(
        "this webhook is for {kind} of {group}/{version}, not for {} of {}/{}; \
         correct the rules of its configuration",
        sent.kind, sent.group, sent.version
    );
    Err(Denied::with_code(StatusCode::BAD_REQUEST, "BadRequest", message))
}

fn encode<K: Hooked>(object: &K) -> Result<Value, Denied> {
    serde_json::to_value(object).map_err(|error| {
        let message = format!("the object cannot be encoded: {error}");
        Denied::with_code(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
    })
}
