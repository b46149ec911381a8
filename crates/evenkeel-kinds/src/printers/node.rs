//! Printers of node.k8s.io.

use super::Printer;
use super::cells::{age, name};
use evenkeel_apimachinery::value::text;
use serde_json::json;

pub(super) fn printer(kind: &str) -> Option<Printer> {
    Some(match kind {
        "RuntimeClass" => |printed| {
            vec![json!(name(printed)), json!(text(printed, "handler")), json!(age(printed))]
        },
        _ => return None,
    })
}
