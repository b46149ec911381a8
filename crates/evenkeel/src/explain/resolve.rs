//! Resolution of a kind and a name from the command line.

use anyhow::{Result, bail};
use evenkeel_runtime::{
    discovery::{Resource, ServerResources},
    introspect::Subject,
};

/// Splits `KIND/NAME` or `KIND NAME`.
///
/// # Errors
/// Fails if the arguments have neither format.
pub fn split(words: &[String]) -> Result<(&str, &str)> {
    let parts = match words {
        [kind_and_name] => kind_and_name.split_once('/'),
        [kind, name] => Some((&**kind, &**name)),
        _ => None,
    };
    match parts {
        Some((kind, name)) if !kind.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok((kind, name))
        }
        _ => bail!("want KIND/NAME, such as deployment/web, not {:?}", words.join(" ")),
    }
}

/// Resolves a kind and a name to an object. `kind` is a kind, plural, singular or short name, optionally with
/// `.group`.
///
/// # Errors
/// Fails if the server has no such kind.
pub fn resolve(
    resources: &ServerResources,
    kind: &str,
    namespace: &str,
    name: &str,
) -> Result<Subject> {
    let query = kind.to_lowercase();
    let (short, group) = match query.split_once('.') {
        Some((short, group)) => (short, Some(group)),
        None => (&*query, None),
    };
    let is_requested = |resource: &&Resource| {
        let kind = &resource.kind;
        let has_name = *kind.plural == *short
            || *resource.singular == *short
            || kind.kind.to_lowercase() == short
            || resource.short_names.iter().any(|name| **name == *short);
        // As in kubectl, a prefix of the group is sufficient.
        has_name && group.is_none_or(|group| kind.group.starts_with(group))
    };
    let Some(resource) = resources.preferred().find(is_requested) else {
        bail!("the server has no resource type {kind:?}; `kubectl api-resources` lists its types");
    };
    let namespace = if resource.kind.namespaced { namespace } else { "" };
    Ok(Subject::new(&resource.kind.group, &resource.kind.kind, namespace, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_api::Kind;

    fn resource(kind: Kind, singular: &str, short: &str) -> Resource {
        Resource {
            kind,
            singular: singular.into(),
            verbs: ["list".into()].into(),
            short_names: [short.into()].into(),
            categories: Box::default(),
            subresources: Box::default(),
            preferred: true,
        }
    }

    #[test]
    fn kinds_are_resolved_by_each_of_their_names() {
        let deployments = Kind::new("apps", "v1", "Deployment", "deployments", true);
        let nodes = Kind::new("", "v1", "Node", "nodes", false);
        let found = ServerResources {
            resources: vec![
                resource(nodes, "node", "no"),
                resource(deployments, "deployment", "deploy"),
            ],
            failed: Vec::new(),
        };
        let web = Subject::new("apps", "Deployment", "ns", "web");
        for name in ["deploy", "Deployment", "deployments", "deployments.apps", "deployment.app"] {
            assert_eq!(resolve(&found, name, "ns", "web").expect(name), web, "{name}");
        }
        let node = resolve(&found, "no", "ns", "n").expect("a node");
        assert_eq!(node, Subject::new("", "Node", "", "n"), "nodes have no namespace");
        assert!(resolve(&found, "widgets", "ns", "w").is_err());
    }

    #[test]
    fn an_object_is_one_argument_with_a_slash_or_two_arguments() {
        let words = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        assert_eq!(split(&words(&["deploy/web"])).expect("one word"), ("deploy", "web"));
        assert_eq!(split(&words(&["deploy", "web"])).expect("two words"), ("deploy", "web"));
        for wrong in [&["web"][..], &["deploy/"], &["a/b/c"], &["a", "b", "c"]] {
            assert!(split(&words(wrong)).is_err(), "{wrong:?}");
        }
    }
}
