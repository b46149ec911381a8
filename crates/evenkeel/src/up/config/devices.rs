//! Devices and images of simulated nodes, and the objects that publish them: ResourceSlices and DeviceClasses like those of a
//! DRA driver, and the images of a node's status.

use super::types::{Nodes, Quantity};
use crate::up::generated::marked;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of devices of a ResourceSlice.
const MAX_DEVICES_OF_SLICE: usize = 128;

/// Label, with the value `true`, of the ResourceSlices of simulated nodes.
pub(crate) const EQUIPMENT_LABEL: &str = "evenkeel.dev/equipment";

/// Devices of a driver that each node of a group has.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Devices {
    /// Name of the driver, such as `gpu.example.com`. The DeviceClass of this name selects all its devices.
    pub(crate) driver: String,
    /// Number of devices of each node. Default: 1.
    #[serde(default = "one")]
    pub(crate) count: u32,
    /// Name of the devices, which are NAME-0, NAME-1, …. Default: `device`.
    #[serde(default = "device")]
    pub(crate) name: String,
    /// Attributes of each device: a truth value, a whole number, a text, or `{version: 1.2.3}`.
    #[serde(default)]
    pub(crate) attributes: BTreeMap<String, Attribute>,
    /// Capacities of each device, such as `memory: 80Gi`.
    #[serde(default)]
    pub(crate) capacity: BTreeMap<String, Quantity>,
}

/// Value of a device's attribute.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Attribute {
    /// A truth value: `true` or `false`.
    Bool(bool),
    /// A whole number of 64 bits.
    Int(i64),
    /// A text without further meaning.
    Text(String),
    /// A semantic version, which selectors compare.
    Version {
        /// The version, such as `1.2.3`.
        version: String,
    },
}

fn one() -> u32 {
    1
}

fn device() -> String {
    "device".to_owned()
}

impl Attribute {
    fn value(&self) -> Value {
        match self {
            Self::Bool(value) => json!({ "bool": value }),
            Self::Int(value) => json!({ "int": value }),
            Self::Text(value) => json!({ "string": value }),
            Self::Version { version } => json!({ "version": version }),
        }
    }
}

impl Devices {
    /// Returns the devices in the form of a ResourceSlice. `names` counts the devices so far by name.
    fn devices<'a>(&'a self, names: &mut BTreeMap<&'a str, u32>) -> Vec<Value> {
        let attributes: Map<String, Value> =
            self.attributes.iter().map(|(name, value)| (name.clone(), value.value())).collect();
        let capacity: Map<String, Value> = self
            .capacity
            .iter()
            .map(|(name, amount)| (name.clone(), json!({ "value": amount.text() })))
            .collect();
        (0..self.count)
            .map(|_| {
                let index = names.entry(&self.name).or_default();
                let mut device = json!({ "name": format!("{}-{index}", self.name) });
                *index += 1;
                if !attributes.is_empty() {
                    device["attributes"] = attributes.clone().into();
                }
                if !capacity.is_empty() {
                    device["capacity"] = capacity.clone().into();
                }
                device
            })
            .collect()
    }
}

/// Devices and images of one node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Equipment {
    devices: Vec<Devices>,
    /// Images by name, with their sizes in bytes.
    images: Vec<(String, i64)>,
}

impl Equipment {
    /// Returns the equipment of each node by name. Nodes without any are left out.
    ///
    /// # Errors
    /// Fails if the size of an image is not a quantity, or a name of devices or drivers is empty.
    pub(crate) fn of(groups: &[Nodes]) -> Result<BTreeMap<String, Self>, String> {
        let mut equipment = BTreeMap::new();
        for (position, group) in groups.iter().enumerate() {
            if group
                .devices
                .iter()
                .any(|devices| devices.driver.is_empty() || devices.name.is_empty())
            {
                return Err(format!(
                    "nodes[{position}].devices: driver and name must not be empty"
                ));
            }
            let images = group.images.iter().map(|(name, size)| {
                let size = size.text();
                match evenkeel_api::quantity::Quantity::parse(&size) {
                    Ok(quantity) => Ok((name.clone(), quantity.value())),
                    Err(error) => {
                        Err(format!("nodes[{position}].images.{name}: {size:?}: {error}"))
                    }
                }
            });
            let of_node =
                Self { devices: group.devices.clone(), images: images.collect::<Result<_, _>>()? };
            if of_node != Self::default() {
                let names = (0..group.count).map(|index| format!("{}-{index}", group.name));
                equipment.extend(names.map(|name| (name, of_node.clone())));
            }
        }
        Ok(equipment)
    }

    /// Returns the classes of all drivers of some nodes.
    pub(crate) fn classes<'a>(of_nodes: impl Iterator<Item = &'a Self>) -> Vec<Value> {
        let drivers: BTreeSet<&str> =
            of_nodes.flat_map(|node| &node.devices).map(|devices| &*devices.driver).collect();
        drivers
            .into_iter()
            .map(|driver| {
                let expression = format!("device.driver == '{driver}'");
                json!({
                    "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": driver},
                    "spec": {"selectors": [{"cel": {"expression": expression}}]},
                })
            })
            .collect()
    }

    /// Returns the ResourceSlices of a node with this uid: those of each driver are one pool, of the node's name.
    pub(crate) fn slices(&self, node: &str, uid: &str) -> Vec<Value> {
        let mut of_driver: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
        let mut names: BTreeMap<&str, BTreeMap<&str, u32>> = BTreeMap::new();
        for devices in &self.devices {
            let counted = names.entry(&devices.driver).or_default();
            of_driver.entry(&devices.driver).or_default().extend(devices.devices(counted));
        }
        let mut slices = Vec::new();
        for (driver, devices) in of_driver {
            let chunks: Vec<&[Value]> = devices.chunks(MAX_DEVICES_OF_SLICE).collect();
            for (index, chunk) in chunks.iter().enumerate() {
                slices.push(marked(json!({
                    "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
                    "metadata": {
                        "name": format!("{node}-{driver}-{index}"),
                        // A later start uses this label to find slices that its configuration lacks.
                        "labels": {EQUIPMENT_LABEL: "true"},
                        // Like the slices of real drivers, they are deleted with the node.
                        "ownerReferences": [
                            {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid, "controller": true},
                        ],
                    },
                    "spec": {
                        "driver": driver, "nodeName": node, "devices": chunk,
                        "pool": {"name": node, "generation": 1, "resourceSliceCount": chunks.len()},
                    },
                })));
            }
        }
        slices
    }

    /// Returns the merge patch of a node's status with its images, largest first as the kubelet reports them.
    pub(crate) fn images_patch(&self) -> Option<Value> {
        let mut images = self.images.clone();
        images.sort_by_key(|(_, size)| std::cmp::Reverse(*size));
        let images: Vec<Value> = images
            .into_iter()
            .map(|(name, size)| json!({ "names": [name], "sizeBytes": size }))
            .collect();
        (!images.is_empty()).then(|| json!({ "status": { "images": images } }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::up::config::read;

    fn groups(text: &str) -> Vec<Nodes> {
        let head = "apiVersion: evenkeel.dev/v1alpha1\nkind: Cluster\n";
        read("f", &format!("{head}{text}")).expect("a configuration").nodes.expect("nodes")
    }

    #[test]
    fn the_devices_of_a_driver_are_a_pool_of_the_node() {
        let text = "nodes:\n- name: gpu\n  count: 2\n  devices:\n  - {driver: gpu.example.com, name: gpu, count: 2, attributes: \
            {model: a100, index: 1, ecc: true, firmware: {version: 1.2.3}}, capacity: {memory: 80Gi, slots: 7}}\n  - {driver: \
            gpu.example.com, name: gpu}\n  - {driver: nic.example.com}\n- name: plain\n";
        let equipment = Equipment::of(&groups(text)).expect("valid");
        assert_eq!(equipment.keys().collect::<Vec<_>>(), ["gpu-0", "gpu-1"]);
        let classes = Equipment::classes(equipment.values());
        assert_eq!(classes.len(), 2);
        assert_eq!(
            classes[0]["spec"]["selectors"][0]["cel"]["expression"],
            "device.driver == 'gpu.example.com'"
        );
        let slices = equipment["gpu-1"].slices("gpu-1", "u");
        assert_eq!(slices.len(), 2);
        let spec = &slices[0]["spec"];
        assert_eq!((&spec["nodeName"], &spec["pool"]["name"]), (&json!("gpu-1"), &json!("gpu-1")));
        assert_eq!(slices[0]["metadata"]["ownerReferences"][0]["uid"], "u");
        assert_eq!(slices[0]["metadata"]["labels"], json!({"evenkeel.dev/equipment": "true"}));
        assert_eq!(
            spec["devices"][1],
            json!({
                "name": "gpu-1",
                "attributes": {"model": {"string": "a100"}, "index": {"int": 1}, "ecc": {"bool": true},
                    "firmware": {"version": "1.2.3"}},
                "capacity": {"memory": {"value": "80Gi"}, "slots": {"value": "7"}},
            })
        );
        assert_eq!(spec["devices"][2], json!({"name": "gpu-2"}), "names go on");
        assert_eq!(slices[1]["spec"]["devices"], json!([{"name": "device-0"}]));
    }

    #[test]
    fn many_devices_are_several_slices_of_one_pool() {
        let equipment =
            Equipment::of(&groups("nodes: [{name: n, devices: [{driver: d, count: 130}]}]\n"));
        let slices = equipment.expect("valid")["n-0"].slices("n-0", "u");
        let sizes: Vec<_> =
            slices.iter().map(|slice| slice["spec"]["devices"].as_array().map(Vec::len)).collect();
        assert_eq!(sizes, [Some(128), Some(2)]);
        assert_eq!(slices[1]["spec"]["pool"]["resourceSliceCount"], 2);
        assert_eq!(slices[1]["metadata"]["name"], "n-0-d-1");
    }

    #[test]
    fn images_are_listed_by_size() {
        let equipment =
            Equipment::of(&groups("nodes: [{name: n, images: {nginx:1.27: 70Mi, big: 5Gi}}]\n"));
        let patch = equipment.expect("valid")["n-0"].images_patch().expect("images");
        assert_eq!(
            patch,
            json!({"status": {"images": [
                {"names": ["big"], "sizeBytes": 5_368_709_120_i64},
                {"names": ["nginx:1.27"], "sizeBytes": 73_400_320},
            ]}})
        );
        assert_eq!(Equipment::default().images_patch(), None);
        let refused = Equipment::of(&groups("nodes: [{name: n, images: {a: big}}]\n"));
        assert!(refused.expect_err("no size").starts_with("nodes[0].images.a: \"big\""));
    }
}
