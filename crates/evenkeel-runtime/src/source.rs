//! Sources of keys beside caches: channels and timers.
//!
//! A controller takes any stream of keys with
//! [`ControllerBuilder::source`](crate::operator::ControllerBuilder::source).
//!
//! | upstream | Evenkeel |
//! |---|---|
//! | `source.Channel` | [`channel`] |
//! | a `time.Ticker` that feeds a channel | [`every`] |

use crate::{
    clock::Clock,
    plan::Key,
    queue::{Priority, Queue},
};
use futures::{Stream, stream};
use std::{fmt, sync::Arc, time::Duration};

/// Sends keys to a controller. Clones share the channel. The source ends when the last one is dropped.
#[derive(Clone)]
pub struct KeySender(Arc<Sending>);

/// Sending end of a channel. The keys that wait are still received after its drop.
struct Sending(Queue<Key>);

/// Receiving end of a channel.
struct Receiving(Queue<Key>);

impl KeySender {
    /// Sends a key. Never waits. However often a key is sent, the channel has it only once, even while the controller
    /// does not run because another replica leads. Returns whether the controller can still receive the key.
    pub fn send(&self, key: Key) -> bool {
        let Sending(queue) = &*self.0;
        queue.add(key, Priority::NORMAL);
        !queue.is_shut_down()
    }
}

impl fmt::Debug for KeySender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeySender").finish_non_exhaustive()
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.0.shut_down();
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        self.0.shut_down_now();
    }
}

/// Returns a channel from another part of the program to a controller: the sender, and the stream for
/// [`source`](crate::operator::ControllerBuilder::source). Keys that are sent before the controller starts wait for it.
///
/// ```
/// use evenkeel_runtime::{prelude::*, source};
/// use k8s_openapi::api::core::v1::ConfigMap;
///
/// # fn add(manager: &Manager) {
/// let (keys, received) = source::channel();
/// manager
///     .controller::<ConfigMap>()
///     .source(received)
///     .reconcile(async |_map: Arc<ConfigMap>, _cx: Context| Ok(Outcome::Settled));
/// // Anywhere else, for example where a message of another system arrives:
/// keys.send(Key::new("default", "settings"));
/// # }
/// ```
///
/// Upstream: `source.Channel`.
#[doc(alias = "source.Channel")]
pub fn channel() -> (KeySender, impl Stream<Item = Key> + Send + 'static) {
    // Nothing is delayed, so that the clock only measures.
    let queue = Queue::unnamed(&Clock::system());
    let received = stream::unfold(Receiving(queue.clone()), |receiving| async move {
        let key = receiving.0.next().await?;
        receiving.0.done(&key);
        Some((key, receiving))
    });
    (KeySender(Arc::new(Sending(queue))), received)
}

/// Returns a timer: the key after each `period` of the clock, for the first time after one period. A pass that takes
/// longer does not add up ticks, because the queue has the key once.
///
/// ```
/// use evenkeel_runtime::{prelude::*, source};
///
/// # fn add(manager: &Manager) {
/// let report = Key::new("", "report");
/// manager
///     .controller_of_requests("report")
///     .source(source::every(manager.env().clock.clone(), Duration::from_secs(3600), report))
///     .reconcile_requests(async |_request: Request, _cx: Context| Ok(Outcome::Settled));
/// # }
/// ```
pub fn every(clock: Clock, period: Duration, key: Key) -> impl Stream<Item = Key> + Send + 'static {
    // A period of zero would leave no time for anything else.
    let period = period.max(Duration::from_millis(1));
    stream::unfold((), move |()| {
        let (clock, key) = (clock.clone(), key.clone());
        async move {
            clock.sleep(period).await;
            Some((key, ()))
        }
    })
}
