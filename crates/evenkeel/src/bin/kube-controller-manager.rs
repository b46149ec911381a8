//! The drop-in kube-controller-manager.

fn main() -> std::process::ExitCode {
    evenkeel_controller_manager::main(std::env::args().skip(1))
}
