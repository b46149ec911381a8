//! The API server of a simulation on its own thread, so that the cluster's components and the server each have a core.
//!
//! Runs are reproducible although two threads work at the same time, because neither thread observes the other's progress:
//!
//! - The server carries out one command at a time, such as a request, in the order sent. It takes the next command when the
//!   previous one has no more effects.
//! - The components receive the effects of a command, such as its response and watch events, when they have no other work. They
//!   then wait only for the oldest command whose effects they have not received.
//! - Virtual time advances for the components only after all commands, and for the server only by commands.

use bytes::Bytes;
use evenkeel_api::time::Timestamp;
use evenkeel_apiserver::{Server, Service};
use evenkeel_runtime::{clock::Clock, tasks::Tasks};
use futures::{
    FutureExt as _, StreamExt as _,
    channel::{mpsc as channel, oneshot},
    future::{AbortHandle, BoxFuture, abortable},
};
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use std::{
    collections::HashMap,
    convert::Infallible,
    future::ready,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, Sender},
    },
    time::Duration,
};
use tokio::runtime::{Builder, Handle, Runtime};

/// Interval of virtual time after which the server receives the time even without a request.
const TICK: Duration = Duration::from_secs(10);

/// Body of a response to the components.
pub(crate) type Answer = UnsyncBoxBody<Bytes, Infallible>;

/// Number of a request.
type Id = u64;

/// A command to the server.
enum Command {
    /// Execute a request at this time.
    Call(Id, Timestamp, Box<Request<kube::client::Body>>),
    /// Forget a request whose response is no longer read.
    Cancel(Id),
    /// Note the time.
    Tick(Timestamp),
}

/// Effect of a command.
enum Effect {
    /// A response whose body is complete.
    Whole(Id, Response<Bytes>),
    /// A response whose body follows, such as a watch.
    Head(Id, Response<()>),
    /// A chunk of the body of a response.
    Piece(Id, Bytes),
    /// The end of the body of a response.
    End(Id),
}

/// Returns both ends of the connection between the components' thread and the server's.
pub(crate) fn connection() -> (ServerHandle, ServerThread) {
    let (commands, received) = std::sync::mpsc::channel();
    let (done, effects) = std::sync::mpsc::channel();
    let components = Components {
        commands,
        effects,
        n_outstanding: 0,
        n_calls: 0,
        waiting: HashMap::new(),
        streams: HashMap::new(),
    };
    let server = ServerThread { commands: received, effects: done };
    (ServerHandle(Arc::new(Mutex::new(components))), server)
}

/// The components' end of the connection: a service whose requests the server's thread executes.
#[derive(Clone)]
pub(crate) struct ServerHandle(Arc<Mutex<Components>>);

/// The components' end of the connection.
struct Components {
    commands: Sender<Command>,
    /// Effects of each command, in the order of the commands.
    effects: Receiver<Vec<Effect>>,
    /// Number of commands whose effects the components have not received.
    n_outstanding: usize,
    n_calls: Id,
    /// Requests without a response.
    waiting: HashMap<Id, oneshot::Sender<Response<Answer>>>,
    /// Responses whose body has not ended.
    streams: HashMap<Id, channel::UnboundedSender<Bytes>>,
}

impl Components {
    /// Sends a command. Returns whether there still is a server.
    fn send(&mut self, command: Command) -> bool {
        let is_sent = self.commands.send(command).is_ok();
        self.n_outstanding += usize::from(is_sent);
        is_sent
    }
}

impl ServerHandle {
    fn lock(&self) -> MutexGuard<'_, Components> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Builds the runtime of the components, in virtual time. It receives the effects of commands when it is idle.
    pub(crate) fn runtime(&self) -> std::io::Result<Runtime> {
        let handle = self.clone();
        let mut builder = Builder::new_current_thread();
        builder.enable_time().start_paused(true);
        builder.on_thread_park(move || {
            if handle.take_in_next() {
                // A runnable task keeps the runtime from advancing the time if the command had no effect.
                #[expect(
                    clippy::disallowed_methods,
                    reason = "it does nothing, so it cannot panic"
                )]
                drop(Handle::current().spawn(ready(())));
            }
        });
        builder.build()
    }

    /// Waits for the oldest outstanding command, and receives its effects. Returns whether there was a command.
    fn take_in_next(&self) -> bool {
        let mut components = self.lock();
        if components.n_outstanding == 0 {
            return false;
        }
        components.n_outstanding -= 1;
        let Ok(effects) = components.effects.recv() else {
            // The thread has ended by a panic, which its join reports. No component waits for it any longer.
            components.n_outstanding = 0;
            components.waiting.clear();
            components.streams.clear();
            return true;
        };
        drop(components);
        effects.into_iter().for_each(|effect| self.take_in(effect));
        true
    }

    /// Receives an effect. If the request was dropped, its response is dropped too, which needs the lock.
    fn take_in(&self, effect: Effect) {
        match effect {
            Effect::Whole(id, response) => {
                let waiting = self.lock().waiting.remove(&id);
                if let Some(waiting) = waiting {
                    drop(waiting.send(response.map(|bytes| Full::new(bytes).boxed_unsync())));
                }
            }
            Effect::Head(id, response) => {
                let (sender, pieces) = channel::unbounded();
                let mut components = self.lock();
                let Some(waiting) = components.waiting.remove(&id) else { return };
                components.streams.insert(id, sender);
                drop(components);
                let guard = CancelOnDrop { server: self.clone(), id, has_response: false };
                let pieces = pieces.map(move |piece| {
                    let _ = &guard;
                    Ok(Frame::data(piece))
                });
                drop(waiting.send(response.map(|()| StreamBody::new(pieces).boxed_unsync())));
            }
            Effect::Piece(id, piece) => {
                if let Some(stream) = self.lock().streams.get(&id) {
                    drop(stream.unbounded_send(piece));
                }
            }
            Effect::End(id) => drop(self.lock().streams.remove(&id)),
        }
    }

    /// Carries out a request.
    pub(crate) fn call(
        &self,
        request: Request<kube::client::Body>,
        now: Timestamp,
    ) -> BoxFuture<'static, Result<Response<Answer>, Infallible>> {
        let (sender, response) = oneshot::channel();
        let mut components = self.lock();
        let id = components.n_calls;
        components.n_calls += 1;
        if components.send(Command::Call(id, now, Box::new(request))) {
            components.waiting.insert(id, sender);
        }
        drop(components);
        let mut guard = CancelOnDrop { server: self.clone(), id, has_response: false };
        async move {
            let response = response.await;
            // The guard as a whole belongs to the future.
            let guard = &mut guard;
            guard.has_response = true;
            Ok(response.unwrap_or_else(|_| ended()))
        }
        .boxed()
    }

    /// Sends the time to the server periodically, while the future is polled.
    pub(crate) async fn tick(&self, clock: &Clock) {
        loop {
            clock.sleep(TICK).await;
            self.lock().send(Command::Tick(clock.now()));
        }
    }
}

/// Returns the response to a request that the server's thread did not execute because it ended.
fn ended() -> Response<Answer> {
    let mut response = Response::new(Full::default().boxed_unsync());
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response
}

/// Makes the server forget a request when its response is no longer awaited or read.
struct CancelOnDrop {
    server: ServerHandle,
    id: Id,
    /// Whether the response has arrived. Its body has its own guard.
    has_response: bool,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if self.has_response {
            return;
        }
        let mut components = self.server.lock();
        let is_waiting = components.waiting.remove(&self.id).is_some();
        let stream = components.streams.remove(&self.id);
        if is_waiting || stream.is_some() {
            components.send(Command::Cancel(self.id));
        }
    }
}

/// The server's end of the connection.
pub(crate) struct ServerThread {
    commands: Receiver<Command>,
    effects: Sender<Vec<Effect>>,
}

/// Effects of the current command so far, shared by the server's tasks and the thread.
#[derive(Clone, Default)]
struct Effects(Arc<Mutex<Vec<Effect>>>);

impl Effects {
    fn push(&self, effect: Effect) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(effect);
    }

    fn take(&self) -> Vec<Effect> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The server's time, which commands set.
#[derive(Clone)]
pub(crate) struct ServerTime(Arc<Mutex<Timestamp>>);

impl ServerTime {
    pub(crate) fn starting_at(start: Timestamp) -> Self {
        Self(Arc::new(Mutex::new(start)))
    }

    /// Returns the clock for the server.
    pub(crate) fn clock(&self) -> evenkeel_apiserver::Clock {
        let time = self.0.clone();
        evenkeel_apiserver::Clock::new(move || *time.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sets the time, and fires the timers that are due.
    async fn set(&self, now: Timestamp) {
        let before =
            std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), now);
        let passed = now.duration_since(before).unsigned_abs();
        if passed > Duration::ZERO {
            tokio::time::advance(passed).await;
        }
    }
}

impl ServerThread {
    /// Executes commands until all handles are dropped. `start` creates the server.
    ///
    /// # Errors
    /// Fails if `start` fails, or if the operating system cannot create the runtime.
    pub(crate) fn run<E: From<std::io::Error>>(
        self,
        time: &ServerTime,
        start: impl Future<Output = Result<Server, E>>,
    ) -> Result<(), E> {
        let effects = Effects::default();
        let (next, mut commands) = channel::unbounded();
        let gate = Mutex::new(CommandGate { thread: self, next: None, is_first: true });
        let gate = Arc::new(gate);
        let mut builder = Builder::new_current_thread();
        builder.enable_time().start_paused(true);
        {
            let (gate, effects) = (gate.clone(), effects.clone());
            builder.on_thread_park(move || {
                let mut gate = gate.lock().unwrap_or_else(PoisonError::into_inner);
                gate.take_next(&effects);
            });
        }
        let runtime = builder.build()?;
        runtime.block_on(async {
            let server = start.await?;
            gate.lock().unwrap_or_else(PoisonError::into_inner).next = Some(next);
            let (service, tasks) = (server.service(), Tasks::new());
            let mut calls = Calls { service, effects, tasks, running: Arc::default() };
            while let Some(command) = commands.next().await {
                match command {
                    Command::Call(id, now, request) => {
                        time.set(now).await;
                        calls.start(id, *request);
                    }
                    Command::Cancel(id) => calls.cancel(id),
                    Command::Tick(now) => time.set(now).await,
                }
            }
            calls.tasks.abort();
            Ok(())
        })
    }
}

/// Gives the server's runtime the next command when it is idle.
struct CommandGate {
    thread: ServerThread,
    /// Queue from which the runtime takes commands. `None` before the server is ready and after all handles are dropped.
    next: Option<channel::UnboundedSender<Command>>,
    is_first: bool,
}

impl CommandGate {
    /// Reports the effects of the last command, and waits for the next command.
    fn take_next(&mut self, effects: &Effects) {
        let Some(next) = &self.next else { return };
        if !std::mem::replace(&mut self.is_first, false) {
            // An error means that the components have ended.
            drop(self.thread.effects.send(effects.take()));
        }
        match self.thread.commands.recv() {
            Ok(command) => drop(next.unbounded_send(command)),
            Err(_) => self.next = None,
        }
    }
}

/// Requests that the server executes.
struct Calls {
    service: Service,
    effects: Effects,
    tasks: Tasks,
    /// Requests whose response has not ended.
    running: Arc<Mutex<HashMap<Id, AbortHandle>>>,
}

impl Calls {
    fn start(&mut self, id: Id, request: Request<kube::client::Body>) {
        let response = tower::Service::call(&mut self.service, request);
        let (effects, running) = (self.effects.clone(), self.running.clone());
        let (call, handle) = abortable(async move {
            let Ok(response) = response.await;
            send_response(id, response, &effects).await;
        });
        self.running().insert(id, handle);
        self.tasks.spawn_finite("request", async move {
            // A cancelled request needs no response.
            let _ = call.await;
            running.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        });
    }

    fn cancel(&self, id: Id) {
        if let Some(handle) = self.running().remove(&id) {
            handle.abort();
        }
    }

    fn running(&self) -> MutexGuard<'_, HashMap<Id, AbortHandle>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends a response: as a whole if its body is complete, otherwise in chunks.
async fn send_response(id: Id, response: Response<evenkeel_apiserver::Body>, effects: &Effects) {
    let (head, mut body) = response.into_parts();
    let mut known = Vec::new();
    loop {
        let Some(frame) = body.frame().now_or_never() else { break };
        match frame.and_then(Result::ok).map(Frame::into_data) {
            Some(Ok(piece)) => known.push(piece),
            // Trailers, which the server does not send.
            Some(Err(_)) => {}
            None => {
                let bytes = match <[Bytes; 1]>::try_from(known) {
                    Ok([piece]) => piece,
                    Err(pieces) => pieces.concat().into(),
                };
                return effects.push(Effect::Whole(id, Response::from_parts(head, bytes)));
            }
        }
    }
    effects.push(Effect::Head(id, Response::from_parts(head, ())));
    for piece in known {
        effects.push(Effect::Piece(id, piece));
    }
    let mut pieces = body.into_data_stream().take_while(|piece| ready(piece.is_ok()));
    while let Some(Ok(piece)) = pieces.next().await {
        effects.push(Effect::Piece(id, piece));
    }
    effects.push(Effect::End(id));
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use evenkeel_apiserver::BuildError;
    use serde_json::{Value, json};

    const START: Timestamp = Timestamp::constant(1_767_225_600, 0);

    #[derive(Debug, thiserror::Error)]
    enum StartError {
        #[error(transparent)]
        Io(#[from] std::io::Error),
        #[error(transparent)]
        Build(#[from] BuildError),
    }

    /// Runs a test with its own server, in virtual time.
    pub(crate) fn with_server<F: Future<Output = T>, T>(
        test: impl FnOnce(ServerHandle, Clock) -> F,
    ) -> T {
        let time = ServerTime::starting_at(START);
        std::thread::scope(|scope| {
            let (server, thread) = connection();
            let build = async {
                let server = Server::builder().clock(time.clock()).seed(0);
                Ok::<_, StartError>(server.authorization_mode("AlwaysAllow").build().await?)
            };
            let thread =
                std::thread::Builder::new().spawn_scoped(scope, || thread.run(&time, build));
            let runtime = server.runtime().expect("a runtime");
            let result = runtime.block_on(async { test(server, Clock::seeded(START, 0)).await });
            drop(runtime);
            thread.expect("a thread").join().expect("no panic").expect("the server starts");
            result
        })
    }

    fn request(method: &str, path: &str, body: &Value) -> Request<kube::client::Body> {
        let body = serde_json::to_vec(body).expect("JSON");
        Request::builder().method(method).uri(path).body(body.into()).expect("a request")
    }

    async fn send(
        server: &ServerHandle,
        clock: &Clock,
        request: Request<kube::client::Body>,
    ) -> Value {
        let Ok(response) = server.call(request, clock.now()).await;
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        serde_json::from_slice(&body).expect("JSON")
    }

    const MAPS: &str = "/api/v1/namespaces/default/configmaps";

    async fn create(server: &ServerHandle, clock: &Clock, name: &str) -> Value {
        let object = json!({"metadata": {"name": name}});
        send(server, clock, request("POST", MAPS, &object)).await
    }

    #[test]
    fn the_server_has_the_time_of_the_components() {
        let made = with_server(|server, clock| async move {
            clock.sleep(Duration::from_secs(90)).await;
            create(&server, &clock, "a").await
        });
        assert_eq!(made["metadata"]["creationTimestamp"], "2026-01-01T00:01:30Z");
    }

    #[test]
    fn watches_deliver_events_until_they_are_dropped() {
        with_server(|server, clock| async move {
            let watch = request("GET", &format!("{MAPS}?watch=1&resourceVersion=0"), &Value::Null);
            let Ok(response) = server.call(watch, clock.now()).await;
            let mut events = response.into_body().into_data_stream();
            create(&server, &clock, "a").await;
            let event = loop {
                let event = events.next().await.expect("an event").expect("no error");
                let event: Value = serde_json::from_slice(&event).expect("one event");
                if event["object"]["metadata"]["name"] == "a" {
                    break event;
                }
            };
            assert_eq!(event["type"], "ADDED");
            assert_eq!(server.lock().streams.len(), 1);
            drop(events);
            assert!(server.lock().streams.is_empty());
            create(&server, &clock, "b").await;
        });
    }

    #[test]
    fn timers_of_the_server_follow_the_ticks() {
        // The watch times out on the server.
        with_server(|server, clock| async move {
            let path = format!("{MAPS}?watch=1&timeoutSeconds=25");
            let Ok(response) = server.call(request("GET", &path, &Value::Null), clock.now()).await;
            let body = response.into_body().collect();
            let waited = async {
                body.await.expect("it ends");
                clock.now()
            };
            let end = tokio::select! {
                end = waited => end,
                () = server.tick(&clock) => unreachable!("it does not end"),
            };
            assert_eq!(end.duration_since(START).unsigned_abs(), Duration::from_secs(30));
        });
    }

    #[test]
    fn a_dropped_request_is_forgotten() {
        with_server(|server, clock| async move {
            drop(server.call(request("GET", MAPS, &Value::Null), clock.now()));
            assert!(server.lock().waiting.is_empty());
            let names = send(&server, &clock, request("GET", MAPS, &Value::Null)).await;
            assert_eq!(names["kind"], "ConfigMapList");
            assert_eq!(server.lock().n_outstanding, 0);
        });
    }

    #[test]
    fn many_requests_at_one_time_have_equal_results_in_each_run() {
        let run = || {
            with_server(|server, clock| async move {
                let made = (0..200).map(|n| {
                    let object = json!({"metadata": {"generateName": format!("a{}-", n % 7)}});
                    let request = request("POST", MAPS, &object);
                    let (server, clock) = (server.clone(), clock.clone());
                    async move { send(&server, &clock, request).await }
                });
                let made = futures::future::join_all(made).await;
                let part = |object: &Value| {
                    let meta = &object["metadata"];
                    json!([meta["name"], meta["uid"], meta["resourceVersion"]]).to_string()
                };
                made.iter().map(part).collect::<Vec<_>>()
            })
        };
        let first = run();
        assert!(first.iter().all(|made| !made.contains("null")), "{first:?}");
        for _ in 0..5 {
            assert_eq!(run(), first);
        }
    }
}
