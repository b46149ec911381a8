use evenkeel_api::hash;

#[test]
fn fnv_and_safe_encoding() {
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
