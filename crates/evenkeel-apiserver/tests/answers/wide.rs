//! Wider changes: whole values of fields that an example lacks, generated from the schemas.
//!
//! A mutation of an example reaches one level below its values. Here an absent field gets a value with fields of its
//! own, most of them plausible. Often, a second change follows inside that value.

use rand::Rng as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use serde_json::{Map, Value, json};

use crate::mutate::{Change, Mutation};
use crate::schema::{Schemas, Site, type_of};

/// Maximum depth of a generated value.
const DEPTH: usize = 5;

/// Changes of an object that fill an absent field, and then change the new value.
pub(crate) fn filled(
    object: &Value,
    schema: &Value,
    schemas: &Schemas,
    rng: &mut StdRng,
) -> Vec<Mutation> {
    let sites = schemas.sites(object, schema);
    let absent: Vec<&Site<'_>> = sites
        .iter()
        .filter(|site| object.pointer(&site.pointer).is_none())
        .filter(|site| matches!(type_of(site.schema), "object" | "array") || rng.random_bool(0.3))
        .collect();
    let Some(site) = absent.choose(rng) else { return Vec::new() };
    let name = site.pointer.rsplit('/').next().unwrap_or_default();
    let value = schemas.plausible(name, site.schema, DEPTH, rng);
    let first = Mutation { pointer: site.pointer.clone(), change: Change::Set(value) };
    let mut changed = object.clone();
    first.apply(&mut changed);
    let inside = format!("{}/", first.pointer);
    let second = rng
        .random_bool(0.5)
        .then(|| Mutation::inside(&inside, &changed, schema, schemas, rng))
        .flatten();
    [Some(first), second].into_iter().flatten().collect()
}

impl Schemas {
    /// Returns a value of a schema that is likely to be valid for a field of this name.
    fn plausible(&self, name: &str, schema: &Value, depth: usize, rng: &mut StdRng) -> Value {
        let schema = self.resolve(schema);
        if let Some(values) = schema["enum"].as_array() {
            return values.choose(rng).cloned().unwrap_or_default();
        }
        match type_of(schema) {
            "array" if depth > 0 => {
                let n_items = rng.random_range(1..=2);
                let items = &schema["items"];
                (0..n_items).map(|_| self.plausible(name, items, depth - 1, rng)).collect()
            }
            "object" if depth > 0 => self.plausible_object(schema, depth, rng),
            "array" => json!([]),
            "object" => json!({}),
            "string" if schema["format"] == "date-time" => json!("2026-01-01T00:00:00Z"),
            "string" if schema["format"] == "byte" => json!("YQ=="),
            "string" => text(name, rng),
            "boolean" => json!(rng.random_bool(0.5)),
            "integer" | "number" => {
                json!(*[0, 1, 1, 2, 10, 80, 1000, 3600, 86_400, -1].choose(rng).expect("a number"))
            }
            _ => (*["1", "100m", "1Gi", "50%", "2"].choose(rng).expect("a quantity")).into(),
        }
    }

    fn plausible_object(&self, schema: &Value, depth: usize, rng: &mut StdRng) -> Value {
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let share = *[0.2, 0.4, 0.8].choose(rng).expect("a share");
        let mut fields = Map::new();
        for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
            if required.contains(&name.as_str()) || rng.random_bool(share) {
                fields.insert(name.clone(), self.plausible(name, schema, depth - 1, rng));
            }
        }
        if let Some(values) = schema.get("additionalProperties") {
            let keys = ["app", "cpu", "memory", "example.com/a", "ephemeral-storage", "a"];
            let key = *keys.choose(rng).expect("a key");
            fields.insert(key.to_owned(), self.plausible(key, values, depth - 1, rng));
        }
        Value::Object(fields)
    }
}

/// Returns a string for a field of this name.
fn text(name: &str, rng: &mut StdRng) -> Value {
    let known: &[&str] = match name {
        "topologyKey" => &["kubernetes.io/hostname", "zone"],
        "matchLabelKeys" | "mismatchLabelKeys" => &["app", "tier", "Bad Key!"],
        "key" => &["app", "tier", "a.example.com/b"],
        "operator" => &["In", "NotIn", "Exists", "DoesNotExist", "Equal", "Gt"],
        "ip" | "nameservers" | "clusterIP" | "hostIP" => &["10.0.0.1", "fd00::1", "1.2.3.04"],
        "searches" => &["example.com", "a.b", "_tcp.example.com", "."],
        "path" | "mountPath" => &["/a", "a", "a/b", "../a"],
        "resource" => &["limits.cpu", "requests.memory", "limits.hugepages-2Mi", "cpu"],
        "resourceName" | "resources" => &["cpu", "memory"],
        "fieldPath" => &["metadata.name", "metadata.labels['app']", "spec.nodeName"],
        "apiVersion" => &["v1", "apps/v1"],
        "kind" => &["Pod", "Deployment", "Node"],
        "apiGroup" => &["", "apps", "rbac.authorization.k8s.io"],
        "signerName" => &["example.com/signer", "signer"],
        "keyType" => &["ED25519", "RSA3072", "ECDSAP256", "DSA"],
        "accessModes" => &["ReadWriteOnce", "ReadOnlyMany", "ReadWriteOncePod"],
        "type" => &["RuntimeDefault", "Localhost", "Unconfined", "Ready", "a"],
        "divisor" => &["1", "1m", "1Ki"],
        "cpu" => &["1", "100m", "2", "0"],
        "memory" | "ephemeral-storage" => &["64Mi", "1Gi", "1"],
        _ => &["a", "a", "b", "example.com", "x.example.com/y", ""],
    };
    (*known.choose(rng).expect("a text")).into()
}
