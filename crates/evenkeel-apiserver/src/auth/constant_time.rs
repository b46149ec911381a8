//! Comparison of secrets.

use ring::digest::{SHA256, digest};

/// Returns whether two secrets are equal. The time depends on their lengths alone.
pub(crate) fn equal(a: &[u8], b: &[u8]) -> bool {
    // Where two digests differ first says nothing of the secrets.
    hash(a) == hash(b)
}

/// Returns the digest under which a secret is kept in a map: the time of a look-up says nothing of the secret.
pub(crate) fn hash(secret: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, secret).as_ref());
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_compared_whole() {
        for (a, b, same) in
            [("", "", true), ("a", "a", true), ("a", "b", false), ("a", "ab", false)]
        {
            assert_eq!(equal(a.as_bytes(), b.as_bytes()), same, "{a} {b}");
        }
    }
}
