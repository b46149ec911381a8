//! Key usages of a certificate: from the API's names to X.509.
//!
//! Upstream: `keyUsagesFromStrings`.

/// Names of the API and their bits of the X.509 key usage.
const BITS: [(&str, u16); 10] = [
    ("signing", 1),
    ("digital signature", 1),
    ("content commitment", 1 << 1),
    ("key encipherment", 1 << 2),
    ("data encipherment", 1 << 3),
    ("key agreement", 1 << 4),
    ("cert sign", 1 << 5),
    ("crl sign", 1 << 6),
    ("encipher only", 1 << 7),
    ("decipher only", 1 << 8),
];

/// Names of the API and their extended key usages, in the order in which Go writes them.
const PURPOSES: [(&str, &[u64]); 13] = [
    ("any", &[2, 5, 29, 37, 0]),
    ("server auth", &[1, 3, 6, 1, 5, 5, 7, 3, 1]),
    ("client auth", &[1, 3, 6, 1, 5, 5, 7, 3, 2]),
    ("code signing", &[1, 3, 6, 1, 5, 5, 7, 3, 3]),
    ("email protection", &[1, 3, 6, 1, 5, 5, 7, 3, 4]),
    ("s/mime", &[1, 3, 6, 1, 5, 5, 7, 3, 4]),
    ("ipsec end system", &[1, 3, 6, 1, 5, 5, 7, 3, 5]),
    ("ipsec tunnel", &[1, 3, 6, 1, 5, 5, 7, 3, 6]),
    ("ipsec user", &[1, 3, 6, 1, 5, 5, 7, 3, 7]),
    ("timestamping", &[1, 3, 6, 1, 5, 5, 7, 3, 8]),
    ("ocsp signing", &[1, 3, 6, 1, 5, 5, 7, 3, 9]),
    ("microsoft sgc", &[1, 3, 6, 1, 4, 1, 311, 10, 3, 3]),
    ("netscape sgc", &[2, 16, 840, 1, 113_730, 4, 1]),
];

/// Key usages and extended key usages of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Usages {
    bits: u16,
    purposes: Vec<&'static [u64]>,
}

/// Names that are not key usages.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unrecognized usage values: {0:?}")]
pub(super) struct UnknownUsages(Vec<String>);

impl Usages {
    /// Parses the names of `spec.usages`.
    pub(super) fn read(names: &[String]) -> Result<Self, UnknownUsages> {
        let bit = |name: &str| BITS.iter().find(|(known, _)| *known == name).map(|(_, bit)| *bit);
        let is_purpose = |name: &str| PURPOSES.iter().any(|(known, _)| *known == name);
        let unknown = names.iter().filter(|name| bit(name).is_none() && !is_purpose(name));
        let unknown: Vec<String> = unknown.cloned().collect();
        if !unknown.is_empty() {
            return Err(UnknownUsages(unknown));
        }
        let requested = PURPOSES.iter().filter(|(known, _)| names.iter().any(|name| name == known));
        let mut purposes: Vec<&[u64]> = requested.map(|(_, numbers)| *numbers).collect();
        purposes.dedup();
        Ok(Self {
            bits: names.iter().filter_map(|name| bit(name)).fold(0, |all, bit| all | bit),
            purposes,
        })
    }

    /// Returns the bits of the key usage; the lowest is the first of RFC 5280.
    pub(super) fn bits(&self) -> u16 {
        self.bits
    }

    /// Returns the extended key usages as object identifiers.
    pub(super) fn purposes(&self) -> &[&'static [u64]] {
        &self.purposes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usages_become_bits_and_purposes() {
        let read = |names: &[&str]| {
            Usages::read(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
        };
        let usages = read(&[
            "client auth",
            "key encipherment",
            "signing",
            "digital signature",
            "server auth",
        ])
        .unwrap();
        assert_eq!(usages.bits(), 0b101);
        assert_eq!(usages.purposes(), [PURPOSES[1].1, PURPOSES[2].1]);
        assert_eq!(read(&["s/mime", "email protection"]).unwrap().purposes().len(), 1);
        assert_eq!(read(&[]).unwrap().bits(), 0);
        let error = read(&["any", "flying", "sailing"]).unwrap_err();
        assert_eq!(error.to_string(), r#"unrecognized usage values: ["flying", "sailing"]"#);
    }
}
