//! Commands in running containers: their streams, and their time.
//!
//! What a command prints follows from what it finds, so it is interpreted ahead and then printed at its time; again when files
//! change, and when more time has passed than was looked ahead. Nothing of it waits while it is interpreted but itself.

use bytes::Bytes;
use evenkeel_api::time::Timestamp;
use evenkeel_runtime::clock::Clock;
use evenkeel_shell::{
    Environment, ExecRun, Full, Output, Progress, RunContext, ShellSession, Write, copies_input,
    encoding, later, reads_commands, shown,
};
use futures::StreamExt as _;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::mpsc;

use crate::{
    kubelets::{Kubelets, beside},
    logs::ContainerRef,
    pod::memory::CommandWrites,
    pod_workers::CurrentRun,
    stdin::{Read, Stdin},
};

/// How far ahead a command is interpreted.
const HORIZON: Duration = Duration::from_secs(60);
/// Bytes of output that are sent together.
const MAX_CHUNK: usize = 32 * 1024;
/// Exit code of a command whose container ends: that of SIGKILL.
const KILLED: i32 = 137;
/// Exit code of a command that is interrupted by Ctrl-C.
const INTERRUPTED: i32 = 130;

/// A command to execute in a container.
#[derive(Debug)]
pub struct ExecRequest {
    /// The container; its run is the one that goes on.
    pub container: ContainerRef,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Whether it gets a terminal, which echoes what is typed.
    pub tty: bool,
    /// Its standard streams.
    pub streams: Streams,
}

/// A container to attach to.
#[derive(Debug)]
pub struct AttachRequest {
    /// The container; its run is the one that goes on.
    pub container: ContainerRef,
    /// Whether it has a terminal, which echoes what is typed.
    pub tty: bool,
    /// The streams that are connected to those of its process.
    pub streams: Streams,
}

/// Standard streams of a process.
#[derive(Debug)]
pub struct Streams {
    /// What somebody types, to its end; none where standard input is empty.
    pub stdin: Option<mpsc::Receiver<Bytes>>,
    /// What the process prints. When nobody reads it any more, the process ends.
    pub output: mpsc::Sender<Chunk>,
}

/// A piece of output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Whether to standard error.
    pub to_stderr: bool,
    /// Bytes in their order.
    pub bytes: Bytes,
}

/// Why a command could not be executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecError {
    /// The container of this name does not run.
    NoContainer(String),
    /// The container has no such program.
    NoProgram(String),
    /// The pod could not be read.
    Unreadable(String),
}

/// Interprets a command up to a time after its start. A shell that goes on after it comes with the outcome.
type Interpret =
    Arc<dyn Fn(&RunContext<'_>, Duration) -> (ExecRun, Option<ShellSession>) + Send + Sync>;

/// How far the output of a command was printed.
enum Printed {
    /// To its end, with its exit code and the shell that goes on.
    All(i32, Option<Box<ShellSession>>),
    /// To where it waits for its input.
    Reads,
    /// To Ctrl-C.
    Interrupted,
}

/// Why a command ends before its time.
enum Stop {
    /// With an error.
    Error(ExecError),
    /// With an exit code.
    Exit(i32),
}

impl Kubelets {
    /// Executes a command in a container until it ends, and returns its exit code. A command ends with its container, and when it
    /// is dropped.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn exec(&self, request: ExecRequest) -> Result<i32, ExecError> {
        let ExecRequest { container, command, tty, streams } = request;
        let mut execution = Execution::start(self.clone(), container, tty, streams).await?;
        let done = if execution.stdin.is_open() && reads_commands(&command) {
            execution.shell(&command).await
        } else if execution.stdin.is_open() && copies_input(&command) {
            execution.copy().await
        } else {
            execution.command(command).await
        };
        match done {
            Ok(code) | Err(Stop::Exit(code)) => Ok(code),
            Err(Stop::Error(error)) => Err(error),
        }
    }
}

impl Kubelets {
    /// Prints what a container prints from now on, until it ends. Where its process is a shell with an open standard input, it
    /// gets what is typed, and the container ends with it.
    ///
    /// # Errors
    /// When the container does not run.
    pub async fn attach(&self, request: AttachRequest) -> Result<(), ExecError> {
        let AttachRequest { container, tty, streams } = request;
        let mut execution = Execution::start(self.clone(), container, tty, streams).await?;
        let shell = execution.environment.attached_shell().map(str::to_owned);
        let done = match shell.filter(|_| execution.stdin.is_open()) {
            Some(program) => {
                let ended = execution.shell(&[program]).await;
                if let (Ok(code), Some(workers)) = (&ended, self.workers()) {
                    workers.end_shell(&execution.run, &execution.container.name, *code);
                }
                ended
            }
            None => execution.follow_output().await,
        };
        match done {
            Ok(_) | Err(Stop::Exit(_)) => Ok(()),
            Err(Stop::Error(error)) => Err(error),
        }
    }
}

/// A command that is being executed.
struct Execution {
    kubelets: Kubelets,
    clock: Clock,
    container: ContainerRef,
    environment: Arc<Environment>,
    /// The run of the container when the command began.
    run: CurrentRun,
    tty: bool,
    stdin: Stdin,
    output: mpsc::Sender<Chunk>,
    /// The command's number among all.
    number: u64,
    /// What is recorded of the command that is interpreted now.
    recorded: Option<CommandWrites>,
}

/// How long a container may take to run that does so by its status.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// The run of a container. Its status is written a moment before the kubelet takes the run for started.
async fn running(
    kubelets: &Kubelets,
    clock: &Clock,
    container: &ContainerRef,
) -> Option<CurrentRun> {
    let deadline = later(clock.now(), START_TIMEOUT);
    loop {
        let workers = kubelets.workers()?;
        let changed = workers.changed();
        let mut changed = std::pin::pin!(changed.notified());
        changed.as_mut().enable();
        if let Some(run) = workers.current_run(container) {
            return Some(run);
        }
        if !workers.has_written_running(container).await || clock.now() >= deadline {
            return None;
        }
        drop(workers);
        let wait = Duration::try_from(deadline.duration_since(clock.now())).unwrap_or_default();
        tokio::select! {
            () = changed => {}
            () = clock.sleep(wait) => {}
        }
    }
}

/// Number of commands that were executed.
static COMMANDS: AtomicU64 = AtomicU64::new(0);

impl Execution {
    async fn start(
        kubelets: Kubelets,
        container: ContainerRef,
        tty: bool,
        streams: Streams,
    ) -> Result<Self, ExecError> {
        let no_container = || ExecError::NoContainer(container.name.clone());
        let workers = kubelets.workers().ok_or_else(no_container)?;
        let unreadable = |error: &dyn std::fmt::Display| ExecError::Unreadable(error.to_string());
        let environment = workers.environment(&container).await.map_err(|e| unreadable(&e))?;
        let environment = Arc::new(environment.ok_or_else(no_container)?);
        let clock = workers.clock().clone();
        drop(workers);
        let run = running(&kubelets, &clock, &container).await.ok_or_else(no_container)?;
        let number = COMMANDS.fetch_add(1, Ordering::Relaxed);
        let stdin = Stdin::new(streams.stdin, tty);
        let output = streams.output;
        let recorded = None;
        Ok(Self {
            kubelets,
            clock,
            container,
            environment,
            run,
            tty,
            stdin,
            output,
            number,
            recorded,
        })
    }

    /// Executes a command that is no shell with lines.
    async fn command(&mut self, words: Vec<String>) -> Result<i32, Stop> {
        let by: Arc<str> = format!("{}/exec/{}", self.run.id, self.number).into();
        let mut input: Option<Arc<str>> = (!self.stdin.is_open()).then(|| "".into());
        let mut n_shown = 0;
        loop {
            let (environment, words, input_now) =
                (self.environment.clone(), words.clone(), input.clone());
            let tty = self.tty;
            let interpret: Interpret = Arc::new(move |context, until| {
                (environment.exec(&words, input_now.clone(), tty, context, until), None)
            });
            match self
                .print_run(&by, self.clock.now(), Duration::ZERO, &interpret, &mut n_shown)
                .await?
            {
                Printed::All(code, _) => return Ok(code),
                Printed::Interrupted => return Ok(INTERRUPTED),
                Printed::Reads => input = Some(self.gather().await?),
            }
        }
    }

    /// Reads commands line by line, and executes them.
    async fn shell(&mut self, words: &[String]) -> Result<i32, Stop> {
        let program = words.first().map_or("sh", String::as_str);
        let environment = self.environment.clone();
        let mut session = ShellSession::new(environment, program, self.tty, self.run.address);
        let (start, mut text) = (self.clock.now(), String::new());
        for line_number in 0_u64.. {
            if self.tty {
                let prompt = if text.is_empty() { session.prompt() } else { "> ".to_owned() };
                self.send(false, prompt.into_bytes()).await?;
            }
            match self.read().await? {
                Read::Line(line) => {
                    text.push_str(&line);
                    if ShellSession::needs_more(&text) {
                        continue;
                    }
                }
                Read::Interrupt => {
                    text.clear();
                    session.interrupt();
                    continue;
                }
                Read::End if text.is_empty() => return Ok(session.status()),
                Read::End => {}
            }
            let by: Arc<str> = format!("{}/exec/{}/{line_number}", self.run.id, self.number).into();
            let commands: Arc<str> = std::mem::take(&mut text).into();
            let (mut input, mut n_shown) = (None::<Arc<str>>, 0);
            let after =
                |now: Timestamp| Duration::try_from(now.duration_since(start)).unwrap_or_default();
            loop {
                let began = after(self.clock.now());
                let (session_now, input_now, commands) =
                    (session.clone(), input.clone(), Arc::clone(&commands));
                let interpret: Interpret = Arc::new(move |context, until| {
                    session_now.run(&commands, input_now.clone(), began, context, until)
                });
                match self.print_run(&by, start, began, &interpret, &mut n_shown).await? {
                    Printed::All(_, Some(next)) => session = *next,
                    Printed::All(code, None) => return Ok(code),
                    Printed::Interrupted => session.interrupt(),
                    Printed::Reads => {
                        input = Some(self.gather().await?);
                        continue;
                    }
                }
                break;
            }
            self.recorded = None;
        }
        Ok(0)
    }

    /// Prints what the container prints from now on.
    async fn follow_output(&mut self) -> Result<i32, Stop> {
        let (kubelets, container) = (self.kubelets.clone(), self.container.clone());
        let printed = beside(move || kubelets.log(&container)).await.flatten();
        let seen = printed.map_or(0, |lines| lines.len());
        let mut lines = std::pin::pin!(self.kubelets.follow(self.container.clone(), seen));
        let output = self.output.clone();
        loop {
            tokio::select! {
                line = lines.next() => match line {
                    Some(line) => self.send(false, encoding::bytes(&line.text)).await?,
                    None => return Ok(0),
                },
                // Nobody reads it, but that Ctrl-C lets a terminal go.
                _ = self.stdin.type_ahead() => {
                    if self.stdin.take_interrupt() {
                        return Ok(INTERRUPTED);
                    }
                    self.stdin.forget();
                }
                () = output.closed() => return Err(Stop::Exit(KILLED)),
            }
        }
    }

    /// Prints what is typed, as it comes.
    async fn copy(&mut self) -> Result<i32, Stop> {
        loop {
            match self.read_some().await? {
                Read::Line(bytes) => self.send(false, encoding::bytes(&bytes)).await?,
                Read::Interrupt => return Ok(INTERRUPTED),
                Read::End => return Ok(0),
            }
        }
    }

    /// Interprets a command, and prints its output at its time. All times are counted from `start`; `n_shown` pieces of output are
    /// printed already.
    async fn print_run(
        &mut self,
        by: &Arc<str>,
        start: Timestamp,
        began: Duration,
        interpret: &Interpret,
        n_shown: &mut usize,
    ) -> Result<Printed, Stop> {
        loop {
            let now = self.clock.now();
            let after =
                |now: Timestamp| Duration::try_from(now.duration_since(start)).unwrap_or_default();
            let until = later(now, HORIZON);
            let mut run = self.current_run()?;
            let (interpret, name, horizon) = (interpret.clone(), Arc::clone(by), after(until));
            let (found, address) = (run.clone(), run.address);
            let (outcome, next) = beside(move || {
                let context = RunContext {
                    start,
                    signal: None,
                    run: &name,
                    pod: &found.files,
                    node: &found.node_files,
                    address,
                };
                interpret(&context, horizon)
            })
            .await
            .unwrap_or_else(|| (ExecRun::killed(began), None));
            if let Progress::NotFound(program) = outcome.progress {
                return Err(Stop::Error(ExecError::NoProgram(program)));
            }
            if self.record(by, start, &outcome.writes) == Err(Full) {
                let text = "evenkeel: no space is left in the files of the pod\n";
                self.send(!self.tty, text.as_bytes().to_vec()).await?;
                return Err(Stop::Exit(1));
            }
            run = self.current_run()?;
            if let Some(printed) =
                self.print(&outcome, start, until, run.changes(), n_shown).await?
            {
                return Ok(match printed {
                    Printed::All(code, _) => Printed::All(code, next.map(Box::new)),
                    other => other,
                });
            }
        }
    }

    /// Prints the output of a run at its time; nothing if it has to be interpreted again.
    async fn print(
        &mut self,
        outcome: &ExecRun,
        start: Timestamp,
        until: Timestamp,
        changes: (u64, u64),
        n_shown: &mut usize,
    ) -> Result<Option<Printed>, Stop> {
        loop {
            let workers = self.kubelets.workers().ok_or(Stop::Exit(KILLED))?;
            let changed = workers.changed();
            drop(workers);
            let mut changed = std::pin::pin!(changed.notified());
            changed.as_mut().enable();
            if self.current_run()?.changes() != changes {
                return Ok(None);
            }
            let now = self.clock.now();
            self.print_due(outcome, start, now, n_shown).await?;
            let next = outcome.printed.get(*n_shown).map(|output| later(start, output.after));
            let end = match outcome.progress {
                Progress::Ended(end, code) => {
                    let end = later(start, end);
                    if end <= now {
                        return Ok(Some(Printed::All(code, None)));
                    }
                    Some(end)
                }
                Progress::Reads if next.is_none() => return Ok(Some(Printed::Reads)),
                _ => None,
            };
            if now >= until {
                return Ok(None);
            }
            let wake = [next, end].into_iter().flatten().fold(until, Timestamp::min);
            let wait = Duration::try_from(wake.duration_since(now)).unwrap_or_default();
            let (tty, output) = (self.tty, self.output.clone());
            tokio::select! {
                () = self.clock.sleep(wait) => {}
                () = changed => {}
                () = output.closed() => return Err(Stop::Exit(KILLED)),
                echo = self.stdin.type_ahead(), if tty => {
                    let interrupted = self.stdin.take_interrupt();
                    self.send(false, echo).await?;
                    if interrupted {
                        self.cut();
                        return Ok(Some(Printed::Interrupted));
                    }
                }
            }
        }
    }

    /// Prints what is due.
    async fn print_due(
        &mut self,
        outcome: &ExecRun,
        start: Timestamp,
        now: Timestamp,
        n_shown: &mut usize,
    ) -> Result<(), Stop> {
        let is_due = |output: &&Output| later(start, output.after) <= now;
        while let Some(first) = outcome.printed.get(*n_shown).filter(is_due) {
            let mut bytes = Vec::new();
            let together = outcome.printed.iter().skip(*n_shown).take_while(is_due);
            for output in together {
                if output.to_stderr != first.to_stderr || bytes.len() > MAX_CHUNK {
                    break;
                }
                bytes.extend(encoding::bytes(&output.text));
                *n_shown += 1;
            }
            self.send(first.to_stderr, bytes).await?;
        }
        Ok(())
    }

    /// The input of a command, to its end.
    async fn gather(&mut self) -> Result<Arc<str>, Stop> {
        let mut input = String::new();
        loop {
            match self.read().await? {
                Read::Line(line) => input.push_str(&line),
                Read::Interrupt => return Err(Stop::Exit(INTERRUPTED)),
                Read::End => return Ok(input.into()),
            }
            if input.len() > Stdin::MAX_BYTES {
                let text = "evenkeel: standard input is longer than a simulated container reads\n";
                self.send(!self.tty, text.as_bytes().to_vec()).await?;
                return Err(Stop::Exit(1));
            }
        }
    }

    /// The next line.
    async fn read(&mut self) -> Result<Read, Stop> {
        loop {
            if let Some(read) = self.stdin.next_line() {
                return Ok(read);
            }
            self.receive().await?;
        }
    }

    /// What is typed next: a line of a terminal, else whatever comes.
    async fn read_some(&mut self) -> Result<Read, Stop> {
        loop {
            if let Some(read) = self.stdin.next_piece() {
                return Ok(read);
            }
            self.receive().await?;
        }
    }

    /// Waits for what is typed, and echoes it.
    async fn receive(&mut self) -> Result<(), Stop> {
        let workers = self.kubelets.workers().ok_or(Stop::Exit(KILLED))?;
        let changed = workers.changed();
        drop(workers);
        let mut changed = std::pin::pin!(changed.notified());
        changed.as_mut().enable();
        self.current_run()?;
        let output = self.output.clone();
        tokio::select! {
            echo = self.stdin.receive() => self.send(false, echo).await,
            () = changed => Ok(()),
            () = output.closed() => Err(Stop::Exit(KILLED)),
        }
    }

    async fn send(&self, to_stderr: bool, bytes: Vec<u8>) -> Result<(), Stop> {
        if bytes.is_empty() {
            return Ok(());
        }
        let bytes = if self.tty { shown(&bytes) } else { bytes };
        let chunk = Chunk { to_stderr, bytes: bytes.into() };
        self.output.send(chunk).await.map_err(|_| Stop::Exit(KILLED))
    }

    /// The run of the container, as long as it is the one in which the command began.
    fn current_run(&self) -> Result<CurrentRun, Stop> {
        let run = self.kubelets.workers().and_then(|workers| workers.current_run(&self.container));
        run.filter(|run| run.id == self.run.id).ok_or(Stop::Exit(KILLED))
    }

    /// Records what the command writes.
    fn record(&mut self, by: &Arc<str>, start: Timestamp, writes: &[Write]) -> Result<(), Full> {
        if writes.is_empty() && self.recorded.is_none() {
            return Ok(());
        }
        let command = CommandWrites {
            by: Arc::clone(by),
            container: self.container.name.clone(),
            restarts: self.run.restarts,
            start,
            writes: writes.to_vec(),
        };
        let Some(workers) = self.kubelets.workers() else { return Ok(()) };
        workers.record(&self.run, command.clone())?;
        self.recorded = Some(command);
        Ok(())
    }

    /// Takes back what the command would write from now on.
    fn cut(&mut self) {
        let (Some(mut command), Some(workers)) = (self.recorded.take(), self.kubelets.workers())
        else {
            return;
        };
        let (now, count) = (self.clock.now(), command.writes.len());
        command.writes.retain(|write| later(command.start, write.after) <= now);
        if command.writes.len() < count {
            // Fewer writes always fit.
            let _ = workers.record(&self.run, command);
        }
    }
}

impl Drop for Execution {
    fn drop(&mut self) {
        self.cut();
    }
}
