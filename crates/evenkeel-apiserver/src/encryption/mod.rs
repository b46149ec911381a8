//! Encryption at rest: encrypts values of configured resources before they are written to disk.
//!
//! | prefix of a stored value | meaning |
//! |---|---|
//! | `k8s:enc:aescbc:v1:KEY:` | encrypted by AES-CBC with that key, not authenticated |
//! | `k8s:enc:aesgcm:v1:KEY:` | encrypted and authenticated by AES-GCM |
//! | `k8s:enc:secretbox:v1:KEY:` | encrypted and authenticated by XSalsa20 and Poly1305 |
//! | `k8s:enc:kms:v2:NAME:` | encrypted by AES-GCM with a key from a seed that a KMS plugin encrypted ([`kms`]) |
//! | anything else | not encrypted (`identity`) |
//!
//! The first provider of a resource encrypts new values; all providers can decrypt stored ones. A value that another
//! provider or key encrypted is stale: the next write of its object encrypts it again, even if the object does not
//! change. Upstream refuses an unencrypted value unless `identity` is a provider. This server accepts such a value,
//! because the history of the store may still contain one.
//!
//! Upstream: `encryptionconfig.LoadEncryptionConfig`, `value.prefixTransformers`.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]
#![deny(clippy::indexing_slicing)]

mod cipher;
mod config;
pub(crate) mod kms;
#[cfg(test)]
mod tests;
mod validation;

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cipher::Cipher;
use config::{ANY, EncryptionConfiguration, Provider, group_resource};
use evenkeel_apimachinery::group_version::GroupResource;

use crate::clock::Clock;
use crate::store::{DataContext, Transformer, Untransformable};
use kms::Kms;

/// Prefix of every encrypted value.
const ENCRYPTED_PREFIX: &[u8] = b"k8s:enc:";

/// Transformer of values with one key or plugin, or without encryption.
struct KeyTransformer {
    /// Prefix of values that this key encrypted; empty without encryption.
    prefix: Vec<u8>,
    encryptor: Encryptor,
}

/// Provider that encrypts and decrypts values: none, a key of the configuration, or a KMS plugin.
enum Encryptor {
    /// Values are not encrypted.
    Identity,
    Key(Cipher),
    Plugin(Arc<Kms>),
}

/// Transformers by resource, from the file of `--encryption-provider-config`. The default encrypts nothing.
#[derive(Default)]
pub(crate) struct Encryption {
    by_resource: HashMap<GroupResource, Vec<KeyTransformer>>,
    plugins: Vec<Arc<Kms>>,
}

impl Encryption {
    /// Parses the configuration file (YAML or JSON).
    ///
    /// # Errors
    /// Returns the errors of all invalid fields. They contain no secrets.
    pub(crate) fn from_config(text: &str, clock: &Clock) -> Result<Self, String> {
        let config = EncryptionConfiguration::parse(text.as_bytes())?;
        let errors = validation::validate(&config);
        if !errors.is_empty() {
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            return Err(errors.join(", "));
        }
        let mut by_resource: HashMap<GroupResource, Vec<KeyTransformer>> = HashMap::new();
        let mut plugins: Vec<Arc<Kms>> = Vec::new();
        for rule in &config.resources {
            for kms in rule.providers.iter().filter_map(|provider| provider.kms.as_ref()) {
                let timeout = Duration::from_nanos(kms.timeout()?.try_into().unwrap_or_default());
                let socket = PathBuf::from(kms.socket().unwrap_or_default());
                plugins.push(Arc::new(Kms::new(&kms.name, socket, timeout, clock.clone())));
            }
        }
        for rule in &config.resources {
            for name in &rule.resources {
                let resource = group_resource(name);
                let wildcards = [named(&resource.group, ANY), named(ANY, ANY)];
                // An earlier rule for the resource's group or for all resources takes precedence over this one.
                let is_masked = wildcards
                    .iter()
                    .any(|wildcard| *wildcard != resource && by_resource.contains_key(wildcard));
                if is_masked {
                    continue;
                }
                let transformers = by_resource.entry(resource).or_default();
                for provider in &rule.providers {
                    transformers.extend(KeyTransformer::for_provider(provider, &plugins)?);
                }
            }
        }
        Ok(Self { by_resource, plugins })
    }

    /// Returns the KMS plugins, which have to be polled.
    pub(crate) fn plugins(&self) -> &[Arc<Kms>] {
        &self.plugins
    }

    /// Returns the transformers of a resource: those for the resource itself, or else for its group, or else for all
    /// resources.
    ///
    /// Upstream: `transformerFromOverrides`.
    fn transformers_for(&self, resource_prefix: &str) -> &[KeyTransformer] {
        let (group, resource) = resource_prefix.split_once('/').unwrap_or(("", resource_prefix));
        [(group, resource), (group, ANY), (ANY, ANY)]
            .iter()
            .find_map(|(group, resource)| self.by_resource.get(&named(group, resource)))
            .map_or(&[], Vec::as_slice)
    }
}

/// Returns the name of a resource, which may have wildcards.
fn named(group: &str, resource: &str) -> GroupResource {
    GroupResource { group: group.into(), resource: resource.into() }
}

impl KeyTransformer {
    /// Creates a transformer for each key of a provider. The provider `identity` gets one transformer that encrypts
    /// nothing.
    fn for_provider(provider: &Provider, plugins: &[Arc<Kms>]) -> Result<Vec<Self>, String> {
        if let Some(kms) = &provider.kms {
            let plugin = plugins.iter().find(|plugin| plugin.name() == kms.name);
            let plugin = plugin.ok_or("a plugin is missing")?.clone();
            let prefix = plugin.prefix.clone();
            return Ok(vec![Self { prefix, encryptor: Encryptor::Plugin(plugin) }]);
        }
        let Some((name, new_cipher, keys)) = provider.keys() else {
            return Ok(vec![Self { prefix: Vec::new(), encryptor: Encryptor::Identity }]);
        };
        keys.iter()
            .map(|key| {
                let prefix = format!("k8s:enc:{name}:v1:{}:", key.name).into_bytes();
                let secret = key.decode().ok_or("a secret is not base64")?;
                Ok(Self { prefix, encryptor: Encryptor::Key(new_cipher(&secret)?) })
            })
            .collect()
    }
}

/// Returns the associated data of a value: the key of its object in the store. AES-GCM authenticates it, so that a
/// value that is copied to another object does not decrypt.
fn authenticated_data(context: DataContext<'_>) -> Vec<u8> {
    [context.resource_prefix.as_bytes(), b"/", context.key.as_bytes()].concat()
}

impl Transformer for Encryption {
    fn refusal(&self, resource_prefix: &str) -> Option<String> {
        match &self.transformers_for(resource_prefix).first()?.encryptor {
            Encryptor::Identity | Encryptor::Key(_) => None,
            Encryptor::Plugin(plugin) => plugin.refusal(),
        }
    }

    fn transform_to_storage<'a>(
        &self,
        context: DataContext<'_>,
        value: Cow<'a, [u8]>,
    ) -> Result<Cow<'a, [u8]>, String> {
        let Some(KeyTransformer { prefix, encryptor }) =
            self.transformers_for(context.resource_prefix).first()
        else {
            return Ok(value);
        };
        match encryptor {
            Encryptor::Identity => Ok(value),
            Encryptor::Key(cipher) => {
                let encrypted = cipher.encrypt(&value, &authenticated_data(context))?;
                Ok([prefix.as_slice(), &encrypted].concat().into())
            }
            Encryptor::Plugin(plugin) => {
                Ok(plugin.encrypt(&value, &authenticated_data(context))?.into())
            }
        }
    }

    fn transform_from_storage<'a>(
        &self,
        context: DataContext<'_>,
        stored: &'a [u8],
    ) -> Result<(Cow<'a, [u8]>, bool), Untransformable> {
        let transformers = self.transformers_for(context.resource_prefix);
        if !stored.starts_with(ENCRYPTED_PREFIX) {
            let is_identity =
                |first: &KeyTransformer| matches!(first.encryptor, Encryptor::Identity);
            let is_stale = transformers.first().is_some_and(|first| !is_identity(first));
            return Ok((Cow::Borrowed(stored), is_stale));
        }
        let mut decryption_error = None;
        for (index, transformer) in transformers.iter().enumerate() {
            let Some(encrypted) = stored.strip_prefix(transformer.prefix.as_slice()) else {
                continue;
            };
            let authenticated = authenticated_data(context);
            let decrypted = match &transformer.encryptor {
                Encryptor::Identity => continue,
                Encryptor::Key(cipher) => {
                    cipher.decrypt(encrypted, &authenticated).map(|value| (value, false))
                }
                Encryptor::Plugin(plugin) => plugin.decrypt(encrypted, &authenticated),
            };
            // Several keys may have the same name, so a failure tries the next one.
            match decrypted {
                Ok((value, is_stale)) => return Ok((value.into(), is_stale || index > 0)),
                Err(why) => decryption_error = Some(why),
            }
        }
        Err(Untransformable(match decryption_error {
            Some(why) => format!("{why} with the key {:?}", name_of_key(stored)),
            None => format!("there is no provider with the key {:?}", name_of_key(stored)),
        }))
    }
}

/// Returns the part `PROVIDER:VERSION:KEY` of an encrypted value's prefix `k8s:enc:PROVIDER:VERSION:KEY:`.
fn name_of_key(stored: &[u8]) -> String {
    let mut colons = stored.iter().enumerate().filter(|(_, byte)| **byte == b':');
    // The fifth colon ends the prefix.
    let end = colons.nth(4).map_or(ENCRYPTED_PREFIX.len(), |(index, _)| index);
    String::from_utf8_lossy(stored.get(ENCRYPTED_PREFIX.len()..end).unwrap_or_default())
        .into_owned()
}
