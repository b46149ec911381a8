//! Signals that stop a program.

use crate::tasks::Tasks;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
};

/// Completes at the first SIGTERM or SIGINT. The second one ends the process immediately, with exit code 1. Call it
/// inside a tokio runtime. After the call, the signals have no default action.
pub fn shutdown_signal() -> impl Future<Output = ()> + Send + 'static {
    let (first, received) = oneshot::channel();
    let streams = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    if let (Ok(terminate), Ok(interrupt)) = streams {
        // This task must outlive the first signal and all other groups, to receive the second signal. If it ended
        // before the first one, it would drop the sender, and the program would stop.
        Tasks::new().spawn_finite("signals", handle_signals(terminate, interrupt, first));
    } else {
        tracing::warn!("signals cannot be handled, only their default action stops this process");
        // Never drop the sender, so that the future stays pending.
        std::mem::forget(first);
    }
    async move {
        // An error means that a panic dropped the sender.
        let _ = received.await;
    }
}

/// Sends `first` at the first signal, and ends the process at the second one.
async fn handle_signals(mut terminate: Signal, mut interrupt: Signal, first: oneshot::Sender<()>) {
    let mut first = Some(first);
    loop {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        let Some(first) = first.take() else {
            tracing::warn!("second signal, ending at once");
            std::process::exit(1);
        };
        tracing::info!("signal received, stopping");
        // The receiver may already be dropped.
        let _ = first.send(());
    }
}
