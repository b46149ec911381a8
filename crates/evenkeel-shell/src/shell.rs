//! State of a running shell: variables, functions, traps, targets of its streams, and its time.

use evenkeel_api::Text;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

use crate::syntax::Command;

/// Reason why the commands of a list stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Halt {
    /// The shell exits with this status.
    Exit(i32),
    /// The function returns.
    Return,
    /// This many of the innermost loops end.
    Break(u32),
    /// One fewer of the innermost loops end, and the next one continues with its next iteration.
    Continue(u32),
    /// The process waits forever.
    Forever,
    /// The run reached the maximum number of steps. The process counts as running.
    StepLimit,
    /// The process reads its standard input, which is incomplete.
    NeedsInput,
    /// The script has a part that the interpreter does not support, for this reason.
    Unsupported(String),
}

/// Result of running commands. An error stops the surrounding commands.
pub(crate) type Flow = Result<(), Halt>;

/// Returns whether a program is a shell that the interpreter runs.
pub(crate) fn is_shell(name: &str) -> bool {
    matches!(name, "sh" | "bash" | "ash" | "dash")
}

/// Returns the error for an unsupported part of a script.
pub(crate) fn unsupported<T>(part: impl Into<String>) -> Result<T, Halt> {
    Err(Halt::Unsupported(part.into()))
}

/// Value of a variable, and whether it is exported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Variable {
    /// `None` if the variable is set but its value is unknown.
    pub(crate) value: Option<String>,
    /// Whether child processes inherit the variable.
    pub(crate) exported: bool,
}

/// Target of a stream: an index into the interpreter's outputs. `None` discards the output.
pub(crate) type Stream = Option<usize>;

/// Source of standard input.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Input {
    /// Known content, such as the output of the previous command in a pipeline.
    Text(Arc<str>),
    /// Standard input of the interpreted process.
    Process,
}

impl Default for Input {
    fn default() -> Self {
        Self::Text("".into())
    }
}

/// State of one shell process.
#[derive(Debug, Clone)]
pub(crate) struct Shell {
    /// Time since the start of the container.
    pub(crate) now: Duration,
    pub(crate) variables: BTreeMap<String, Variable>,
    /// Positional parameters, from `$1` on.
    pub(crate) positional: Vec<String>,
    /// Value of `$0`.
    pub(crate) name: String,
    pub(crate) functions: BTreeMap<Text, Arc<Command>>,
    /// Commands of `trap` by signal name or `EXIT`.
    pub(crate) traps: BTreeMap<Text, String>,
    /// Working folder; empty for the root.
    pub(crate) folder: String,
    /// Exit status of the last command.
    pub(crate) status: i32,
    /// Target of standard output.
    pub(crate) output: Stream,
    /// Target of standard error.
    pub(crate) errors: Stream,
    pub(crate) input: Input,
    /// Whether this is the container's first process, which receives signals.
    pub(crate) is_main: bool,
    /// Whether the shell is bash.
    pub(crate) bash: bool,
    /// Whether `set -e` is on. It has no effect within conditions.
    pub(crate) errexit: bool,
    /// Number of enclosing conditions.
    pub(crate) conditions: u32,
    /// Whether `set -u` is on, so that an unset variable is an error.
    pub(crate) nounset: bool,
    /// Whether `set -o pipefail` is on, so that each stage of a pipeline can make it fail.
    pub(crate) pipefail: bool,
    /// Number of enclosing function calls.
    pub(crate) calls: u32,
    /// Number of enclosing loops.
    pub(crate) loops: u32,
    /// Index of the last background job.
    pub(crate) last_job: Option<usize>,
    /// Values to restore when the function returns.
    pub(crate) locals: Vec<(String, Option<Variable>)>,
}

impl Shell {
    pub(crate) fn new(folder: &str, variables: BTreeMap<String, Variable>) -> Self {
        Self {
            now: Duration::ZERO,
            variables,
            positional: Vec::new(),
            name: "sh".into(),
            functions: BTreeMap::new(),
            traps: BTreeMap::new(),
            folder: folder.to_owned(),
            status: 0,
            output: Some(0),
            errors: Some(0),
            input: Input::default(),
            is_main: false,
            bash: false,
            errexit: false,
            conditions: 0,
            nounset: false,
            pipefail: false,
            calls: 0,
            loops: 0,
            last_job: None,
            locals: Vec::new(),
        }
    }

    /// Returns a copy for a child process, without traps.
    pub(crate) fn fork(&self) -> Self {
        let mut child = self.clone();
        child.is_main = false;
        child.traps.clear();
        child
    }

    /// Sets the value of a variable. Does not change whether it is exported.
    pub(crate) fn set(&mut self, name: &str, value: String) {
        let exported = self.variables.get(name).is_some_and(|variable| variable.exported);
        self.variables.insert(name.to_owned(), Variable { value: Some(value), exported });
    }

    /// Returns the command of the SIGTERM trap, if this process receives the signal.
    pub(crate) fn sigterm_handler(&self) -> Option<&str> {
        self.traps
            .get("TERM")
            .map(String::as_str)
            .filter(|action| self.is_main && !action.is_empty())
    }

    /// Applies the options of `set` and of a shell's command line, such as `-e`, `+u`, `-o pipefail`. Returns the
    /// number of words that are options.
    pub(crate) fn apply_options(&mut self, words: &[String]) -> Result<usize, Halt> {
        let mut n_options = 0;
        while let Some(word) = words.get(n_options) {
            let enable = word.starts_with('-');
            if word.len() < 2 || !word.starts_with(['-', '+']) || word == "--" {
                break;
            }
            n_options += 1;
            for letter in word[1..].chars() {
                match letter {
                    'e' => self.errexit = enable,
                    'u' => self.nounset = enable,
                    'o' => {
                        let Some(name) = words.get(n_options) else {
                            return unsupported("a lone -o");
                        };
                        n_options += 1;
                        match name.as_str() {
                            "errexit" => self.errexit = enable,
                            "nounset" => self.nounset = enable,
                            "pipefail" => self.pipefail = enable,
                            "xtrace" | "verbose" | "errtrace" | "functrace" => {}
                            other => return unsupported(format!("option {other}")),
                        }
                    }
                    'x' | 'v' | 'E' | 'T' | 'm' | 'h' | 'B' | 'c' | 'l' => {}
                    other => return unsupported(format!("option -{other}")),
                }
            }
        }
        Ok(n_options)
    }
}
