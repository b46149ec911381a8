//! Validation of ServiceCIDRs and IPAddresses.

use super::names;
use evenkeel_api::cidr::Cidr;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{get, list, text};
use serde_json::Value;

/// Validates a ServiceCIDR. It needs one CIDR, or one of each IP family, in canonical form.
///
/// Upstream: `ValidateServiceCIDR`.
pub(super) fn service_cidr(new: &Value, errors: &mut Errors) {
    let cidrs_path = Path::new("spec.cidrs");
    let cidrs = list(new, "spec.cidrs");
    let cidrs_value = || get(new, "spec.cidrs").cloned().unwrap_or_default();
    let is_ipv4: Vec<bool> = cidrs
        .iter()
        .filter_map(|cidr| Some(names::parse_cidr(cidr.as_str()?)?.0.is_ipv4()))
        .collect();
    match cidrs.len() {
        0 => errors.required(&cidrs_path, "at least one CIDR required"),
        1 => {}
        2 if is_ipv4.len() == 2 && is_ipv4[0] == is_ipv4[1] => {
            errors.invalid(&cidrs_path, cidrs_value(), "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64");
        }
        2 => {}
        _ => return errors.invalid(&cidrs_path, cidrs_value(), "may only hold up to 2 values"),
    }
    for (index, cidr) in cidrs.iter().enumerate() {
        let (path, cidr) = (cidrs_path.index(index), cidr.as_str().unwrap_or_default());
        let messages = names::cidr(cidr);
        errors.invalid_for_each(&path, cidr, &messages);
        let canonical =
            Cidr::parse(cidr).map(|range| format!("{}/{}", range.first(), range.length()));
        if let Some(canonical) =
            canonical.filter(|canonical| messages.is_empty() && canonical != cidr)
        {
            errors.invalid(&path, cidr, &format!("must be in canonical form (\"{canonical}\")"));
        }
    }
}

/// Rejects changes of CIDRs, except the addition of a CIDR of the second IP family.
///
/// Upstream: `ValidateServiceCIDRUpdate`.
pub(super) fn service_cidr_update(new: &Value, old: &Value, errors: &mut Errors) {
    let (after, before) = (list(new, "spec.cidrs"), list(old, "spec.cidrs"));
    let cidrs_path = Path::new("spec.cidrs");
    let immutable = "field is immutable";
    match (before.len(), after.len()) {
        (before, after) if before == after => {}
        (1, 2) => {}
        _ => return errors.invalid(&cidrs_path, Value::from(after), immutable),
    }
    for (index, (before, after)) in before.iter().zip(after).enumerate() {
        if before != after {
            errors.invalid(&cidrs_path.index(index), after.clone(), immutable);
        }
    }
    if before.len() != after.len() {
        service_cidr(new, errors);
    }
}

/// Validates an IPAddress, which must reference the object that uses it.
///
/// Upstream: `ValidateIPAddress`.
pub(super) fn ip_address(new: &Value, errors: &mut Errors) {
    let parent_ref_path = Path::new("spec.parentRef");
    if get(new, "spec.parentRef").is_none() {
        return errors.required(&parent_ref_path, "");
    }
    let group = text(new, "spec.parentRef.group");
    if !group.is_empty() {
        errors.invalid_for_each(
            &parent_ref_path.field("group"),
            group,
            &names::dns_subdomain(group),
        );
    }
    for field in ["resource", "name"] {
        if text(new, &format!("spec.parentRef.{field}")).is_empty() {
            errors.required(&parent_ref_path.field(field), "");
        }
    }
    for field in ["resource", "name", "namespace"] {
        let value = text(new, &format!("spec.parentRef.{field}"));
        if !value.is_empty() {
            errors.invalid_for_each(
                &parent_ref_path.field(field),
                value,
                &names::path_segment(value),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_a_cidr_of_the_second_family_may_be_added() {
        for (before, after, expected) in [
            (json!(["10.0.0.0/24"]), json!(["10.0.0.0/24"]), vec![]),
            (json!(["10.0.0.0/24"]), json!(["10.0.0.0/24", "fd00::/64"]), vec![]),
            (json!(["10.0.0.0/24"]), json!(["10.0.0.0/24", "10.1.0.0/24"]), vec!["spec.cidrs"]),
            (json!(["10.0.0.0/24"]), json!(["10.1.0.0/24"]), vec!["spec.cidrs[0]"]),
            (json!(["10.0.0.0/24", "fd00::/64"]), json!(["10.0.0.0/24"]), vec!["spec.cidrs"]),
        ] {
            let mut errors = Errors::default();
            let cidr = |cidrs: Value| json!({"spec": {"cidrs": cidrs}});
            service_cidr_update(&cidr(after), &cidr(before), &mut errors);
            let fields: Vec<String> =
                errors.into_vec().into_iter().map(|error| error.field).collect();
            assert_eq!(fields, expected);
        }
    }
}
