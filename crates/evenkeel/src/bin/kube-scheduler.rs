//! Drop-in replacement of kube-scheduler.

use evenkeel_kube_scheduler::Registry;

// The feature `heap-profile` has its own allocator.
#[cfg(all(target_env = "musl", not(feature = "heap-profile")))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    evenkeel_kube_scheduler::main(std::env::args().skip(1), &Registry::in_tree())
}
