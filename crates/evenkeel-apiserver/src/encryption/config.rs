//! The file of `--encryption-provider-config`.
//!
//! Upstream: `EncryptionConfiguration` of `apiserver.config.k8s.io`.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use evenkeel_apimachinery::group_version::GroupResource;
use serde::Deserialize;
use serde_json::Value;

use super::cipher::Cipher;

/// The group or the resource that means all of them.
pub(super) const ANY: &str = "*";

/// Reads `resource.group`; without a group it is a core resource.
///
/// Upstream: `schema.ParseGroupResource`.
pub(super) fn group_resource(text: &str) -> GroupResource {
    let (resource, group) = text.split_once('.').unwrap_or((text, ""));
    GroupResource { group: group.into(), resource: resource.into() }
}

/// Which resources are encrypted by which providers. Fields have the names of the file; absent texts are empty.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct EncryptionConfiguration {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) resources: Vec<ResourceConfiguration>,
}

/// Resources, and their providers: the first one encrypts, all of them decrypt.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ResourceConfiguration {
    /// `resource`, `resource.group`, `*.group`, `*.` (all core resources) or `*.*`.
    pub(super) resources: Vec<String>,
    pub(super) providers: Vec<Provider>,
}

/// One of the providers.
///
/// Upstream: `ProviderConfiguration`.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Provider {
    pub(super) aesgcm: Option<Keys>,
    pub(super) aescbc: Option<Keys>,
    pub(super) secretbox: Option<Keys>,
    pub(super) identity: Option<Identity>,
    pub(super) kms: Option<Value>,
}

/// Leaves values as they are.
///
/// Upstream: `IdentityConfiguration`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Identity {}

/// The keys of a provider: the first one encrypts, all of them decrypt.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Keys {
    pub(super) keys: Vec<Key>,
}

/// Go's `base64.StdEncoding`, which does not mind bits after the last byte.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);

/// A key. It has no `Debug`, so that it cannot be logged.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Key {
    pub(super) name: String,
    /// The key's bytes as base64.
    pub(super) secret: String,
}

impl Key {
    /// The key's bytes.
    pub(super) fn decode(&self) -> Option<Vec<u8>> {
        BASE64.decode(self.secret.replace(['\r', '\n'], "")).ok()
    }
}

/// Makes the cipher of a key.
type CipherOf = fn(&[u8]) -> Result<Cipher, String>;

impl Provider {
    /// Name, cipher and keys of a provider that encrypts.
    pub(super) fn keys(&self) -> Option<(&'static str, CipherOf, &[Key])> {
        let all: [(_, CipherOf, _); 3] = [
            ("aesgcm", Cipher::aes_gcm, &self.aesgcm),
            ("aescbc", Cipher::aes_cbc, &self.aescbc),
            ("secretbox", Cipher::secretbox, &self.secretbox),
        ];
        all.into_iter().find_map(|(name, of, keys)| Some((name, of, &*keys.as_ref()?.keys)))
    }
}

impl EncryptionConfiguration {
    /// Reads the file: YAML or JSON, without unknown or duplicate fields.
    pub(super) fn parse(text: &[u8]) -> Result<Self, String> {
        let document = evenkeel_apimachinery::decode::file(text)?;
        let config: Self = serde_json::from_value(document).map_err(|e| e.to_string())?;
        if config.kind != "EncryptionConfiguration"
            || config.api_version != "apiserver.config.k8s.io/v1"
        {
            return Err(format!(
                "it is a {:?} of {:?}, and must be an EncryptionConfiguration of apiserver.config.k8s.io/v1",
                config.kind, config.api_version
            ));
        }
        Ok(config)
    }
}
