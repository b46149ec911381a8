//! Any text is a quantity, a selector, a time, or an error; canonical forms are stable.
#![no_main]

use evenkeel_api::{quantity::Quantity, selector::{FieldSelector, Selector}, time};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(quantity) = Quantity::parse(text) {
        assert_eq!(Quantity::parse(&quantity.to_string()), Ok(quantity));
    }
    if let Ok(selector) = Selector::parse(text) {
        assert_eq!(Selector::parse(&selector.to_string()).as_ref(), Ok(&selector));
    }
    let _ = FieldSelector::parse(text);
    let _ = time::parse(text);
});
