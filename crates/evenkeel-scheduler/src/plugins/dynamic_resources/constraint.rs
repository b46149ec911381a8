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
    distinct: bool,
    /// Attribute value of each added device, in the order of addition.
    values: Vec<&'a DeviceAttribute>,
}

impl<'a> Constraint<'a> {
    /// Converts a constraint of a claim. Returns `None` if it is of an unknown kind.
    pub(super) fn new(constraint: &'a DeviceConstraint) -> Option<Self> {
        let same = constraint.match_attribute.as_deref().map(|attribute| (attribute, false));
        let other = constraint.distinct_attribute.as_deref().map(|attribute| (attribute, true));
        let (attribute, distinct) = same.or(other)?;
        Some(Self { requests: &constraint.requests, attribute, distinct, values: Vec::new() })
    }

    /// Reports whether the constraint applies to the request, or to its subrequest `choice`.
    fn covers(&self, request: &str, choice: Option<&str>) -> bool {
        let named = |name: &str| {
            name == request
                || choice.is_some_and(|choice| {
                    name.strip_prefix(request).and_then(|rest| rest.strip_prefix('/'))
                        == Some(choice)
                })
        };
        self.requests.is_empty() || self.requests.iter().any(|name| named(name))
    }

    /// Adds a device if it satisfies the constraint, and returns whether it does.
    pub(super) fn add(
        &mut self,
        request: &str,
        choice: Option<&str>,
        driver: &str,
        device: &'a Device,
    ) -> bool {
        if !self.covers(request, choice) {
            return true;
        }
        let Some(value) = attribute(driver, device, self.attribute) else { return false };
        let fits = if self.distinct {
            !self.values.iter().any(|other| same(value, other))
        } else {
            self.values.first().is_none_or(|first| same(value, first))
        };
        if fits {
            self.values.push(value);
        }
        fits
    }

    /// Removes the device that was added last, if the constraint applies to this request.
    pub(super) fn remove(&mut self, request: &str, choice: Option<&str>) {
        if self.covers(request, choice) {
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

/// Reports whether both values have equal type and value.
fn same(a: &DeviceAttribute, b: &DeviceAttribute) -> bool {
    fn are_equal<T: PartialEq>(a: Option<&T>, b: Option<&T>) -> bool {
        a.is_some() && a == b
    }
    match (&a.string, &a.int, &a.bool) {
        (Some(_), ..) => are_equal(a.string.as_ref(), b.string.as_ref()),
        (_, Some(_), _) => are_equal(a.int.as_ref(), b.int.as_ref()),
        (.., Some(_)) => are_equal(a.bool.as_ref(), b.bool.as_ref()),
        _ => are_equal(a.version.as_ref(), b.version.as_ref()),
    }
}
