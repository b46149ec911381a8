//! Commands that somebody executes in a running container, beside its own process.
//!
//! A command is interpreted like a container's process: all that it prints, with the times, from what it finds. It is
//! interpreted again when its input is complete, when files change, and when more time has passed than was looked ahead.

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

/// Exit code of a command that does what cannot be interpreted.
const NOT_INTERPRETED: i32 = 126;
/// Commands of a shell that are no programs.
const BUILTINS: [&str; 22] = [
    ".", ":", "break", "cd", "continue", "declare", "eval", "exec", "exit", "export", "local",
    "readonly", "return", "set", "shift", "trap", "typeset", "ulimit", "umask", "unset", "wait",
    "source",
];

/// What a command prints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// When, counted from the start of the run.
    pub after: Duration,
    /// Whether to standard error; with a terminal, all goes to standard output.
    pub to_stderr: bool,
    /// The text; see [`encoding`](crate::encoding) for bytes that are none.
    pub text: String,
}

/// How far a command got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// It ended, so long after the start of the run, with this exit code.
    Ended(Duration, i32),
    /// It runs on.
    Runs,
    /// It waits for the rest of its standard input.
    Reads,
    /// There is no such program: nothing was started.
    NotFound(String),
}

/// Outcome of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecRun {
    /// In the order of time.
    pub printed: Vec<Output>,
    /// Changes to files.
    pub writes: Vec<Write>,
    /// How far it got.
    pub progress: Progress,
}

/// Whether a command is a shell that reads its commands from standard input.
pub fn reads_commands(arguments: &[String]) -> bool {
    let [name, options @ ..] = arguments else { return false };
    is_shell(base_name(name))
        && options.iter().all(|word| matches!(&**word, "-i" | "-l" | "-s" | "-"))
}

/// Whether a command writes its standard input to its standard output as it comes.
pub fn copies_input(arguments: &[String]) -> bool {
    let [name, files @ ..] = arguments else { return false };
    matches!(&**name, "cat" | "/bin/cat" | "/usr/bin/cat") && files.iter().all(|word| word == "-")
}

impl Environment {
    /// Interprets a command up to `until`, counted from the start of the run. `input` is its standard input, or `None` while
    /// that is not complete.
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
        outcome(interpreter, &mut shell, flow, until)
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

    fn first_shell(&self, tty: bool, address: Ipv4Addr) -> Shell {
        let mut shell = Shell::new(&self.working_dir, self.variables_at(address));
        shell.errors = Some(usize::from(!tty));
        shell.input = Input::Process;
        shell
    }
}

impl ExecRun {
    /// A command that ends so long after the start of the run, as by SIGKILL.
    pub fn killed(after: Duration) -> Self {
        Self { printed: Vec::new(), writes: Vec::new(), progress: Progress::Ended(after, 137) }
    }

    fn not_found(program: String) -> Self {
        let progress = Progress::NotFound(program);
        Self { printed: Vec::new(), writes: Vec::new(), progress }
    }
}

/// Ends the shell of a command, and gathers what it did.
fn outcome(
    mut interpreter: Interpreter<'_>,
    shell: &mut Shell,
    flow: Result<(), Halt>,
    until: Duration,
) -> ExecRun {
    let progress = match flow {
        Err(Halt::Input) => Progress::Reads,
        Err(Halt::StepLimit) => give_up(&mut interpreter, shell, "so many steps"),
        flow => match interpreter.end(shell, flow) {
            Ok((Some(end), status)) if end <= until => Progress::Ended(end, status),
            Ok(_) => Progress::Runs,
            Err(why) => give_up(&mut interpreter, shell, &why),
        },
    };
    let end = match progress {
        Progress::Ended(end, _) => end,
        _ => until,
    };
    let printed = interpreter.log.map(|log| log.printed).unwrap_or_default();
    let mut printed: Vec<Output> = printed
        .into_iter()
        .filter(|printed| printed.at <= end && !printed.text.is_empty())
        .map(|printed| Output {
            after: printed.at,
            to_stderr: printed.stream == 1,
            text: printed.text,
        })
        .collect();
    printed.sort_by_key(|output| output.after);
    let writes = interpreter.writes.into_iter().map(|(_, write)| write);
    let writes = writes.filter(|write| write.after <= end).collect();
    ExecRun { printed, writes, progress }
}

/// Ends a command that cannot be interpreted further, and says so.
fn give_up(interpreter: &mut Interpreter<'_>, shell: &Shell, why: &str) -> Progress {
    let text = format!("evenkeel: a simulated container does not understand this: {why}\n");
    if let (Some(log), Some(stream)) = (&mut interpreter.log, shell.errors) {
        log.print_last(shell.now, stream, &text);
    }
    Progress::Ended(shell.now, NOT_INTERPRETED)
}

/// A shell that reads its commands from standard input, between two of them.
#[derive(Debug, Clone)]
pub struct ShellSession {
    environment: Arc<Environment>,
    shell: Shell,
    jobs: Vec<Job>,
}

impl ShellSession {
    /// A shell that begins with the session. `name` is that of its program.
    pub fn new(environment: Arc<Environment>, program: &str, tty: bool, address: Ipv4Addr) -> Self {
        let name = base_name(program);
        let mut shell = environment.first_shell(tty, address);
        shell.bash = name == "bash";
        name.clone_into(&mut shell.name);
        Self { environment, shell, jobs: Vec::new() }
    }

    /// What the shell prints on a terminal when it waits for a command.
    pub fn prompt(&self) -> String {
        let folder = if self.shell.folder.is_empty() { "/" } else { &self.shell.folder };
        format!("{folder} # ")
    }

    /// Exit code of the last command.
    pub fn status(&self) -> i32 {
        self.shell.status
    }

    /// Notes that a command was interrupted by Ctrl-C.
    pub fn interrupt(&mut self) {
        self.shell.status = 130;
    }

    /// Whether more lines belong to these commands.
    pub fn needs_more(text: &str) -> bool {
        parse::needs_more(text)
    }

    /// Interprets commands that begin `after` the session, up to `until`; all times are counted from the start of the
    /// session. `input` is what the commands read, or `None` while that is not complete. Returns the outcome, and the shell
    /// afterwards: `None` if it ended, or if the commands have not ended.
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
        interpreter.adopt(&self.jobs);
        let mut shell = self.shell.clone();
        shell.now = after;
        let flow = interpreter.text(&mut shell, text);
        let jobs = interpreter.jobs.clone();
        let goes_on = match flow {
            Err(Halt::Exit(_) | Halt::Forever | Halt::Input) => false,
            Ok(())
            | Err(
                Halt::Return
                | Halt::Break(_)
                | Halt::Continue(_)
                | Halt::StepLimit
                | Halt::Unknown(_),
            ) => true,
        };
        if !goes_on {
            return (outcome(interpreter, &mut shell, flow, until), None);
        }
        // The shell itself goes on, so that its trap is not due.
        let trap = shell.traps.remove("EXIT");
        let flow =
            if matches!(flow, Err(Halt::StepLimit | Halt::Unknown(_))) { flow } else { Ok(()) };
        let run = outcome(interpreter, &mut shell, flow, until);
        if let Some(trap) = trap {
            shell.traps.insert("EXIT".into(), trap);
        }
        let Progress::Ended(_, status) = run.progress else { return (run, None) };
        shell.status = status;
        (run, Some(Self { environment, shell, jobs }))
    }
}
