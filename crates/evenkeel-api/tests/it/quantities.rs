use evenkeel_api::quantity::Quantity;
use proptest::prelude::*;

fn q(text: &str) -> Quantity {
    Quantity::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn canonical_forms() {
    for (text, canonical) in [
        ("0", "0"),
        ("0Ki", "0"),
        ("-0", "0"),
        ("1Ki", "1Ki"),
        ("1024Mi", "1Gi"),
        ("1000M", "1G"),
        (".001Ki", "1024m"),
        (".000001Ki", "1024u"),
        ("1.5", "1500m"),
        ("1000m", "1"),
        ("100m", "100m"),
        ("0.5Mi", "512Ki"),
        ("0.05Gi", "53687091200m"),
        ("100.035Ki", "102435840m"),
        ("1500Mi", "1500Mi"),
        ("1e3", "1e3"),
        ("1E6", "1e6"),
        ("1.2e3", "1200"),
        ("0.5e0", "500e-3"),
        ("12E", "12E"),
        ("2.5P", "2500T"),
        ("9.01", "9010m"),
        ("3.001n", "4n"),
        ("0.0000000001", "1n"),
        ("0.9n", "1n"),
        ("0.00000012345", "124n"),
        ("-3.001n", "-4n"),
        ("9Ei", "9223372036854775807"),
        ("9223372036854775807Ki", "9223372036854775807"),
        ("0.000000000001Ki", "2n"),
        (".001", "1m"),
        (".0001k", "100m"),
        ("1.", "1"),
        ("1.G", "1G"),
        ("+5", "5"),
        ("1023", "1023"),
        ("0.9Ki", "921600m"),
        ("1024", "1024"),
        ("7.123456M", "7123456"),
        ("50k", "50k"),
        ("300.2T", "300200G"),
    ] {
        assert_eq!(q(text).to_string(), canonical, "{text}");
    }
}

#[test]
fn invalid_quantities() {
    for text in [
        "", " ", "1 ", "a", "1K", "1ki", "1mi", "1.2.3", "--1", "1e", "1e1.5", "Mi", "1iM", "0x1",
        "1e+", "١",
    ] {
        assert!(Quantity::parse(text).is_err(), "{text:?}");
    }
}

#[test]
fn values_round_away_from_zero() {
    for (text, value, milli) in [
        ("1500m", 2, 1500),
        ("-1500m", -2, -1500),
        ("1n", 1, 1),
        ("1Gi", 1 << 30, 1000 << 30),
        ("100E", i64::MAX, i64::MAX),
        ("-100E", i64::MIN, i64::MIN),
        ("2.0005", 3, 2001),
    ] {
        assert_eq!((q(text).value(), q(text).milli_value()), (value, milli), "{text}");
    }
}

#[test]
fn huge_exponents_and_lengths_do_not_overflow() {
    assert!(q("1e999999999") > q("1E"));
    assert_eq!(q("1e-999999999").to_string(), "1e-9");
    assert_eq!(q(&format!("1{}", "0".repeat(500))), q(&format!("9{}", "9".repeat(500))));
    assert_eq!(q(&format!("0.{}1", "0".repeat(500))).to_string(), "1n");
    assert_eq!(q(&format!("0.{}1Ei", "0".repeat(500))).to_string(), "1n");
}

fn text() -> impl Strategy<Value = String> {
    (
        "-?[0-9]{1,12}(\\.[0-9]{0,6})?",
        prop::sample::select(vec![
            "", "n", "u", "m", "k", "M", "G", "Ki", "Mi", "Gi", "e3", "e-3", "E2",
        ]),
    )
        .prop_map(|(number, suffix)| number + suffix)
}

proptest! {
    #[test]
    fn canonical_text_is_equal_and_stable(text in text()) {
        let canonical = q(&text).to_string();
        prop_assert_eq!(q(&canonical), q(&text));
        prop_assert_eq!(q(&canonical).to_string(), canonical);
    }

    #[test]
    fn arithmetic_is_exact(a in text(), b in text()) {
        let (a, b) = (q(&a), q(&b));
        prop_assert_eq!(a.plus(b), b.plus(a));
        prop_assert_eq!(a.plus(b).minus(b), a);
        prop_assert_eq!(a.cmp(&b) as i32, a.minus(b).sign());
        prop_assert!(a.minus(a).is_zero());
        prop_assert_eq!(a.negated().negated(), a);
    }

    #[test]
    fn any_text_parses_without_panic(text in "\\PC{0,12}", near in "[-+.0-9eEinumkKMGTP]{0,12}") {
        let _ = Quantity::parse(&text);
        let _ = Quantity::parse(&near);
    }
}
