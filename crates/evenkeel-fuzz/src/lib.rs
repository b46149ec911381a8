//! Fuzz targets. Each decodes untrusted bytes and asserts properties that hold for any input.
//!
//! | input | targets |
//! |---|---|
//! | whole requests, to a server in memory | `requests` |
//! | request bodies | `json_body`, `yaml_body`, `protobuf_body`, `kinds`, `views` |
//! | patches | `json_patch`, `merge_patch`, `strategic_patch`, `apply`, `managed_fields` |
//! | parameters and headers | `selectors`, `continue_token`, `bearer_token`, `headers` |
//! | expressions | `cel`, `custom_resource`, `jsonpath` |
//! | strings in objects | `texts`, `cron` |
//! | responses of webhooks | `webhook` |
//! | connections after their upgrade | `spdy_frames` |
//! | files | `store_record`, `encryption`, `configuration`, `certificates` |
//!
//! `cargo test -p evenkeel-fuzz` runs every target over its corpus (`corpus/TARGET`) and a fixed number of mutations of
//! the corpus. `libfuzzer/run TARGET` searches for new inputs, guided by coverage. Keep an input that failed in the
//! corpus.
//!
//! CBOR has no target, because no body is decoded as CBOR.

mod bodies;
mod certificates;
mod configuration;
mod custom;
mod expressions;
mod input;
mod kinds;
mod managed_fields;
mod parameters;
mod patches;
mod requests;
mod store;
mod streams;
mod texts;
mod views;
mod webhook;

/// Fuzz target: a function over bytes, with its name.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Name of the target and of its folder in `corpus`.
    pub name: &'static str,
    /// Runs one input, and panics if an assertion fails.
    pub run: fn(&[u8]),
}

/// All targets, sorted by name.
pub const TARGETS: &[Target] = &[
    Target { name: "apply", run: managed_fields::apply },
    Target { name: "bearer_token", run: parameters::bearer_token },
    Target { name: "cel", run: expressions::cel },
    Target { name: "certificates", run: certificates::certificates },
    Target { name: "configuration", run: configuration::configuration },
    Target { name: "continue_token", run: parameters::continue_token },
    Target { name: "cron", run: texts::cron },
    Target { name: "custom_resource", run: custom::custom_resource },
    Target { name: "encryption", run: store::encryption },
    Target { name: "headers", run: parameters::headers },
    Target { name: "json_body", run: bodies::json },
    Target { name: "json_patch", run: patches::json_patch },
    Target { name: "jsonpath", run: expressions::jsonpath },
    Target { name: "kinds", run: kinds::kinds },
    Target { name: "managed_fields", run: managed_fields::managed_fields },
    Target { name: "merge_patch", run: patches::merge_patch },
    Target { name: "protobuf_body", run: bodies::protobuf },
    Target { name: "requests", run: requests::requests },
    Target { name: "selectors", run: parameters::selectors },
    Target { name: "spdy_frames", run: streams::spdy_frames },
    Target { name: "store_record", run: store::record },
    Target { name: "strategic_patch", run: patches::strategic_patch },
    Target { name: "texts", run: texts::texts },
    Target { name: "views", run: views::views },
    Target { name: "webhook", run: webhook::webhook },
    Target { name: "yaml_body", run: bodies::yaml },
];

/// Returns the target of this name; `None` for an unknown name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.iter().copied().find(|target| target.name == name)
}
