//! Ciphers for encryption at rest. Each encrypted value begins with a random nonce.

use aes::cipher::block_padding::Pkcs7;
use aes::cipher::{
    BlockCipher, BlockDecrypt, BlockDecryptMut, BlockEncrypt, BlockEncryptMut, KeyInit, KeyIvInit,
};
use aes::{Aes128, Aes192, Aes256};
use aes_gcm::AesGcm;
use aes_gcm::aead::AeadInPlace;
use aes_gcm::aead::consts::{U0, U12, U16};
use aes_gcm::aead::generic_array::GenericArray;
use crypto_secretbox::XSalsa20Poly1305;
use ring::rand::{SecureRandom as _, SystemRandom};

/// Length of the nonce of AES-GCM, in bytes.
const GCM_NONCE_LENGTH: usize = 12;
/// Length of the nonce of XSalsa20 and Poly1305, in bytes.
const SECRETBOX_NONCE_LENGTH: usize = 24;
/// Length of the authentication tags of AES-GCM and Poly1305, in bytes.
const TAG_LENGTH: usize = 16;
/// Length in bytes of an AES block, and of an initialization vector.
const BLOCK_LENGTH: usize = 16;

const TOO_SHORT: &str = "the stored value is too short";
const NOT_DECRYPTABLE: &str = "the stored value cannot be decrypted";

/// AES-GCM with a key of any supported length.
type Gcm = dyn AeadInPlace<NonceSize = U12, TagSize = U16, CiphertextOverhead = U0> + Send + Sync;

/// Cipher with its key.
pub(super) enum Cipher {
    /// AES-GCM: nonce, encrypted value, tag.
    Gcm(Box<Gcm>),
    /// AES-CBC with the padding of PKCS #7: initialization vector, encrypted value.
    Cbc(Vec<u8>),
    /// XSalsa20 and Poly1305: nonce, tag, encrypted value.
    Secretbox(Box<XSalsa20Poly1305>),
}

/// Returns random bytes for a nonce or an initialization vector.
pub(super) fn random<const N: usize>() -> Result<[u8; N], String> {
    let mut nonce = [0; N];
    let filled = SystemRandom::new().fill(&mut nonce);
    filled.map(|()| nonce).map_err(|_| "the system has no random numbers".to_owned())
}

impl Cipher {
    /// Creates AES-GCM with a key of 16, 24 or 32 bytes.
    pub(super) fn aes_gcm(key: &[u8]) -> Result<Self, String> {
        // AES-128, AES-192 and AES-256 are different types. The length of the key decides which of them accepts it.
        fn new_boxed<C>(key: &[u8]) -> Option<Box<Gcm>>
        where
            AesGcm<C, U12>: KeyInit
                + AeadInPlace<NonceSize = U12, TagSize = U16, CiphertextOverhead = U0>
                + Send
                + Sync
                + 'static,
        {
            Some(Box::new(AesGcm::<C, U12>::new_from_slice(key).ok()?))
        }
        new_boxed::<Aes256>(key)
            .or_else(|| new_boxed::<Aes128>(key))
            .or_else(|| new_boxed::<Aes192>(key))
            .map(Self::Gcm)
            .ok_or_else(|| "the key has a wrong length".to_owned())
    }

    /// Creates AES-CBC with a key of 16, 24 or 32 bytes.
    pub(super) fn aes_cbc(key: &[u8]) -> Result<Self, String> {
        match key.len() {
            16 | 24 | 32 => Ok(Self::Cbc(key.to_vec())),
            _ => Err("the key has a wrong length".to_owned()),
        }
    }

    /// Creates the cipher of XSalsa20 and Poly1305 with a key of 32 bytes.
    pub(super) fn secretbox(key: &[u8]) -> Result<Self, String> {
        let cipher = XSalsa20Poly1305::new_from_slice(key);
        let cipher = cipher.map_err(|_| "the key has a wrong length".to_owned())?;
        Ok(Self::Secretbox(Box::new(cipher)))
    }

    /// Encrypts a value. Decryption needs the same `authenticated` data. Only AES-GCM uses it, the other ciphers ignore
    /// it.
    pub(super) fn encrypt(&self, value: &[u8], authenticated: &[u8]) -> Result<Vec<u8>, String> {
        let failed = || "a value cannot be encrypted".to_owned();
        match self {
            Self::Gcm(cipher) => {
                let nonce: [u8; GCM_NONCE_LENGTH] = random()?;
                let mut encrypted = value.to_vec();
                let nonce = GenericArray::from(nonce);
                let tag = cipher.encrypt_in_place_detached(&nonce, authenticated, &mut encrypted);
                let tag = tag.map_err(|_| failed())?;
                Ok([nonce.as_slice(), &encrypted, &tag].concat())
            }
            Self::Cbc(key) => {
                let iv: [u8; BLOCK_LENGTH] = random()?;
                let encrypted = match key.len() {
                    16 => encrypt_cbc::<Aes128>(key, &iv, value),
                    24 => encrypt_cbc::<Aes192>(key, &iv, value),
                    _ => encrypt_cbc::<Aes256>(key, &iv, value),
                };
                Ok([iv.as_slice(), &encrypted.ok_or_else(failed)?].concat())
            }
            Self::Secretbox(cipher) => {
                let nonce: [u8; SECRETBOX_NONCE_LENGTH] = random()?;
                let mut encrypted = value.to_vec();
                let nonce = GenericArray::from(nonce);
                let tag = cipher.encrypt_in_place_detached(&nonce, &[], &mut encrypted);
                let tag = tag.map_err(|_| failed())?;
                Ok([nonce.as_slice(), &tag, &encrypted].concat())
            }
        }
    }

    /// Decrypts a value that [`encrypt`](Self::encrypt) returned.
    pub(super) fn decrypt(&self, stored: &[u8], authenticated: &[u8]) -> Result<Vec<u8>, String> {
        let not_decryptable = || NOT_DECRYPTABLE.to_owned();
        match self {
            Self::Gcm(cipher) => {
                let (nonce, rest) = split(stored, GCM_NONCE_LENGTH)?;
                let end = rest.len().checked_sub(TAG_LENGTH).ok_or(TOO_SHORT)?;
                let (encrypted, tag) = split(rest, end)?;
                let mut value = encrypted.to_vec();
                let (nonce, tag) = (GenericArray::from_slice(nonce), GenericArray::from_slice(tag));
                cipher
                    .decrypt_in_place_detached(nonce, authenticated, &mut value, tag)
                    .map_err(|_| not_decryptable())?;
                Ok(value)
            }
            Self::Cbc(key) => {
                let (iv, encrypted) = split(stored, BLOCK_LENGTH)?;
                let value = match key.len() {
                    16 => decrypt_cbc::<Aes128>(key, iv, encrypted),
                    24 => decrypt_cbc::<Aes192>(key, iv, encrypted),
                    _ => decrypt_cbc::<Aes256>(key, iv, encrypted),
                };
                value.ok_or_else(not_decryptable)
            }
            Self::Secretbox(cipher) => {
                let (nonce, rest) = split(stored, SECRETBOX_NONCE_LENGTH)?;
                let (tag, encrypted) = split(rest, TAG_LENGTH)?;
                let mut value = encrypted.to_vec();
                let (nonce, tag) = (GenericArray::from_slice(nonce), GenericArray::from_slice(tag));
                cipher
                    .decrypt_in_place_detached(nonce, &[], &mut value, tag)
                    .map_err(|_| not_decryptable())?;
                Ok(value)
            }
        }
    }
}

/// Splits a part of a stored value at an index. Returns an error if it is too short.
fn split(bytes: &[u8], index: usize) -> Result<(&[u8], &[u8]), String> {
    bytes.split_at_checked(index).ok_or_else(|| TOO_SHORT.to_owned())
}

fn encrypt_cbc<C>(key: &[u8], iv: &[u8], value: &[u8]) -> Option<Vec<u8>>
where
    C: BlockCipher + BlockEncrypt + KeyInit,
{
    let cipher = cbc::Encryptor::<C>::new_from_slices(key, iv).ok()?;
    Some(cipher.encrypt_padded_vec_mut::<Pkcs7>(value))
}

fn decrypt_cbc<C>(key: &[u8], iv: &[u8], encrypted: &[u8]) -> Option<Vec<u8>>
where
    C: BlockCipher + BlockDecrypt + KeyInit,
{
    let cipher = cbc::Decryptor::<C>::new_from_slices(key, iv).ok()?;
    cipher.decrypt_padded_vec_mut::<Pkcs7>(encrypted).ok()
}
