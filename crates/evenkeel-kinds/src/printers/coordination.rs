//! Printers of coordination.k8s.io.

use super::Printer;
use super::cells::{age, name};
use evenkeel_apimachinery::value::text;
use serde_json::json;

pub(super) fn printer(kind: &str) -> Option<Printer> {
    Some(match kind {
        "Lease" => |o| vec![json!(name(o)), json!(text(o, "spec.holderIdentity")), json!(age(o))],
        _ => return None,
    })
}
