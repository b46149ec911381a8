//! `evenkeel envtest`: creates a folder for `KUBEBUILDER_ASSETS`, with which tests for envtest run on the embedded API
//! server.

use crate::{apiserver, command::exit_code, kubeconfig::Home};
use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::ExitCode,
};

/// envtest starts the programs kube-apiserver and etcd of one folder. In this folder, they are links to this
/// program.
#[derive(Debug, Args)]
pub(crate) struct EnvtestArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Create the folder with kube-apiserver, etcd and, if it is on the PATH, kubectl. Print the folder.
    Use {
        /// Path of the folder. Default: evenkeel/envtest in $XDG_DATA_HOME or ~/.local/share.
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
        /// Output format, as of setup-envtest.
        #[arg(short, long, value_enum, default_value_t = Print::Overview)]
        print: Print,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Print {
    /// Version and path.
    Overview,
    /// Only the path, without a newline.
    Path,
    /// Shell command: `source <(evenkeel envtest use -p env)`.
    Env,
}

/// Runs the command, and returns its exit code.
pub(crate) fn main(args: &EnvtestArgs) -> ExitCode {
    let Action::Use { dir, print } = &args.action;
    exit_code(create_folder(dir.as_deref(), *print).map(|()| ExitCode::SUCCESS))
}

/// Creates the folder with its links, and prints it.
fn create_folder(dir: Option<&Path>, print: Print) -> Result<()> {
    let home = Home::from_env();
    let folder = match dir {
        Some(dir) => std::path::absolute(dir)
            .with_context(|| format!("--dir {} cannot be used", dir.display()))?,
        None => home
            .data_folder()
            .context("neither $XDG_DATA_HOME nor $HOME is set: choose --dir")?
            .join("envtest"),
    };
    let program = std::env::current_exe().context("the path of this program is unknown, so that no links to it can be made; start it by its whole path")?;
    create_links(&folder, &program, home.find_program("kubectl").as_deref())?;
    let text = describe_folder(print, &folder);
    io::stdout().write_all(text.as_bytes()).context("the answer cannot be written")
}

/// Creates links in `folder` with the names of kube-apiserver, etcd and kubectl.
fn create_links(folder: &Path, program: &Path, kubectl: Option<&Path>) -> Result<()> {
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    link(program, &folder.join(apiserver::NAME))?;
    link(program, &folder.join(apiserver::etcd::NAME))?;
    let kubectl_link = folder.join("kubectl");
    match kubectl {
        // The folder itself may be on the PATH.
        Some(kubectl) if kubectl != kubectl_link => link(kubectl, &kubectl_link),
        _ => Ok(()),
    }
}

/// Creates a link, or replaces an existing one. Refuses to replace a file.
fn link(target: &Path, link_path: &Path) -> Result<()> {
    let context = || format!("cannot make {}", link_path.display());
    match fs::symlink_metadata(link_path) {
        Ok(found) if !found.file_type().is_symlink() => {
            bail!(
                "{} already exists and is not a symbolic link: choose another --dir",
                link_path.display()
            );
        }
        Ok(_) if fs::read_link(link_path).with_context(context)? == target => return Ok(()),
        _ => {}
    }
    // Replace the link atomically, because another process may be starting the program.
    let new = link_path.with_extension(format!("new-{}", std::process::id()));
    symlink(target, &new).with_context(context)?;
    fs::rename(&new, link_path).with_context(context)
}

fn describe_folder(print: Print, folder: &Path) -> String {
    let version = evenkeel_component::version::short();
    let path = folder.display();
    match print {
        Print::Overview => format!("Version: {version}\nPath: {path}\n"),
        Print::Path => path.to_string(),
        Print::Env => {
            format!("export KUBEBUILDER_ASSETS='{}'\n", path.to_string().replace('\'', r"'\''"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_has_links_to_the_program_and_can_be_created_again() {
        let base = tempfile::tempdir().expect("a folder");
        let folder = base.path().join("a/b");
        let target_of = |name: &str| fs::read_link(folder.join(name)).ok();
        for (program, kubectl) in [("/old/evenkeel", None), ("/new/evenkeel", Some("/bin/kubectl"))]
        {
            for _again in 0..2 {
                create_links(&folder, Path::new(program), kubectl.map(Path::new))
                    .expect("it is made");
                assert_eq!(target_of("kube-apiserver"), Some(PathBuf::from(program)));
                assert_eq!(target_of("etcd"), Some(PathBuf::from(program)));
                assert_eq!(target_of("kubectl"), kubectl.map(PathBuf::from));
            }
        }
        assert_eq!(fs::read_dir(&folder).expect("it is there").count(), 3);
    }

    #[test]
    fn a_file_is_not_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("etcd"), "theirs").expect("it is written");
        let error = create_links(folder.path(), Path::new("/evenkeel"), None).expect_err("refused");
        assert!(
            error.to_string().contains("is not a symbolic link: choose another --dir"),
            "{error}"
        );
        assert_eq!(fs::read(folder.path().join("etcd")).expect("it is there"), b"theirs");
    }

    #[test]
    fn the_output_equals_that_of_setup_envtest() {
        let folder = Path::new("/it's/here");
        assert_eq!(describe_folder(Print::Path, folder), "/it's/here");
        assert_eq!(
            describe_folder(Print::Env, folder),
            "export KUBEBUILDER_ASSETS='/it'\\''s/here'\n"
        );
        assert!(describe_folder(Print::Overview, folder).ends_with("\nPath: /it's/here\n"));
    }
}
