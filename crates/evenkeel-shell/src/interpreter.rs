//! Interpreter of scripts in simulated time. It executes nothing, adds up the time of sleeps, and bounds its work.

use evenkeel_api::time::Timestamp;
use rand::{SeedableRng, rngs::StdRng};
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use crate::later;
use crate::{
    RunContext,
    files::{Mounts, Write},
    parse,
    shell::{Flow, Halt, Input, Shell, Variable, unsupported},
    syntax::{
        AndOrList, Command, CommandKind, Connector, List, Pipeline, Redirect, RedirectTarget, Word,
    },
};

/// Exit status of `wait` that SIGTERM interrupts.
const SIGTERM_STATUS: i32 = 143;
/// Maximum number of commands and expansions per run.
const MAX_STEPS: u32 = 20_000;
/// Maximum number of commands and expansions per run when the caller reads the container's log.
const MAX_LOG_STEPS: u32 = 400_000;
/// Extra steps for the signal handler of a script that has reached the maximum number of steps.
const TRAP_STEPS: u32 = 1_000;
/// Maximum number of child processes that may reach the maximum number of steps. After that, the script itself stops at
/// the maximum.
const MAX_RESUMED: u32 = 10;
/// Maximum nesting of commands, functions and shells.
const MAX_DEPTH: u32 = 100;
/// Maximum nesting of function calls.
const MAX_CALLS: u32 = 30;
/// Maximum length in bytes of outputs, values and files.
pub(crate) const MAX_LENGTH: usize = 64 * 1024;
/// Maximum size in bytes of a file that a command executed in a container writes.
pub(crate) const MAX_COMMAND_FILE: usize = 1024 * 1024;
/// Maximum length in bytes of a container's log. The rest is cut off.
const MAX_LOG_LENGTH: usize = 1024 * 1024;

/// Background job, started with `&`.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    /// Time at which the job ends, or `None` if it never ends.
    pub(crate) end: Option<Duration>,
    pub(crate) status: i32,
    /// ID that marks the writes and the output of the job.
    id: u32,
}

/// Text that a process prints at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Printed {
    /// Time since the start of the run.
    pub(crate) at: Duration,
    /// 0 for standard output, 1 for standard error if the two are separate.
    pub(crate) stream: usize,
    /// ID of the background job that prints the output, or 0 for the shell itself.
    pub(crate) job: u32,
    pub(crate) text: String,
}

/// Output of a process, with times.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// End of the recorded output.
    until: Duration,
    /// Output in the order of interpretation. Output of background jobs is not ordered by time.
    pub(crate) printed: Vec<Printed>,
    /// Number of bytes in `printed`.
    length: usize,
}

impl Log {
    pub(crate) fn until(until: Duration) -> Self {
        Self { until, ..Self::default() }
    }

    fn print(&mut self, printed: Printed) -> Flow {
        let length = self.length + printed.text.len();
        if length > MAX_LOG_LENGTH {
            return Err(Halt::StepLimit);
        }
        self.length = length;
        self.printed.push(printed);
        Ok(())
    }

    /// Prints the last output of a command, even beyond the maximum length.
    pub(crate) fn print_last(&mut self, at: Duration, stream: usize, text: &str) {
        self.printed.push(Printed { at, stream, job: 0, text: text.to_owned() });
    }
}

/// State that all shells of one container share.
pub(crate) struct Interpreter<'a> {
    pub(crate) context: &'a RunContext<'a>,
    pub(crate) container: &'a str,
    pub(crate) mounts: &'a Mounts,
    /// Whether there are environment variables whose names are unknown (`envFrom`).
    pub(crate) has_unknown_variables: bool,
    steps: u32,
    /// Number of child processes that reached the maximum number of steps.
    resumed: u32,
    /// Time at which `timeout` ends the child. Later output of the child is dropped.
    pub(crate) deadline: Option<Duration>,
    pub(crate) depth: u32,
    /// Time of SIGTERM, until the script has handled it.
    pub(crate) signal: Option<Duration>,
    /// Writes so far, in order.
    pub(crate) writes: Vec<OwnWrite>,
    /// Number of writes so far, including removed ones.
    pub(crate) n_writes: u64,
    /// Container log, or `None` unless the caller reads it.
    pub(crate) log: Option<Log>,
    /// Streams: the container's standard output first, then one per command substitution.
    pub(crate) outputs: Vec<String>,
    pub(crate) jobs: Vec<Job>,
    /// ID of the background job that is being interpreted, or 0 for the shell itself.
    pub(crate) job: u32,
    /// Last assigned ID of a background job.
    job_ids: u32,
    pub(crate) random: StdRng,
    /// Number of reads of variables that differ on each read, such as `$RANDOM`.
    pub(crate) draws: u32,
    /// Whether the script read a file that other runs may write.
    pub(crate) reads_shared_files: std::cell::Cell<bool>,
    /// Exit status of the last command substitution.
    pub(crate) inner_status: Option<i32>,
    /// Set if a client executes the command in a running container.
    pub(crate) exec: Option<Exec>,
}

/// State of a command that a client executes in a running container. Its standard error is a separate stream, and
/// files of the image that the interpreter does not know count as absent.
#[derive(Debug, Clone, Default)]
pub(crate) struct Exec {
    /// Standard input, or `None` while it is incomplete.
    pub(crate) input: Option<Arc<str>>,
    /// Missing program that the command should have started without a shell.
    pub(crate) missing: Option<String>,
}

impl<'a> Interpreter<'a> {
    pub(crate) fn new(
        context: &'a RunContext<'a>,
        container: &'a str,
        mounts: &'a Mounts,
        has_unknown_variables: bool,
    ) -> Self {
        let mut seed = DefaultHasher::new();
        context.run.hash(&mut seed);
        Self {
            context,
            container,
            mounts,
            has_unknown_variables,
            steps: 0,
            resumed: 0,
            deadline: None,
            depth: 0,
            signal: context.signal,
            writes: Vec::new(),
            n_writes: 0,
            log: None,
            outputs: vec![String::new()],
            jobs: Vec::new(),
            job: 0,
            job_ids: 0,
            random: StdRng::seed_from_u64(seed.finish()),
            draws: 0,
            reads_shared_files: std::cell::Cell::new(false),
            inner_status: None,
            exec: None,
        }
    }

    /// Returns the standard input of a command. Fails with [`Halt::NeedsInput`] while the input is incomplete.
    pub(crate) fn read_input(&self, shell: &Shell) -> Result<Arc<str>, Halt> {
        match &shell.input {
            Input::Text(text) => Ok(Arc::clone(text)),
            Input::Process => match self.exec.as_ref().map(|exec| exec.input.clone()) {
                Some(None) => Err(Halt::NeedsInput),
                Some(Some(text)) => Ok(text),
                None => Ok("".into()),
            },
        }
    }

    /// Counts a step of the interpreter. Fails if the maximum is reached.
    pub(crate) fn step(&mut self) -> Flow {
        self.steps += 1;
        let max_steps = if self.log.is_some() { MAX_LOG_STEPS } else { MAX_STEPS };
        if self.steps > max_steps { Err(Halt::StepLimit) } else { Ok(()) }
    }

    /// Grants a few more steps after a child process, such as an endless background job, has reached the maximum.
    /// Returns whether the script may continue.
    pub(crate) fn resume_after_child(&mut self) -> bool {
        self.resumed += 1;
        self.steps = self.steps.saturating_sub(TRAP_STEPS);
        self.resumed <= MAX_RESUMED
    }

    /// Ends a background job at `now`, and removes its later writes and output.
    pub(crate) fn end_job(&mut self, job: usize, now: Duration, status: i32) {
        let Some(job) = self.jobs.get_mut(job) else { return };
        (job.end, job.status) = (Some(now), status);
        let id = job.id;
        self.writes.retain(|own| own.job != id || own.write.after <= now);
        if let Some(log) = &mut self.log {
            // Keep the number of outputs, which distinguishes the iterations of a loop.
            let later_texts = log.printed.iter_mut().filter(|text| text.job == id && text.at > now);
            for printed in later_texts {
                log.length -= printed.text.len();
                printed.text.clear();
            }
        }
    }

    /// Takes over the background jobs that earlier commands of the session started.
    pub(crate) fn adopt_jobs(&mut self, jobs: &[Job]) {
        self.jobs = jobs.to_vec();
        self.job_ids = jobs.iter().map(|job| job.id).max().unwrap_or(0);
    }

    /// Returns the time of day in `shell`.
    pub(crate) fn time(&self, shell: &Shell) -> Timestamp {
        later(self.context.start, shell.now)
    }

    /// Runs the container's first process to its end. Returns its duration (`None` if it never ends) and exit code.
    pub(crate) fn run_main_process(
        &mut self,
        shell: &mut Shell,
        run: impl FnOnce(&mut Self, &mut Shell) -> Flow,
    ) -> Result<(Option<Duration>, i32), String> {
        let mut halt = run(self, shell);
        if halt == Err(Halt::StepLimit) {
            self.steps = MAX_STEPS - TRAP_STEPS;
            halt = match (self.signal.take(), shell.sigterm_handler().map(str::to_owned)) {
                (Some(signal), Some(handler)) => {
                    shell.now = shell.now.max(signal);
                    // If the handler returns, the script continues and never ends.
                    self.run_script(shell, &handler).and(Err(Halt::Forever))
                }
                _ => Err(Halt::Forever),
            };
        }
        self.end_shell(shell, halt)
    }

    /// Ends a shell: runs its `EXIT` trap.
    pub(crate) fn end_shell(
        &mut self,
        shell: &mut Shell,
        halt: Flow,
    ) -> Result<(Option<Duration>, i32), String> {
        let halt = match halt {
            Ok(()) | Err(Halt::Exit(_)) => {
                if let Err(Halt::Exit(status)) = halt {
                    shell.status = status;
                }
                match shell.traps.remove("EXIT").filter(|action| !action.is_empty()) {
                    Some(action) => {
                        let status = shell.status;
                        let ended = self.run_script(shell, &action);
                        shell.status = status;
                        ended
                    }
                    None => Ok(()),
                }
            }
            halt => halt,
        };
        match halt {
            Err(Halt::Exit(status)) => Ok((Some(shell.now), status)),
            Err(Halt::Forever | Halt::StepLimit) => Ok((None, 0)),
            Err(Halt::Unsupported(reason)) => Err(reason),
            // Only commands of clients have an incomplete input, and they are not ended here.
            Err(Halt::NeedsInput) => Ok((None, 0)),
            _ => Ok((Some(shell.now), shell.status)),
        }
    }

    /// Runs `run` in a child process. Returns the time of its end (`None` if it never ends) and its status. The
    /// caller decides whether to wait.
    pub(crate) fn run_child(
        &mut self,
        mut child: Shell,
        run: impl FnOnce(&mut Self, &mut Shell) -> Flow,
    ) -> Result<(Option<Duration>, i32), Halt> {
        let halt = run(self, &mut child);
        if matches!(halt, Err(Halt::StepLimit | Halt::NeedsInput)) {
            return halt.map(|()| (None, 0));
        }
        self.end_shell(&mut child, halt).map_err(Halt::Unsupported)
    }

    /// Runs `run` in a child process and waits for its end.
    pub(crate) fn run_and_wait(
        &mut self,
        shell: &mut Shell,
        child: Shell,
        run: impl FnOnce(&mut Self, &mut Shell) -> Flow,
    ) -> Flow {
        let (end, status) = self.run_child(child, run)?;
        shell.now = end.ok_or(Halt::Forever)?;
        shell.status = status;
        Ok(())
    }

    /// Parses and runs a script.
    pub(crate) fn run_script(&mut self, shell: &mut Shell, text: &str) -> Flow {
        let list = parse::parse_script(text).map_err(Halt::Unsupported)?;
        self.run_list(shell, &list)
    }

    pub(crate) fn run_list(&mut self, shell: &mut Shell, list: &List) -> Flow {
        list.iter().try_for_each(|and_or_list| self.run_and_or_list(shell, and_or_list))
    }

    fn run_and_or_list(&mut self, shell: &mut Shell, list: &AndOrList) -> Flow {
        if !list.background {
            return self.run_pipelines(shell, list);
        }
        self.job_ids += 1;
        let id = self.job_ids;
        let outer = std::mem::replace(&mut self.job, id);
        let ended = self
            .run_child(shell.fork(), |interpreter, child| interpreter.run_pipelines(child, list));
        self.job = outer;
        let (end, status) = match ended {
            // The job runs for longer than the interpreter follows it.
            Err(Halt::StepLimit) if self.resume_after_child() => (None, 0),
            ended => ended?,
        };
        self.jobs.push(Job { end, status, id });
        shell.last_job = Some(self.jobs.len() - 1);
        shell.status = 0;
        Ok(())
    }

    fn run_pipelines(&mut self, shell: &mut Shell, list: &AndOrList) -> Flow {
        // `set -e` ignores failures of all pipelines but the last.
        let last = list.rest.len();
        self.run_pipeline(shell, &list.first, last > 0)?;
        for (index, (connector, pipeline)) in list.rest.iter().enumerate() {
            if (*connector == Connector::And) == (shell.status == 0) {
                self.run_pipeline(shell, pipeline, index + 1 < last)?;
            }
        }
        Ok(())
    }

    fn run_pipeline(&mut self, shell: &mut Shell, pipeline: &Pipeline, is_condition: bool) -> Flow {
        let is_exempt = is_condition || pipeline.negated;
        shell.conditions += u32::from(is_exempt);
        let flow = match &*pipeline.stages {
            [only] => self.run_command(shell, only),
            stages => self.run_stages(shell, stages),
        };
        shell.conditions -= u32::from(is_exempt);
        flow?;
        if pipeline.negated {
            shell.status = i32::from(shell.status == 0);
        } else if shell.errexit && !is_exempt && shell.conditions == 0 && shell.status != 0 {
            return Err(Halt::Exit(shell.status));
        }
        self.handle_signals(shell)
    }

    fn run_stages(&mut self, shell: &mut Shell, stages: &[Command]) -> Flow {
        let (mut input, mut end) = (shell.input.clone(), Some(shell.now));
        // Status of the last stage that failed, for `pipefail`.
        let mut failed = 0;
        for (n, stage) in stages.iter().enumerate() {
            let mut child = shell.fork();
            child.input = input;
            let stream = self.outputs.len();
            if n + 1 < stages.len() {
                self.outputs.push(String::new());
                child.output = Some(stream);
            }
            let ended =
                self.run_child(child, |interpreter, child| interpreter.run_command(child, stage));
            let output = self.outputs.drain(stream..).next().unwrap_or_default();
            input = Input::Text(output.into());
            let (ended, status) = ended?;
            end = end.zip(ended).map(|(end, ended)| end.max(ended));
            shell.status = status;
            failed = if status != 0 { status } else { failed };
        }
        shell.now = end.ok_or(Halt::Forever)?;
        if shell.pipefail {
            shell.status = failed;
        }
        Ok(())
    }

    fn run_command(&mut self, shell: &mut Shell, command: &Command) -> Flow {
        self.step()?;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return unsupported("nested too deeply");
        }
        let flow = if command.redirects.is_empty() {
            self.run_command_kind(shell, &command.kind)
        } else {
            self.run_redirected(shell, &command.kind, &command.redirects)
        };
        self.depth -= 1;
        flow
    }

    fn run_redirected(
        &mut self,
        shell: &mut Shell,
        kind: &CommandKind,
        redirects: &[Redirect],
    ) -> Flow {
        if let CommandKind::Simple { words, .. } = kind
            && matches!(&**words, [only] if only.plain() == Some("exec"))
        {
            return unsupported("streams of the shell itself");
        }
        let outer_streams = (shell.output, shell.errors, shell.input.clone());
        let n_outputs = self.outputs.len();
        let mut files = Vec::new();
        let all_opened = self.open_redirects(shell, redirects, &mut files);
        let flow = match all_opened {
            Ok(true) => self.run_command_kind(shell, kind),
            Ok(false) => {
                shell.status = 1;
                Ok(())
            }
            Err(halt) => Err(halt),
        };
        (shell.output, shell.errors, shell.input) = outer_streams;
        for OpenedFile { stream, path, previous } in files {
            let content = previous + &self.outputs[stream];
            self.write(shell, &path, content)?;
        }
        self.outputs.truncate(n_outputs);
        flow
    }

    /// Applies redirections and returns whether all files could be opened. Adds each file that must be
    /// written afterwards to `files`.
    fn open_redirects(
        &mut self,
        shell: &mut Shell,
        redirects: &[Redirect],
        files: &mut Vec<OpenedFile>,
    ) -> Result<bool, Halt> {
        for redirect in redirects {
            match (&redirect.to, redirect.fd) {
                (RedirectTarget::Text(word), 0) => {
                    shell.input = Input::Text(self.expand_string(shell, word)?.into());
                }
                (RedirectTarget::Read(word), 0) => {
                    let path = self.expand_string(shell, word)?;
                    match self.read(shell, &path)? {
                        Some(text) => shell.input = Input::Text(text),
                        None => return Ok(false),
                    }
                }
                (RedirectTarget::Duplicate(1), 2) => shell.errors = shell.output,
                (RedirectTarget::Duplicate(2), 1) => shell.output = shell.errors,
                (RedirectTarget::Write(word) | RedirectTarget::Append(word), fd @ (1 | 2)) => {
                    let path = self.expand_string(shell, word)?;
                    let append = matches!(redirect.to, RedirectTarget::Append(_));
                    let stream = match &*path {
                        "/dev/null" => None,
                        "/dev/stdout" | "/proc/self/fd/1" => shell.output,
                        "/dev/stderr" | "/proc/self/fd/2" => shell.errors,
                        "/proc/1/fd/1" | "/proc/1/fd/2" if self.exec.is_some() => {
                            return unsupported("printing to the container's log");
                        }
                        "/proc/1/fd/1" | "/proc/1/fd/2" => Some(0),
                        _ => {
                            let previous = if append { self.read(shell, &path)? } else { None };
                            let previous = previous.as_deref().unwrap_or_default().to_owned();
                            if !self.write(shell, &path, previous.clone())? {
                                return Ok(false);
                            }
                            let stream = self.outputs.len();
                            self.outputs.push(String::new());
                            files.push(OpenedFile { stream, path, previous });
                            Some(stream)
                        }
                    };
                    if fd == 1 {
                        shell.output = stream;
                    } else {
                        shell.errors = stream;
                    }
                }
                _ => return unsupported("a stream that is not understood"),
            }
        }
        Ok(true)
    }

    fn run_command_kind(&mut self, shell: &mut Shell, kind: &CommandKind) -> Flow {
        match kind {
            CommandKind::Simple { assignments, words } => {
                self.run_simple(shell, assignments, words)
            }
            CommandKind::Group(list) => self.run_list(shell, list),
            CommandKind::Subshell(list) => {
                let child = shell.fork();
                self.run_and_wait(shell, child, |interpreter, child| {
                    interpreter.run_list(child, list)
                })
            }
            CommandKind::If { branches, otherwise } => {
                for (condition, then) in branches {
                    self.run_condition(shell, condition)?;
                    if shell.status == 0 {
                        return self.run_list(shell, then);
                    }
                }
                shell.status = 0;
                self.run_list(shell, otherwise)
            }
            CommandKind::Loop { until, condition, body } => {
                self.while_loop(shell, *until, condition, body)
            }
            CommandKind::For { name, over, body } => {
                self.for_loop(shell, name, over.as_deref(), body)
            }
            CommandKind::Case { word, arms } => {
                let text: Vec<char> = self.expand_string(shell, word)?.chars().collect();
                shell.status = 0;
                for (patterns, list) in arms {
                    for pattern in patterns {
                        if self.expand_pattern(shell, pattern)?.matches(&text) {
                            return self.run_list(shell, list);
                        }
                    }
                }
                Ok(())
            }
            CommandKind::Function { name, body } => {
                shell.functions.insert(name.clone(), Arc::clone(body));
                shell.status = 0;
                Ok(())
            }
            CommandKind::Test(words) => self.double_brackets(shell, words),
        }
    }

    fn run_condition(&mut self, shell: &mut Shell, condition: &List) -> Flow {
        shell.conditions += 1;
        let flow = self.run_list(shell, condition);
        shell.conditions -= 1;
        flow
    }

    /// Runs a simple command: optional assignments and an optional command with its arguments.
    fn run_simple(
        &mut self,
        shell: &mut Shell,
        assignments: &[crate::syntax::Assignment],
        words: &[Word],
    ) -> Flow {
        self.inner_status = None;
        let words = self.expand_fields(shell, words)?;
        let mut overridden: Vec<(String, Option<Variable>)> = Vec::new();
        for assignment in assignments {
            let mut value = self.expand_string(shell, &assignment.value)?;
            let name = &*assignment.name;
            if matches!(name, "IFS" | "PATH" | "RANDOM") && words.is_empty() {
                return unsupported(format!("changing {name}"));
            }
            if assignment.append {
                value = self.value(shell, name)?.unwrap_or_default() + &value;
            }
            let old = shell.variables.get(name).cloned();
            shell.set(name, value);
            if let (false, Some(variable)) = (words.is_empty(), shell.variables.get_mut(name)) {
                variable.exported = true;
                overridden.push((name.to_owned(), old));
            }
        }
        if words.is_empty() {
            shell.status = self.inner_status.unwrap_or(0);
            return Ok(());
        }
        let flow = self.run_function_or_command(shell, &words);
        for (name, old) in overridden.into_iter().rev() {
            restore(shell, name, old);
        }
        flow
    }

    /// Calls a function, or else executes a command.
    fn run_function_or_command(&mut self, shell: &mut Shell, words: &[String]) -> Flow {
        let Some(body) = shell.functions.get(&*words[0]).cloned() else {
            return self.execute(shell, words);
        };
        if shell.calls >= MAX_CALLS {
            return unsupported("functions call each other too deeply");
        }
        let positional = std::mem::replace(&mut shell.positional, words[1..].to_vec());
        let (locals, loops) = (std::mem::take(&mut shell.locals), std::mem::take(&mut shell.loops));
        shell.calls += 1;
        let flow = self.run_command(shell, &body);
        shell.calls -= 1;
        shell.positional = positional;
        shell.loops = loops;
        for (name, old) in std::mem::replace(&mut shell.locals, locals).into_iter().rev() {
            restore(shell, name, old);
        }
        match flow {
            Err(Halt::Return) => Ok(()),
            flow => flow,
        }
    }

    fn for_loop(
        &mut self,
        shell: &mut Shell,
        name: &str,
        over: Option<&[Word]>,
        body: &List,
    ) -> Flow {
        let values = match over {
            Some(words) => self.expand_fields(shell, words)?,
            None => shell.positional.clone(),
        };
        shell.status = 0;
        for value in values {
            self.step()?;
            shell.set(name, value);
            if !self.run_loop_body(shell, body)? {
                break;
            }
        }
        Ok(())
    }

    /// Runs the body of a loop once. Returns whether the loop continues.
    fn run_loop_body(&mut self, shell: &mut Shell, body: &List) -> Result<bool, Halt> {
        shell.loops += 1;
        let flow = self.run_list(shell, body);
        shell.loops -= 1;
        match flow {
            Ok(()) | Err(Halt::Continue(0..=1)) => Ok(true),
            Err(Halt::Break(0..=1)) => Ok(false),
            Err(Halt::Break(n)) => Err(Halt::Break(n - 1)),
            Err(Halt::Continue(n)) => Err(Halt::Continue(n - 1)),
            Err(halt) => Err(halt),
        }
    }

    fn while_loop(
        &mut self,
        shell: &mut Shell,
        until: bool,
        condition: &List,
        body: &List,
    ) -> Flow {
        let mut previous: Option<(Duration, LoopState)> = None;
        let mut status = 0;
        loop {
            self.step()?;
            // The caller needs no output after these times.
            let log_end = self.log.as_ref().map(|log| log.until);
            if [log_end, self.deadline].into_iter().flatten().any(|end| shell.now > end) {
                return Err(Halt::Forever);
            }
            let loop_state = self.loop_state(shell);
            let unchanged_since = previous.filter(|(_, state)| *state == loop_state);
            if let Some((began, _)) = unchanged_since {
                self.skip_iterations(shell, began)?;
            }
            previous = Some((shell.now, loop_state));
            self.run_condition(shell, condition)?;
            if (shell.status == 0) == until {
                break;
            }
            let continues = self.run_loop_body(shell, body)?;
            status = shell.status;
            if !continues {
                status = 0;
                break;
            }
        }
        shell.status = status;
        Ok(())
    }

    /// Returns a fingerprint of all state that an iteration may depend on, except the time and the writes of other
    /// runs.
    fn loop_state(&self, shell: &Shell) -> LoopState {
        let mut state = DefaultHasher::new();
        for (name, variable) in &shell.variables {
            (name, &variable.value).hash(&mut state);
        }
        (&shell.positional, &shell.folder, &shell.input, shell.status).hash(&mut state);
        self.jobs.len().hash(&mut state);
        // If the caller reads the log, each printed line makes the iteration differ.
        self.log.as_ref().map(|log| log.printed.len()).hash(&mut state);
        let counts = (self.writes.len(), self.draws, shell.traps.len(), shell.functions.len());
        (state.finish(), counts)
    }

    /// Skips whole iterations of a loop whose last iteration began at `began` and changed nothing. All further
    /// iterations are the same until the next signal, job end or change of a file.
    fn skip_iterations(&mut self, shell: &mut Shell, began: Duration) -> Flow {
        let Some(next) = self.next_change(shell, began) else { return Err(Halt::Forever) };
        if next <= shell.now {
            // An event occurred during the iteration, so the next iteration may differ.
            return Ok(());
        }
        let period = shell.now.saturating_sub(began);
        let remaining = next.saturating_sub(shell.now);
        if period.is_zero() {
            shell.now = next;
        } else {
            let n_iterations = remaining.as_nanos() / period.as_nanos();
            let skipped = period.as_nanos().saturating_mul(n_iterations);
            shell.now += Duration::from_nanos(u64::try_from(skipped).unwrap_or(u64::MAX));
        }
        self.handle_signals(shell)
    }

    /// Returns the time of the next event after `began` that a loop may notice: a handled signal, the end of a job,
    /// or a write.
    fn next_change(&self, shell: &Shell, began: Duration) -> Option<Duration> {
        let signal = self.signal.filter(|_| shell.sigterm_handler().is_some());
        let ends = self.jobs.iter().filter_map(|job| job.end);
        let writes = self.writes.iter().map(|own| own.write.after);
        let own = ends.chain(writes).filter(|at| *at > began).min();
        let others = self.context.next_change(later(self.context.start, began)).map(|time| {
            Duration::try_from(time.duration_since(self.context.start)).unwrap_or_default()
        });
        [signal, own, others].into_iter().flatten().min()
    }

    /// Runs the handler if the signal has arrived by now.
    pub(crate) fn handle_signals(&mut self, shell: &mut Shell) -> Flow {
        if !shell.is_main || self.signal.is_none_or(|signal| signal > shell.now) {
            return Ok(());
        }
        self.signal = None;
        let Some(handler) = shell.sigterm_handler().map(str::to_owned) else { return Ok(()) };
        let status = shell.status;
        self.run_script(shell, &handler)?;
        shell.status = status;
        Ok(())
    }

    /// Waits until the background jobs end or a handled signal arrives.
    pub(crate) fn wait_for_jobs(&mut self, shell: &mut Shell, jobs: &[usize]) -> Flow {
        let mut ends =
            jobs.iter().map(|job| self.jobs.get(*job).map_or(Some(shell.now), |job| job.end));
        let end = ends.try_fold(shell.now, |latest, end| end.map(|end| latest.max(end)));
        if let Some(signal) = self.signal.filter(|_| shell.sigterm_handler().is_some())
            && end.is_none_or(|end| signal < end)
        {
            shell.now = shell.now.max(signal);
            self.handle_signals(shell)?;
            shell.status = SIGTERM_STATUS;
            return Ok(());
        }
        shell.now = end.ok_or(Halt::Forever)?;
        Ok(())
    }

    /// Prints text to a stream.
    pub(crate) fn print(&mut self, shell: &Shell, stream: Stream, text: &str) -> Flow {
        if self.deadline.is_some_and(|deadline| shell.now > deadline) {
            return Ok(());
        }
        let stream_count = if self.exec.is_some() { 2 } else { 1 };
        if let (Some(log), Some(stream)) =
            (self.log.as_mut(), stream.filter(|stream| *stream < stream_count))
        {
            let (at, job, text) = (shell.now, self.job, text.to_owned());
            return log.print(Printed { at, stream, job, text });
        }
        let Some(output) = stream.and_then(|stream| self.outputs.get_mut(stream)) else {
            return Ok(());
        };
        if output.len() + text.len() <= MAX_LENGTH {
            output.push_str(text);
        } else if stream != Some(0) {
            return unsupported("more output than is kept");
        }
        Ok(())
    }
}

/// Write that the interpreted script made.
#[derive(Debug)]
pub(crate) struct OwnWrite {
    /// ID of the background job that made the write; 0 for the shell itself.
    pub(crate) job: u32,
    /// Number of writes made before it.
    pub(crate) serial: u64,
    pub(crate) write: Write,
}

/// File that a command writes by a redirection.
struct OpenedFile {
    /// Index of the stream whose output is written to the file afterwards.
    stream: usize,
    path: String,
    /// Content before the command, if the command appends.
    previous: String,
}

/// Hash of the state before an iteration, and the numbers of writes, random draws, traps and functions.
type LoopState = (u64, (usize, u32, usize, usize));
type Stream = super::shell::Stream;

/// Restores the previous value of a variable, or removes it.
fn restore(shell: &mut Shell, name: String, old: Option<Variable>) {
    match old {
        Some(old) => drop(shell.variables.insert(name, old)),
        None => drop(shell.variables.remove(&name)),
    }
}
