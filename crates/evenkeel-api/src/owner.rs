//! Construction and encoding of owner references.

use crate::template::push_json;
use crate::{Kind, Meta, OwnerReference};

impl OwnerReference {
    /// Returns the reference to an owner that is the object's controller. The reference blocks the owner's foreground
    /// deletion.
    pub fn controlled_by(kind: &Kind, owner: &Meta) -> Self {
        Self {
            api_version: kind.api_version().into(),
            kind: (&*kind.kind).into(),
            name: owner.name.clone(),
            uid: owner.uid.clone(),
            controller: true,
            block_owner_deletion: true,
        }
    }

    /// Encodes the reference as JSON, for `metadata.ownerReferences`.
    pub fn to_json(&self) -> String {
        let mut text = String::with_capacity(192);
        let fields = [
            ("apiVersion", &self.api_version),
            ("kind", &self.kind),
            ("name", &self.name),
            ("uid", &self.uid),
        ];
        for (index, (name, value)) in fields.into_iter().enumerate() {
            text.push_str(if index == 0 { "{\"" } else { ",\"" });
            text.push_str(name);
            text.push_str("\":");
            push_json(&mut text, value);
        }
        for (name, set) in
            [("controller", self.controller), ("blockOwnerDeletion", self.block_owner_deletion)]
        {
            if set {
                text.push_str(",\"");
                text.push_str(name);
                text.push_str("\":true");
            }
        }
        text.push('}');
        text
    }
}
