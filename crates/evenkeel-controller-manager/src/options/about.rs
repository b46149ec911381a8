//! The whole command line, and the additional parts of its help text.

use super::{Choice, NAME, Options, flags};
use evenkeel_component::{
    command_line::{self, CommandLine},
    features::{self, Versions},
    flags::About,
    options::TlsOptions,
};
use std::{collections::BTreeMap, process::ExitCode};

/// Returns the program's command line.
pub fn command_line() -> CommandLine {
    let mut notes = BTreeMap::from(Versions::options());
    notes.insert("controllers", Choice::options());
    notes.insert("feature-gates", format!("Options are:\n{}", features::options()));
    notes.insert("tls-cipher-suites", TlsOptions::options());
    let description = "Watches the cluster's state and moves it towards what was asked for: the controllers of Kubernetes v1.37 in\n\
        one program, in the place of upstream's.";
    CommandLine { flags: flags(), about: About { name: NAME, description, notes } }
}

/// Parses and validates the arguments, see [`CommandLine::read`].
///
/// # Errors
/// Returns the exit code if the program must not run, for example after `--help`.
pub fn from_arguments(arguments: impl IntoIterator<Item = String>) -> Result<Options, ExitCode> {
    Options::check(command_line().read(arguments)?).map_err(command_line::report_invalid_flags)
}
