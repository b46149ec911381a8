//! Content negotiation of responses: parses the `Accept` header as the API machinery does.

use super::headers::text;
use http::{HeaderMap, header};
use std::collections::BTreeMap;

/// Media range that a client accepts.
#[derive(Debug, Clone, PartialEq)]
pub struct Clause {
    /// Type, such as `application` in `application/json`. `*` matches any.
    pub main: String,
    /// Subtype, such as `json` in `application/json`. `*` matches any.
    pub sub: String,
    /// Parameters, without `q`.
    pub parameters: BTreeMap<String, String>,
    /// The parameter `q`, by default 1. Higher is preferred.
    weight: f64,
}

impl Clause {
    /// Returns whether the range includes `main/sub`.
    pub fn covers(&self, main: &str, sub: &str) -> bool {
        (self.main == "*" && self.sub == "*")
            || (self.main == main && (self.sub == "*" || self.sub == sub))
    }
}

/// Returns the media ranges of `Accept`, most preferred first.
pub fn clauses(headers: &HeaderMap) -> Vec<Clause> {
    let accept = headers.get(header::ACCEPT).and_then(text).unwrap_or_default();
    let mut clauses: Vec<Clause> = accept.split(',').filter_map(parse_clause).collect();
    let is_wildcard = |clause: &Clause| (clause.main == "*", clause.sub == "*");
    clauses.sort_by(|a, b| {
        b.weight.total_cmp(&a.weight).then_with(|| is_wildcard(a).cmp(&is_wildcard(b)))
    });
    clauses
}

/// Parses a media range with its parameters, such as `application/json;q=0.5`.
fn parse_clause(text: &str) -> Option<Clause> {
    let mut parts = text.split(';').map(str::trim);
    let kind = parts.next().filter(|kind| !kind.is_empty())?;
    let (main, sub) = match kind.split_once('/') {
        Some((main, sub)) => (main.trim(), sub.trim()),
        None if kind == "*" => ("*", "*"),
        None => return None,
    };
    let pairs = parts.filter_map(|part| part.split_once('='));
    let mut parameters: BTreeMap<String, String> =
        pairs.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned())).collect();
    let weight = parameters.remove("q").and_then(|q| q.parse().ok()).unwrap_or(1.0);
    Some(Clause { main: main.to_owned(), sub: sub.to_owned(), parameters, weight })
}

/// Encoding of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// JSON, optionally indented.
    Json {
        /// Whether the JSON is indented for people.
        pretty: bool,
    },
    /// The media type `application/yaml`.
    Yaml,
}

impl Format {
    /// Returns the media type without parameters.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Json { .. } => "application/json",
            Self::Yaml => "application/yaml",
        }
    }

    /// Encodes the object.
    pub fn write(self, object: &impl serde::Serialize) -> Result<String, String> {
        let json = match self {
            Self::Json { pretty: true } => serde_json::to_string_pretty(object),
            Self::Json { pretty: false } => serde_json::to_string(object).map(|json| json + "\n"),
            Self::Yaml => {
                // Convert to a tree first, which sorts the fields.
                let tree = serde_json::to_value(object).map_err(|error| error.to_string())?;
                return serde_saphyr::to_string(&tree).map_err(|error| error.to_string());
            }
        };
        // Escape these characters as Go does, so that a browser never interprets them as markup. They only
        // occur in strings.
        let escaped = |json: String| {
            json.replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e")
        };
        json.map(escaped).map_err(|error| error.to_string())
    }
}

/// Returns the encoding of errors: one that the client accepts, or else indented JSON.
pub fn for_errors(headers: &HeaderMap, query: &str) -> Format {
    let json = Format::Json { pretty: wants_pretty(headers, query) };
    let formats = [("json", json), ("yaml", Format::Yaml)];
    // A media range with one of these parameters requests an object of another type, such as a Table.
    let accepts_status = |clause: &&Clause| {
        !["as", "g", "v"].iter().any(|name| clause.parameters.contains_key(*name))
    };
    let accepted = clauses(headers);
    for clause in accepted.iter().filter(accepts_status) {
        let covered = formats.iter().find(|(sub, _)| clause.covers("application", sub));
        if let Some((_, format)) = covered {
            return *format;
        }
    }
    if accepted.is_empty() { json } else { Format::Json { pretty: true } }
}

/// Returns whether to indent the response for a person: when the query requests it, or for browsers and the
/// usual tools.
pub fn wants_pretty(headers: &HeaderMap, query: &str) -> bool {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let requested = pairs.find(|(name, value)| *name == "pretty" && !value.is_empty());
    if let Some((_, value)) = requested {
        return matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True");
    }
    let agent = headers.get(header::USER_AGENT).and_then(text);
    let for_people = ["curl", "Wget", "Mozilla/5.0"];
    agent.is_some_and(|agent| for_people.iter().any(|tool| agent.starts_with(tool)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(accept: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, accept.parse().unwrap());
        headers
    }

    #[test]
    fn clauses_are_in_order_of_preference() {
        let names = |accept: &str| -> Vec<String> {
            clauses(&headers(accept)).iter().map(|c| format!("{}/{}", c.main, c.sub)).collect()
        };
        assert_eq!(names("*/*, text/*;q=1, text/plain"), ["text/plain", "text/*", "*/*"]);
        assert_eq!(names("a/b;q=0.2, c/d;q=0.5,e/f"), ["e/f", "c/d", "a/b"]);
        assert_eq!(names(" , nonsense, *"), ["*/*"]);
        let parameters = &clauses(&headers("application/json; as=Flagz;q=0.3"))[0].parameters;
        assert_eq!(parameters["as"], "Flagz");
        assert_eq!(parameters.len(), 1);
    }

    #[test]
    fn errors_are_json_unless_yaml_is_preferred() {
        let (json, people) = (Format::Json { pretty: false }, Format::Json { pretty: true });
        let table = [
            ("application/yaml", Format::Yaml),
            ("application/json", json),
            ("text/html", people),
            ("text/html, */*;q=0.1", json),
            ("application/vnd.kubernetes.protobuf, application/yaml", Format::Yaml),
            ("application/yaml;as=Table;g=meta.k8s.io;v=v1", people),
            ("", json),
        ];
        for (accept, expected) in table {
            assert_eq!(for_errors(&headers(accept), ""), expected, "{accept}");
        }
    }

    #[test]
    fn browsers_and_curl_get_indented_json() {
        let agent = |name: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::USER_AGENT, name.parse().unwrap());
            headers
        };
        let table = [
            ("curl/8", "", true),
            ("Mozilla/5.0 (X11)", "", true),
            ("Mozilla/5", "", false),
            ("kubectl/v1.37", "", false),
            ("kubectl/v1.37", "pretty=true", true),
            ("curl/8", "a=b&pretty=0", false),
        ];
        for (name, query, expected) in table {
            assert_eq!(wants_pretty(&agent(name), query), expected, "{name} ?{query}");
        }
    }
}
