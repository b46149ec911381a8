//! Key usages of a certificate: the API's names and their encodings in X.509.
//!
//! Upstream: `keyUsagesFromStrings`.

/// The API's names of key usages, each with its bit. Bit 0 is the first of the bit string in RFC 5280.
const KEY_USAGE_BITS: [(&str, u16); 10] = [
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

/// The API's names of extended key usages, each with its object identifier, in the order in which Go writes them. Two names of
/// one usage are adjacent.
const EXTENDED_KEY_USAGES: [(&str, &[u64]); 13] = [
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
    key_usage_bits: u16,
    extended_key_usages: Vec<&'static [u64]>,
}

/// Error about names that are not key usages.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unrecognized usage values: {0:?}")]
pub(super) struct UnknownUsages(Vec<String>);

impl Usages {
    /// Parses the names of `spec.usages`.
    pub(super) fn parse(names: &[String]) -> Result<Self, UnknownUsages> {
        let bit = |name: &str| {
            KEY_USAGE_BITS.iter().find(|(known, _)| *known == name).map(|(_, bit)| *bit)
        };
        let is_extended = |name: &str| EXTENDED_KEY_USAGES.iter().any(|(known, _)| *known == name);
        let unknown = names.iter().filter(|name| bit(name).is_none() && !is_extended(name));
        let unknown: Vec<String> = unknown.cloned().collect();
        if !unknown.is_empty() {
            return Err(UnknownUsages(unknown));
        }
        let requested =
            EXTENDED_KEY_USAGES.iter().filter(|(known, _)| names.iter().any(|name| name == known));
        let mut extended_key_usages: Vec<&[u64]> = requested.map(|(_, numbers)| *numbers).collect();
        extended_key_usages.dedup();
        let bits = names.iter().filter_map(|name| bit(name));
        Ok(Self { key_usage_bits: bits.fold(0, |all, bit| all | bit), extended_key_usages })
    }

    /// Returns the key usages as bits. Bit 0 is the first of the bit string in RFC 5280.
    pub(super) fn key_usage_bits(&self) -> u16 {
        self.key_usage_bits
    }

    /// Returns the extended key usages as object identifiers.
    pub(super) fn extended_key_usages(&self) -> &[&'static [u64]] {
        &self.extended_key_usages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usages_are_parsed_by_name() {
        let parse = |names: &[&str]| {
            Usages::parse(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
        };
        let usages = parse(&[
            "client auth",
            "key encipherment",
            "signing",
            "digital signature",
            "server auth",
        ])
        .unwrap();
        assert_eq!(usages.key_usage_bits(), 0b101);
        assert_eq!(
            usages.extended_key_usages(),
            [EXTENDED_KEY_USAGES[1].1, EXTENDED_KEY_USAGES[2].1]
        );
        assert_eq!(
            parse(&["s/mime", "email protection"]).unwrap().extended_key_usages().len(),
            1,
            "two names of one usage"
        );
        assert_eq!(parse(&[]).unwrap().key_usage_bits(), 0);
        let error = parse(&["any", "flying", "sailing"]).unwrap_err();
        assert_eq!(error.to_string(), r#"unrecognized usage values: ["flying", "sailing"]"#);
    }
}
