//! How commands run that ask something and end.
#![expect(clippy::print_stderr, reason = "this module prints errors to the user")]

use anyhow::{Context, Result};
use evenkeel_runtime::client::ConnectError;
use kube::config::KubeconfigError;
use std::{error::Error as _, io::Write as _, process::ExitCode};

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
        eprintln!("Error: {}", chain(&error));
        ExitCode::FAILURE
    })
}

/// Returns what a command without a cluster says; `None` for other errors.
fn no_cluster(error: &anyhow::Error) -> Option<&'static str> {
    let infer = error.chain().find_map(|cause| match cause.downcast_ref::<ConnectError>()? {
        ConnectError::Infer(infer) => Some(infer),
        _ => None,
    })?;
    let kubeconfig = infer.source()?.downcast_ref::<KubeconfigError>()?;
    let is_absent = match kubeconfig {
        KubeconfigError::CurrentContextNotSet | KubeconfigError::FindPath => true,
        KubeconfigError::LoadContext(name) => name.is_empty(),
        KubeconfigError::ReadConfig(error, _) => error.kind() == std::io::ErrorKind::NotFound,
        _ => false,
    };
    is_absent.then_some(
        "there is no cluster: there is no kubeconfig, or it has no current context; start one with: evenkeel up -d, or give --kubeconfig FILE",
    )
}

/// Returns an error with its causes. Many errors end with the text of their cause, which is then not repeated.
pub(crate) fn chain(error: &anyhow::Error) -> String {
    if let Some(text) = no_cluster(error) {
        return text.to_owned();
    }
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// Prints a text to standard output. The reader may be gone.
pub(crate) fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cause_is_printed_twice() {
        let cause = || anyhow::anyhow!("no such file");
        for (error, expected) in [
            (cause(), "no such file"),
            (cause().context("a.yaml"), "a.yaml: no such file"),
            (cause().context("a.yaml: no such file"), "a.yaml: no such file"),
            (cause().context("a: no such file").context("--load"), "--load: a: no such file"),
            (cause().context("the file is gone").context("x"), "x: the file is gone: no such file"),
        ] {
            assert_eq!(chain(&error), expected);
        }
    }
}
