//! What a shell knows while it runs: variables, functions, traps, where its streams lead and how late it is.

use evenkeel_api::Text;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

use crate::syntax::Command;

/// Why commands do not go on one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Halt {
    /// The shell ends.
    Exit(i32),
    /// The function ends.
    Return,
    /// So many loops end.
    Break(u32),
    /// So many loops less one end, and the last goes on.
    Continue(u32),
    /// It waits for what never comes.
    Forever,
    /// It does more than is looked at: it runs on.
    StepLimit,
    /// It is not known what it does.
    Unknown(String),
}

pub(crate) type Flow = Result<(), Halt>;

/// The error of what is not understood.
pub(crate) fn unknown<T>(why: impl Into<String>) -> Result<T, Halt> {
    Err(Halt::Unknown(why.into()))
}

/// A variable with its value and scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Variable {
    /// `None` when it has a value that is not known here.
    pub(crate) value: Option<String>,
    /// Whether child processes see it.
    pub(crate) exported: bool,
}

/// Where a stream leads: what was written goes to that many-th of the interpreter's outputs, or nowhere.
pub(crate) type Stream = Option<usize>;

#[derive(Debug, Clone)]
pub(crate) struct Shell {
    /// Since the container began.
    pub(crate) now: Duration,
    pub(crate) variables: BTreeMap<String, Variable>,
    pub(crate) positional: Vec<String>,
    /// The value of `$0`.
    pub(crate) name: String,
    pub(crate) functions: BTreeMap<Text, Arc<Command>>,
    /// What is done at a signal, or at the end (`EXIT`).
    pub(crate) traps: BTreeMap<Text, String>,
    pub(crate) folder: String,
    /// How the last command ended.
    pub(crate) status: i32,
    pub(crate) output: Stream,
    pub(crate) errors: Stream,
    pub(crate) input: Arc<str>,
    /// The container's first process: signals go to it.
    pub(crate) main: bool,
    pub(crate) bash: bool,
    /// `set -e`, and how many conditions are around, in which it does not count.
    pub(crate) errexit: bool,
    pub(crate) conditions: u32,
    /// Whether `set -u` is on: an unset variable is an error.
    pub(crate) nounset: bool,
    pub(crate) pipefail: bool,
    /// How many function calls are around.
    pub(crate) calls: u32,
    /// How many loops are around.
    pub(crate) loops: u32,
    /// The last one started in the background.
    pub(crate) last_job: Option<usize>,
    /// What to give back to variables when the function ends.
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
            input: "".into(),
            main: false,
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

    /// A copy for what runs in a process of its own.
    pub(crate) fn fork(&self) -> Self {
        let mut child = self.clone();
        child.main = false;
        child.traps.clear();
        child
    }

    pub(crate) fn set(&mut self, name: &str, value: String) {
        let exported = self.variables.get(name).is_some_and(|variable| variable.exported);
        self.variables.insert(name.to_owned(), Variable { value: Some(value), exported });
    }

    /// What is done when the container is asked to stop.
    pub(crate) fn handler(&self) -> Option<&str> {
        self.traps.get("TERM").map(String::as_str).filter(|action| self.main && !action.is_empty())
    }

    /// Reads the options of `set` and of a shell's command line, such as `-e`, `+u`, `-o pipefail`; how many words they are.
    pub(crate) fn options(&mut self, words: &[String]) -> Result<usize, Halt> {
        let mut read = 0;
        while let Some(word) = words.get(read) {
            let on = word.starts_with('-');
            if word.len() < 2 || !word.starts_with(['-', '+']) || word == "--" {
                break;
            }
            read += 1;
            for letter in word[1..].chars() {
                match letter {
                    'e' => self.errexit = on,
                    'u' => self.nounset = on,
                    'o' => {
                        let Some(name) = words.get(read) else { return unknown("a lone -o") };
                        read += 1;
                        match name.as_str() {
                            "errexit" => self.errexit = on,
                            "nounset" => self.nounset = on,
                            "pipefail" => self.pipefail = on,
                            "xtrace" | "verbose" | "errtrace" | "functrace" => {}
                            other => return unknown(format!("option {other}")),
                        }
                    }
                    'x' | 'v' | 'E' | 'T' | 'm' | 'h' | 'B' | 'c' | 'l' => {}
                    other => return unknown(format!("option -{other}")),
                }
            }
        }
        Ok(read)
    }
}
