//! Configuration file of `--encryption-provider-config`.
//!
//! Upstream: `EncryptionConfiguration` of `apiserver.config.k8s.io`.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use evenkeel_api::duration;
use evenkeel_apimachinery::group_version::GroupResource;
use serde::Deserialize;

use super::cipher::Cipher;

/// Wildcard for all groups, or for all resources of a group.
pub(super) const ANY: &str = "*";

/// Parses `resource.group`; a resource without a group is a core resource.
///
/// Upstream: `schema.ParseGroupResource`.
pub(super) fn group_resource(text: &str) -> GroupResource {
    let (resource, group) = text.split_once('.').unwrap_or((text, ""));
    GroupResource { group: group.into(), resource: resource.into() }
}

/// Encryption providers by resource. Fields are named as in the file; absent strings are empty.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct EncryptionConfiguration {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) resources: Vec<ResourceConfiguration>,
}

/// Resources with their providers. The first provider encrypts new values; all providers can decrypt stored ones.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ResourceConfiguration {
    /// `resource`, `resource.group`, `*.group`, `*.` (all core resources) or `*.*`.
    pub(super) resources: Vec<String>,
    pub(super) providers: Vec<Provider>,
}

/// Provider of encryption. Exactly one field is set.
///
/// Upstream: `ProviderConfiguration`.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Provider {
    pub(super) aesgcm: Option<Keys>,
    pub(super) aescbc: Option<Keys>,
    pub(super) secretbox: Option<Keys>,
    pub(super) identity: Option<Identity>,
    pub(super) kms: Option<KmsConfiguration>,
}

/// Provider whose keys a plugin encrypts.
///
/// Upstream: `KMSConfiguration`.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct KmsConfiguration {
    /// `v2`. An absent version means `v1`, which this server does not support.
    pub(super) api_version: Option<String>,
    pub(super) name: String,
    pub(super) cachesize: Option<i32>,
    /// `unix://` and the path of the plugin's socket.
    pub(super) endpoint: String,
    /// Timeout of one call. Default: 3 s.
    pub(super) timeout: Option<String>,
}

impl KmsConfiguration {
    /// Returns the timeout in nanoseconds.
    pub(super) fn timeout(&self) -> Result<i64, String> {
        duration::nanoseconds(self.timeout.as_deref().unwrap_or("3s"))
    }

    /// Returns the path of the plugin's socket. A path that begins with `@` names an abstract socket.
    ///
    /// Upstream: `ParseEndpoint`.
    pub(super) fn socket(&self) -> Option<&str> {
        self.endpoint.strip_prefix("unix://").filter(|path| !path.is_empty())
    }
}

/// Provider that leaves values unencrypted.
///
/// Upstream: `IdentityConfiguration`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Identity {}

/// Keys of a provider. The first key encrypts new values; all keys can decrypt stored ones.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Keys {
    pub(super) keys: Vec<Key>,
}

/// Base64 as Go's `base64.StdEncoding` decodes it: unused trailing bits are ignored.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);

/// Key of a provider. It does not implement `Debug`, so that logs cannot show it.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Key {
    pub(super) name: String,
    /// Bytes of the key in base64.
    pub(super) secret: String,
}

impl Key {
    /// Returns the key's bytes, or `None` if they are not base64.
    pub(super) fn decode(&self) -> Option<Vec<u8>> {
        BASE64.decode(self.secret.replace(['\r', '\n'], "")).ok()
    }
}

/// Function that creates the cipher for a key's bytes.
type NewCipher = fn(&[u8]) -> Result<Cipher, String>;

impl Provider {
    /// Returns the name, the cipher's constructor and the keys of a provider that encrypts. Returns `None` for
    /// `identity` and KMS.
    pub(super) fn keys(&self) -> Option<(&'static str, NewCipher, &[Key])> {
        let providers: [(_, NewCipher, _); 3] = [
            ("aesgcm", Cipher::aes_gcm, &self.aesgcm),
            ("aescbc", Cipher::aes_cbc, &self.aescbc),
            ("secretbox", Cipher::secretbox, &self.secretbox),
        ];
        providers
            .into_iter()
            .find_map(|(name, new_cipher, keys)| Some((name, new_cipher, &*keys.as_ref()?.keys)))
    }
}

impl EncryptionConfiguration {
    /// Parses YAML or JSON. Unknown and duplicate fields are errors.
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
