//! The cloud-controller-manager with the providers that come with Evenkeel.

use evenkeel_cloud::program::{self, ProviderRegistry};

fn main() -> std::process::ExitCode {
    program::main(std::env::args().skip(1), &ProviderRegistry::builtin())
}
