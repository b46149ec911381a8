//! Encryption with a key that is derived from a seed for each value.

use ring::hkdf::{HKDF_SHA256, KeyType, Prk};

use super::super::cipher::{Cipher, random};

/// Length of a seed, of the info of a derived key, and of a derived key, in bytes.
const LENGTH: usize = 32;

/// Data encryption key, or the seed of such keys.
pub(super) enum Dek {
    /// Key of AES-GCM. Earlier versions of upstream's server encrypted values with such keys.
    Key(Cipher),
    /// Seed of HKDF. A value begins with its info; HKDF expands the seed and the info to the value's key.
    Seed(Vec<u8>),
}

/// Length that HKDF expands to.
struct Length;

impl KeyType for Length {
    fn len(&self) -> usize {
        LENGTH
    }
}

impl Dek {
    /// Returns a random seed.
    pub(super) fn generate() -> Result<Vec<u8>, String> {
        random::<LENGTH>().map(Into::into)
    }

    /// Creates a key, or a seed of at least 32 bytes.
    pub(super) fn new(source: Vec<u8>, is_seed: bool) -> Result<Self, String> {
        match is_seed {
            false => Cipher::aes_gcm(&source).map(Self::Key),
            true if source.len() < LENGTH => {
                Err(format!("invalid seed length {} used for key generation", source.len()))
            }
            true => Ok(Self::Seed(source)),
        }
    }

    /// Encrypts a value. Decryption needs the same `authenticated` data.
    ///
    /// Upstream: `extendedNonceGCM.TransformToStorage`.
    pub(super) fn encrypt(&self, value: &[u8], authenticated: &[u8]) -> Result<Vec<u8>, String> {
        match self {
            Self::Key(cipher) => cipher.encrypt(value, authenticated),
            Self::Seed(seed) => {
                let info = random::<LENGTH>()?;
                let encrypted = derived(seed, &info)?.encrypt(value, authenticated)?;
                Ok([info.as_slice(), &encrypted].concat())
            }
        }
    }

    /// Decrypts a value.
    pub(super) fn decrypt(&self, stored: &[u8], authenticated: &[u8]) -> Result<Vec<u8>, String> {
        match self {
            Self::Key(cipher) => cipher.decrypt(stored, authenticated),
            Self::Seed(seed) => {
                let (info, encrypted) = stored
                    .split_at_checked(LENGTH)
                    .ok_or("the stored data was shorter than the required size")?;
                derived(seed, info)?.decrypt(encrypted, authenticated)
            }
        }
    }
}

/// Returns AES-GCM with the key that HKDF expands from a seed and an info.
///
/// Upstream: `sha256KDFExpandOnly`.
fn derived(seed: &[u8], info: &[u8]) -> Result<Cipher, String> {
    let failed = |_| "a key cannot be derived".to_owned();
    let mut key = [0; LENGTH];
    let prk = Prk::new_less_safe(HKDF_SHA256, seed);
    prk.expand(&[info], Length).map_err(failed)?.fill(&mut key).map_err(failed)?;
    Cipher::aes_gcm(&key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_has_a_key_of_its_own() {
        let dek = Dek::new(vec![7; 32], true).expect("a seed");
        let [a, b] = [(); 2].map(|()| dek.encrypt(b"value", b"/a").expect("encrypted"));
        assert_ne!(a[..LENGTH], b[..LENGTH]);
        assert_eq!(dek.decrypt(&a, b"/a").expect("decrypted"), b"value");
        assert!(dek.decrypt(&a, b"/b").is_err(), "another object's");
        assert!(dek.decrypt(&a[..LENGTH - 1], b"/a").is_err(), "too short");
        assert!(Dek::new(vec![7; 31], true).is_err());
    }

    /// The key of Go's `hkdf.Expand(sha256.New, seed, info)`: the first block of RFC 5869.
    #[test]
    fn keys_are_expanded_as_upstream_does() {
        let (seed, info) = ([1; 32], [2; 32]);
        let block = ring::hmac::sign(
            &ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &seed),
            &[info.as_slice(), &[1]].concat(),
        );
        let by_hand = Cipher::aes_gcm(block.as_ref()).expect("a key");
        let dek = Dek::new(seed.to_vec(), true).expect("a seed");
        let stored = [info.as_slice(), &by_hand.encrypt(b"v", b"k").expect("encrypted")].concat();
        assert_eq!(dek.decrypt(&stored, b"k").expect("decrypted"), b"v");
    }
}
