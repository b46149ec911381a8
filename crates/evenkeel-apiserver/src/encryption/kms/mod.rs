//! Encryption with keys that a KMS plugin encrypts. The plugin is a process on the same machine.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | The status of the plugin is polled | `run`, `poll` |
//! | A new seed is generated at the start, and when the ID of the plugin's key changes | `rotate_if_needed` |
//! | Writes continue for three minutes after the last good status | `encrypt` |
//! | Values of earlier seeds are decrypted by the plugin, and the results are cached | `dek` |
//! | A value of another key ID is stale | `decrypt` |
//!
//! Upstream: `envelope/kmsv2`, `kmsv2PluginProbe`.

mod client;
mod envelope;
mod wire;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use evenkeel_api::forms::dns_subdomain;
use jiff::{SignedDuration, Timestamp};
use prost::Message as _;

use super::cipher::random;
use crate::clock::Clock;
use client::{call, call_blocking};
use envelope::Dek;
use wire::{
    DecryptRequest, DecryptResponse, EncryptRequest, EncryptResponse, EncryptedObject,
    StatusRequest, StatusResponse,
};

/// Time between two polls of a healthy plugin. Upstream: `kmsv2PluginHealthzPositiveInterval`.
const POLL_PERIOD: Duration = Duration::from_secs(60);
/// Time between two polls after a failure. Upstream: `kmsv2PluginHealthzNegativeInterval`.
const RETRY_PERIOD: Duration = Duration::from_secs(10);
/// Time after the last good status during which a seed may encrypt values. Upstream: `kmsv2PluginWriteDEKSourceMaxTTL`.
const WRITE_PERIOD: SignedDuration = SignedDuration::from_mins(3);
/// Maximum size of a key's ID in bytes.
const MAX_KEY_ID: usize = 1024;
/// Maximum size of an encrypted seed in bytes.
const MAX_SOURCE: usize = 1024;
/// Maximum size of all annotations in bytes.
const MAX_ANNOTATIONS: usize = 32 * 1024;
/// Maximum number of characters of a plugin's text in an error.
const MAX_EXCERPT: usize = 200;
/// Type of a source that is a key.
const KEY: i32 = 0;
/// Type of a source that is a seed.
const SEED: i32 = 1;

const STATUS: &str = "/v2.KeyManagementService/Status";
const ENCRYPT: &str = "/v2.KeyManagementService/Encrypt";
const DECRYPT: &str = "/v2.KeyManagementService/Decrypt";

/// Provider of encryption through one plugin.
pub(crate) struct Kms {
    name: String,
    /// Prefix of the values that it encrypts.
    pub(super) prefix: Vec<u8>,
    socket: PathBuf,
    /// Timeout of one call.
    timeout: Duration,
    clock: Clock,
    state: Mutex<State>,
}

/// State of the KMS provider, which requests and the poll share.
#[derive(Default)]
struct State {
    /// Seed that encrypts new values; `None` until the plugin has encrypted one.
    current: Option<Current>,
    /// Decrypted keys and seeds, by their encrypted form.
    deks: HashMap<Source, Arc<Dek>>,
    /// Version in the first status; it may not change.
    version: String,
    /// Error of the last poll; `None` if the poll succeeded.
    failure: Option<String>,
}

/// Seed that encrypts new values.
struct Current {
    dek: Arc<Dek>,
    source: Source,
    /// Time until which it may encrypt.
    expires: Timestamp,
}

/// Encrypted key or seed, with the key ID and the annotations that the plugin needs to decrypt it.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Source {
    source_type: i32,
    ciphertext: Vec<u8>,
    key_id: String,
    annotations: BTreeMap<String, Vec<u8>>,
}

impl Kms {
    /// Creates the provider of the plugin at a socket. Nothing can be encrypted before the first [`poll`](Self::poll).
    pub(super) fn new(name: &str, socket: PathBuf, timeout: Duration, clock: Clock) -> Self {
        let state = State { failure: Some("it was not polled yet".to_owned()), ..State::default() };
        Self {
            name: name.to_owned(),
            prefix: format!("k8s:enc:kms:v2:{name}:").into_bytes(),
            socket,
            timeout,
            clock,
            state: Mutex::new(state),
        }
    }

    /// Returns the plugin's name in the configuration.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the reason why the plugin was not healthy at the last poll.
    pub(crate) fn health(&self) -> Result<(), String> {
        self.state().failure.clone().map_or(Ok(()), Err)
    }

    /// Polls the plugin until the server is dropped.
    pub(crate) async fn run(&self) {
        loop {
            let period = if self.health().is_ok() { POLL_PERIOD } else { RETRY_PERIOD };
            tokio::time::sleep(period).await;
            self.poll().await;
        }
    }

    /// Polls the plugin once: checks its status, and generates a seed unless its current key has one.
    ///
    /// Upstream: `kmsv2PluginProbe.check`.
    pub(crate) async fn poll(&self) {
        let result = self.check().await;
        if let Err(error) = &result {
            tracing::error!(plugin = self.name, error, "a KMS plugin is not healthy");
        }
        self.state().failure = result.err();
    }

    async fn check(&self) -> Result<(), String> {
        let (socket, timeout, name) = (&*self.socket, self.timeout, &self.name);
        // Read the time before the call, so that a slow response does not extend the period of writes.
        let expires = self.clock.now().saturating_add(WRITE_PERIOD).unwrap_or(Timestamp::MAX);
        let status: Result<StatusResponse, String> =
            call(socket, timeout, STATUS, StatusRequest {}).await;
        let status = status.map_err(|error| {
            format!("failed to perform status section of the healthz check for KMS Provider {name}, error: {error}")
        })?;
        let mut errors = Vec::new();
        if status.healthz != "ok" {
            errors.push(format!("got unexpected healthz status: {}", excerpt(&status.healthz)));
        }
        if matches!(&*status.version, "v2" | "v2beta1") {
            let mut state = self.state();
            if state.version.is_empty() {
                state.version.clone_from(&status.version);
            }
            if state.version != status.version {
                errors.push(format!(
                    "KMSv2 API version should not change after the initial status response version {}, got {}",
                    state.version,
                    excerpt(&status.version)
                ));
            }
        } else {
            errors.push(format!("expected KMSv2 API version v2, got {}", excerpt(&status.version)));
        }
        match check_key_id(&status.key_id) {
            Err(why) => errors.push(format!("got invalid KMSv2 KeyID: {why}")),
            Ok(()) => errors.extend(self.rotate_if_needed(&status.key_id, expires).await.err()),
        }
        match errors.as_slice() {
            [] => Ok(()),
            errors => {
                Err(format!("kmsv2 Provider {name} is not healthy, error: {}", errors.join(", ")))
            }
        }
    }

    /// Extends the period of writes if the seed belongs to this key. Otherwise generates a seed; if that fails, keeps
    /// the old one.
    ///
    /// Upstream: `rotateDEKOnKeyIDChange`.
    async fn rotate_if_needed(&self, key_id: &str, expires: Timestamp) -> Result<(), String> {
        if let Some(current) = &mut self.state().current
            && current.source.key_id == key_id
        {
            current.expires = expires;
            return Ok(());
        }
        let failed = |why: String| format!("failed to rotate DEK: {why}");
        let seed = Dek::generate().map_err(failed)?;
        let request = EncryptRequest { plaintext: seed.clone(), uid: uid().map_err(failed)? };
        let answer: Result<EncryptResponse, String> =
            call(&self.socket, self.timeout, ENCRYPT, request).await;
        let EncryptResponse { ciphertext, key_id: encrypted_by, annotations } =
            answer.map_err(|error| failed(format!("failed to encrypt DEK, error: {error}")))?;
        let source = Source { source_type: SEED, ciphertext, key_id: encrypted_by, annotations };
        source.check().map_err(failed)?;
        if source.key_id != key_id {
            return Err(failed(
                "the plugin encrypts with another key than its status names".into(),
            ));
        }
        let dek = Arc::new(Dek::new(seed, true).map_err(failed)?);
        let mut state = self.state();
        state.deks.insert(source.clone(), dek.clone());
        state.current = Some(Current { dek, source, expires });
        Ok(())
    }

    /// Returns the reason why no value may be encrypted now: the plugin has not responded for too long. `None` if
    /// values are.
    pub(super) fn refusal(&self) -> Option<String> {
        let now = self.clock.now();
        let state = self.state();
        let failure = state.failure.as_deref().unwrap_or("it has no key");
        let cause = match &state.current {
            None => "has encrypted no key yet",
            Some(current) if now > current.expires => "has not been healthy for three minutes",
            Some(_) => return None,
        };
        Some(format!("the KMS plugin {:?} {cause}: {failure}", self.name))
    }

    /// Encrypts a value with the current seed, even if that has expired since [`Kms::refusal`] permitted the value.
    ///
    /// # Errors
    /// Fails if there is no seed yet, or the cipher fails.
    pub(super) fn encrypt(&self, value: &[u8], authenticated: &[u8]) -> Result<Vec<u8>, String> {
        let (dek, source) = {
            let state = self.state();
            let current =
                state.current.as_ref().ok_or("the KMS plugin has encrypted no key yet")?;
            (current.dek.clone(), current.source.clone())
        };
        let object = EncryptedObject {
            encrypted_data: dek.encrypt(value, authenticated)?,
            key_id: source.key_id,
            encrypted_dek_source: source.ciphertext,
            annotations: source.annotations,
            encrypted_dek_source_type: source.source_type,
        };
        Ok([&*self.prefix, &object.encode_to_vec()].concat())
    }

    /// Decrypts a value without its prefix. Returns whether it is stale, which means that a key other than the plugin's
    /// current one encrypted its seed.
    pub(super) fn decrypt(
        &self,
        stored: &[u8],
        authenticated: &[u8],
    ) -> Result<(Vec<u8>, bool), String> {
        let object = EncryptedObject::decode(stored).map_err(|error| error.to_string())?;
        if object.encrypted_data.is_empty() {
            return Err("encrypted data is empty".to_owned());
        }
        let source = Source {
            source_type: object.encrypted_dek_source_type,
            ciphertext: object.encrypted_dek_source,
            key_id: object.key_id,
            annotations: object.annotations,
        };
        source.check()?;
        let value = self.dek(&source)?.decrypt(&object.encrypted_data, authenticated)?;
        let state = self.state();
        let is_stale = state.current.as_ref().is_none_or(|current| {
            current.source.key_id != source.key_id
                || current.source.source_type != source.source_type
        });
        Ok((value, is_stale))
    }

    /// Returns the decrypted key or seed. If it is not cached, calls the plugin and waits for the response.
    fn dek(&self, source: &Source) -> Result<Arc<Dek>, String> {
        let known = self.state().deks.get(source).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let request = DecryptRequest {
            ciphertext: source.ciphertext.clone(),
            uid: uid()?,
            key_id: source.key_id.clone(),
            annotations: source.annotations.clone(),
        };
        let answer: Result<DecryptResponse, String> =
            call_blocking(&self.socket, self.timeout, DECRYPT, request);
        let answer = answer.map_err(|error| format!("failed to decrypt DEK, error: {error}"))?;
        let dek = Arc::new(Dek::new(answer.plaintext, source.source_type == SEED)?);
        self.state().deks.insert(source.clone(), dek.clone());
        Ok(dek)
    }
}

impl Source {
    /// Checks the stored parts of an encrypted value: source type, sizes, key ID and annotations.
    ///
    /// Upstream: `ValidateEncryptedObject`.
    fn check(&self) -> Result<(), String> {
        if !matches!(self.source_type, KEY | SEED) {
            return Err(format!("unknown encryptedDEKSourceType: {}", self.source_type));
        }
        match self.ciphertext.len() {
            0 => {
                return Err(
                    "failed to validate encrypted DEK source: encrypted DEK source is empty".into(),
                );
            }
            length if length > MAX_SOURCE => {
                return Err(format!(
                    "failed to validate encrypted DEK source: encrypted DEK source is {length} bytes, which exceeds the max size of {MAX_SOURCE}"
                ));
            }
            _ => {}
        }
        check_key_id(&self.key_id).map_err(|why| format!("failed to validate key id: {why}"))?;
        let failed = |why: String| Err(format!("failed to validate annotations: {why}"));
        let mut size = 0_usize;
        for (key, value) in &self.annotations {
            if !dns_subdomain(key).is_empty() || !key.contains('.') {
                return failed(format!("{key:?} is not a fully qualified domain name"));
            }
            size = size.saturating_add(key.len()).saturating_add(value.len());
        }
        if size > MAX_ANNOTATIONS {
            return failed(format!(
                "total size of annotations is {size}, which exceeds the max size of {MAX_ANNOTATIONS}"
            ));
        }
        Ok(())
    }
}

/// Returns the beginning of a text that the plugin sent, for errors, which are logged each time the health is checked.
fn excerpt(text: &str) -> &str {
    text.char_indices().nth(MAX_EXCERPT).and_then(|(end, _)| text.get(..end)).unwrap_or(text)
}

/// Checks that the key ID is not empty and not too long.
///
/// Upstream: `ValidateKeyID`.
fn check_key_id(key_id: &str) -> Result<(), String> {
    match key_id.len() {
        0 => Err("keyID is empty".to_owned()),
        length if length > MAX_KEY_ID => {
            Err(format!("keyID is {length} bytes, which exceeds the max size of {MAX_KEY_ID}"))
        }
        _ => Ok(()),
    }
}

/// Returns a random ID of a call.
fn uid() -> Result<String, String> {
    random::<16>().map(|bytes| format!("{:032x}", u128::from_be_bytes(bytes)))
}
