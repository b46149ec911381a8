//! The drop-in kube-controller-manager.

/// Measured against the system's: see `bench/README.md`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    evenkeel_controller_manager::main(std::env::args().skip(1))
}
