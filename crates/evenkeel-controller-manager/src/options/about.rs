//! The command line as a whole, with what its help text says besides.

use super::{Choice, NAME, Options, flags};
use evenkeel_component::{
    command_line::{self, CommandLine},
    features::{self, Versions},
    flags::About,
    options::TlsOptions,
};
use std::{collections::BTreeMap, process::ExitCode};

/// The program's command line.
pub fn command_line() -> CommandLine {
    let mut more = BTreeMap::from(Versions::options());
    more.insert("controllers", Choice::options());
    more.insert("feature-gates", format!("Options are:\n{}", features::options()));
    more.insert("tls-cipher-suites", TlsOptions::options());
    let what = "Watches the cluster's state and moves it towards what was asked for: the controllers of Kubernetes v1.37 in\n\
        one program, in the place of upstream's.";
    CommandLine { flags: flags(), about: About { name: NAME, what, more } }
}

/// Options from arguments; see [`CommandLine::read`].
///
/// # Errors
/// The exit code, if the program does not run.
pub fn from_arguments(arguments: impl IntoIterator<Item = String>) -> Result<Options, ExitCode> {
    Options::check(command_line().read(arguments)?).map_err(command_line::refused)
}
