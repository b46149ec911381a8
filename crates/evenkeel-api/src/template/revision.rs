//! ControllerRevision data: a patch that restores a workload's pod template.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Template;
use crate::decode::{Field, FromJson, Reader, Shape, Slot, Wire, WireError};
use crate::quote::escape_html;

const MESSAGE: &str = "k8s.io.api.core.v1.PodTemplateSpec";

impl Template {
    /// Returns the patch that replaces `spec.template` with this template. The JSON equals the output of Go's encoder
    /// byte for byte, with sorted keys, because names of revisions are hashes of it.
    ///
    /// Upstream: `getPatch`.
    pub fn patch_json(&self) -> String {
        let json: Value = serde_json::from_str(&self.to_json()).unwrap_or_default();
        // The conversion through protobuf adds the zero values that Go's encoder writes.
        let json_of_go = crate::protobuf::from_json(MESSAGE, &json)
            .and_then(|bytes| crate::protobuf::to_json(MESSAGE, &bytes));
        // It only fails for a template that does not fit Go's types, which no API server of this release sends.
        let mut template = json_of_go.unwrap_or(json);
        template["$patch"] = "replace".into();
        escape_html(json!({ "spec": { "template": template } }).to_string())
    }
}

/// Pod template in the data of a ControllerRevision; `None` if the data has no template.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RevisionTemplate(pub Option<Arc<Template>>);

impl RevisionTemplate {
    fn of(patch: &Value) -> Self {
        let template = patch.pointer("/spec/template").filter(|template| template.is_object());
        Self(template.map(|template| Arc::new(Template::from_json_value(template))))
    }

    /// Returns whether the revision has this template. Compares decoded values and not the JSON, so that revisions of
    /// other releases or programs match.
    ///
    /// Upstream: `EqualRevision`.
    pub fn matches_template(&self, template: &Template) -> bool {
        self.0.as_deref().is_some_and(|own| own == template)
    }
}

impl FromJson for RevisionTemplate {
    fn set_json(&mut self, value: &Value) {
        *self = Self::of(value);
    }
}

impl Field for RevisionTemplate {
    const SHAPE: Shape = Shape::Named("k8s.io.apimachinery.pkg.runtime.RawExtension");
    /// The value of an earlier part, and the last bytes of the only field of a `RawExtension`, which is JSON.
    type Partial = (Self, Vec<u8>);

    fn absent() -> Self {
        Self::default()
    }

    fn slot(&mut self) -> Slot<'_> {
        Slot::Any(self)
    }

    fn into_partial(self) -> Self::Partial {
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

    fn finish((earlier, raw): Self::Partial) -> Result<Self, WireError> {
        if raw.is_empty() {
            return Ok(earlier);
        }
        // The data of a revision can be any bytes. Data that is not JSON has no template.
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
    fn patch_equals_the_output_of_go() {
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
    fn patch_restores_its_template() {
        let pod = template(&json!({
            "metadata": { "labels": { "a": "b" }, "annotations": { "c": "d" } },
            "spec": { "containers": [{ "name": "c", "resources": { "limits": { "cpu": "1000m" } } }] },
        }));
        let patch: Value = serde_json::from_str(&pod.patch_json()).unwrap();
        assert!(RevisionTemplate::of(&patch).matches_template(&pod));
        assert!(!RevisionTemplate::of(&patch).matches_template(&pod.with_label("e", "f")));
        for other in
            [json!(null), json!([1]), json!({ "spec": {} }), json!({ "spec": { "template": 3 } })]
        {
            assert_eq!(RevisionTemplate::of(&other), RevisionTemplate::default());
        }
    }
}
