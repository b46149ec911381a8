//! Printers of networking.k8s.io.

use super::cells::{Cells, NONE, age, join, name, selector_text, text_or};
use super::core::load_balancer;
use super::{PrintedObject, Printer};
use evenkeel_apimachinery::value::{get, list, object, text};
use serde_json::json;

pub(super) fn printer(kind: &str) -> Option<Printer> {
    Some(match kind {
        "IngressClass" => ingress_class,
        "Ingress" => ingress,
        "IPAddress" => ip_address,
        "NetworkPolicy" => |printed| {
            vec![
                json!(name(printed)),
                json!(selector_text(printed, "spec.podSelector")),
                json!(age(printed)),
            ]
        },
        "ServiceCIDR" => |printed| {
            vec![json!(name(printed)), json!(join(printed, "spec.cidrs", ",")), json!(age(printed))]
        },
        _ => return None,
    })
}

/// Returns the cells of an IngressClass. The name shows whether the class is the default.
///
/// Upstream: `printIngressClass`.
fn ingress_class(printed: &PrintedObject<'_>) -> Cells {
    let mut shown = name(printed).to_owned();
    let key = "ingressclass.kubernetes.io/is-default-class";
    if object(printed, "metadata.annotations")
        .and_then(|annotations| annotations.get(key))
        .is_some_and(|value| value == "true")
    {
        shown.push_str(" (default)");
    }
    let parameters = get(printed, "spec.parameters").map_or_else(
        || NONE.to_owned(),
        |parameters| {
            let group = text(parameters, "apiGroup");
            let dot = if get(parameters, "apiGroup").is_some() { "." } else { "" };
            format!("{}{dot}{group}/{}", text(parameters, "kind"), text(parameters, "name"))
        },
    );
    vec![
        json!(shown),
        json!(text(printed, "spec.controller")),
        json!(parameters),
        json!(age(printed)),
    ]
}

/// Maximum number of hosts of an Ingress that its row shows.
const MAX_HOSTS: usize = 3;

/// Returns the cells of an Ingress: class, the first three hosts, addresses, and ports.
///
/// Upstream: `printIngress`.
fn ingress(printed: &PrintedObject<'_>) -> Cells {
    let rules = list(printed, "spec.rules");
    // As in upstream, a rule after the third host counts as a further host, even if it has none.
    let (mut shown, mut has_more) = (Vec::new(), false);
    for rule in rules {
        has_more |= shown.len() == MAX_HOSTS;
        let host = text(rule, "host");
        if !has_more && !host.is_empty() {
            shown.push(host);
        }
    }
    let hosts = match (shown.is_empty(), has_more) {
        (true, _) => "*".to_owned(),
        (false, false) => shown.join(","),
        (false, true) => {
            format!("{} + {} more...", shown.join(","), rules.len().saturating_sub(MAX_HOSTS))
        }
    };
    vec![
        json!(name(printed)),
        json!(text_or(printed, "spec.ingressClassName", NONE)),
        json!(hosts),
        json!(load_balancer(printed)),
        json!(if list(printed, "spec.tls").is_empty() { "80" } else { "80, 443" }),
        json!(age(printed)),
    ]
}

/// Returns the cells of an IPAddress: name, the parent's resource, namespace and name, and age.
///
/// Upstream: `printIPAddress`.
fn ip_address(printed: &PrintedObject<'_>) -> Cells {
    let parent = get(printed, "spec.parentRef").map_or_else(
        || NONE.to_owned(),
        |parent| {
            let group = text(parent, "group");
            let mut path = text(parent, "resource").to_owned();
            if !group.is_empty() {
                path = format!("{path}.{group}");
            }
            for part in [text(parent, "namespace"), text(parent, "name")] {
                if !part.is_empty() {
                    path = format!("{path}/{part}");
                }
            }
            path.to_lowercase()
        },
    );
    // Upstream's rows have an age, although the table has no column for it.
    vec![json!(name(printed)), json!(parent), json!(age(printed))]
}
