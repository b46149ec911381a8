//! The signals that stop a program.

use crate::tasks::Tasks;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
};

/// Completes at the first SIGTERM or SIGINT. The second one ends the process at once, with exit code 1. To be called inside
/// a tokio runtime; from then on the signals no longer end the process by themselves.
pub fn shutdown_signal() -> impl Future<Output = ()> + Send + 'static {
    let (first, received) = oneshot::channel();
    let listening = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    if let (Ok(terminate), Ok(interrupt)) = listening {
        // Outlives the first signal, and with it every group of tasks: the process ends before it. If it ended, the sender
        // would be dropped and the program stop.
        Tasks::new().spawn_finite("signals", listen(terminate, interrupt, first));
    } else {
        tracing::warn!("signals cannot be handled, only their default action stops this process");
        // Keeps the future pending.
        std::mem::forget(first);
    }
    async move {
        // The sender is used, kept for ever, or dropped by a panic.
        let _ = received.await;
    }
}

async fn listen(mut terminate: Signal, mut interrupt: Signal, first: oneshot::Sender<()>) {
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
        // Nobody may wait for it any more.
        let _ = first.send(());
    }
}
