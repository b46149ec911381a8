//! How commands run that ask something and end.
#![expect(clippy::print_stderr, reason = "this module prints errors to the user")]

use anyhow::{Context, Result};
use std::{io::Write as _, process::ExitCode};

/// Message about a runtime that cannot start; its cause follows.
pub(crate) const RUNTIME_FAILURE: &str = "this process cannot start its threads: raise its limits of processes and open files (ulimit -u, ulimit -n)";

/// Runs a command on a runtime of this thread, and prints its error.
pub(crate) fn block_on(command: impl Future<Output = Result<ExitCode>>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context(RUNTIME_FAILURE);
    exit_code(runtime.and_then(|runtime| runtime.block_on(command)))
}

/// Returns the exit code of a command, and prints its error.
pub(crate) fn exit_code(result: Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|error| {
        eprintln!("Error: {error:#}");
        ExitCode::FAILURE
    })
}

/// Prints a text to standard output. The reader may be gone.
pub(crate) fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}
