//! `/debug/controllers`: introspection as JSON over HTTP.

use super::{Introspection, Subject};
use crate::response;
use bytes::Bytes;
use http::{Response, StatusCode};
use percent_encoding::percent_decode_str;
use serde::Serialize;

impl Introspection {
    /// Returns the response to `GET /debug/controllers[/NAME][?object=namespace/name[&kind=Kind.group]][&cluster=NAME]`.
    /// `name` is empty for the listing of all controllers. With `object`, the response is `{"reports": […]}`, with the reports of
    /// all controllers, or of the named one, on that object.
    pub fn answer(&self, name: &str, query: &str) -> Response<Bytes> {
        let cluster = parameter(query, "cluster");
        let cluster = cluster.as_deref();
        let subject = match parse_subject(query) {
            Ok(subject) => subject,
            Err(text) => return response::plain(StatusCode::BAD_REQUEST, &text),
        };
        if !name.is_empty() && self.find(name, cluster).is_none() {
            return response::plain(
                StatusCode::NOT_FOUND,
                &format!("no controller {name} runs here"),
            );
        }
        match subject {
            None if name.is_empty() => json(&self.listing_of(cluster)),
            None => json(&self.controller_of(name, cluster)),
            Some(subject) => {
                let mut reports = self.object_reports_of(&subject, cluster);
                reports.retain(|report| name.is_empty() || report.controller == name);
                json(&serde_json::json!({ "reports": reports }))
            }
        }
    }
}

fn json(value: &impl Serialize) -> Response<Bytes> {
    match serde_json::to_vec_pretty(value) {
        Ok(body) => response::answer(StatusCode::OK, "application/json", body),
        Err(error) => response::plain(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

/// Returns the value of a query parameter.
fn parameter(query: &str, wanted: &str) -> Option<String> {
    let mut parameters = query.split('&').filter_map(|pair| pair.split_once('='));
    let (_, value) = parameters.find(|(name, _)| *name == wanted)?;
    Some(percent_decode_str(value).decode_utf8_lossy().into_owned())
}

/// Returns the object that the query parameters `object` and `kind` name, or `None` without `object`.
fn parse_subject(query: &str) -> Result<Option<Subject>, String> {
    let Some(object) = parameter(query, "object") else { return Ok(None) };
    let (namespace, name) = object.split_once('/').unwrap_or(("", &object));
    if name.is_empty() || name.contains('/') {
        return Err(format!("object={object}: want namespace/name, or name alone"));
    }
    let kind = parameter(query, "kind").unwrap_or_default();
    let (kind, group) = kind.split_once('.').unwrap_or((&kind, ""));
    Ok(Some(Subject::new(group, kind, namespace, name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_query_names_the_object() {
        let table = [
            ("", Ok(None)),
            ("verbose=1", Ok(None)),
            ("object=node-1", Ok(Some(Subject::new("", "", "", "node-1")))),
            ("object=a%2Fb", Ok(Some(Subject::new("", "", "a", "b")))),
            (
                "kind=Deployment.apps&object=default/web",
                Ok(Some(Subject::new("apps", "Deployment", "default", "web"))),
            ),
            ("object=a/b/c", Err(())),
            ("object=a/", Err(())),
        ];
        for (query, wanted) in table {
            assert_eq!(parse_subject(query).map_err(|_| ()), wanted, "?{query}");
        }
    }
}
