//! Options of connections, such as `PodExecOptions`, from the URL. Admission plug-ins get them and may change them.

use evenkeel_apimachinery::value::is_blank;
use serde_json::{Value, json};

use crate::request::{Query, RequestContext};

/// Returns the options object of a request for `exec`, `attach`, `portforward` or `proxy`.
///
/// Upstream: `NewConnectOptions`, `getRequestOptions`.
pub(super) fn of(request: &RequestContext<'_>) -> Value {
    let kind = request.kind();
    let path = super::proxy::behind_proxy(request.uri.path());
    let mut options = fields(request.target.subresource, request.query, &path);
    options["kind"] = Value::from(&*kind.kind);
    options["apiVersion"] = Value::from(kind.api_version());
    options
}

/// Returns the fields of the options. As in upstream, `command` is never omitted, and other empty fields are. `path` is
/// the path of a proxied request.
fn fields(subresource: &str, query: &Query, path: &str) -> Value {
    let mut fields = match subresource {
        "exec" | "attach" => json!({
            "stdin": query.flag("stdin"), "stdout": query.flag("stdout"),
            "stderr": query.flag("stderr"), "tty": query.flag("tty"),
            "container": query.get("container"),
        }),
        "portforward" => {
            let ports = query.all("ports").filter_map(|port| port.parse::<i32>().ok());
            json!({ "ports": ports.collect::<Vec<i32>>() })
        }
        _ => json!({ "path": path }),
    };
    if let Some(fields) = fields.as_object_mut() {
        fields.retain(|_, value| !is_blank(value) && *value != false);
    }
    if subresource == "exec" {
        fields["command"] = query.all("command").collect();
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_become_fields() {
        for (subresource, query, expected) in [
            (
                "exec",
                "command=sh&command=-c&command=a%20b&stdout=true&stdin=1&tty=false&container=c",
                json!({"command": ["sh", "-c", "a b"], "stdout": true, "stdin": true, "container": "c"}),
            ),
            ("exec", "", json!({"command": []})),
            ("attach", "stderr&command=x", json!({"stderr": true})),
            ("portforward", "ports=80&ports=443&ports=x", json!({"ports": [80, 443]})),
            ("proxy", "path=/b", json!({"path": "/a"})),
        ] {
            assert_eq!(fields(subresource, &Query::parse(Some(query)), "/a"), expected, "{query}");
        }
    }
}
