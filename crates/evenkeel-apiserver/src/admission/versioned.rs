//! Conversion of a request's objects to the version that a policy or a webhook matches, and back.

use serde_json::Value;

use super::attributes::Attributes;
use super::mutated;
use crate::api::Context;
use crate::custom::conversion;
use crate::resource::ResourceType;
use evenkeel_apimachinery::status::StatusError;

/// Objects of a request, converted to another version.
pub(crate) struct Converted<'a> {
    object: Value,
    old: Value,
    version: &'a ResourceType,
}

impl Converted<'_> {
    /// Returns the attributes of the original request with the converted objects.
    pub(crate) fn attributes<'b>(&'b self, original: &Attributes<'b>) -> Attributes<'b> {
        original.in_version(&self.object, &self.old, self.version)
    }
}

impl<'a> Attributes<'a> {
    /// Converts both objects to a version. Returns `None` if no conversion is needed. The definition of a custom resource
    /// may convert by webhook.
    ///
    /// # Errors
    /// Fails if the conversion webhook fails.
    ///
    /// Upstream: `NewVersionedAttributes`.
    pub(crate) async fn converted(
        &self,
        version: &'a ResourceType,
    ) -> Result<Option<Converted<'a>>, StatusError> {
        let is_same = version.api_version == self.version().api_version;
        if self.is_of_other_kind() || is_same {
            return Ok(None);
        }
        if let Some(to) = &version.custom {
            let present = [self.object, self.old].into_iter().filter(|object| object.is_object());
            let unconverted = present.cloned().collect();
            let converted = conversion::to_version(self.cx.api, to, unconverted).await?;
            let mut converted = converted.into_iter();
            // A deletion has no new object, and a creation has no old object.
            let mut next = |before: &Value| {
                before.is_object().then(|| converted.next()).flatten().unwrap_or_default()
            };
            return Ok(Some(Converted { object: next(self.object), old: next(self.old), version }));
        }
        if !version.converts() {
            return Ok(None);
        }
        let convert = |object: &Value| {
            let mut object = object.clone();
            if object.is_object() {
                self.cx.resource.strategy.convert_out(&version.gvk, &mut object);
            }
            object
        };
        Ok(Some(Converted { object: convert(self.object), old: convert(self.old), version }))
    }
}

/// Converts an object that a policy or a webhook has changed back to the version that admission began with. Prunes the
/// object and sets the defaults of the version in which it was changed. `is_converted` is whether the two versions
/// differ.
///
/// # Errors
/// Fails if the conversion webhook fails.
pub(super) async fn readmitted(
    cx: &Context<'_>,
    mut changed: Value,
    is_converted: bool,
) -> Result<Value, StatusError> {
    let resource = cx.resource;
    match &resource.custom {
        Some(custom) if is_converted => {
            let mut objects = conversion::read(cx.api, custom, vec![changed]).await?;
            return Ok(objects.pop().unwrap_or_default());
        }
        None if is_converted => resource.strategy.convert_in(&resource.gvk, &mut changed),
        _ => {}
    }
    mutated::prune_and_default(cx, &mut changed);
    Ok(changed)
}
