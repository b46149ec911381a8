//! Authorization of a request, with a 403 for a refused one.

use super::User;
use super::authorizer::Authorizer;
use super::rule::Attributes;
use crate::store::Store;
use evenkeel_apimachinery::group_version::GroupResource;
use evenkeel_apimachinery::status::StatusError;

/// Returns a 403 with upstream's message unless the authorizers allow the request.
///
/// Upstream: `Forbidden` of `endpoints/handlers/responsewriters`.
pub(crate) fn permit(
    authorizer: &Authorizer,
    store: &Store,
    user: &User,
    attributes: &Attributes<'_>,
) -> Result<(), StatusError> {
    if authorizer.authorize(store, user, attributes) {
        return Ok(());
    }
    let group_resource = |subresource: &str| GroupResource {
        group: attributes.group.into(),
        resource: if subresource.is_empty() {
            attributes.resource.into()
        } else {
            format!("{}/{subresource}", attributes.resource).into()
        },
    };
    if let Some(path) = attributes.path {
        let nothing = GroupResource { group: "".into(), resource: "".into() };
        let why = format!("User \"{}\" cannot {} path \"{path}\"", user.name, attributes.verb);
        return Err(StatusError::forbidden(&nothing, "", why));
    }
    let shown = group_resource(attributes.subresource).resource;
    let place = if attributes.namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace \"{}\"", attributes.namespace)
    };
    let why = format!(
        "User \"{}\" cannot {} resource \"{shown}\" in API group \"{}\" {place}",
        user.name, attributes.verb, attributes.group
    );
    Err(StatusError::forbidden(&group_resource(""), attributes.name, why))
}
