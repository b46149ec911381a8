//! Options of list and delete requests.

use crate::plan::{PatchType, Propagation};
use std::fmt::Write as _;

/// Options of a list. The default lists all objects at the newest version.
#[doc(alias = "metav1.ListOptions")]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// Label selector in its query form, empty for all.
    pub labels: String,
    /// Field selector in its query form, empty for all.
    pub fields: String,
    /// Shard selector in its query form (KEP-5866), empty for all. A server without the feature gate `ShardedListAndWatch`
    /// ignores it.
    pub shards: String,
    /// Maximum number of items in a response, or 0 for no limit.
    pub limit: u32,
    /// Continue token of the previous page.
    pub continue_: String,
    /// resourceVersion to list at: empty for the newest, `0` for any version in the server's cache.
    pub resource_version: String,
    /// `NotOlderThan` or `Exact`. Empty for the default.
    pub resource_version_match: &'static str,
}

impl ListOptions {
    pub(crate) fn query(&self) -> Query {
        let mut query = Query::default();
        query.add("labelSelector", &self.labels);
        query.add("fieldSelector", &self.fields);
        query.add("shardSelector", &self.shards);
        if self.limit != 0 {
            query.add("limit", &self.limit.to_string());
        }
        query.add("continue", &self.continue_);
        query.add("resourceVersion", &self.resource_version);
        query.add("resourceVersionMatch", self.resource_version_match);
        query
    }
}

/// Options of a delete request. By default, the kind's grace period and propagation policy apply.
#[doc(alias = "metav1.DeleteOptions")]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// Precondition on the uid. Empty for none.
    pub uid: String,
    /// Precondition on the resourceVersion. Empty for none.
    pub resource_version: String,
    /// Grace period in seconds. `None` means the object's own.
    pub grace_seconds: Option<i64>,
    /// Propagation policy for dependents. `None` means the kind's default.
    pub propagation: Option<Propagation>,
}

impl DeleteOptions {
    /// Returns the JSON body of the request, empty if no option is set.
    pub(crate) fn body(&self) -> Vec<u8> {
        let mut fields = serde_json::Map::new();
        let mut preconditions = serde_json::Map::new();
        if !self.uid.is_empty() {
            preconditions.insert("uid".into(), self.uid.as_str().into());
        }
        if !self.resource_version.is_empty() {
            preconditions.insert("resourceVersion".into(), self.resource_version.as_str().into());
        }
        if !preconditions.is_empty() {
            fields.insert("preconditions".into(), preconditions.into());
        }
        if let Some(seconds) = self.grace_seconds {
            fields.insert("gracePeriodSeconds".into(), seconds.into());
        }
        if let Some(propagation) = self.propagation {
            fields.insert("propagationPolicy".into(), propagation_text(propagation).into());
        }
        if fields.is_empty() {
            return Vec::new();
        }
        fields.insert("kind".into(), "DeleteOptions".into());
        fields.insert("apiVersion".into(), "v1".into());
        serde_json::Value::Object(fields).to_string().into_bytes()
    }
}

fn propagation_text(propagation: Propagation) -> &'static str {
    match propagation {
        Propagation::Orphan => "Orphan",
        Propagation::Background => "Background",
        Propagation::Foreground => "Foreground",
    }
}

/// Media type of a server-side apply.
pub(crate) const APPLY_CONTENT_TYPE: &str = "application/apply-patch+yaml";

/// Media type of a JSON merge patch.
pub(crate) const MERGE_CONTENT_TYPE: &str = "application/merge-patch+json";

pub(crate) fn patch_content_type(form: PatchType) -> &'static str {
    match form {
        PatchType::Json => "application/json-patch+json",
        PatchType::Merge => MERGE_CONTENT_TYPE,
        PatchType::Strategic => "application/strategic-merge-patch+json",
        PatchType::Apply(_) => APPLY_CONTENT_TYPE,
    }
}

/// Query string under construction. Omits parameters with empty values.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(String);

impl Query {
    pub(crate) fn add(&mut self, name: &str, value: &str) {
        if value.is_empty() {
            return;
        }
        self.0.push(if self.0.is_empty() { '?' } else { '&' });
        self.0.push_str(name);
        self.0.push('=');
        escape(&mut self.0, value);
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Percent-encodes all characters except RFC 3986's unreserved characters.
pub(crate) fn escape(into: &mut String, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                into.push(char::from(byte));
            }
            _ => {
                // Writing to a String cannot fail.
                let _ = write!(into, "%{byte:02X}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_escaped_and_omit_empty_parameters() {
        let options =
            ListOptions { labels: "a in (b,c),d!=e".into(), limit: 500, ..ListOptions::default() };
        assert_eq!(
            options.query().as_str(),
            "?labelSelector=a%20in%20%28b%2Cc%29%2Cd%21%3De&limit=500"
        );
        assert_eq!(ListOptions::default().query().as_str(), "");
    }

    #[test]
    fn delete_options_without_values_have_no_body() {
        assert!(DeleteOptions::default().body().is_empty());
        let options = DeleteOptions {
            uid: "u1".into(),
            resource_version: "7".into(),
            grace_seconds: Some(0),
            propagation: Some(Propagation::Foreground),
        };
        let body: serde_json::Value = serde_json::from_slice(&options.body()).unwrap();
        assert_eq!(
            body,
            serde_json::json!({
                "kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0,
                "propagationPolicy": "Foreground", "preconditions": { "uid": "u1", "resourceVersion": "7" },
            })
        );
    }
}
