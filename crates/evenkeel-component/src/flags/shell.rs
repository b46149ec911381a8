//! Flags as a clap command, for generators of man pages and completion scripts.

use super::{About, Flags, Type, help};
use clap::{Arg, ArgAction, Command};

/// Returns a command with these flags.
pub fn command(flags: &Flags, about: &About) -> Command {
    let mut command = Command::new(about.name)
        .about(about.description)
        .disable_help_flag(true)
        .disable_version_flag(true)
        .override_usage(format!("{} [flags]", about.name));
    for flag in flags.iter().filter(|flag| flag.deprecated.is_none()) {
        let mut arg = Arg::new(flag.name)
            .long(flag.name)
            .help_heading(flag.section)
            .help(help::usage(flag))
            .value_name(flag.kind.name());
        if let Some(note) = about.notes.get(flag.name) {
            arg = arg.long_help(format!("{}\n{note}", help::usage(flag)));
        }
        if let Some(letter) = flag.short() {
            arg = arg.short(letter);
        }
        let name = flag.name;
        arg = match flag.kind {
            Type::Bool => arg.action(ArgAction::SetTrue),
            Type::Version => arg
                .action(ArgAction::Append)
                .num_args(0..=1)
                .require_equals(true)
                .value_name("true|raw"),
            _ => arg.action(ArgAction::Append),
        };
        arg = match name {
            _ if name.ends_with("kubeconfig") || name.ends_with("-file") => {
                arg.value_hint(clap::ValueHint::FilePath)
            }
            _ if name.ends_with("-dir") => arg.value_hint(clap::ValueHint::DirPath),
            _ => arg,
        };
        command = command.arg(arg);
    }
    command
}
