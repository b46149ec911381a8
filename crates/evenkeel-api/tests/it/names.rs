use evenkeel_api::{hash, name};
use proptest::prelude::*;

#[test]
fn known_names() {
    for (text, label, subdomain, rfc1035) in [
        ("a", true, true, true),
        ("a-b", true, true, true),
        ("1a", true, true, false),
        ("a.b", false, true, false),
        ("", false, false, false),
        ("-a", false, false, false),
        ("a-", false, false, false),
        ("A", false, false, false),
        ("a..b", false, false, false),
        ("a_b", false, false, false),
        ("é", false, false, false),
    ] {
        assert_eq!(name::dns_label(text).is_ok(), label, "{text}");
        assert_eq!(name::dns_subdomain(text).is_ok(), subdomain, "{text}");
        assert_eq!(name::dns_1035_label(text).is_ok(), rfc1035, "{text}");
    }
    assert!(name::dns_label(&"a".repeat(63)).is_ok() && name::dns_label(&"a".repeat(64)).is_err());
    assert!(
        name::dns_subdomain(&"a".repeat(253)).is_ok()
            && name::dns_subdomain(&"a".repeat(254)).is_err()
    );
    for key in ["a", "a/b", "example.com/A_b.c", "1"] {
        assert!(name::qualified(key).is_ok(), "{key}");
    }
    for key in ["", "/a", "a/", "a/b/c", "A_B/c", "-a", "a b", "é"] {
        assert!(name::qualified(key).is_err(), "{key}");
    }
    assert!(
        name::label_value("").is_ok()
            && name::label_value("a.B_c-1").is_ok()
            && name::label_value("-").is_err()
    );
    assert!(
        name::prefix("web-", name::dns_label).is_ok()
            && name::prefix("Web-", name::dns_label).is_err()
    );
    assert!(
        name::path_segment("a.b").is_ok()
            && name::path_segment("..").is_err()
            && name::path_segment("a/b").is_err()
    );
    let why = name::dns_subdomain("Bad_").unwrap_err().to_string();
    assert_eq!(
        why,
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
    );
}

#[test]
fn hashes_are_the_standard_ones() {
    let mut fnv = hash::Fnv32a::default();
    assert_eq!(fnv.sum(), 0x811c_9dc5);
    fnv.write(b"foobar");
    assert_eq!(fnv.sum(), 0xbf9c_f968);
    assert_eq!(hash::fnv32(b"foobar"), 0x31f0_b262);
    // Upstream's names of controller revisions.
    let data = br#"{"spec":{"template":{"$patch":"replace"}}}"#;
    assert_eq!(hash::safe_encode_string(&hash::fnv32(data).to_string()), "5c7586484");
    assert_eq!(hash::safe_encode_string("0123456789"), "456789bcdf");
}

proptest! {
    #[test]
    fn generated_names_fit_and_are_safe(base in "[a-z]([-a-z0-9]{0,80}[a-z0-9])?-", seed: u32) {
        let mut state = seed;
        let generated = name::generate(&base, || { state = state.wrapping_mul(747_796_405).wrapping_add(2_891_336_453); state });
        prop_assert!(generated.len() <= 63);
        prop_assert!(generated.starts_with(&base[..base.len().min(58)]));
        prop_assert!(name::dns_label(&generated).is_ok(), "{}", generated);
        let suffix = &generated[generated.len() - 5..];
        prop_assert!(suffix.bytes().all(|b| name::SAFE.contains(&b)));
    }

    #[test]
    fn bases_are_cut_between_characters(base in "\\PC{0,80}") {
        let generated = name::generate(&base, || u32::MAX);
        prop_assert!(generated.len() <= 63 && generated.ends_with("99999"));
    }
}
