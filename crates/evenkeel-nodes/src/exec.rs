//! Executes commands in running containers, and attaches clients to containers.
//!
//! The output of a command is a function of its input and of the files. The interpreter therefore computes the output
//! up to [`HORIZON`] ahead, and [`Execution`] sends each part when it is due. The command is interpreted again when its
//! input is complete, when files change, and when the computed time has passed. The interpreter runs on a separate
//! thread, so that other tasks do not wait for it.

use bytes::Bytes;
use evenkeel_api::time::Timestamp;
use evenkeel_runtime::clock::Clock;
use evenkeel_shell::{
    Environment, ExecRun, Full, Output, Progress, RunContext, ShellSession, Write, copies_input,
    encoding, later, reads_commands, with_carriage_returns,
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
    kubelets::{Kubelets, interpret_blocking},
    logs::ContainerRef,
    pod::memory::CommandWrites,
    pod_workers::CurrentRun,
    stdin::{Read, Stdin},
};

/// How far ahead of the current time a command is interpreted.
const HORIZON: Duration = Duration::from_secs(60);
/// Size in bytes of a chunk that no more output is merged into.
const MAX_CHUNK_BYTES: usize = 32 * 1024;
/// Exit code of a command whose container ends or whose client disconnects: the exit code of SIGKILL.
const KILLED_EXIT_CODE: i32 = 137;
/// Exit code of a command that Ctrl-C interrupts.
const INTERRUPTED_EXIT_CODE: i32 = 130;

/// Command to execute in a container.
#[derive(Debug)]
pub struct ExecRequest {
    /// Container, in its current run.
    pub container: ContainerRef,
    /// Program and its arguments.
    pub command: Vec<String>,
    /// Whether the command has a terminal, which echoes the input.
    pub tty: bool,
    /// Standard streams of the command.
    pub streams: Streams,
}

/// Container to attach to.
#[derive(Debug)]
pub struct AttachRequest {
    /// Container, in its current run.
    pub container: ContainerRef,
    /// Whether the container has a terminal, which echoes the input.
    pub tty: bool,
    /// Client's ends of the standard streams of the container's process.
    pub streams: Streams,
}

/// Standard streams of a process.
#[derive(Debug)]
pub struct Streams {
    /// Input from the client until its end; `None` if standard input is empty.
    pub stdin: Option<mpsc::Receiver<Bytes>>,
    /// Output of the process. A closed channel ends the process.
    pub output: mpsc::Sender<Chunk>,
}

/// Chunk of output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Whether the process wrote the chunk to standard error.
    pub to_stderr: bool,
    /// Bytes of the chunk.
    pub bytes: Bytes,
}

/// Error of a command that could not be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecError {
    /// The container with this name does not run.
    NoContainer(String),
    /// The container does not have the program with this name.
    NoProgram(String),
    /// The pod could not be read, for this reason.
    Unreadable(String),
}

/// Interprets a command up to a time since its start. Returns its outcome, and the session of its shell if the shell
/// continues after the command.
type Interpret =
    Arc<dyn Fn(&RunContext<'_>, Duration) -> (ExecRun, Option<ShellSession>) + Send + Sync>;

/// How much of the output of a command was sent.
enum Sent {
    /// The command ended with this exit code; the session of its shell if the shell continues.
    All(i32, Option<Box<ShellSession>>),
    /// The command waits for its input.
    NeedsInput,
    /// Ctrl-C interrupted the command.
    Interrupted,
}

/// Reason why an execution ends early.
enum Stop {
    /// The command could not be started.
    Error(ExecError),
    /// The command exits with this code, because its container ended, its client disconnected, Ctrl-C
    /// interrupted its input, or it reached a limit.
    Exit(i32),
}

impl Kubelets {
    /// Executes a command in a container until it ends, and returns its exit code. The end of the container and the
    /// drop of the future end the command.
    ///
    /// # Errors
    /// Fails if the command cannot be started.
    pub async fn exec(&self, request: ExecRequest) -> Result<i32, ExecError> {
        let ExecRequest { container, command, tty, streams } = request;
        let mut execution = Execution::start(self.clone(), container, tty, streams).await?;
        let result = if execution.stdin.is_open() && reads_commands(&command) {
            execution.run_shell(&command).await
        } else if execution.stdin.is_open() && copies_input(&command) {
            execution.copy_input().await
        } else {
            execution.run_command(command).await
        };
        match result {
            Ok(code) | Err(Stop::Exit(code)) => Ok(code),
            Err(Stop::Error(error)) => Err(error),
        }
    }
}

impl Kubelets {
    /// Sends the output of a container from now on, until the container ends. If its process is a shell with an open
    /// standard input, the shell reads its commands from the client, and the end of the shell ends the container.
    ///
    /// # Errors
    /// Fails if the container does not run.
    pub async fn attach(&self, request: AttachRequest) -> Result<(), ExecError> {
        let AttachRequest { container, tty, streams } = request;
        let mut execution = Execution::start(self.clone(), container, tty, streams).await?;
        let shell = execution.environment.attached_shell().map(str::to_owned);
        let result = match shell.filter(|_| execution.stdin.is_open()) {
            Some(program) => {
                let exit_code = execution.run_shell(&[program]).await;
                if let (Ok(code), Some(workers)) = (&exit_code, self.workers()) {
                    workers.end_shell(&execution.run, &execution.container.name, *code);
                }
                exit_code
            }
            None => execution.follow_output().await,
        };
        match result {
            Ok(_) | Err(Stop::Exit(_)) => Ok(()),
            Err(Stop::Error(error)) => Err(error),
        }
    }
}

/// Execution of a command, or an attached client.
struct Execution {
    kubelets: Kubelets,
    clock: Clock,
    container: ContainerRef,
    environment: Arc<Environment>,
    /// Run of the container when the command began.
    run: CurrentRun,
    tty: bool,
    stdin: Stdin,
    output: mpsc::Sender<Chunk>,
    /// Number of the command, unique in the process.
    number: u64,
    /// Recorded writes of the current command, including those that are not due yet.
    recorded_writes: Option<CommandWrites>,
}

/// Maximum wait for a container whose written status is already running.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the current run of a container, or `None` if it does not run. Waits if the written status says that it runs:
/// the kubelet writes the status a moment before it updates its memory.
async fn wait_until_running(
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
        let remaining =
            Duration::try_from(deadline.duration_since(clock.now())).unwrap_or_default();
        tokio::select! {
            () = changed => {}
            () = clock.sleep(remaining) => {}
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
        let run =
            wait_until_running(&kubelets, &clock, &container).await.ok_or_else(no_container)?;
        let number = COMMANDS.fetch_add(1, Ordering::Relaxed);
        let stdin = Stdin::new(streams.stdin, tty);
        let output = streams.output;
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
            recorded_writes: None,
        })
    }

    /// Executes a command that is not an interactive shell.
    async fn run_command(&mut self, words: Vec<String>) -> Result<i32, Stop> {
        let by: Arc<str> = format!("{}/exec/{}", self.run.id, self.number).into();
        let mut input: Option<Arc<str>> = (!self.stdin.is_open()).then(|| "".into());
        let mut n_sent = 0;
        loop {
            let (environment, words) = (self.environment.clone(), words.clone());
            let (current_input, tty) = (input.clone(), self.tty);
            let interpret: Interpret = Arc::new(move |context, until| {
                (environment.exec(&words, current_input.clone(), tty, context, until), None)
            });
            let start = self.clock.now();
            match self.run_to_end(&by, start, Duration::ZERO, &interpret, &mut n_sent).await? {
                Sent::All(code, _) => return Ok(code),
                Sent::Interrupted => return Ok(INTERRUPTED_EXIT_CODE),
                Sent::NeedsInput => input = Some(self.read_all_input().await?),
            }
        }
    }

    /// Reads commands line by line, and executes them.
    async fn run_shell(&mut self, words: &[String]) -> Result<i32, Stop> {
        let program = words.first().map_or("sh", String::as_str);
        let environment = self.environment.clone();
        let mut session = ShellSession::new(environment, program, self.tty, self.run.address);
        let (start, mut text) = (self.clock.now(), String::new());
        for line_number in 0_u64.. {
            if self.tty {
                // The second prompt asks for the rest of an incomplete command.
                let prompt = if text.is_empty() { session.prompt() } else { "> ".to_owned() };
                self.send(false, prompt.into_bytes()).await?;
            }
            match self.read_line().await? {
                Read::Line(line) => {
                    text.push_str(&line);
                    if ShellSession::is_incomplete(&text) {
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
            let (mut input, mut n_sent) = (None::<Arc<str>>, 0);
            let since_start = |time: Timestamp| {
                Duration::try_from(time.duration_since(start)).unwrap_or_default()
            };
            loop {
                let began = since_start(self.clock.now());
                let (current_session, current_input, commands) =
                    (session.clone(), input.clone(), Arc::clone(&commands));
                let interpret: Interpret = Arc::new(move |context, until| {
                    current_session.run(&commands, current_input.clone(), began, context, until)
                });
                match self.run_to_end(&by, start, began, &interpret, &mut n_sent).await? {
                    Sent::All(_, Some(next)) => session = *next,
                    Sent::All(code, None) => return Ok(code),
                    Sent::Interrupted => session.interrupt(),
                    Sent::NeedsInput => {
                        input = Some(self.read_all_input().await?);
                        continue;
                    }
                }
                break;
            }
            // The writes of this command stay, even if a later one is interrupted.
            self.recorded_writes = None;
        }
        Ok(0)
    }

    /// Sends the output of the container from now on.
    async fn follow_output(&mut self) -> Result<i32, Stop> {
        let (kubelets, container) = (self.kubelets.clone(), self.container.clone());
        let log = interpret_blocking(move || kubelets.log(&container)).await.flatten();
        let n_printed = log.map_or(0, |lines| lines.len());
        let mut lines = std::pin::pin!(self.kubelets.follow(self.container.clone(), n_printed));
        let output = self.output.clone();
        loop {
            tokio::select! {
                line = lines.next() => match line {
                    Some(line) => self.send(false, encoding::bytes(&line.text)).await?,
                    None => return Ok(0),
                },
                // The process does not read the input. On a terminal, Ctrl-C detaches.
                _ = self.stdin.type_ahead() => {
                    if self.stdin.take_interrupt() {
                        return Ok(INTERRUPTED_EXIT_CODE);
                    }
                    self.stdin.discard();
                }
                () = output.closed() => return Err(Stop::Exit(KILLED_EXIT_CODE)),
            }
        }
    }

    /// Sends the input back as it arrives, as `cat` does.
    async fn copy_input(&mut self) -> Result<i32, Stop> {
        loop {
            match self.read_available().await? {
                Read::Line(bytes) => self.send(false, encoding::bytes(&bytes)).await?,
                Read::Interrupt => return Ok(INTERRUPTED_EXIT_CODE),
                Read::End => return Ok(0),
            }
        }
    }

    /// Interprets a command, repeatedly if necessary, and sends its output when it is due. All durations are counted
    /// from `start`. `began` is the start of the command, and `by` the ID of its writes. `n_sent` counts the sent parts
    /// of its output.
    async fn run_to_end(
        &mut self,
        by: &Arc<str>,
        start: Timestamp,
        began: Duration,
        interpret: &Interpret,
        n_sent: &mut usize,
    ) -> Result<Sent, Stop> {
        loop {
            let until = later(self.clock.now(), HORIZON);
            let horizon = Duration::try_from(until.duration_since(start)).unwrap_or_default();
            let run = self.current_run()?;
            let (interpret, id) = (interpret.clone(), Arc::clone(by));
            let (outcome, next_session) = interpret_blocking(move || {
                let context = RunContext {
                    start,
                    signal: None,
                    run: &id,
                    pod: &run.files,
                    node: &run.node_files,
                    address: run.address,
                };
                interpret(&context, horizon)
            })
            .await
            .unwrap_or_else(|| (ExecRun::killed(began), None));
            if let Progress::NotFound(program) = outcome.progress {
                return Err(Stop::Error(ExecError::NoProgram(program)));
            }
            if self.record_writes(by, start, &outcome.writes) == Err(Full) {
                let text = "evenkeel: no space is left in the files of the pod\n";
                self.send(!self.tty, text.as_bytes().to_vec()).await?;
                return Err(Stop::Exit(1));
            }
            // The files include the writes that were just recorded.
            let changes = self.current_run()?.changes();
            match self.send_output(&outcome, start, until, changes, n_sent).await? {
                Some(Sent::All(code, _)) => {
                    return Ok(Sent::All(code, next_session.map(Box::new)));
                }
                Some(sent) => return Ok(sent),
                None => {}
            }
        }
    }

    /// Sends the output of an interpreted command when it is due. Returns `None` if the command must be interpreted
    /// again: because the counters `changes` of the files changed, or because the interpreted time has passed at
    /// `until`.
    async fn send_output(
        &mut self,
        outcome: &ExecRun,
        start: Timestamp,
        until: Timestamp,
        changes: (u64, u64),
        n_sent: &mut usize,
    ) -> Result<Option<Sent>, Stop> {
        loop {
            let workers = self.kubelets.workers().ok_or(Stop::Exit(KILLED_EXIT_CODE))?;
            let changed = workers.changed();
            drop(workers);
            let mut changed = std::pin::pin!(changed.notified());
            changed.as_mut().enable();
            if self.current_run()?.changes() != changes {
                return Ok(None);
            }
            let now = self.clock.now();
            self.send_due_output(outcome, start, now, n_sent).await?;
            let next_output = outcome.outputs.get(*n_sent).map(|output| later(start, output.after));
            let end = match outcome.progress {
                Progress::Ended(end, code) => {
                    let end = later(start, end);
                    if end <= now {
                        return Ok(Some(Sent::All(code, None)));
                    }
                    Some(end)
                }
                Progress::NeedsInput if next_output.is_none() => return Ok(Some(Sent::NeedsInput)),
                _ => None,
            };
            if now >= until {
                return Ok(None);
            }
            let wake = [next_output, end].into_iter().flatten().fold(until, Timestamp::min);
            let wait = Duration::try_from(wake.duration_since(now)).unwrap_or_default();
            let (tty, output) = (self.tty, self.output.clone());
            tokio::select! {
                () = self.clock.sleep(wait) => {}
                () = changed => {}
                () = output.closed() => return Err(Stop::Exit(KILLED_EXIT_CODE)),
                echo = self.stdin.type_ahead(), if tty => {
                    let interrupted = self.stdin.take_interrupt();
                    self.send(false, echo).await?;
                    if interrupted {
                        self.drop_later_writes();
                        return Ok(Some(Sent::Interrupted));
                    }
                }
            }
        }
    }

    /// Sends the output that is due at `now`.
    async fn send_due_output(
        &mut self,
        outcome: &ExecRun,
        start: Timestamp,
        now: Timestamp,
        n_sent: &mut usize,
    ) -> Result<(), Stop> {
        let is_due = |output: &&Output| later(start, output.after) <= now;
        while let Some(first) = outcome.outputs.get(*n_sent).filter(is_due) {
            let mut bytes = Vec::new();
            let due_outputs = outcome.outputs.iter().skip(*n_sent).take_while(is_due);
            for output in due_outputs {
                if output.to_stderr != first.to_stderr || bytes.len() > MAX_CHUNK_BYTES {
                    break;
                }
                bytes.extend(encoding::bytes(&output.text));
                *n_sent += 1;
            }
            self.send(first.to_stderr, bytes).await?;
        }
        Ok(())
    }

    /// Reads the input of a command to its end.
    async fn read_all_input(&mut self) -> Result<Arc<str>, Stop> {
        let mut input = String::new();
        loop {
            match self.read_line().await? {
                Read::Line(line) => input.push_str(&line),
                Read::Interrupt => return Err(Stop::Exit(INTERRUPTED_EXIT_CODE)),
                Read::End => return Ok(input.into()),
            }
            if input.len() > Stdin::MAX_BYTES {
                let text = "evenkeel: standard input is longer than a simulated container reads\n";
                self.send(!self.tty, text.as_bytes().to_vec()).await?;
                return Err(Stop::Exit(1));
            }
        }
    }

    /// Reads the next line.
    async fn read_line(&mut self) -> Result<Read, Stop> {
        loop {
            if let Some(read) = self.stdin.next_line() {
                return Ok(read);
            }
            self.receive().await?;
        }
    }

    /// Reads the available input: one line from a terminal, otherwise all received bytes.
    async fn read_available(&mut self) -> Result<Read, Stop> {
        loop {
            if let Some(read) = self.stdin.next_available() {
                return Ok(read);
            }
            self.receive().await?;
        }
    }

    /// Waits for input, and echoes it on a terminal.
    async fn receive(&mut self) -> Result<(), Stop> {
        let workers = self.kubelets.workers().ok_or(Stop::Exit(KILLED_EXIT_CODE))?;
        let changed = workers.changed();
        drop(workers);
        let mut changed = std::pin::pin!(changed.notified());
        changed.as_mut().enable();
        self.current_run()?;
        let output = self.output.clone();
        tokio::select! {
            echo = self.stdin.receive() => self.send(false, echo).await,
            () = changed => Ok(()),
            () = output.closed() => Err(Stop::Exit(KILLED_EXIT_CODE)),
        }
    }

    /// Sends output to the client.
    async fn send(&self, to_stderr: bool, bytes: Vec<u8>) -> Result<(), Stop> {
        if bytes.is_empty() {
            return Ok(());
        }
        let bytes = if self.tty { with_carriage_returns(&bytes) } else { bytes };
        let chunk = Chunk { to_stderr, bytes: bytes.into() };
        self.output.send(chunk).await.map_err(|_| Stop::Exit(KILLED_EXIT_CODE))
    }

    /// Returns the current run of the container. Fails if that is not the run in which the command began.
    fn current_run(&self) -> Result<CurrentRun, Stop> {
        let run = self.kubelets.workers().and_then(|workers| workers.current_run(&self.container));
        run.filter(|run| run.id == self.run.id).ok_or(Stop::Exit(KILLED_EXIT_CODE))
    }

    /// Records the writes of the command. They replace those recorded before.
    fn record_writes(
        &mut self,
        by: &Arc<str>,
        start: Timestamp,
        writes: &[Write],
    ) -> Result<(), Full> {
        if writes.is_empty() && self.recorded_writes.is_none() {
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
        self.recorded_writes = Some(command);
        Ok(())
    }

    /// Drops the recorded writes that are not due yet.
    fn drop_later_writes(&mut self) {
        let (Some(mut command), Some(workers)) =
            (self.recorded_writes.take(), self.kubelets.workers())
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
        self.drop_later_writes();
    }
}
