//! Runs commands that send requests, print the response and exit.
#![expect(clippy::print_stderr, reason = "this module prints errors to the user")]

use crate::{clusters::Clusters, kubeconfig::Home};
use anyhow::{Context, Result};
use evenkeel_apiserver::{BuildError, OpenError, snapshot::SnapshotError};
use evenkeel_runtime::client::{ApiError, ConnectError};
use kube::config::KubeconfigError;
use std::{error::Error as _, io::Write as _, path::Path, process::ExitCode};

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

/// Returns the message for a command that finds no cluster; `None` for other errors.
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

/// Returns an error with its causes, and with the next step if many commands can fail with this error. Many errors end with the
/// message of their cause, which is then not repeated.
pub(crate) fn chain(error: &anyhow::Error) -> String {
    if let Some(text) = no_cluster(error) {
        return text.to_owned();
    }
    let mut text = String::new();
    for cause in error.chain() {
        let part = cause.to_string();
        let part = part.strip_prefix(HYPER_PREFIX).unwrap_or(&part);
        let is_said = text.ends_with(NO_ANSWER) && cause.is::<ApiError>();
        if !text.ends_with(part) && !is_said {
            text = if text.is_empty() { part.to_owned() } else { format!("{text}: {part}") };
        }
        // Its message contains the messages of its causes.
        if cause.is::<ConnectError>() {
            break;
        }
    }
    match next_step(error) {
        // The command's message may already name a next step.
        Some(step) if !text.contains(" --kubeconfig") => format!("{text}; {step}"),
        _ => text,
    }
}

/// End of the message that an API server does not respond. The error that follows it adds nothing.
const NO_ANSWER: &str = "does not answer";

/// Prefix of hyper's transport errors, which is of no use to users.
const HYPER_PREFIX: &str = "ServiceError: ";

/// Returns the path of a store that another process has open, if that is the error.
fn locked_store<'a>(cause: &'a (dyn std::error::Error + 'static)) -> Option<&'a str> {
    let of_snapshot = || match cause.downcast_ref() {
        Some(SnapshotError::Open(error)) => Some(error),
        _ => None,
    };
    let of_server = || match cause.downcast_ref() {
        Some(BuildError::Store(error)) => Some(error),
        _ => None,
    };
    match cause.downcast_ref().or_else(of_snapshot).or_else(of_server)? {
        OpenError::Locked(path) => Some(path),
        _ => None,
    }
}

/// Returns the next step of an error that many commands have in common.
fn next_step(error: &anyhow::Error) -> Option<String> {
    error.chain().find_map(|cause| {
        if let Some(ConnectError::Kubeconfig { source, .. }) = cause.downcast_ref() {
            return Some(match &**source {
                KubeconfigError::ReadConfig(..) => {
                    "name another one with --kubeconfig; `evenkeel status` prints that of a cluster that runs here".to_owned()
                }
                _ => "`kubectl config view --kubeconfig FILE` prints what it has".to_owned(),
            });
        }
        let is_unreachable = matches!(cause.downcast_ref(), Some(ApiError::Transport { .. }))
            || matches!(cause.downcast_ref(), Some(kube::Error::Service(_)));
        if is_unreachable {
            return Some(
                "does it run? `evenkeel list` prints the clusters that run here; --kubeconfig and --context name another one"
                    .to_owned(),
            );
        }
        let locked = locked_store(cause)?;
        let folder = Path::new(locked).parent()?;
        let found = Clusters::of(&Home::from_env()).of_data(folder).ok().flatten()?;
        Some(format!("it is of the cluster {0}: evenkeel down {0}", found.name))
    })
}

/// Prints a warning to standard error. Ignores the error if the reader has closed the pipe.
pub(crate) fn warn(text: &str) {
    let _ = writeln!(std::io::stderr(), "Warning: {text}");
}

/// Prints text to standard output. Ignores the error if the reader has closed the pipe.
pub(crate) fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_runtime::client::{self, ConnectOptions};

    #[tokio::test]
    async fn a_missing_kubeconfig_is_named_once_with_the_next_step() {
        let options =
            ConnectOptions { kubeconfig: Some("/nonexistent".into()), ..ConnectOptions::default() };
        let error = client::config(&options).await.map(drop).expect_err("there is none");
        let text = chain(&error.into());
        assert_eq!(text.matches("No such file or directory").count(), 1, "{text}");
        assert!(text.contains("; name another one with --kubeconfig"), "{text}");
    }

    #[test]
    fn an_api_server_that_does_not_answer_has_a_next_step() {
        let source = std::io::Error::other("ServiceError: connection refused");
        let error = ApiError::Transport {
            method: http::Method::GET,
            path: "/api".into(),
            source: Box::new(source),
        };
        let text = chain(&anyhow::Error::from(error).context("discovery failed"));
        assert_eq!(
            text,
            "discovery failed: GET /api: no answer from the API server: connection refused; does it run? `evenkeel list` prints \
             the clusters that run here; --kubeconfig and --context name another one"
        );
        let named = || {
            let source = std::io::Error::other("connection refused");
            anyhow::Error::from(ApiError::Transport {
                method: http::Method::GET,
                path: "/api".into(),
                source: Box::new(source),
            })
        };
        let text = chain(&named().context("the API server at U does not answer"));
        assert!(
            text.starts_with(
                "the API server at U does not answer: connection refused; does it run?"
            ),
            "{text}"
        );
        let text = chain(&named().context("check --apiserver and --kubeconfig"));
        assert!(
            text.ends_with("connection refused"),
            "the command has named the next step: {text}"
        );
    }

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
