//! Validated requests of a claim, with their DeviceClasses.

use evenkeel_api::views::{
    CapacityRequirements, DeviceClass, DeviceSelector, DeviceToleration, ResourceClaim,
};
use std::sync::Arc;

use super::selectors::{Compile, Selector};

/// Maximum number of devices of a claim.
///
/// Upstream: `AllocationResultsMaxSize`.
pub(super) const MAX_DEVICES: usize = 32;

/// Function that returns the DeviceClass with a name.
pub(super) type Classes<'a> = dyn Fn(&str) -> Option<Arc<DeviceClass>> + 'a;

/// An exact request, or a subrequest in `firstAvailable`.
pub(super) struct Choice {
    pub(super) request: Box<str>,
    /// Name of the subrequest; `None` for an exact request.
    pub(super) choice: Option<Box<str>>,
    pub(super) class: Arc<DeviceClass>,
    of_class: Vec<Arc<Selector>>,
    of_request: Vec<Arc<Selector>>,
    /// Number of devices, or `None` for `allocationMode: All`.
    pub(super) count: Option<usize>,
    pub(super) admin: bool,
    pub(super) tolerations: Box<[DeviceToleration]>,
    pub(super) capacity: Option<CapacityRequirements>,
}

impl Choice {
    /// Returns the name used in allocation results: `request` or `request/subrequest`.
    pub(super) fn full_name(&self) -> String {
        match &self.choice {
            Some(choice) => format!("{}/{choice}", self.request),
            None => self.request.to_string(),
        }
    }

    /// Returns the name used in error messages: that of the subrequest, if any.
    pub(super) fn name(&self) -> &str {
        self.choice.as_deref().unwrap_or(&self.request)
    }

    /// Returns the selectors of the class, each with the class name, then those of the request. Each has its index.
    pub(super) fn selectors(&self) -> impl Iterator<Item = (Option<&str>, usize, &Arc<Selector>)> {
        let class = &*self.class.meta.name;
        let of_class = self
            .of_class
            .iter()
            .enumerate()
            .map(move |(index, selector)| (Some(class), index, selector));
        of_class.chain(
            self.of_request.iter().enumerate().map(|(index, selector)| (None, index, selector)),
        )
    }
}

/// A claim with its requests. Each request has its alternatives in order of preference.
pub(super) struct ClaimRequests {
    pub(super) claim: Arc<ResourceClaim>,
    pub(super) requests: Vec<Vec<Choice>>,
}

/// Context shared by all requests of a claim.
struct Context<'a, 'b> {
    claim: &'a ResourceClaim,
    classes: &'b Classes<'b>,
    compile: &'b Compile<'b>,
}

/// Fields that requests and subrequests share.
struct Terms<'a> {
    class: &'a str,
    selectors: &'a [DeviceSelector],
    mode: &'a str,
    count: i64,
    admin: bool,
    tolerations: &'a [DeviceToleration],
    capacity: Option<&'a CapacityRequirements>,
    /// Whether the request has derived attributes.
    derived: bool,
}

/// Returns the claim as `namespace/name`, for messages.
pub(super) fn claim_name(claim: &ResourceClaim) -> String {
    format!("{}/{}", claim.meta.namespace, claim.meta.name)
}

/// Validates a claim and looks up its classes.
///
/// # Errors
/// If the claim cannot be allocated on any node.
pub(super) fn claim_requests(
    claim: &Arc<ResourceClaim>,
    classes: &Classes<'_>,
    compile: &Compile<'_>,
) -> Result<ClaimRequests, String> {
    let context = Context { claim, classes, compile };
    let mut requests = Vec::with_capacity(claim.spec.devices.requests.len());
    let mut devices_before = 0_usize;
    for request in &claim.spec.devices.requests {
        let mut choices = Vec::new();
        if let Some(exactly) =
            request.exactly.as_deref().filter(|_| request.first_available.is_empty())
        {
            let terms = Terms {
                class: &exactly.device_class_name,
                selectors: &exactly.selectors,
                mode: &exactly.allocation_mode,
                count: exactly.count,
                admin: exactly.admin_access == Some(true),
                tolerations: &exactly.tolerations,
                capacity: exactly.capacity.as_deref(),
                derived: !exactly.derived_attributes.is_empty(),
            };
            choices.push(context.choice(&request.name, None, &terms)?);
        }
        for subrequest in &request.first_available {
            let terms = Terms {
                class: &subrequest.device_class_name,
                selectors: &subrequest.selectors,
                mode: &subrequest.allocation_mode,
                count: subrequest.count,
                admin: false,
                tolerations: &subrequest.tolerations,
                capacity: subrequest.capacity.as_deref(),
                derived: !subrequest.derived_attributes.is_empty(),
            };
            choices.push(context.choice(&request.name, Some(&subrequest.name), &terms)?);
        }
        let devices = choices.iter().map(|choice| choice.count.unwrap_or(0)).min().unwrap_or(0);
        if devices > MAX_DEVICES.saturating_sub(devices_before) {
            return Err(format!(
                "claim {}, request {}: adding {devices} devices exceeds the claim limit of {MAX_DEVICES}, \
                 with {devices_before} already accounted for",
                claim_name(claim),
                request.name
            ));
        }
        devices_before += devices;
        requests.push(choices);
    }
    Ok(ClaimRequests { claim: Arc::clone(claim), requests })
}

impl<'a> Context<'a, '_> {
    fn choice(
        &self,
        request: &'a str,
        choice: Option<&'a str>,
        terms: &Terms<'a>,
    ) -> Result<Choice, String> {
        let name = choice.unwrap_or(request);
        let prefix = || format!("claim {}, request {name}", claim_name(self.claim));
        if terms.derived {
            return Err(format!(
                "{}: cannot handle request with derived attributes, the feature is disabled",
                prefix()
            ));
        }
        if let Some(index) = terms.selectors.iter().position(|selector| selector.cel.is_none()) {
            return Err(format!(
                "{}, selector #{index}: CEL expression empty (unsupported selector type?)",
                prefix()
            ));
        }
        if terms.class.is_empty() {
            return Err(format!(
                "{}: missing device class name (unsupported request type?)",
                prefix()
            ));
        }
        let class = (self.classes)(terms.class).ok_or_else(|| {
            let class = terms.class;
            format!(
                "{}: could not retrieve device class {class}: deviceclass.resource.k8s.io \"{class}\" not found",
                prefix()
            )
        })?;
        let count = match terms.mode {
            "ExactCount" => Some(usize::try_from(terms.count).unwrap_or(usize::MAX)),
            "All" => None,
            mode => return Err(format!("{}: unsupported count mode {mode}", prefix())),
        };
        Ok(Choice {
            request: request.into(),
            choice: choice.map(Into::into),
            of_class: self.compile_all(&class.spec.selectors),
            of_request: self.compile_all(terms.selectors),
            count,
            admin: terms.admin,
            tolerations: terms.tolerations.into(),
            capacity: terms.capacity.cloned(),
            class,
        })
    }

    fn compile_all(&self, selectors: &[DeviceSelector]) -> Vec<Arc<Selector>> {
        let expressions = selectors.iter().filter_map(|selector| selector.cel.as_deref());
        expressions.map(|cel| (self.compile)(&cel.expression)).collect()
    }
}
