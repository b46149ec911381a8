//! Content of kubeconfigs: adds the entries of a cluster to the user's file, and removes them. Unknown fields of the file are
//! kept.

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};

/// Lists of a kubeconfig with named entries.
const LISTS: [&str; 3] = ["clusters", "contexts", "users"];

const CURRENT: &str = "current-context";

/// Parses a kubeconfig. An empty file is an empty kubeconfig.
pub(super) fn parse(text: &str) -> Result<Map<String, Value>> {
    let value: Value = serde_saphyr::from_str(text)
        .or_else(|error| if text.trim().is_empty() { Ok(Value::Null) } else { Err(error) })?;
    let config = match value {
        Value::Null => Map::new(),
        Value::Object(config) => config,
        _ => bail!("it has no fields, such as clusters and contexts"),
    };
    let is_list = |list: &Value| list.is_array() || list.is_null();
    if let Some(list) = LISTS.iter().find(|list| config.get(**list).is_some_and(|v| !is_list(v))) {
        bail!("{list} is not a list");
    }
    Ok(config)
}

/// Writes a kubeconfig as YAML.
pub(super) fn print(config: &Map<String, Value>) -> Result<String> {
    // Certificates are written as long lines, as kubectl does.
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    serde_saphyr::to_string_with_options(config, options)
        .context("the kubeconfig cannot be written as YAML")
}

/// Returns the current context, if any.
pub(super) fn current(config: &Map<String, Value>) -> Option<&str> {
    config.get(CURRENT).and_then(Value::as_str).filter(|name| !name.is_empty())
}

fn entries<'a>(config: &'a Map<String, Value>, list: &str) -> impl Iterator<Item = &'a Value> {
    config.get(list).and_then(Value::as_array).into_iter().flatten()
}

fn name_of(entry: &Value) -> &str {
    entry.get("name").and_then(Value::as_str).unwrap_or_default()
}

/// Returns whether there is a context of this name.
pub(super) fn has(config: &Map<String, Value>, context: &str) -> bool {
    entries(config, "contexts").any(|entry| name_of(entry) == context)
}

/// Returns the kubeconfig of a single cluster with `name` for the cluster, its user and its context.
pub(super) fn renamed(mut config: Map<String, Value>, name: &str) -> Map<String, Value> {
    for list in LISTS {
        for entry in config.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            if let Value::Object(entry) = entry {
                entry.insert("name".to_owned(), name.into());
                if let Some(Value::Object(context)) = entry.get_mut("context") {
                    context.insert("cluster".to_owned(), name.into());
                    context.insert("user".to_owned(), name.into());
                }
            }
        }
    }
    config.insert(CURRENT.to_owned(), name.into());
    config
}

/// Returns the kubeconfig of a single cluster for another user, who has a token. The cluster's name is `cluster`.
pub(super) fn for_user(
    config: Map<String, Value>,
    cluster: &str,
    user: &str,
    token: &str,
) -> Map<String, Value> {
    let mut config = renamed(config, cluster);
    let context = format!("{user}@{cluster}");
    config.insert("users".to_owned(), json!([{"name": user, "user": {"token": token}}]));
    let contexts = json!([{"name": context, "context": {"cluster": cluster, "user": user}}]);
    config.insert("contexts".to_owned(), contexts);
    config.insert(CURRENT.to_owned(), context.into());
    config
}

/// Adds the entries of `added` to `config`. They replace entries of the same names, and their context becomes the current
/// one.
pub(super) fn add(config: &mut Map<String, Value>, added: &Map<String, Value>) {
    config.entry("apiVersion").or_insert_with(|| "v1".into());
    config.entry("kind").or_insert_with(|| "Config".into());
    for list in LISTS {
        let is_replaced =
            |entry: &Value| entries(added, list).any(|new| name_of(new) == name_of(entry));
        let mut merged: Vec<Value> =
            entries(config, list).filter(|entry| !is_replaced(entry)).cloned().collect();
        merged.extend(entries(added, list).cloned());
        config.insert(list.to_owned(), merged.into());
    }
    if let Some(current) = added.get(CURRENT) {
        config.insert(CURRENT.to_owned(), current.clone());
    }
}

/// Removes the cluster, the user and the context `name`. If it is the current context, the first context of `previous` that
/// still exists becomes current, or none. Returns whether anything changed.
pub(super) fn remove(config: &mut Map<String, Value>, name: &str, previous: &[String]) -> bool {
    let before = config.clone();
    for list in LISTS {
        if let Some(Value::Array(entries)) = config.get_mut(list) {
            entries.retain(|entry| name_of(entry) != name);
        }
    }
    if current(config) == Some(name) {
        let exists = |context: &&String| {
            entries(config, "contexts").any(|entry| name_of(entry) == context.as_str())
        };
        let restored = previous.iter().find(exists).cloned().unwrap_or_default();
        config.insert(CURRENT.to_owned(), restored.into());
    }
    *config != before
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORK: &str = "apiVersion: v1\nkind: Config\ncurrent-context: work\npreferences: {colors: true}\nclusters:\n- name: work\n  cluster: {server: \"https://1.2.3.4\", future: 1}\n\
        users:\n- name: work\n  user: {token: \"123\"}\ncontexts:\n- name: work\n  context: {cluster: work, user: work}\n";
    const OURS: &str = "apiVersion: v1\nkind: Config\ncurrent-context: evenkeel\nclusters:\n- name: evenkeel\n  cluster: {server: \"https://127.0.0.1:6443\"}\n\
        users:\n- name: evenkeel-admin\n  user: {token: secret}\ncontexts:\n- name: evenkeel\n  context: {cluster: evenkeel, user: evenkeel-admin}\n";

    fn ours(name: &str) -> Map<String, Value> {
        renamed(parse(OURS).expect("parsed"), name)
    }

    fn names(config: &Map<String, Value>, list: &str) -> Vec<String> {
        entries(config, list).map(|entry| name_of(entry).to_owned()).collect()
    }

    #[test]
    fn a_renamed_cluster_has_one_name() {
        let config = ours("evenkeel-a");
        for list in LISTS {
            assert_eq!(names(&config, list), ["evenkeel-a"]);
        }
        assert_eq!(current(&config), Some("evenkeel-a"));
        assert_eq!(config["contexts"][0]["context"]["user"], "evenkeel-a");
        assert_eq!(config["users"][0]["user"]["token"], "secret");
    }

    #[test]
    fn adding_and_removing_leaves_the_users_entries_as_they_were() {
        let before = parse(WORK).expect("parsed");
        let mut config = before.clone();
        add(&mut config, &ours("evenkeel-a"));
        add(&mut config, &ours("evenkeel-a"));
        assert_eq!(names(&config, "contexts"), ["work", "evenkeel-a"]);
        assert_eq!(current(&config), Some("evenkeel-a"));
        let again = parse(&print(&config).expect("printed")).expect("parsed");
        assert_eq!(again, config, "unknown fields are written, and numbers in quotes stay text");
        assert!(remove(&mut config, "evenkeel-a", &["work".to_owned()]));
        assert_eq!(config, before);
        assert!(!remove(&mut config, "evenkeel-a", &["work".to_owned()]));
    }

    #[test]
    fn the_current_context_is_restored_if_it_is_ours() {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let table = [
            ("evenkeel-a", list(&["work"]), "work"),
            ("evenkeel-a", list(&["gone", "work"]), "work"),
            ("evenkeel-a", list(&["gone"]), ""),
            ("evenkeel-a", list(&[]), ""),
            // The user chose another context meanwhile.
            ("work", list(&["gone"]), "work"),
        ];
        for (chosen, previous, want) in table {
            let mut config = parse(WORK).expect("parsed");
            add(&mut config, &ours("evenkeel-a"));
            config.insert(CURRENT.to_owned(), chosen.into());
            remove(&mut config, "evenkeel-a", &previous);
            assert_eq!(config[CURRENT], want, "{chosen} {previous:?}");
        }
    }

    #[test]
    fn long_values_stay_on_their_line() {
        let text = format!("users:\n- name: a\n  user: {{token: {}}}\n", "t".repeat(300));
        let config = parse(&text).expect("parsed");
        let printed = print(&config).expect("printed");
        assert!(printed.contains(&format!("token: {}\n", "t".repeat(300))), "{printed}");
        assert_eq!(parse(&printed).expect("parsed"), config);
    }

    #[test]
    fn empty_files_and_null_lists_are_kubeconfigs_and_others_are_not() {
        let mut config = parse("").expect("empty");
        add(&mut config, &ours("evenkeel-a"));
        assert_eq!((&config["apiVersion"], &config["kind"]), (&"v1".into(), &"Config".into()));
        let mut config = parse("apiVersion: v1\nkind: Config\nclusters: null\n").expect("null");
        add(&mut config, &ours("evenkeel-a"));
        assert_eq!(names(&config, "clusters"), ["evenkeel-a"]);
        for wrong in ["{ not yaml", "[]", "clusters: {}", "3"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
