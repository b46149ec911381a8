//! Constant-time comparison of secrets.

use ring::digest::{SHA256, digest};

/// Returns whether two secrets are equal. The time depends only on their lengths.
pub(crate) fn equal(a: &[u8], b: &[u8]) -> bool {
    // The digests need no constant-time comparison: their first differing byte reveals nothing about the secrets.
    hash(a) == hash(b)
}

/// Returns a secret's digest for use as a map key, so that the time of a lookup reveals nothing about the secret.
pub(crate) fn hash(secret: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, secret).as_ref());
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_equal_only_if_all_bytes_are() {
        for (a, b, same) in
            [("", "", true), ("a", "a", true), ("a", "b", false), ("a", "ab", false)]
        {
            assert_eq!(equal(a.as_bytes(), b.as_bytes()), same, "{a} {b}");
        }
    }
}
