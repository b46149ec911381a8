//! ControllerRevision data: a patch that restores a workload's pod template.

use std::sync::Arc;

use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::Template;
use crate::decode::{Field, Reader, Shape, Wire, WireError};

const MESSAGE: &str = "k8s.io.api.core.v1.PodTemplateSpec";

impl Template {
    /// The patch that restores it (`spec.template`, to be replaced whole), byte for byte as upstream's `getPatch` writes
    /// it: in the form of Go's encoder, with sorted keys. Names of revisions are hashes of this text.
    pub fn patch_json(&self) -> String {
        let given: Value = serde_json::from_str(&self.to_json()).unwrap_or_default();
        let as_go = crate::protobuf::from_json(MESSAGE, &given)
            .and_then(|bytes| crate::protobuf::to_json(MESSAGE, &bytes));
        // What Go's types cannot hold no server of this release lets in.
        let mut template = as_go.unwrap_or(given);
        template["$patch"] = "replace".into();
        escaped(&json!({ "spec": { "template": template } }).to_string())
    }
}

/// Go's encoder escapes in texts what HTML gives a meaning, and two separators of lines.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => escaped.push_str("\\u003c"),
            '>' => escaped.push_str("\\u003e"),
            '&' => escaped.push_str("\\u0026"),
            '\u{2028}' => escaped.push_str("\\u2028"),
            '\u{2029}' => escaped.push_str("\\u2029"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// The template in a ControllerRevision; `None` where it holds other data.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Restored(pub Option<Arc<Template>>);

impl Restored {
    fn of(patch: &Value) -> Self {
        let template = patch.pointer("/spec/template").filter(|template| template.is_object());
        Self(template.map(|template| Arc::new(Template::from_json_value(template))))
    }

    /// Whether it restores just this template. Not the texts are compared but what they mean, so that a revision written
    /// by any release or program counts.
    pub fn is(&self, template: &Template) -> bool {
        self.0.as_deref().is_some_and(|restored| restored == template)
    }
}

impl Field for Restored {
    const SHAPE: Shape = Shape::Named("k8s.io.apimachinery.pkg.runtime.RawExtension");
    /// The message `RawExtension`, whose one field is JSON.
    type Partial = (Self, Vec<u8>);

    fn absent() -> Self {
        Self::default()
    }

    fn from_json<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(|patch| Self::of(&patch))
    }

    fn open(self) -> Self::Partial {
        (self, Vec::new())
    }

    fn merge(
        (_, raw): &mut Self::Partial,
        wire: Wire,
        reader: &mut Reader<'_>,
    ) -> Result<(), WireError> {
        let mut body = Reader::new(reader.expect_bytes(wire)?);
        while let Some((number, wire)) = body.tag()? {
            match number {
                1 => *raw = body.expect_bytes(wire)?.to_vec(),
                _ => body.skip(number, wire)?,
            }
        }
        Ok(())
    }

    fn close((earlier, raw): Self::Partial) -> Result<Self, WireError> {
        if raw.is_empty() {
            return Ok(earlier);
        }
        // Anything may stand in a revision; what is no JSON restores nothing.
        Ok(crate::json::from_slice(&raw).map_or_else(|_| Self::default(), |patch| Self::of(&patch)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(value: &Value) -> Template {
        Template::from_json_value(value)
    }

    #[test]
    fn the_patch_is_what_go_would_write() {
        let pod = template(&json!({
            "metadata": { "labels": { "app": "db" } },
            "spec": {
                "containers": [{ "name": "c", "image": "i", "args": ["a<b>&c"],
                    "readinessProbe": { "httpGet": { "path": "/", "port": "http" } },
                    "env": [{ "name": "CPU", "valueFrom": { "resourceFieldRef": { "resource": "limits.cpu" } } }] }],
                "terminationGracePeriodSeconds": 10,
            },
        }));
        assert_eq!(
            pod.patch_json(),
            concat!(
                r#"{"spec":{"template":{"$patch":"replace","metadata":{"labels":{"app":"db"}},"#,
                r#""spec":{"containers":[{"args":["a\u003cb\u003e\u0026c"],"#,
                r#""env":[{"name":"CPU","valueFrom":{"resourceFieldRef":{"divisor":"0","resource":"limits.cpu"}}}],"#,
                r#""image":"i","name":"c","readinessProbe":{"httpGet":{"path":"/","port":"http"}},"resources":{}}],"#,
                r#""terminationGracePeriodSeconds":10}}}}"#,
            )
        );
    }

    #[test]
    fn a_patch_restores_its_template() {
        let pod = template(&json!({
            "metadata": { "labels": { "a": "b" }, "annotations": { "c": "d" } },
            "spec": { "containers": [{ "name": "c", "resources": { "limits": { "cpu": "1000m" } } }] },
        }));
        let patch: Value = serde_json::from_str(&pod.patch_json()).unwrap();
        assert!(Restored::of(&patch).is(&pod));
        assert!(!Restored::of(&patch).is(&pod.with_label("e", "f")));
        for other in
            [json!(null), json!([1]), json!({ "spec": {} }), json!({ "spec": { "template": 3 } })]
        {
            assert_eq!(Restored::of(&other), Restored::default());
        }
    }
}
