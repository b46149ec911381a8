//! Constraints between the devices of a claim.

use evenkeel_api::{
    Text,
    views::{Device, DeviceAttribute, DeviceConstraint},
};

/// A constraint on one attribute, with the devices added so far.
#[derive(Debug)]
pub(super) struct Constraint<'a> {
    requests: &'a [Text],
    attribute: &'a str,
    /// Whether the values must differ (`distinctAttribute`) instead of being equal (`matchAttribute`).
    is_distinct: bool,
    /// Attribute value of each added device, in the order of addition.
    values: Vec<&'a DeviceAttribute>,
}

impl<'a> Constraint<'a> {
    /// Converts a constraint of a claim. Returns `None` if it is of an unknown kind.
    pub(super) fn new(constraint: &'a DeviceConstraint) -> Option<Self> {
        let match_attribute = constraint.match_attribute.as_deref();
        let distinct_attribute = constraint.distinct_attribute.as_deref();
        Some(Self {
            requests: &constraint.requests,
            attribute: match_attribute.or(distinct_attribute)?,
            is_distinct: match_attribute.is_none(),
            values: Vec::new(),
        })
    }

    /// Returns whether the constraint applies to the request, or to this subrequest of it.
    fn applies_to(&self, request: &str, subrequest: Option<&str>) -> bool {
        let is_named = |name: &Text| match name.strip_prefix(request) {
            Some("") => true,
            Some(rest) => subrequest.is_some() && rest.strip_prefix('/') == subrequest,
            None => false,
        };
        self.requests.is_empty() || self.requests.iter().any(is_named)
    }

    /// Adds a device if it satisfies the constraint, and returns whether it does.
    pub(super) fn add(
        &mut self,
        request: &str,
        subrequest: Option<&str>,
        driver: &str,
        device: &'a Device,
    ) -> bool {
        if !self.applies_to(request, subrequest) {
            return true;
        }
        let Some(value) = attribute(driver, device, self.attribute) else { return false };
        let is_satisfied = if self.is_distinct {
            !self.values.iter().any(|other| are_equal(value, other))
        } else {
            self.values.first().is_none_or(|first| are_equal(value, first))
        };
        if is_satisfied {
            self.values.push(value);
        }
        is_satisfied
    }

    /// Removes the device that was added last, if the constraint applies to this request.
    pub(super) fn remove(&mut self, request: &str, subrequest: Option<&str>) {
        if self.applies_to(request, subrequest) {
            self.values.pop();
        }
    }
}

/// Returns the device's attribute with this qualified name. An attribute whose name has no domain belongs to the
/// driver's domain.
fn attribute<'a>(driver: &str, device: &'a Device, name: &str) -> Option<&'a DeviceAttribute> {
    device.attributes.get(name).or_else(|| {
        let (domain, id) = name.split_once('/')?;
        if domain == driver { device.attributes.get(id) } else { None }
    })
}

/// Returns whether both attributes have equal type and value.
fn are_equal(a: &DeviceAttribute, b: &DeviceAttribute) -> bool {
    /// Returns whether both values exist and are equal.
    fn are_set_and_equal<T: PartialEq>(a: Option<&T>, b: Option<&T>) -> bool {
        a.is_some() && a == b
    }
    match (&a.string, &a.int, &a.bool) {
        (Some(_), ..) => are_set_and_equal(a.string.as_ref(), b.string.as_ref()),
        (_, Some(_), _) => are_set_and_equal(a.int.as_ref(), b.int.as_ref()),
        (.., Some(_)) => are_set_and_equal(a.bool.as_ref(), b.bool.as_ref()),
        _ => are_set_and_equal(a.version.as_ref(), b.version.as_ref()),
    }
}
