//! Commands that clients execute in a running container beside its own process (`kubectl exec`). A command is
//! interpreted like a container's process: the interpreter computes its output, with times, from its input and the
//! files. The command is interpreted again when its input is complete, when files change, and when the computed time
//! has passed.

use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use crate::{
    Environment, RunContext,
    files::Write,
    files::base_name,
    interpreter::{Exec, Interpreter, Job, Log},
    parse,
    shell::is_shell,
    shell::{Halt, Input, Shell},
};

/// Exit code of a command that contains an unsupported part.
const UNSUPPORTED_EXIT_CODE: i32 = 126;
/// Builtins of the shell that do not exist as programs.
const BUILTINS: [&str; 22] = [
    ".", ":", "break", "cd", "continue", "declare", "eval", "exec", "exit", "export", "local",
    "readonly", "return", "set", "shift", "trap", "typeset", "ulimit", "umask", "unset", "wait",
    "source",
];

/// Text that a command prints at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Time since the start of the run.
    pub after: Duration,
    /// Whether the output is written to standard error. With a terminal, all output is written to standard output.
    pub to_stderr: bool,
    /// Printed text. [`encoding`](crate::encoding) describes how it represents bytes that are not UTF-8.
    pub text: String,
}

/// State of a command at the end of the interpreted time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// The command ended, at this time since the start of the run, with this exit code.
    Ended(Duration, i32),
    /// The command still runs.
    Running,
    /// The command waits for the rest of its standard input.
    NeedsInput,
    /// The program with this name does not exist, so no process was started.
    NotFound(String),
}

/// Outcome of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecRun {
    /// Chunks of output, ordered by time.
    pub outputs: Vec<Output>,
    /// Changes to files.
    pub writes: Vec<Write>,
    /// State at the end of the interpreted time.
    pub progress: Progress,
}

/// Returns whether a command is a shell that reads its commands from standard input.
pub fn reads_commands(arguments: &[String]) -> bool {
    let [name, options @ ..] = arguments else { return false };
    is_shell(base_name(name))
        && options.iter().all(|word| matches!(&**word, "-i" | "-l" | "-s" | "-"))
}

/// Returns whether a command copies its standard input to its standard output.
pub fn copies_input(arguments: &[String]) -> bool {
    let [name, files @ ..] = arguments else { return false };
    matches!(&**name, "cat" | "/bin/cat" | "/usr/bin/cat") && files.iter().all(|word| word == "-")
}

impl Environment {
    /// Interprets a command up to `until`, counted from the start of the run. `input` is its standard input, or
    /// `None` while the input is incomplete.
    pub fn exec(
        &self,
        arguments: &[String],
        input: Option<Arc<str>>,
        tty: bool,
        context: &RunContext<'_>,
        until: Duration,
    ) -> ExecRun {
        let mut interpreter = self.interpreter(input, context, until);
        let mut shell = self.first_shell(tty, context.address);
        shell.name.clear();
        let Some(first) = arguments.first() else {
            return ExecRun::not_found(String::new());
        };
        let flow = if is_shell(base_name(first)) {
            let name = base_name(first);
            interpreter.run_shell(&mut shell, name, &arguments[1..])
        } else if BUILTINS.contains(&&**first) {
            return ExecRun::not_found(first.clone());
        } else {
            interpreter.execute(&mut shell, arguments)
        };
        if let Some(missing) = interpreter.exec.as_mut().and_then(|exec| exec.missing.take()) {
            return ExecRun::not_found(missing);
        }
        finish(interpreter, &mut shell, flow, until)
    }

    fn interpreter<'a>(
        &'a self,
        input: Option<Arc<str>>,
        context: &'a RunContext<'a>,
        until: Duration,
    ) -> Interpreter<'a> {
        let mut interpreter =
            Interpreter::new(context, &self.container, &self.mounts, self.env_from);
        interpreter.log = Some(Log::until(until));
        interpreter.exec = Some(Exec { input, missing: None });
        // Standard error is the second output.
        interpreter.outputs.push(String::new());
        interpreter
    }

    /// Returns the initial shell of a client's command.
    fn first_shell(&self, tty: bool, address: Ipv4Addr) -> Shell {
        let mut shell = Shell::new(&self.working_dir, self.variables_at(address));
        shell.errors = Some(usize::from(!tty));
        shell.input = Input::Process;
        shell
    }
}

impl ExecRun {
    /// Returns the outcome of a command that SIGKILL ends at this time since the start of the run.
    pub fn killed(after: Duration) -> Self {
        Self { outputs: Vec::new(), writes: Vec::new(), progress: Progress::Ended(after, 137) }
    }

    fn not_found(program: String) -> Self {
        let progress = Progress::NotFound(program);
        Self { outputs: Vec::new(), writes: Vec::new(), progress }
    }
}

/// Ends the shell of a command and collects its output and writes.
fn finish(
    mut interpreter: Interpreter<'_>,
    shell: &mut Shell,
    flow: Result<(), Halt>,
    until: Duration,
) -> ExecRun {
    let progress = match flow {
        Err(Halt::NeedsInput) => Progress::NeedsInput,
        Err(Halt::StepLimit) => give_up(&mut interpreter, shell, "so many steps"),
        flow => match interpreter.end_shell(shell, flow) {
            Ok((Some(end), status)) if end <= until => Progress::Ended(end, status),
            Ok(_) => Progress::Running,
            Err(reason) => give_up(&mut interpreter, shell, &reason),
        },
    };
    let end = match progress {
        Progress::Ended(end, _) => end,
        _ => until,
    };
    let printed = interpreter.log.map(|log| log.printed).unwrap_or_default();
    let mut outputs: Vec<Output> = printed
        .into_iter()
        .filter(|printed| printed.at <= end && !printed.text.is_empty())
        .map(|printed| Output {
            after: printed.at,
            to_stderr: printed.stream == 1,
            text: printed.text,
        })
        .collect();
    outputs.sort_by_key(|output| output.after);
    let writes = interpreter.writes.into_iter().map(|own| own.write);
    let writes = writes.filter(|write| write.after <= end).collect();
    ExecRun { outputs, writes, progress }
}

/// Ends a command at an unsupported part, and prints the reason to its standard error.
fn give_up(interpreter: &mut Interpreter<'_>, shell: &Shell, reason: &str) -> Progress {
    let text = format!("evenkeel: a simulated container does not understand this: {reason}\n");
    if let (Some(log), Some(stream)) = (&mut interpreter.log, shell.errors) {
        log.print_last(shell.now, stream, &text);
    }
    Progress::Ended(shell.now, UNSUPPORTED_EXIT_CODE)
}

/// State of a shell between two commands that it reads from standard input.
#[derive(Debug, Clone)]
pub struct ShellSession {
    environment: Arc<Environment>,
    shell: Shell,
    jobs: Vec<Job>,
}

impl ShellSession {
    /// Starts a session. `program` is the path of the shell.
    pub fn new(environment: Arc<Environment>, program: &str, tty: bool, address: Ipv4Addr) -> Self {
        let name = base_name(program);
        let mut shell = environment.first_shell(tty, address);
        shell.bash = name == "bash";
        name.clone_into(&mut shell.name);
        Self { environment, shell, jobs: Vec::new() }
    }

    /// Returns the prompt that the shell prints on a terminal when it waits for a command.
    pub fn prompt(&self) -> String {
        let folder = if self.shell.folder.is_empty() { "/" } else { &self.shell.folder };
        format!("{folder} # ")
    }

    /// Returns the exit code of the last command.
    pub fn status(&self) -> i32 {
        self.shell.status
    }

    /// Sets the exit code of a command that was interrupted by Ctrl-C: 130.
    pub fn interrupt(&mut self) {
        self.shell.status = 130;
    }

    /// Returns whether the commands are incomplete, so that the shell reads another line.
    pub fn is_incomplete(text: &str) -> bool {
        parse::is_incomplete(text)
    }

    /// Interprets commands that start at the time `after`, up to `until`. All times are counted from the start of
    /// the session. `input` is the standard input of the commands, or `None` while it is incomplete. Returns the
    /// outcome and the session afterwards, which is `None` if the shell ended or the commands have not ended.
    pub fn run(
        &self,
        text: &str,
        input: Option<Arc<str>>,
        after: Duration,
        context: &RunContext<'_>,
        until: Duration,
    ) -> (ExecRun, Option<Self>) {
        let environment = Arc::clone(&self.environment);
        let mut interpreter = environment.interpreter(input, context, until);
        interpreter.adopt_jobs(&self.jobs);
        let mut shell = self.shell.clone();
        shell.now = after;
        let flow = interpreter.run_script(&mut shell, text);
        let jobs = interpreter.jobs.clone();
        let continues = match flow {
            Err(Halt::Exit(_) | Halt::Forever | Halt::NeedsInput) => false,
            Ok(())
            | Err(
                Halt::Return
                | Halt::Break(_)
                | Halt::Continue(_)
                | Halt::StepLimit
                | Halt::Unsupported(_),
            ) => true,
        };
        if !continues {
            return (finish(interpreter, &mut shell, flow, until), None);
        }
        // The shell itself continues, so its `EXIT` trap must not run.
        let trap = shell.traps.remove("EXIT");
        let flow =
            if matches!(flow, Err(Halt::StepLimit | Halt::Unsupported(_))) { flow } else { Ok(()) };
        let run = finish(interpreter, &mut shell, flow, until);
        if let Some(trap) = trap {
            shell.traps.insert("EXIT".into(), trap);
        }
        let Progress::Ended(_, status) = run.progress else { return (run, None) };
        shell.status = status;
        (run, Some(Self { environment, shell, jobs }))
    }
}
