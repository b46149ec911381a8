//! All targets as one program of libFuzzer; `EVENKEEL_FUZZ_TARGET` names the one to run.
#![no_main]

use std::sync::LazyLock;

use evenkeel_fuzz::{TARGETS, Target, target};
use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("EVENKEEL_FUZZ_TARGET").unwrap_or_default();
    target(&name).unwrap_or_else(|| {
        let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        panic!("EVENKEEL_FUZZ_TARGET must be one of {}", names.join(", "))
    })
});

fuzz_target!(|data: &[u8]| {
    (TARGET.run)(data);
});
