//! Drop-in replacement of kube-controller-manager.

// The feature `heap-profile` has its own allocator.
#[cfg(all(target_os = "linux", not(feature = "heap-profile")))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    evenkeel_controller_manager::main(std::env::args().skip(1))
}
