//! Completion scripts, man pages and reference pages of `evenkeel` and the other programs, generated from the
//! definitions of their command lines.

mod reference;
mod schema;

use crate::{Cli, command};
use anyhow::{Context, Result, bail};
use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;
use std::{
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Arguments of `evenkeel completion`.
#[derive(Debug, Args)]
pub(crate) struct CompletionArgs {
    /// Shell of the completion script.
    shell: Shell,
    /// Program whose arguments are completed.
    #[arg(long, default_value = "evenkeel", value_parser = PROGRAMS)]
    program: String,
}

/// Arguments of `evenkeel man`.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Folder for the pages. It is created if it does not exist.
    folder: PathBuf,
    /// Write reference pages in Markdown: flags, metrics, annotations of the simulation.
    #[arg(long)]
    markdown: bool,
}

/// Arguments of `evenkeel explain-annotations`.
#[derive(Debug, Args)]
pub(crate) struct AnnotationsArgs {
    /// Output: plain text, or a table in Markdown.
    #[arg(short, long, value_enum, default_value = "text")]
    output: AnnotationsOutput,
}

/// Output format of `evenkeel explain-annotations`.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum AnnotationsOutput {
    Text,
    Markdown,
}

/// Names of the programs.
const PROGRAMS: [&str; 5] = [
    "evenkeel",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "cloud-controller-manager",
];

/// Returns the programs' command lines, in the same order.
fn commands() -> [Command; 5] {
    [
        Cli::command(),
        crate::apiserver::command_line().command(),
        evenkeel_controller_manager::options::command_line().command(),
        evenkeel_kube_scheduler::command_line().command(),
        evenkeel_cloud::program::command_line().command(),
    ]
}

/// Prints a completion script.
pub(crate) fn completion(args: &CompletionArgs) -> ExitCode {
    let script = script(args.shell, &args.program);
    let result = script.and_then(|script| Ok(std::io::stdout().write_all(&script)?));
    exit_code(result)
}

fn script(shell: Shell, program: &str) -> Result<Vec<u8>> {
    let Some(mut command) = commands().into_iter().find(|command| command.get_name() == program)
    else {
        let names: Vec<String> =
            commands().iter().map(|known| known.get_name().to_owned()).collect();
        bail!("--program: there is no program {program}; there are: {}", names.join(", "));
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, program, &mut script);
    Ok(script)
}

/// Writes man pages, one for each program and for each of its commands, or the reference pages.
pub(crate) fn man(args: &ManArgs) -> ExitCode {
    let write = if args.markdown { write_reference } else { write_pages };
    exit_code(write(&args.folder))
}

/// Prints the annotations that steer the simulation.
pub(crate) fn annotations(args: &AnnotationsArgs) -> ExitCode {
    let text = match args.output {
        AnnotationsOutput::Text => reference::annotations_text(),
        AnnotationsOutput::Markdown => reference::annotations_markdown(),
    };
    exit_code(std::io::stdout().write_all(text.as_bytes()).map_err(Into::into))
}

fn write_pages(folder: &Path) -> Result<()> {
    let context = || format!("man pages cannot be written to {}", folder.display());
    std::fs::create_dir_all(folder).with_context(context)?;
    for program in commands() {
        clap_mangen::generate_to(program, folder).with_context(context)?;
    }
    Ok(())
}

fn write_reference(folder: &Path) -> Result<()> {
    let context = || format!("reference pages cannot be written to {}", folder.display());
    std::fs::create_dir_all(folder).with_context(context)?;
    for (name, text) in reference::pages(&commands()) {
        std::fs::write(folder.join(name), text).with_context(context)?;
    }
    Ok(())
}

fn exit_code(result: Result<()>) -> ExitCode {
    command::exit_code(result.map(|()| ExitCode::SUCCESS))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the flags that a program's completion script and man page must contain.
    fn flags(program: &str) -> Vec<String> {
        let command = commands().into_iter().find(|command| command.get_name() == program);
        let command = command.expect("a program");
        command.get_arguments().filter_map(|flag| flag.get_long().map(str::to_owned)).collect()
    }

    #[test]
    fn completion_scripts_contain_every_flag() {
        for program in PROGRAMS {
            for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
                let script = script(shell, program).expect("a script");
                let script = String::from_utf8(script).expect("text");
                for flag in flags(program) {
                    assert!(script.contains(&flag), "{shell}: {flag}");
                }
            }
        }
        assert!(
            flags("kube-controller-manager").len() > 140
                && flags("kube-scheduler").len() > 55
                && flags("cloud-controller-manager").len() > 60
        );
        let script = script(Shell::Bash, "evenkeel").expect("a script");
        assert!(
            String::from_utf8_lossy(&script).contains("cloud-controller-manager"),
            "the choice of programs"
        );
    }

    #[test]
    fn man_pages_contain_every_flag() {
        let folder = tempfile::tempdir().expect("a folder");
        write_pages(folder.path()).expect("pages");
        let page = |name: &str| {
            let path = folder.path().join(format!("{name}.1"));
            std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{name}: {error}"))
        };
        assert!(page("evenkeel").contains("evenkeel\\-up"));
        assert!(page("evenkeel-up").contains("data\\-dir"));
        for program in PROGRAMS {
            let page = page(program);
            for flag in flags(program) {
                assert!(page.contains(&format!("\\-\\-{}", flag.replace('-', "\\-"))), "{flag}");
            }
        }
    }
}
