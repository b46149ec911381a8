//! Programs under test, such as operators, and their runs beside a server.

use evenkeel_runtime::{
    manager::{Manager, Setup},
    tasks::Tasks,
};
use futures::future::BoxFuture;
use kube::Client;
use std::{error::Error, sync::Arc};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// Error of a program under test.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// A program under test, such as an operator. A simulation starts it again after each crash.
///
/// Functions that return a [`Manager`] are programs:
///
/// ```
/// use evenkeel_runtime::manager::{BuildError, Manager, Setup};
/// use evenkeel_test::Program;
///
/// fn operator(client: kube::Client, setup: Setup) -> Result<Manager, BuildError> {
///     let manager = Manager::builder(client).setup(setup).leader_election_id("webapps").build()?;
///     // manager.controller::<WebApp>()…
///     Ok(manager)
/// }
///
/// fn is_program(_: impl Program) {}
/// is_program(operator);
/// ```
pub trait Program: Send + Sync + 'static {
    /// Starts the program without state of earlier starts. It runs until `stop` is cancelled. An error, or an earlier end, is a
    /// failure.
    fn start(
        &self,
        client: Client,
        setup: Setup,
        stop: CancellationToken,
    ) -> BoxFuture<'static, Result<(), BoxError>>;
}

impl<F, E> Program for F
where
    F: Fn(Client, Setup) -> Result<Manager, E> + Send + Sync + 'static,
    E: Into<BoxError> + Send,
{
    fn start(
        &self,
        client: Client,
        setup: Setup,
        stop: CancellationToken,
    ) -> BoxFuture<'static, Result<(), BoxError>> {
        let manager = self(client, setup).map_err(Into::into);
        Box::pin(async move { Ok(manager?.run(stop.cancelled_owned()).await?) })
    }
}

/// A program that runs beside a server. Dropping this value stops the program, without waiting for its end.
#[must_use = "dropping it stops the program"]
#[derive(Debug)]
pub struct Running {
    tasks: Tasks,
    ended: oneshot::Receiver<Result<(), BoxError>>,
}

impl Running {
    /// Starts a program. A panic ends it with an error.
    pub(crate) fn start(program: Arc<dyn Program>, client: Client, setup: Setup) -> Self {
        let tasks = Tasks::new();
        let (sender, ended) = oneshot::channel();
        let stop = tasks.token();
        tasks.spawn_finite("program", async move {
            // The test may have dropped the receiver.
            let _ = sender.send(program.start(client, setup, stop).await);
        });
        Self { tasks, ended }
    }

    /// Waits until the program ends, and returns the reason.
    ///
    /// # Errors
    /// Returns the program's error.
    pub async fn ended(mut self) -> Result<(), BoxError> {
        let panicked = || Err("the program panicked".into());
        (&mut self.ended).await.unwrap_or_else(|_| panicked())
    }

    /// Stops the program, and waits until it has ended.
    ///
    /// # Errors
    /// Returns the error with which the program ended, even if it ended earlier.
    pub async fn stop(self) -> Result<(), BoxError> {
        self.tasks.token().cancel();
        self.ended().await
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.tasks.token().cancel();
    }
}
