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
    pub(super) request_name: Box<str>,
    /// Name of the subrequest. `None` for an exact request.
    pub(super) subrequest_name: Option<Box<str>>,
    pub(super) class: Arc<DeviceClass>,
    class_selectors: Vec<Arc<Selector>>,
    request_selectors: Vec<Arc<Selector>>,
    /// Number of devices, or `None` for `allocationMode: All`.
    pub(super) count: Option<usize>,
    pub(super) admin_access: bool,
    pub(super) tolerations: Box<[DeviceToleration]>,
    pub(super) capacity: Option<CapacityRequirements>,
}

impl Choice {
    /// Returns the name used in allocation results: `request` or `request/subrequest`.
    pub(super) fn full_name(&self) -> String {
        match &self.subrequest_name {
            Some(subrequest) => format!("{}/{subrequest}", self.request_name),
            None => self.request_name.to_string(),
        }
    }

    /// Returns the name used in error messages: that of the subrequest, if any.
    pub(super) fn name(&self) -> &str {
        self.subrequest_name.as_deref().unwrap_or(&self.request_name)
    }

    /// Returns the selectors of the class, then those of the request.
    pub(super) fn selectors(&self) -> impl Iterator<Item = ChoiceSelector<'_>> {
        let class = Some(&*self.class.meta.name);
        let of_class = self.class_selectors.iter().enumerate();
        let of_request = self.request_selectors.iter().enumerate();
        of_class.map(move |(index, selector)| ChoiceSelector { class, index, selector }).chain(
            of_request.map(|(index, selector)| ChoiceSelector { class: None, index, selector }),
        )
    }
}

/// A selector of a [`Choice`].
pub(super) struct ChoiceSelector<'a> {
    /// Name of the class that has the selector. `None` if the request has it.
    pub(super) class: Option<&'a str>,
    /// Index among the selectors of the class or of the request.
    pub(super) index: usize,
    pub(super) selector: &'a Selector,
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
struct RequestFields<'a> {
    class: &'a str,
    selectors: &'a [DeviceSelector],
    mode: &'a str,
    count: i64,
    admin_access: bool,
    tolerations: &'a [DeviceToleration],
    capacity: Option<&'a CapacityRequirements>,
    has_derived_attributes: bool,
}

/// Returns the claim as `namespace/name`, for messages.
pub(super) fn claim_name(claim: &ResourceClaim) -> String {
    format!("{}/{}", claim.meta.namespace, claim.meta.name)
}

/// Validates a claim and looks up its classes.
///
/// # Errors
/// Fails if the claim cannot be allocated on any node.
pub(super) fn claim_requests(
    claim: &Arc<ResourceClaim>,
    classes: &Classes<'_>,
    compile: &Compile<'_>,
) -> Result<ClaimRequests, String> {
    let context = Context { claim, classes, compile };
    let mut requests = Vec::with_capacity(claim.spec.devices.requests.len());
    let mut n_devices_before = 0_usize;
    for request in &claim.spec.devices.requests {
        let mut choices = Vec::new();
        // A request has either `exactly` or `firstAvailable`. The latter takes precedence.
        let exactly = request.exactly.as_deref().filter(|_| request.first_available.is_empty());
        if let Some(exactly) = exactly {
            let fields = RequestFields {
                class: &exactly.device_class_name,
                selectors: &exactly.selectors,
                mode: &exactly.allocation_mode,
                count: exactly.count,
                admin_access: exactly.admin_access == Some(true),
                tolerations: &exactly.tolerations,
                capacity: exactly.capacity.as_deref(),
                has_derived_attributes: !exactly.derived_attributes.is_empty(),
            };
            choices.push(context.choice(&request.name, None, &fields)?);
        }
        for subrequest in &request.first_available {
            let fields = RequestFields {
                class: &subrequest.device_class_name,
                selectors: &subrequest.selectors,
                mode: &subrequest.allocation_mode,
                count: subrequest.count,
                admin_access: false,
                tolerations: &subrequest.tolerations,
                capacity: subrequest.capacity.as_deref(),
                has_derived_attributes: !subrequest.derived_attributes.is_empty(),
            };
            choices.push(context.choice(&request.name, Some(&subrequest.name), &fields)?);
        }
        // The request needs at least the devices of its smallest alternative. `All` counts as none.
        let n_devices = choices.iter().map(|choice| choice.count.unwrap_or(0)).min().unwrap_or(0);
        if n_devices > MAX_DEVICES.saturating_sub(n_devices_before) {
            return Err(format!(
                "claim {}, request {}: adding {n_devices} devices exceeds the claim limit of {MAX_DEVICES}, \
                 with {n_devices_before} already accounted for",
                claim_name(claim),
                request.name
            ));
        }
        n_devices_before += n_devices;
        requests.push(choices);
    }
    Ok(ClaimRequests { claim: Arc::clone(claim), requests })
}

impl<'a> Context<'a, '_> {
    /// Validates a request or subrequest, and looks up its class.
    fn choice(
        &self,
        request_name: &'a str,
        subrequest_name: Option<&'a str>,
        fields: &RequestFields<'a>,
    ) -> Result<Choice, String> {
        let name = subrequest_name.unwrap_or(request_name);
        let prefix = || format!("claim {}, request {name}", claim_name(self.claim));
        if fields.has_derived_attributes {
            return Err(format!(
                "{}: cannot handle request with derived attributes, the feature is disabled",
                prefix()
            ));
        }
        if let Some(index) = fields.selectors.iter().position(|selector| selector.cel.is_none()) {
            return Err(format!(
                "{}, selector #{index}: CEL expression empty (unsupported selector type?)",
                prefix()
            ));
        }
        if fields.class.is_empty() {
            return Err(format!(
                "{}: missing device class name (unsupported request type?)",
                prefix()
            ));
        }
        let class = (self.classes)(fields.class).ok_or_else(|| {
            let class = fields.class;
            format!(
                "{}: could not retrieve device class {class}: deviceclass.resource.k8s.io \"{class}\" not found",
                prefix()
            )
        })?;
        let count = match fields.mode {
            "ExactCount" => Some(usize::try_from(fields.count).unwrap_or(usize::MAX)),
            "All" => None,
            mode => return Err(format!("{}: unsupported count mode {mode}", prefix())),
        };
        Ok(Choice {
            request_name: request_name.into(),
            subrequest_name: subrequest_name.map(Into::into),
            class_selectors: self.compile_all(&class.spec.selectors),
            request_selectors: self.compile_all(fields.selectors),
            count,
            admin_access: fields.admin_access,
            tolerations: fields.tolerations.into(),
            capacity: fields.capacity.cloned(),
            class,
        })
    }

    /// Compiles the CEL selectors of a request or class.
    fn compile_all(&self, selectors: &[DeviceSelector]) -> Vec<Arc<Selector>> {
        let expressions = selectors.iter().filter_map(|selector| selector.cel.as_deref());
        expressions.map(|cel| (self.compile)(&cel.expression)).collect()
    }
}
