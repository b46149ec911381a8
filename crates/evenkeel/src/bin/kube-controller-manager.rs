//! The drop-in kube-controller-manager.

// One for heap profiles takes its place where they are asked for.
#[cfg(all(target_os = "linux", not(feature = "heap-profile")))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    evenkeel_controller_manager::main(std::env::args().skip(1))
}
