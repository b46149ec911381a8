//! Decodes the configuration file. Errors name line, column and path.

use super::{
    nodes,
    types::{Cluster, Scheduler},
    users,
};
use anyhow::{Result, anyhow, bail};
use serde_json::Value;
use serde_saphyr::Error;

/// Similarity (0 to 1) from which a known name is suggested for an unknown one.
const MIN_SIMILARITY: f64 = 0.75;

/// Parses a configuration. `source` is the file's name, for errors.
///
/// # Errors
/// Fails if the file is not YAML, or has an unknown field or a wrong value. The error has line, column and path.
pub(crate) fn read(source: &str, text: &str) -> Result<Cluster> {
    // Report invalid YAML first, because the reader stops at the first unknown field.
    if let Err(error) = serde_saphyr::from_str::<Value>(text) {
        bail!("{}", describe(source, ".", &error));
    }
    let mut path = String::new();
    let decoded = serde_saphyr::with_deserializer_from_str(text, |deserializer| {
        serde_path_to_error::deserialize(deserializer).map_err(|error| {
            path = error.path().to_string();
            error.into_inner()
        })
    });
    let cluster = decoded.map_err(|error: Error| anyhow!("{}", describe(source, &path, &error)))?;
    check(&cluster).map_err(|why| anyhow!("{source}: {why}"))?;
    Ok(cluster)
}

/// Checks rules across fields.
fn check(cluster: &Cluster) -> Result<(), String> {
    if cluster.load_balancer_pool.is_some() && !cluster.load_balancer_pools.is_empty() {
        return Err("loadBalancerPool and loadBalancerPools exclude each other".to_owned());
    }
    match &cluster.scheduler {
        Scheduler { config: Some(_), configs: Some(_), .. } => {
            return Err(
                "scheduler.config and scheduler.configs exclude each other; move the first into the second".to_owned()
            );
        }
        Scheduler { configs: Some(configs), .. } if configs.is_empty() => {
            return Err(
                "scheduler.configs: the list is empty; add a configuration, such as {}, or set scheduler.disabled".to_owned(),
            );
        }
        _ => {}
    }
    nodes::check(cluster.nodes.as_deref().unwrap_or_default())?;
    users::check(&cluster.users)
}

fn describe(source: &str, path: &str, error: &Error) -> String {
    let error = error.without_snippet();
    let place = error
        .location()
        .map_or_else(String::new, |location| format!(":{}:{}", location.line(), location.column()));
    let path = if path == "." { String::new() } else { format!(" {path}:") };
    match error {
        Error::SerdeUnknownField { field, expected, .. } => {
            let hint = match nearest(field, expected) {
                Some(name) => format!("did you mean {name}?"),
                None => format!("known are {}", expected.join(", ")),
            };
            format!("{source}{place}:{path} unknown field {field:?}; {hint}")
        }
        _ => format!("{source}{place}:{path} {}", in_words(error)),
    }
}

/// Returns an error without its position, in the terms of YAML instead of the parser.
fn in_words(error: &Error) -> String {
    let text = error.to_string();
    let text = match error.location() {
        Some(at) => text.replace(&format!(" at line {}, column {}", at.line(), at.column()), ""),
        None => text,
    };
    match &*text {
        "expected sequence start" => "a list is expected: lines that begin with \"- \"".to_owned(),
        "expected mapping start" => "fields are expected, such as \"name: a\"".to_owned(),
        _ => text,
    }
}

/// Returns the known name that is most similar to an unknown one.
fn nearest<'a>(unknown: &str, known: &[&'a str]) -> Option<&'a str> {
    let unknown = unknown.to_lowercase();
    let similarity = |name: &str| strsim::jaro_winkler(&unknown, &name.to_lowercase());
    let rated = known.iter().map(|name| (similarity(name), *name));
    let best = rated.max_by(|(a, _), (b, _)| a.total_cmp(b));
    best.filter(|(similarity, _)| *similarity >= MIN_SIMILARITY).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::up::config::Nodes;

    const HEAD: &str = "apiVersion: evenkeel.dev/v1alpha1\nkind: Cluster\n";

    fn refused(body: &str) -> String {
        read("c.yaml", &format!("{HEAD}{body}")).expect_err(body).to_string()
    }

    #[test]
    fn a_configuration_has_groups_of_nodes() {
        let text = "nodes:\n- name: gpu\n  count: 2\n  zones: [a, b]\n  capacity: {cpu: 64, memory: 1Ti}\n  \
            taints: [{key: gpu, effect: NoSchedule}]\n- name: small\n";
        let config = read("c.yaml", &format!("{HEAD}{text}")).expect("a configuration");
        let groups: Vec<_> = config.nodes.iter().flatten().map(Nodes::group).collect();
        assert_eq!((&*groups[0].prefix, groups[0].count, groups[1].count), ("gpu-", 2, 1));
        let text = |text: &str| text.to_owned();
        assert_eq!(groups[0].capacity, [(text("cpu"), text("64")), (text("memory"), text("1Ti"))]);
        assert_eq!(groups[0].taints, [(text("gpu"), String::new(), text("NoSchedule"))]);
    }

    #[test]
    fn an_unknown_field_is_refused_with_its_place_and_the_nearest_name() {
        for (body, want) in [
            (
                "dataDri: d\n",
                "c.yaml:3:1: dataDri: unknown field \"dataDri\"; did you mean dataDir?",
            ),
            (
                "nodes:\n- name: a\n  taint: []\n",
                "c.yaml:5:3: nodes[0].taint: unknown field \"taint\"; did you mean taints?",
            ),
            (
                "scheduler: {zzz: 1}\n",
                "c.yaml:3:13: scheduler.zzz: unknown field \"zzz\"; known are disabled, config, configs",
            ),
        ] {
            assert_eq!(refused(body), want);
        }
    }

    #[test]
    fn what_is_no_yaml_is_refused_as_such() {
        for text in ["a: [\n", "nodes: [{name: a}\nport: 1\n", "a: \"b\n"] {
            let error = refused(text);
            assert!(error.starts_with("c.yaml:") && !error.contains("unknown field"), "{error}");
        }
    }

    #[test]
    fn wrong_values_are_refused_with_their_place() {
        for (body, path) in [
            ("port: 70000\n", "c.yaml:3:7: port:"),
            ("name: A.b\n", "c.yaml:3:"),
            ("wait: long\n", "c.yaml:3:"),
            ("wait: 5\n", "; write one such as 90s, 5m or 1h30m"),
            ("nodes: [{name: a, taints: [{key: k, effect: No}]}]\n", "nodes[0].taints[0].effect"),
            ("nodes: 5\n", "c.yaml:3:8: nodes: a list is expected: lines that begin with \"- \""),
            ("nodes: [5]\n", "c.yaml:3:9: nodes[0]: fields are expected, such as \"name: a\""),
        ] {
            let error = refused(body);
            assert!(error.contains(path), "{error}");
        }
        for (body, want) in [
            (
                "loadBalancerPool: none\nloadBalancerPools: [{name: a, addresses: []}]\n",
                "c.yaml: loadBalancerPool and loadBalancerPools exclude each other",
            ),
            (
                "scheduler: {config: {}, configs: [{}]}\n",
                "c.yaml: scheduler.config and scheduler.configs exclude each other; move the first into the second",
            ),
            (
                "scheduler: {configs: []}\n",
                "c.yaml: scheduler.configs: the list is empty; add a configuration, such as {}, or set scheduler.disabled",
            ),
            ("users: [{name: a}, {name: a}]\n", "c.yaml: users[1].name: users[0] is \"a\", too"),
        ] {
            assert_eq!(refused(body), want);
        }
        let version = read("c.yaml", "apiVersion: evenkeel.dev/v1\nkind: Cluster\n");
        let version = version.expect_err("another version").to_string();
        assert!(version.contains("evenkeel.dev/v1alpha1"), "{version}");
        assert!(read("c.yaml", "kind: Cluster\n").is_err());
    }
}
