//! Normal form of a cluster's objects, for comparisons of runs. It leaves out values that differ from run to run.

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use evenkeel_api::time::Timestamp;
use serde_json::{Map, Value};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

/// Metadata of writes: fields that say when or how often an object was written.
const WRITE_FIELDS: [&str; 4] = ["managedFields", "resourceVersion", "generation", "selfLink"];

/// Fields with values that the cluster chooses: addresses, ports, nodes.
const CHOSEN_FIELDS: [&str; 12] = [
    "clusterIP",
    "clusterIPs",
    "containerID",
    "healthCheckNodePort",
    "hints",
    "hostIP",
    "hostIPs",
    "nodeName",
    "nodePort",
    "podIP",
    "podIPs",
    "zone",
];

/// Lists whose order has no meaning.
const SETS: [&str; 7] =
    ["addresses", "conditions", "endpoints", "finalizers", "ownerReferences", "subsets", "taints"];

/// Prefix of the name of a pod's volume with its token. The server chooses the rest.
const TOKEN_VOLUME: &str = "kube-api-access-";

/// Prefix of the name of a VolumeAttachment, before a hash of its driver, volume and node.
const ATTACHMENT: &str = "csi-";

/// Number of characters of a UUID.
const UUID_LENGTH: usize = 36;

/// Type of a Secret with a token of a ServiceAccount.
const ACCOUNT_TOKEN: &str = "kubernetes.io/service-account-token";

/// Objects in normal form, by kind and name. Several objects have the same name if the server generated it.
pub(super) type State = BTreeMap<String, Vec<Value>>;

/// Returns the normal form of the objects, without the fields that the JSON pointers `ignored` name. A pointer may begin with the
/// kind that it is for, such as `Pod/status/phase`. Objects in `before` with an unchanged normal form are left out, even if they
/// were written: the server's own objects, such as its certificates, and those that an operator writes again when it restarts.
/// Uids and generated names of the objects in `named`, which may be gone, are replaced as well.
pub(super) fn normalize(
    objects: Vec<Value>,
    before: &[Value],
    named: &[Value],
    ignored: &[String],
) -> State {
    let mut names = Names::default();
    for object in objects.iter().chain(before).chain(named) {
        names.add(object);
    }
    let normal_form = |mut object: Value| {
        let kind = text(&object["kind"]).to_owned();
        for pointer in ignored.iter().filter_map(|pointer| for_kind(pointer, &kind)) {
            remove(&mut object, pointer);
        }
        let key = label(&object);
        let key = names.replace_names(&key).unwrap_or(key);
        let generation = object.pointer("/metadata/generation").and_then(Value::as_i64);
        if let Some(claims) = token_claims(&object) {
            object["data"]["token"] = claims;
        }
        names.normalize(&mut object, generation);
        (key, object)
    };
    // An object has one normal form for each API version.
    let mut former = BTreeMap::<&str, Vec<Value>>::new();
    let present: BTreeSet<String> = objects.iter().map(|object| uid(object).to_owned()).collect();
    for object in before.iter().filter(|object| present.contains(uid(object))) {
        former.entry(uid(object)).or_default().push(normal_form(object.clone()).1);
    }
    let mut state = State::new();
    for object in objects {
        let known = former.get(uid(&object)).map(Vec::as_slice).unwrap_or_default();
        let (key, object) = normal_form(object);
        if !known.contains(&object) {
            state.entry(key).or_default().push(object);
        }
    }
    for same_name in state.values_mut() {
        same_name.sort_by_cached_key(Value::to_string);
    }
    state
}

/// Returns kind, namespace and name of an object, such as `Pod default/web-*` for a name that the server generated.
pub(super) fn label(object: &Value) -> String {
    let meta = &object["metadata"];
    let kind = object["kind"].as_str().unwrap_or("object");
    let name = generated_name(meta).unwrap_or_else(|| text(&meta["name"]).to_owned());
    match text(&meta["namespace"]) {
        "" => format!("{kind} {name}"),
        namespace => format!("{kind} {namespace}/{name}"),
    }
}

/// Returns a name for all objects that share this one's generated name.
fn generated_name(meta: &Value) -> Option<String> {
    let prefix = meta["generateName"].as_str().filter(|prefix| !prefix.is_empty())?;
    text(&meta["name"]).starts_with(prefix).then(|| format!("{prefix}*"))
}

/// Returns the volume of a VolumeAttachment whose name is a hash, which depends on the uid of the volume's claim and on the
/// node that the cluster chose.
///
/// Upstream: `getAttachmentName`.
fn attached_volume(object: &Value) -> Option<&str> {
    let hash = text(&object["metadata"]["name"]).strip_prefix(ATTACHMENT)?;
    let is_hash = hash.len() == 64 && hash.bytes().all(|digit| digit.is_ascii_hexdigit());
    let is_attachment = object["kind"] == "VolumeAttachment" && is_hash;
    object.pointer("/spec/source/persistentVolumeName")?.as_str().filter(|_| is_attachment)
}

/// Returns the claims of a ServiceAccount's token in a Secret. Its signature differs each time.
fn token_claims(object: &Value) -> Option<Value> {
    if object["kind"] != "Secret" || object["type"] != ACCOUNT_TOKEN {
        return None;
    }
    let token = STANDARD.decode(object.pointer("/data/token")?.as_str()?).ok()?;
    let token = String::from_utf8(token).ok()?;
    let [_, claims, _] = token.split('.').collect::<Vec<_>>()[..] else { return None };
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()
}

fn uid(object: &Value) -> &str {
    text(&object["metadata"]["uid"])
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns the JSON pointer in a text that may begin with a kind; `None` if that is another one.
fn for_kind<'a>(text: &'a str, kind: &str) -> Option<&'a str> {
    let (of, _) = text.split_once('/')?;
    (of.is_empty() || of == kind).then(|| &text[of.len()..])
}

/// Removes the field that a JSON pointer names, if it exists.
fn remove(object: &mut Value, pointer: &str) {
    let Some((parent, field)) = pointer.rsplit_once('/') else { return };
    if let Some(Value::Object(fields)) = object.pointer_mut(parent) {
        fields.remove(&field.replace("~1", "/").replace("~0", "~"));
    }
}

/// Maximum length of a chain of placeholders. For example, the uid of an attachment refers to the attachment's name,
/// which contains the uid of a volume's claim, whose name contains the uid of a pod.
const MAX_CHAIN: usize = 6;

/// Uids, generated names and addresses, with their placeholders.
#[derive(Default)]
struct Names {
    uids: BTreeMap<String, String>,
    generated: BTreeMap<String, String>,
    addresses: BTreeSet<String>,
}

impl Names {
    fn add(&mut self, object: &Value) {
        let meta = &object["metadata"];
        self.uids.insert(text(&meta["uid"]).to_owned(), format!("<uid of {}>", label(object)));
        let name = text(&meta["name"]).to_owned();
        if let Some(volume) = attached_volume(object) {
            self.generated.insert(name, format!("{ATTACHMENT}<{volume}>"));
        } else if let Some(all) = generated_name(meta) {
            self.generated.insert(name, all);
        }
        self.add_addresses(object);
    }

    fn add_addresses(&mut self, value: &Value) {
        match value {
            Value::Object(fields) => {
                for (name, field) in fields {
                    let chosen = CHOSEN_FIELDS.contains(&&**name);
                    match field {
                        Value::String(address) if chosen => self.add_address(address),
                        Value::Array(all) if chosen => all.iter().for_each(|one| {
                            self.add_address(one["ip"].as_str().unwrap_or(text(one)));
                        }),
                        _ => self.add_addresses(field),
                    }
                }
            }
            Value::Array(all) => all.iter().for_each(|one| self.add_addresses(one)),
            _ => {}
        }
    }

    fn add_address(&mut self, text: &str) {
        if text.parse::<IpAddr>().is_ok() {
            self.addresses.insert(text.to_owned());
        }
    }

    fn normalize(&self, value: &mut Value, generation: Option<i64>) {
        match value {
            Value::Object(fields) => self.normalize_fields(fields, generation),
            Value::Array(all) => all.iter_mut().for_each(|one| self.normalize(one, generation)),
            Value::String(text) => {
                if let Some(normal) = self.normal_text(text) {
                    *text = normal;
                }
            }
            _ => {}
        }
    }

    fn normalize_fields(&self, fields: &mut Map<String, Value>, generation: Option<i64>) {
        let dropped = |name: &str| WRITE_FIELDS.contains(&name) || CHOSEN_FIELDS.contains(&name);
        fields.retain(|name, _| !dropped(name));
        for (name, field) in fields.iter_mut() {
            if name == "observedGeneration" && generation.is_some() {
                let current = field.as_i64() == generation;
                *field = if current { "<current>" } else { "<not current>" }.into();
                continue;
            }
            self.normalize(field, generation);
            if let (true, Value::Array(all)) = (SETS.contains(&&**name), field) {
                all.sort_by_cached_key(Value::to_string);
            }
        }
    }

    /// Returns the placeholder of a string, or `None` if the string stays unchanged.
    fn normal_text(&self, text: &str) -> Option<String> {
        if text.parse::<Timestamp>().is_ok() {
            return Some("<time>".to_owned());
        }
        if self.addresses.contains(text) {
            return Some("<address>".to_owned());
        }
        if text.starts_with(TOKEN_VOLUME) {
            return Some(format!("{TOKEN_VOLUME}*"));
        }
        let replaced = self.replace_names(text);
        replaced.or_else(|| is_uuid(text).then(|| "<uid of nothing>".to_owned()))
    }

    /// Replaces uids and generated names, the longest of those with the same prefix first. Returns `None` if there are none.
    fn replace_names(&self, text: &str) -> Option<String> {
        let mut replaced = None::<String>;
        for _ in 0..MAX_CHAIN {
            let Some(next) = self.replace_once(replaced.as_deref().unwrap_or(text)) else { break };
            replaced = Some(next);
        }
        replaced
    }

    fn replace_once(&self, text: &str) -> Option<String> {
        let mut replaced = None::<String>;
        // Most objects have a uid, and most strings have none.
        for uid in uuids(text) {
            if let Some(by) = self.uids.get(uid) {
                replaced = Some(replaced.as_deref().unwrap_or(text).replace(uid, by));
            }
        }
        for (name, by) in self.generated.iter().rev() {
            let text = replaced.as_deref().unwrap_or(text);
            if text.contains(&**name) {
                replaced = Some(text.replace(&**name, by));
            }
        }
        replaced
    }
}

/// Returns the parts of a text that have the form of a UUID.
fn uuids(text: &str) -> impl Iterator<Item = &str> {
    let starts = 0..(text.len() + 1).saturating_sub(UUID_LENGTH);
    let has_dash = |start: &usize| text.as_bytes()[start + 8] == b'-';
    let parts = starts.filter(has_dash).filter_map(|start| text.get(start..start + UUID_LENGTH));
    parts.filter(|part| is_uuid(part))
}

fn is_uuid(text: &str) -> bool {
    let groups: Vec<usize> = text.split('-').map(str::len).collect();
    groups == [8, 4, 4, 4, 12] && text.bytes().all(|b| b == b'-' || b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn normalize(objects: Vec<Value>, before: &[Value], ignored: &[String]) -> State {
        super::normalize(objects, before, &[], ignored)
    }

    const UID: &str = "11111111-2222-4333-8444-555555555555";
    const OTHER: &str = "21111111-2222-4333-8444-555555555555";

    fn app(uid: &str, generation: u64, observed: u64) -> Value {
        json!({
            "kind": "App",
            "metadata": {"name": "shop", "namespace": "default", "uid": uid,
                "generation": generation, "resourceVersion": uid, "managedFields": [],
                "creationTimestamp": format!("2026-01-01T00:00:0{generation}Z")},
            "status": {"observedGeneration": observed, "conditions": [
                {"type": if generation == 1 { "B" } else { "A" }},
                {"type": if generation == 1 { "A" } else { "B" }},
            ]},
        })
    }

    fn pod(suffix: &str, owner: &str, ip: &str) -> Value {
        json!({
            "kind": "Pod",
            "metadata": {"name": format!("web-{suffix}"), "generateName": "web-",
                "namespace": "default", "ownerReferences": [{"uid": owner}]},
            "spec": {"nodeName": suffix},
            "status": {"podIP": ip, "podIPs": [{"ip": ip}], "note": format!("web-{suffix} at work")},
        })
    }

    fn slice(suffix: &str, ip: &str) -> Value {
        json!({"kind": "Slice", "metadata": {"name": "a"},
            "endpoints": [{"addresses": [ip], "targetRef": {"name": format!("web-{suffix}")}}]})
    }

    #[test]
    fn objects_that_differ_by_chance_have_the_same_normal_form() {
        let one = vec![app(UID, 1, 1), pod("x", UID, "10.0.0.1"), slice("x", "10.0.0.1")];
        let two = vec![slice("y", "10.0.0.2"), pod("y", OTHER, "10.0.0.2"), app(OTHER, 2, 2)];
        let normal = normalize(one, &[], &[]);
        assert_eq!(normal, normalize(two, &[], &[]));
        let keys: Vec<&str> = normal.keys().map(|key| &**key).collect();
        assert_eq!(keys, ["App default/shop", "Pod default/web-*", "Slice a"]);
        let owner = normal["Pod default/web-*"][0].pointer("/metadata/ownerReferences/0/uid");
        assert_eq!(owner, Some(&json!("<uid of App default/shop>")));
    }

    #[test]
    fn objects_that_differ_in_meaning_have_different_normal_forms() {
        let normal = |objects: Vec<Value>| normalize(objects, &[], &[]);
        assert_ne!(normal(vec![app(UID, 2, 2)]), normal(vec![app(UID, 2, 1)]), "a stale status");
        let orphan = vec![app(UID, 1, 1), pod("x", OTHER, "")];
        assert_ne!(normal(vec![app(UID, 1, 1), pod("x", UID, "")]), normal(orphan));
        let map =
            |value: &str| vec![json!({"kind": "Map", "metadata": {"name": "a"}, "data": value})];
        assert_ne!(
            normal(map("10.0.0.1")),
            normal(map("10.0.0.2")),
            "an address that a user chose"
        );
        for ignored in ["/data", "Map/data"] {
            let ignored = [ignored.to_owned()];
            assert_eq!(normalize(map("a"), &[], &ignored), normalize(map("b"), &[], &ignored));
        }
        let of_others = ["Pod/data".to_owned()];
        assert_ne!(normalize(map("a"), &[], &of_others), normalize(map("b"), &[], &of_others));
    }

    #[test]
    fn an_attachment_is_named_after_its_volume_instead_of_a_hash() {
        let attachment = |uid: &str, digit: &str| {
            let claim = json!({"kind": "Claim", "metadata": {"name": "data", "uid": uid}});
            let spec = json!({"nodeName": digit,
                "source": {"persistentVolumeName": format!("pvc-{uid}")}});
            let name = format!("csi-{}", digit.repeat(64));
            let meta = json!({"name": name, "uid": format!("{digit}{}", &UID[1..])});
            vec![claim, json!({"kind": "VolumeAttachment", "metadata": meta, "spec": spec})]
        };
        let state = normalize(attachment(UID, "a"), &[], &[]);
        assert_eq!(state, normalize(attachment(OTHER, "b"), &[], &[]));
        let keys: Vec<&str> = state.keys().map(String::as_str).collect();
        assert_eq!(keys, ["Claim data", "VolumeAttachment csi-<pvc-<uid of Claim data>>"]);
        let named = |name: &str| {
            let mut objects = attachment(UID, "a");
            objects[1]["metadata"]["name"] = name.into();
            normalize(objects, &[], &[])
        };
        assert_ne!(named("csi-a"), state, "a name that a user chose");
    }

    #[test]
    fn an_object_that_is_gone_lends_its_generated_name() {
        let pod = |claim: &str| json!({"kind": "Pod", "metadata": {"name": "a"}, "claim": claim});
        let named = |name: &str| json!({"metadata": {"name": name, "generateName": "data-"}});
        let state = |name: &str| {
            super::normalize(vec![pod(name)], &[], &[named("data-x"), named("data-y")], &[])
        };
        assert_eq!(state("data-x"), state("data-y"));
        assert_ne!(state("data-x"), state("data-z"), "nobody knows it");
    }

    #[test]
    fn tokens_are_compared_without_signature() {
        let secret = |uid: &str, account: &str, signature: &str| {
            let claims = json!({"sub": account, "secret.uid": uid}).to_string();
            let token = format!("e30.{}.{signature}", URL_SAFE_NO_PAD.encode(claims));
            let data = json!({"token": STANDARD.encode(token)});
            let meta = json!({"name": "token", "uid": uid});
            normalize(
                vec![
                    json!({"kind": "Secret", "type": ACCOUNT_TOKEN, "metadata": meta, "data": data}),
                ],
                &[],
                &[],
            )
        };
        let one = secret(UID, "default", "a");
        assert_eq!(one, secret(OTHER, "default", "b"));
        assert_ne!(one, secret(UID, "other", "a"));
    }

    #[test]
    fn objects_that_are_as_before_only_lend_their_names() {
        let before = [app(UID, 1, 1)];
        let mut rewritten = app(UID, 1, 1);
        rewritten["metadata"]["resourceVersion"] = "8".into();
        rewritten["metadata"]["creationTimestamp"] = "2026-01-01T00:00:07Z".into();
        let normal = normalize(vec![rewritten.clone(), pod("x", UID, "")], &before, &[]);
        let keys: Vec<&str> = normal.keys().map(|key| &**key).collect();
        assert_eq!(keys, ["Pod default/web-*"]);
        rewritten["data"] = "other".into();
        let changed = normalize(vec![rewritten], &before, &[]);
        assert_eq!(changed["App default/shop"][0]["data"], json!("other"));
        let again = normalize(vec![app(OTHER, 1, 1)], &before, &[]);
        assert_eq!(again.len(), 1, "another object of the name");
        let owner = normal["Pod default/web-*"][0].pointer("/metadata/ownerReferences/0/uid");
        assert_eq!(owner, Some(&json!("<uid of App default/shop>")));
    }
}
