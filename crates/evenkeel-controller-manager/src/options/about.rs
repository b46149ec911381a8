//! The command line as a whole: what it asks for, the help text, and the version.

use super::{Choice, NAME, Options, flags, flagz};
use anyhow::Error;
use clap::Command;
use evenkeel_component::{
    features::{self, Versions},
    flags::{self, About, Asked},
    logging::Log,
    options::TlsOptions,
    version,
};
use std::{collections::BTreeMap, process::ExitCode};

/// Reads the arguments. What is asked for besides running is done: the help text and the version are printed.
///
/// # Errors
/// How the program ends, if it shall not run: well, when it was asked for something else; not, when what was given cannot
/// be read or is not allowed, which is told.
pub fn from_arguments(arguments: impl IntoIterator<Item = String>) -> Result<Options, ExitCode> {
    let given = match flags().parse(NAME, arguments) {
        Ok(Asked::Run(given)) => given,
        Ok(Asked::Help) => {
            let columns = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
            return Err(print(&flags().help(&about(), columns)));
        }
        Ok(Asked::Version { raw }) => {
            let text = if raw { version::raw() } else { version::short() };
            return Err(print(&format!("{text}\n")));
        }
        Err(error) => {
            let hint = format!("See '{NAME} --help' for usage.");
            return Err(refuse(&format!("{error}\n{hint}")));
        }
    };
    Options::check(given).map_err(|problems| refuse(&format!("{:#}", Error::from(problems))))
}

/// Tells the log what there is to say of what was given; all flags, too, where it tells more than usual.
pub fn tell(options: &Options, log: &Log) {
    if log.verbosity() > 0 {
        for (name, value) in flagz(options) {
            tracing::info!("FLAG: --{name}={value:?}");
        }
    }
    for warning in &options.warnings {
        tracing::warn!("{warning}");
    }
}

/// The flags for what writes man pages and completion scripts.
pub fn command() -> Command {
    flags::command(&flags(), &about())
}

/// The help text, with lines as long as they are.
pub fn help() -> String {
    flags().help(&about(), None)
}

fn about() -> About {
    let mut more = BTreeMap::from(Versions::options());
    more.insert("controllers", Choice::options());
    more.insert("feature-gates", format!("Options are:\n{}", features::options()));
    more.insert("tls-cipher-suites", TlsOptions::options());
    let what = "Watches the cluster's state and moves it towards what was asked for: the controllers of Kubernetes v1.37 in\n\
        one program, in the place of upstream's.";
    About { name: NAME, what, more }
}

#[expect(clippy::print_stdout, reason = "what was asked for goes where it can be piped from")]
fn print(text: &str) -> ExitCode {
    print!("{text}");
    ExitCode::SUCCESS
}

#[expect(clippy::print_stderr, reason = "the log has not started yet")]
fn refuse(text: &str) -> ExitCode {
    eprintln!("Error: {text}");
    ExitCode::FAILURE
}
