//! Escalation check: users may only grant permissions that they hold.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | A role may contain only permissions that the user who writes it holds | `confirm_no_escalation` |
//! | The user holds a rule if one of the user's rules covers each combination of verb, resource, name and path | `covers` |

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::User;
use super::rbac::{ResolvedRules, aggregate};
use super::rule::{PolicyRule, non_resource_url_matches};
use evenkeel_apimachinery::status::quote;

/// Maximum number of parts into which the granted rules may be split: each part is one combination of verb, group,
/// resource and name. Upstream has no limit, but rules that fit in a request can have more parts than fit in memory.
const MAX_PARTS: usize = 100_000;

/// Maximum number of values to compare with the held rules, for all parts together.
const MAX_LOOKUPS: usize = 5_000_000;

/// Maximum number of missing permissions that the error message lists.
const MAX_LISTED: usize = 1_000;

/// Refuses to grant `rules` unless the user holds them all. `held` are the user's own rules. The error has upstream's
/// message.
///
/// Upstream: `ConfirmNoEscalation`.
pub(crate) fn confirm_no_escalation(
    user: &User,
    held: &ResolvedRules,
    rules: &[PolicyRule],
) -> Result<(), String> {
    let user_text = format!("user {} (groups={})", quote(&user.name), quoted(&user.groups));
    let held_rules = held.rules.iter().flat_map(|rules| rules.iter());
    let missing = uncovered(held_rules, rules).map_err(|too_many| {
        let limit = match too_many {
            TooMany::Parts => {
                format!("have more than {MAX_PARTS} combinations of verb, group, resource and name")
            }
            TooMany::Lookups => {
                format!("need more than {MAX_LOOKUPS} comparisons with the permissions held")
            }
        };
        format!(
            "{user_text} is attempting to grant RBAC permissions that {limit}; shorten the rules"
        )
    })?;
    if missing.is_empty() {
        return Ok(());
    }
    let missing: BTreeSet<String> = compact_rules(missing).iter().map(compact_string).collect();
    let more_count = missing.len().saturating_sub(MAX_LISTED);
    let mut listed: Vec<String> = missing.into_iter().take(MAX_LISTED).collect();
    if more_count > 0 {
        listed.push(format!("and {more_count} more"));
    }
    let mut why = format!(
        "{user_text} is attempting to grant RBAC permissions not currently held:\n{}",
        listed.join("\n")
    );
    if let Some(errors) = aggregate(held.missing.iter().map(|role| role.not_stored())) {
        why.push_str(&format!("; resolution errors: [{errors}]"));
    }
    Err(why)
}

/// Exceeded limit, which stops the comparison of rules.
#[derive(Debug, PartialEq, Eq)]
enum TooMany {
    Parts,
    Lookups,
}

/// Returns the parts of `rules` that no rule of `held` covers, each with one verb and one resource or path.
///
/// Upstream: `Covers`.
fn uncovered<'a>(
    held: impl Iterator<Item = &'a PolicyRule>,
    rules: &[PolicyRule],
) -> Result<Vec<PolicyRule>, TooMany> {
    let held = HeldRules::new(held);
    let mut remaining_lookups = MAX_LOOKUPS;
    // A granted rule that one held rule covers as a whole is not split into parts.
    let mut to_break_down = Vec::new();
    for rule in rules.iter().filter(|rule| part_count(rule) > 0) {
        if !rule.non_resource_urls.is_empty() || !held.covers(rule, &mut remaining_lookups)? {
            to_break_down.push(rule);
        }
    }
    let total_parts =
        to_break_down.iter().fold(0_usize, |total, rule| total.saturating_add(part_count(rule)));
    if total_parts > MAX_PARTS {
        return Err(TooMany::Parts);
    }
    let mut missing = Vec::new();
    for part in to_break_down.into_iter().flat_map(breakdown_rule) {
        if !held.covers(&part, &mut remaining_lookups)? {
            missing.push(part);
        }
    }
    Ok(missing)
}

/// Returns the number of parts into which [`breakdown_rule`] splits a rule.
fn part_count(rule: &PolicyRule) -> usize {
    let resource_parts = rule
        .api_groups
        .len()
        .saturating_mul(rule.resources.len())
        .saturating_mul(rule.resource_names.len().max(1));
    resource_parts.saturating_add(rule.non_resource_urls.len()).saturating_mul(rule.verbs.len())
}

/// Splits a rule into parts: one verb, one group, one resource and at most one name, or one verb and one path.
///
/// Upstream: `BreakdownRule`.
fn breakdown_rule(rule: &PolicyRule) -> Vec<PolicyRule> {
    let single = |value: &str| vec![Box::from(value)];
    let groups_and_resources = rule
        .api_groups
        .iter()
        .flat_map(|group| rule.resources.iter().map(move |resource| (group, resource)));
    let mut parts = Vec::new();
    for (group, resource) in groups_and_resources {
        for verb in &rule.verbs {
            let part = PolicyRule {
                verbs: single(verb),
                api_groups: single(group),
                resources: single(resource),
                ..PolicyRule::default()
            };
            if rule.resource_names.is_empty() {
                parts.push(part.clone());
            }
            for name in &rule.resource_names {
                parts.push(PolicyRule { resource_names: single(name), ..part.clone() });
            }
        }
    }
    for path in &rule.non_resource_urls {
        for verb in &rule.verbs {
            parts.push(PolicyRule {
                verbs: single(verb),
                non_resource_urls: single(path),
                ..PolicyRule::default()
            });
        }
    }
    parts
}

/// Rules that the user holds, indexed by resource. Rules that differ only in their resource names are merged into one.
/// This changes nothing, because a part of a granted rule has at most one resource name.
struct HeldRules<'a> {
    /// Each rule with the resource names that it is limited to; `None` for all names.
    rules: Vec<(HeldRule<'a>, Option<HashSet<&'a str>>)>,
    /// Indexes into `rules` by resource, such as `pods/log` or `*`.
    by_resource: HashMap<&'a str, Vec<usize>>,
    /// Indexes into `rules` of the rules with non-resource URLs.
    with_urls: Vec<usize>,
}

impl<'a> HeldRules<'a> {
    fn new(rules: impl Iterator<Item = &'a PolicyRule>) -> Self {
        let mut merged: HashMap<HeldRule<'a>, Option<HashSet<&'a str>>> = HashMap::new();
        for rule in rules {
            let names = rule.resource_names.iter().map(|name| &**name);
            let merged_names =
                merged.entry(HeldRule::new(rule)).or_insert_with(|| Some(HashSet::new()));
            match merged_names {
                Some(merged_names) if !rule.resource_names.is_empty() => merged_names.extend(names),
                // One of the merged rules applies to all names.
                _ => *merged_names = None,
            }
        }
        let mut held =
            Self { rules: Vec::new(), by_resource: HashMap::new(), with_urls: Vec::new() };
        for (rule, names) in merged {
            let index = held.rules.len();
            for resource in &rule.resources {
                held.by_resource.entry(resource).or_default().push(index);
            }
            if !rule.non_resource_urls.is_empty() {
                held.with_urls.push(index);
            }
            held.rules.push((rule, names));
        }
        held
    }

    /// Returns the indices of the rules that list this resource.
    fn rules_for_resource(&self, resource: &str) -> &[usize] {
        self.by_resource.get(resource).map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns whether one held rule covers `part`: a part of a granted rule, or a whole granted rule without
    /// non-resource URLs. Subtracts the number of compared values from `remaining_lookups`.
    fn covers(&self, part: &PolicyRule, remaining_lookups: &mut usize) -> Result<bool, TooMany> {
        // A rule that covers the part lists the first resource, `*`, or `*/SUBRESOURCE`.
        let indices = match part.resources.first() {
            None => [&*self.with_urls, &[], &[]],
            Some(first) => {
                let with_subresource_of_all = match first.split_once('/') {
                    Some((_, subresource)) => self.rules_for_resource(&format!("*/{subresource}")),
                    None => &[],
                };
                [
                    self.rules_for_resource(first),
                    self.rules_for_resource("*"),
                    with_subresource_of_all,
                ]
            }
        };
        let candidates = indices.into_iter().flatten().filter_map(|index| self.rules.get(*index));
        for (rule, names) in candidates {
            let url_lookups =
                part.non_resource_urls.len().saturating_mul(rule.non_resource_urls.len());
            let needed = [&part.verbs, &part.api_groups, &part.resources, &part.resource_names]
                .map(Vec::len)
                .into_iter()
                .fold(url_lookups, usize::saturating_add);
            *remaining_lookups = remaining_lookups.checked_sub(needed).ok_or(TooMany::Lookups)?;
            if rule.covers(part, names.as_ref()) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Held rule without its resource names, as sets for lookups.
#[derive(PartialEq, Eq, Hash)]
struct HeldRule<'a> {
    verbs: BTreeSet<&'a str>,
    api_groups: BTreeSet<&'a str>,
    resources: BTreeSet<&'a str>,
    non_resource_urls: BTreeSet<&'a str>,
}

impl<'a> HeldRule<'a> {
    fn new(rule: &'a PolicyRule) -> Self {
        let set = |values: &'a [Box<str>]| values.iter().map(|value| &**value).collect();
        Self {
            verbs: set(&rule.verbs),
            api_groups: set(&rule.api_groups),
            resources: set(&rule.resources),
            non_resource_urls: set(&rule.non_resource_urls),
        }
    }

    /// Returns whether this rule covers the part. `names` are the resource names that this rule is limited to.
    ///
    /// Upstream: `ruleCovers`.
    fn covers(&self, part: &PolicyRule, names: Option<&HashSet<&str>>) -> bool {
        let has_all = |held: &BTreeSet<&str>, required: &[Box<str>]| {
            required.iter().all(|required| held.contains(&**required))
        };
        let covers_names = names.is_none_or(|names| {
            !part.resource_names.is_empty()
                && part.resource_names.iter().all(|name| names.contains(&**name))
        });
        let covers_urls = part.non_resource_urls.iter().all(|url| {
            self.non_resource_urls.iter().any(|held| non_resource_url_matches(held, url))
        });
        covers_names
            && covers_urls
            && (self.verbs.contains("*") || has_all(&self.verbs, &part.verbs))
            && (self.api_groups.contains("*") || has_all(&self.api_groups, &part.api_groups))
            && (self.resources.contains("*")
                || part.resources.iter().all(|required| self.has_resource(required)))
    }

    /// Returns whether this rule lists the resource, or `*/SUBRESOURCE` for its subresource.
    ///
    /// Upstream: `resourceCoversAll`.
    fn has_resource(&self, required: &str) -> bool {
        self.resources.contains(required)
            || required.split_once('/').is_some_and(|(_, subresource)| {
                self.resources.contains(&*format!("*/{subresource}"))
            })
    }
}

/// Merges rules that differ only in their verbs. Does not change rules for non-resource URLs.
///
/// Upstream: `CompactRules`.
fn compact_rules(rules: Vec<PolicyRule>) -> Vec<PolicyRule> {
    let mut compacted = Vec::new();
    // Verbs by API groups, resources and resource names.
    let mut verbs_by_key: BTreeMap<[Vec<Box<str>>; 3], Vec<Box<str>>> = BTreeMap::new();
    for rule in rules {
        if rule.non_resource_urls.is_empty() {
            let key = [rule.api_groups, rule.resources, rule.resource_names];
            verbs_by_key.entry(key).or_default().extend(rule.verbs);
        } else {
            compacted.push(rule);
        }
    }
    compacted.extend(verbs_by_key.into_iter().map(|(key, verbs)| {
        let [api_groups, resources, resource_names] = key;
        PolicyRule { verbs, api_groups, resources, resource_names, ..PolicyRule::default() }
    }));
    compacted
}

/// Formats a rule as `{APIGroups:[""], Resources:["pods"], Verbs:["get"]}`.
///
/// Upstream: `CompactString`.
fn compact_string(rule: &PolicyRule) -> String {
    let fields = [
        ("APIGroups", &rule.api_groups),
        ("Resources", &rule.resources),
        ("NonResourceURLs", &rule.non_resource_urls),
        ("ResourceNames", &rule.resource_names),
        ("Verbs", &rule.verbs),
    ];
    let fields = fields.into_iter().filter(|(_, values)| !values.is_empty());
    let fields: Vec<String> =
        fields.map(|(name, values)| format!("{name}:{}", quoted(values))).collect();
    format!("{{{}}}", fields.join(", "))
}

/// Formats a list as Go's `%q` does: `["a" "b"]`.
fn quoted(values: &[Box<str>]) -> String {
    let values: Vec<String> = values.iter().map(|value| quote(value)).collect();
    format!("[{}]", values.join(" "))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::super::Attributes;
    use super::super::rbac::MissingRole;
    use super::*;

    fn rules(rules: Value) -> Vec<PolicyRule> {
        serde_json::from_value(rules).expect("rules")
    }

    /// Returns a rule for resources of the core group.
    fn core(verbs: &[&str], resources: &[&str], names: &[&str]) -> Value {
        json!({"apiGroups": [""], "verbs": verbs, "resources": resources, "resourceNames": names})
    }

    #[test]
    fn rules_of_too_many_parts_are_refused_unless_one_held_rule_covers_them() {
        // A rule with `n` groups, verbs, resources and names each, which has n⁴ parts.
        let names = |n: usize| -> Vec<String> { (0..n).map(|i| format!("n{i}")).collect() };
        let rule = |n: usize| json!([{"apiGroups": names(n), "verbs": names(n), "resources": names(n), "resourceNames": names(n)}]);
        let user = User { name: "ann".into(), ..User::default() };
        let why = |held: Value, granted: Value| {
            let held =
                ResolvedRules { rules: vec![rules(held).into()], ..ResolvedRules::default() };
            confirm_no_escalation(&user, &held, &rules(granted)).err()
        };
        let all = json!([{"apiGroups": ["*"], "verbs": ["*"], "resources": ["*"]}]);
        assert_eq!(why(all, rule(10_000)), None);
        assert_eq!(why(rule(10_000), rule(10_000)), None);
        let refused = why(json!([]), rule(10_000)).expect("not held");
        assert!(refused.ends_with("shorten the rules"), "{refused}");
        // These parts are few enough to compare, but too many to list.
        let refused = why(json!([]), rule(15)).expect("not held");
        assert!(refused.ends_with("\nand 2375 more"), "{refused}");
    }

    #[test]
    fn rules_that_need_too_many_comparisons_are_refused() {
        let named = |letter: char, n: usize| -> Vec<String> {
            (0..n).map(|i| format!("{letter}{i}")).collect()
        };
        let user = User { name: "ann".into(), ..User::default() };
        let granted = json!([{"apiGroups": [""], "verbs": ["get"], "resources": ["pods"], "resourceNames": named('g', 50_000)}]);
        let why = |held: Vec<Value>| {
            let held = ResolvedRules {
                rules: vec![rules(Value::from(held)).into()],
                ..ResolvedRules::default()
            };
            confirm_no_escalation(&user, &held, &rules(granted.clone())).expect_err("not held")
        };
        // Rules that differ only in names are merged, and rules of other resources are not compared.
        let alike = named('n', 10_000).into_iter().map(|name| core(&["get"], &["pods"], &[&name]));
        assert!(why(alike.collect()).contains(" more"));
        let others = named('r', 10_000).into_iter().map(|other| core(&["get"], &[&other], &["n"]));
        assert!(why(others.collect()).contains(" more"));
        let many = named('v', 1_000).into_iter().map(|verb| core(&[&verb], &["pods"], &[]));
        let refused = why(many.collect());
        assert!(refused.ends_with("with the permissions held; shorten the rules"), "{refused}");
    }

    #[test]
    fn held_rules_cover_granted_rules() {
        let url = |verbs: &[&str], urls: &[&str]| json!({"verbs": verbs, "nonResourceURLs": urls});
        let all = json!({"apiGroups": ["*"], "verbs": ["*"], "resources": ["*"]});
        let table = [
            (json!([]), json!([]), true),
            (json!([]), json!([core(&["get"], &["pods"], &[])]), false),
            (
                json!([core(&["get"], &["pods"], &[])]),
                json!([core(&["get"], &["pods"], &[])]),
                true,
            ),
            // Several held rules together may cover a granted rule, but one held rule must cover a whole part.
            (
                json!([core(&["get"], &["pods"], &[]), core(&["list"], &["pods"], &[])]),
                json!([core(&["get", "list"], &["pods"], &[])]),
                true,
            ),
            (
                json!([core(&["get", "list"], &["pods"], &[])]),
                json!([core(&["*"], &["pods"], &[])]),
                false,
            ),
            (
                json!([core(&["*"], &["pods"], &[])]),
                json!([core(&["*", "escalate"], &["pods"], &[])]),
                true,
            ),
            // Permission for one name does not cover all names.
            (
                json!([core(&["get"], &["pods"], &["a"])]),
                json!([core(&["get"], &["pods"], &[])]),
                false,
            ),
            (
                json!([core(&["get"], &["pods"], &["a"])]),
                json!([core(&["get"], &["pods"], &["a"])]),
                true,
            ),
            (
                json!([core(&["get"], &["pods"], &["a"])]),
                json!([core(&["get"], &["pods"], &["a", "b"])]),
                false,
            ),
            (
                json!([core(&["get"], &["pods"], &[])]),
                json!([core(&["get"], &["pods"], &["a", "b"])]),
                true,
            ),
            // A permission on a resource does not cover its subresources.
            (
                json!([core(&["get"], &["pods"], &[])]),
                json!([core(&["get"], &["pods/log"], &[])]),
                false,
            ),
            (
                json!([core(&["get"], &["*/log"], &[])]),
                json!([core(&["get"], &["pods/log"], &[])]),
                true,
            ),
            (
                json!([core(&["get"], &["*/log"], &[])]),
                json!([core(&["get"], &["*/exec"], &[])]),
                false,
            ),
            (json!([core(&["get"], &["*/log"], &[])]), json!([core(&["get"], &["*"], &[])]), false),
            // A rule grants nothing in other API groups.
            (
                json!([core(&["get"], &["pods"], &[])]),
                json!([{"apiGroups": ["apps"], "verbs": ["get"], "resources": ["pods"]}]),
                false,
            ),
            (json!([all]), json!([core(&["get"], &["pods"], &["a"])]), true),
            (json!([core(&["*"], &["*"], &[])]), json!([all]), false),
            // Rules for paths and rules for resources do not cover each other.
            (json!([all]), json!([url(&["get"], &["/healthz"])]), false),
            (
                json!([url(&["get"], &["/api/*"])]),
                json!([url(&["get"], &["/api/v1", "/api/*"])]),
                true,
            ),
            (json!([url(&["get"], &["/api/*"])]), json!([url(&["get"], &["/apis"])]), false),
            (json!([url(&["get"], &["/api/*"])]), json!([url(&["get"], &["*"])]), false),
            (json!([url(&["get"], &["*"])]), json!([url(&["get"], &["/a"])]), true),
            (json!([url(&["get"], &["*"])]), json!([url(&["post"], &["/a"])]), false),
        ];
        for (held, granted, expected) in table {
            let missing = uncovered(rules(held.clone()).iter(), &rules(granted.clone()));
            assert_eq!(
                missing.as_ref().is_ok_and(Vec::is_empty),
                expected,
                "{held} {granted}: {missing:?}"
            );
        }
    }

    #[test]
    fn the_refusal_lists_missing_rules_sorted_and_compact() {
        let user = User::authenticated("bob", ["dev"]);
        let held = ResolvedRules {
            rules: vec![rules(json!([core(&["get"], &["pods"], &[])])).into()],
            missing: ["a", "b", "a"].map(|name| MissingRole::new("Role", name).into()).into(),
        };
        let granted = rules(json!([
            core(&["list", "get", "watch"], &["pods"], &[]),
            core(&["get"], &["secrets"], &["s"]),
            {"verbs": ["get"], "nonResourceURLs": ["/x"]},
        ]));
        let why = confirm_no_escalation(&user, &held, &granted).expect_err("it is not held");
        assert_eq!(
            why,
            "user \"bob\" (groups=[\"dev\" \"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n\
             {APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"list\" \"watch\"]}\n\
             {APIGroups:[\"\"], Resources:[\"secrets\"], ResourceNames:[\"s\"], Verbs:[\"get\"]}\n\
             {NonResourceURLs:[\"/x\"], Verbs:[\"get\"]}; resolution errors: [[roles.rbac.authorization.k8s.io \"a\" not found, \
             roles.rbac.authorization.k8s.io \"b\" not found]]"
        );
        let empty = confirm_no_escalation(&user, &held, &[]);
        assert_eq!(empty, Ok(()));
    }

    fn some_of(values: &'static [&'static str]) -> impl Strategy<Value = Vec<Box<str>>> {
        prop::collection::vec(prop::sample::select(values).prop_map(Box::from), 0..3)
    }

    prop_compose! {
        fn a_rule()(
            verbs in some_of(&["*", "get", "list"]),
            api_groups in some_of(&["*", "", "apps"]),
            resources in some_of(&["*", "pods", "pods/log", "*/log", "*/", "jobs"]),
            resource_names in some_of(&["a", "b"]),
            non_resource_urls in some_of(&["*", "/a", "/a*", "/a/*"]),
        ) -> PolicyRule {
            PolicyRule { verbs, api_groups, resources, resource_names, non_resource_urls }
        }
    }

    proptest! {
        /// Rules that the escalation check accepts allow no request that the held rules do not allow.
        #[test]
        fn granted_rules_allow_nothing_more(
            held in prop::collection::vec(a_rule(), 0..4),
            granted in prop::collection::vec(a_rule(), 0..3),
        ) {
            prop_assume!(uncovered(held.iter(), &granted).is_ok_and(|missing| missing.is_empty()));
            let may = |rules: &[PolicyRule], attributes: &Attributes<'_>| rules.iter().any(|rule| rule.rule_allows(attributes));
            for verb in ["get", "list", "escalate"] {
                for path in ["/a", "/a/b", "/ab", "/b"] {
                    let attributes = Attributes { verb, path: Some(path), ..Attributes::default() };
                    prop_assert!(!may(&granted, &attributes) || may(&held, &attributes), "{:?}", attributes);
                }
                for (group, resource) in [("", "pods"), ("apps", "jobs"), ("x", "pods")] {
                    for (subresource, name) in [("", ""), ("", "a"), ("log", "b"), ("exec", "c")] {
                        let attributes = Attributes { verb, group, resource, subresource, name, ..Attributes::default() };
                        prop_assert!(!may(&granted, &attributes) || may(&held, &attributes), "{:?}", attributes);
                    }
                }
            }
        }
    }
}
