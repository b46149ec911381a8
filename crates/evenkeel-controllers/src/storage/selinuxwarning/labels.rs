//! SELinux labels of a pod's volume mounts. Upstream: `GetPodVolumeNames`, `ControllerSELinuxTranslator`.

use evenkeel_api::{
    DecodeError, Encoding, Kind, Meta, Text, View,
    views::{Metadata, Pod},
};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// SELinux fields of a pod. A second view of pods, because only this controller reads these fields, and it is off by
/// default.
#[derive(Debug)]
pub(super) struct PodLabels {
    meta: Meta,
    /// Labels of the containers that mount a volume, by the volume's name in the pod. Containers without SELinux options
    /// add no label.
    pub(super) mounts: BTreeMap<Text, BTreeSet<Text>>,
    /// `securityContext.seLinuxChangePolicy`; empty for the default.
    pub(super) change_policy: Text,
}

#[derive(Deserialize)]
struct RawPod {
    #[serde(default)]
    spec: RawSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawSpec {
    security_context: RawSecurityContext,
    init_containers: Vec<RawContainer>,
    containers: Vec<RawContainer>,
    ephemeral_containers: Vec<RawContainer>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawContainer {
    security_context: RawSecurityContext,
    volume_mounts: Vec<RawMount>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawSecurityContext {
    se_linux_options: Option<SeLinuxOptions>,
    se_linux_change_policy: String,
}

#[derive(Deserialize)]
struct RawMount {
    #[serde(default)]
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SeLinuxOptions {
    user: String,
    role: String,
    #[serde(rename = "type")]
    type_: String,
    level: String,
}

impl SeLinuxOptions {
    /// Returns the label `user:role:type:level`, without defaults of the nodes, or an empty label for empty options.
    /// Upstream: `SELinuxOptionsToFileLabel`.
    fn label(&self) -> Text {
        let Self { user, role, type_, level } = self;
        let label = format!("{user}:{role}:{type_}:{level}");
        if label == ":::" { Text::default() } else { label.into() }
    }
}

impl View for PodLabels {
    const PROTOBUF: bool = false;

    fn kind() -> Kind {
        Pod::kind()
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn decode(bytes: &[u8], encoding: Encoding) -> Result<Self, DecodeError> {
        let Metadata { meta } = Metadata::decode(bytes, encoding)?;
        let RawPod { spec } = serde_json::from_slice(bytes).map_err(|error| DecodeError {
            kind: "Pod".into(),
            field: ".".into(),
            reason: error.to_string().into(),
        })?;
        let mut mounts = BTreeMap::<Text, BTreeSet<Text>>::new();
        let pod_options = &spec.security_context.se_linux_options;
        let containers = [&spec.init_containers, &spec.containers, &spec.ephemeral_containers];
        for container in containers.into_iter().flatten() {
            let options = container.security_context.se_linux_options.as_ref();
            let label = options.or(pod_options.as_ref()).map(SeLinuxOptions::label);
            for mount in &container.volume_mounts {
                mounts.entry((&*mount.name).into()).or_default().extend(label.clone());
            }
        }
        let change_policy = spec.security_context.se_linux_change_policy.into();
        Ok(Self { meta, mounts, change_policy })
    }
}

/// Returns whether two labels conflict. An empty user, role or type matches any, because nodes have defaults for it;
/// the level must be equal. Upstream: `ConflictsParsed`.
pub(super) fn conflict(a: &str, b: &str) -> bool {
    const LEVEL: usize = 3;
    let part = |label: &str, index: usize| {
        label.splitn(LEVEL + 1, ':').nth(index).unwrap_or_default().to_owned()
    };
    (0..=LEVEL).any(|index| {
        let (a, b) = (part(a, index), part(b, index));
        a != b && (index == LEVEL || !a.is_empty() && !b.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::object;
    use serde_json::json;

    #[test]
    fn container_options_replace_those_of_the_pod() {
        let level = |level: &str| json!({"seLinuxOptions": {"level": level}});
        let mounts = json!([{"name": "data", "mountPath": "/data"}]);
        let pod: PodLabels = object(&json!({
            "metadata": {"name": "p"},
            "spec": {
                "securityContext": {"seLinuxOptions": {"level": "s0"}, "seLinuxChangePolicy": "Recursive"},
                "initContainers": [{"name": "i", "volumeMounts": mounts}],
                "containers": [
                    {"name": "a", "volumeMounts": mounts, "securityContext": level("s0:c1")},
                    {"name": "b", "volumeMounts": [{"name": "other"}], "securityContext": {"seLinuxOptions": {}}},
                ],
            },
        }));
        let labels = |name: &str| pod.mounts[name].iter().map(|label| &**label).collect::<Vec<_>>();
        assert_eq!(labels("data"), [":::s0", ":::s0:c1"]);
        assert_eq!(labels("other"), [""]);
        assert_eq!(&*pod.change_policy, "Recursive");
        let without: PodLabels = object(
            &json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "volumeMounts": mounts}]}}),
        );
        assert!(without.mounts["data"].is_empty());
    }

    #[test]
    fn empty_parts_but_the_level_match_any() {
        let table = [
            ("", "", false),
            ("u:r:t:s0", "u:r:t:s0", false),
            ("u:r:t:s0:c1,c2", ":::s0:c1,c2", false),
            ("u:r:t:s0:c1,c2", ":::s0:c98,c99", true),
            (":::s0:c1,c2", "", true),
            ("u:r:t:s0", "u:r:x:s0", true),
            ("u::t:s0", ":r::s0", false),
        ];
        for (a, b, want) in table {
            assert_eq!((conflict(a, b), conflict(b, a)), (want, want), "{a} {b}");
        }
    }
}
