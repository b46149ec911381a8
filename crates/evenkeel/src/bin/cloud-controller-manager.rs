//! The cloud-controller-manager, with the built-in cloud providers.

use evenkeel_cloud::program::{self, ProviderRegistry};

fn main() -> std::process::ExitCode {
    program::main(std::env::args().skip(1), &ProviderRegistry::builtin())
}
