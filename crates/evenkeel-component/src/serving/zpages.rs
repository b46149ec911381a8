//! `/flagz` and `/statusz`: text for people, and objects of `config.k8s.io` for programs that request them
//! (KEPs 4827 and 4828).

use crate::secure_serving::{
    self,
    negotiate::{Clause, Format, clauses, wants_pretty},
    status,
};
use bytes::Bytes;
use evenkeel_api::time::Timestamp;
use evenkeel_runtime::clock::Clock;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

const GROUP: &str = "config.k8s.io";
/// Served versions of the objects.
const VERSIONS: [ObjectVersion; 2] = [
    ObjectVersion { name: "v1alpha1", deprecated: true },
    ObjectVersion { name: "v1beta1", deprecated: false },
];

/// Version of the API group in which an object is served.
#[derive(Debug, Clone, Copy, PartialEq)]
struct ObjectVersion {
    name: &'static str,
    /// Whether responses carry a deprecation warning.
    deprecated: bool,
}

/// Page that is available as text and as an object.
pub(super) trait Structured: Send + Sync {
    /// Returns the kind of the object.
    fn kind(&self) -> &'static str;
    /// Returns the name of the program.
    fn name(&self) -> &str;
    /// Returns the text without its heading.
    fn text(&self) -> String;
    /// Returns the object's own fields.
    fn fields(&self) -> Vec<(&'static str, Value)>;
}

/// Versions and start time of the program, for `/statusz`.
#[derive(Debug, Clone)]
pub struct ComponentInfo {
    /// Release whose behavior the program has, such as `1.37.1`.
    pub version: String,
    /// Release that the program emulates, such as `1.37`.
    pub emulated: String,
    /// Start time of the program.
    pub started: Timestamp,
    /// The program's clock.
    pub clock: Clock,
}

/// Page `/flagz`: the values of the program's flags.
pub(super) struct Flagz {
    program: String,
    flags: BTreeMap<String, String>,
}

pub(super) fn flagz(program: &str, flags: BTreeMap<String, String>) -> Flagz {
    Flagz { program: program.to_owned(), flags }
}

impl Structured for Flagz {
    fn kind(&self) -> &'static str {
        "Flagz"
    }

    fn name(&self) -> &str {
        &self.program
    }

    fn text(&self) -> String {
        self.flags.iter().map(|(name, value)| format!("{name}={value}\n")).collect()
    }

    fn fields(&self) -> Vec<(&'static str, Value)> {
        vec![("flags", json!(self.flags))]
    }
}

/// Page `/statusz`: version, uptime and paths of the program.
pub(super) struct Statusz {
    program: String,
    component: ComponentInfo,
    pub(super) paths: Vec<String>,
}

pub(super) fn statusz(program: &str, component: ComponentInfo) -> Statusz {
    Statusz { program: program.to_owned(), component, paths: Vec::new() }
}

impl Statusz {
    fn uptime_seconds(&self) -> i64 {
        let ComponentInfo { started, clock, .. } = &self.component;
        clock.now().duration_since(*started).as_secs().max(0)
    }
}

impl Structured for Statusz {
    fn kind(&self) -> &'static str {
        "Statusz"
    }

    fn name(&self) -> &str {
        &self.program
    }

    fn text(&self) -> String {
        let ComponentInfo { version, emulated, started, .. } = &self.component;
        let started = started.strftime("%a %b %e %H:%M:%S UTC %Y");
        let uptime = self.uptime_seconds();
        let (hours, minutes, seconds) = (uptime / 3600, uptime / 60 % 60, uptime % 60);
        let paths = self.paths.join(" ");
        format!(
            "\nStarted: {started}\nUp: {hours} hr {minutes:02} min {seconds:02} sec\nBinary version: {version}\nEmulation \
             version: {emulated}\nPaths: {paths}\n"
        )
    }

    fn fields(&self) -> Vec<(&'static str, Value)> {
        let ComponentInfo { version, emulated, started, .. } = &self.component;
        vec![
            ("startTime", json!(evenkeel_api::time::seconds(*started))),
            ("uptimeSeconds", json!(self.uptime_seconds())),
            // The field is required, although this program does not use Go.
            ("goVersion", json!("")),
            ("binaryVersion", json!(version)),
            ("emulationVersion", json!(emulated)),
            ("paths", json!(self.paths)),
        ]
    }
}

/// Form of a page that a client accepts.
#[derive(Debug, PartialEq)]
enum PageForm {
    Text,
    Object { format: Format, version: ObjectVersion },
}

/// Returns the format for a request, or `None` if the client accepts none. Without `Accept`, it is text.
fn accepted_form(headers: &HeaderMap, query: &str, kind: &str) -> Option<PageForm> {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    if accept.unwrap_or_default().trim().is_empty() {
        return Some(PageForm::Text);
    }
    clauses(headers).iter().find_map(|clause| form_of_clause(clause, headers, query, kind))
}

/// Returns the form that one media range of `Accept` selects. The order of the checks is that of upstream's
/// serializers.
fn form_of_clause(
    clause: &Clause,
    headers: &HeaderMap,
    query: &str,
    kind: &str,
) -> Option<PageForm> {
    if let Some(version) = accepted_version(clause, kind) {
        if clause.covers("application", "json") {
            let indent = clause.parameters.get("pretty").is_some_and(|value| value == "1");
            let format = Format::Json { pretty: indent || wants_pretty(headers, query) };
            return Some(PageForm::Object { format, version });
        }
        if clause.covers("application", "yaml") {
            return Some(PageForm::Object { format: Format::Yaml, version });
        }
    }
    (clause.covers("text", "plain") && !names_object_type(clause)).then_some(PageForm::Text)
}

/// Returns the version of the object that a media range requests with the parameters `g`, `v` and `as`.
fn accepted_version(clause: &Clause, kind: &str) -> Option<ObjectVersion> {
    let has = |name: &str, value: &str| clause.parameters.get(name).is_some_and(|v| v == value);
    let version = VERSIONS.into_iter().find(|version| has("v", version.name))?;
    (has("g", GROUP) && has("as", kind)).then_some(version)
}

/// Returns whether a media range names the type of an object, which text does not have.
fn names_object_type(clause: &Clause) -> bool {
    ["as", "g", "v"].iter().any(|name| clause.parameters.contains_key(*name))
}

/// Returns the response with the page in the format that the client accepts.
pub(super) fn answer(page: &dyn Structured, request: &Request<Bytes>) -> Response<Bytes> {
    let query = request.uri().query().unwrap_or_default();
    match accepted_form(request.headers(), query, page.kind()) {
        None => {
            let (parts, ()) = request.clone().map(drop).into_parts();
            let text = "only the following media types are accepted: application/json, application/yaml, text/plain";
            status(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", text, &parts)
        }
        Some(PageForm::Text) => {
            let kind = page.kind().to_lowercase();
            let text = format!(
                "\n{} {kind}\nWarning: This endpoint is not meant to be machine parseable, has no formatting compatibility \
                 guarantees and is for debugging purposes only.\n{}",
                page.name(),
                page.text()
            );
            secure_serving::answer(StatusCode::OK, "text/plain; charset=utf-8", text)
        }
        Some(PageForm::Object { format, version }) => object_response(page, format, version),
    }
}

/// Returns the page as an object of this version.
fn object_response(
    page: &dyn Structured,
    format: Format,
    version: ObjectVersion,
) -> Response<Bytes> {
    let ObjectVersion { name: version, deprecated } = version;
    let kind = page.kind();
    let mut object = Map::new();
    object.insert("kind".to_owned(), json!(kind));
    object.insert("apiVersion".to_owned(), json!(format!("{GROUP}/{version}")));
    object.insert("metadata".to_owned(), json!({"name": page.name()}));
    object.extend(page.fields().into_iter().map(|(name, value)| (name.to_owned(), value)));
    let body = match format.write(&object) {
        Ok(body) => body,
        Err(error) => return secure_serving::plain(StatusCode::INTERNAL_SERVER_ERROR, &error),
    };
    let media_type = format!("{};g={GROUP};v={version};as={kind}", format.media_type());
    let mut response = secure_serving::answer(StatusCode::OK, &media_type, body);
    if deprecated {
        let page = kind.to_lowercase();
        let warning = format!(
            "299 - \"This version of the {page} endpoint is deprecated. Please use a newer version.\""
        );
        if let Ok(warning) = HeaderValue::from_str(&warning) {
            response.headers_mut().insert(header::WARNING, warning);
        }
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> Statusz {
        let started: Timestamp = "2026-11-01T12:41:21.5Z".parse().unwrap();
        let component = ComponentInfo {
            version: "1.37.1".to_owned(),
            emulated: "1.37".to_owned(),
            started,
            clock: Clock::starting_at("2026-11-01T13:43:25Z".parse().unwrap()),
        };
        let mut page = statusz("kube-controller-manager", component);
        page.paths = vec!["/configz".to_owned(), "/metrics".to_owned()];
        page
    }

    fn get(accept: &str, agent: &str) -> Response<Bytes> {
        let request = Request::get("/statusz").header("accept", accept).header("user-agent", agent);
        answer(&page(), &request.body(Bytes::new()).unwrap())
    }

    fn text(response: &Response<Bytes>) -> String {
        String::from_utf8(response.body().to_vec()).unwrap()
    }

    const OBJECT: &str = "g=config.k8s.io;as=Statusz";

    #[tokio::test(start_paused = true)]
    async fn text_is_for_people() {
        let expected = "\nkube-controller-manager statusz\nWarning: This endpoint is not meant to be machine \
                        parseable, has no formatting compatibility guarantees and is for debugging purposes only.\n\n\
                        Started: Sun Nov  1 12:41:21 UTC 2026\nUp: 1 hr 02 min 03 sec\nBinary version: 1.37.1\n\
                        Emulation version: 1.37\nPaths: /configz /metrics\n";
        for accept in ["", " ", "*/*", "text/plain", "text/*", "application/json, text/plain;q=0.1"]
        {
            let response = get(accept, "");
            assert_eq!(text(&response), expected, "{accept}");
            assert_eq!(response.headers()["content-type"], "text/plain; charset=utf-8");
        }
        let unknown = format!("application/json;v=v9;{OBJECT},text/plain");
        assert_eq!(text(&get(&unknown, "")), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn objects_are_for_clients_that_request_them() {
        let deprecated = get(&format!("application/json;v=v1alpha1;{OBJECT}"), "curl/8");
        assert_eq!(
            deprecated.headers()["content-type"],
            "application/json;g=config.k8s.io;v=v1alpha1;as=Statusz"
        );
        assert_eq!(
            deprecated.headers()["warning"],
            "299 - \"This version of the statusz endpoint is deprecated. Please use a newer version.\""
        );
        let object: Value = serde_json::from_str(&text(&deprecated)).unwrap();
        assert_eq!(
            object,
            json!({
                "kind": "Statusz", "apiVersion": "config.k8s.io/v1alpha1",
                "metadata": {"name": "kube-controller-manager"}, "startTime": "2026-11-01T12:41:21Z",
                "uptimeSeconds": 3723, "goVersion": "", "binaryVersion": "1.37.1", "emulationVersion": "1.37",
                "paths": ["/configz", "/metrics"],
            })
        );
        let new = get(&format!("application/yaml;v=v1beta1;{OBJECT}"), "");
        assert!(!new.headers().contains_key("warning"));
        assert!(text(&new).contains("apiVersion: config.k8s.io/v1beta1\n"), "{}", text(&new));
    }

    #[tokio::test(start_paused = true)]
    async fn unknown_formats_are_not_acceptable() {
        let proto = "application/vnd.kubernetes.protobuf".to_owned();
        let flagz = "application/json;v=v1beta1;g=config.k8s.io;as=Flagz".to_owned();
        let table = [
            "application/json".to_owned(),
            "text/html".to_owned(),
            format!("application/json;v=v9;{OBJECT}"),
            format!("text/plain;v=v1beta1;{OBJECT}"),
            proto,
            flagz,
        ];
        for accept in table {
            let response = get(&accept, "");
            assert_eq!(response.status(), 406, "{accept}");
            let status: Value = serde_json::from_str(&text(&response)).unwrap();
            assert_eq!(status["reason"], "NotAcceptable");
            assert_eq!(status["code"], 406);
        }
    }

    #[test]
    fn flags_are_shown_in_both_forms() {
        let flags = [("v", "2"), ("profiling", "true")];
        let flags = flags.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let page = flagz("kube-scheduler", flags.into());
        assert_eq!(page.text(), "profiling=true\nv=2\n");
        assert_eq!(page.fields(), [("flags", json!({"profiling": "true", "v": "2"}))]);
    }
}
