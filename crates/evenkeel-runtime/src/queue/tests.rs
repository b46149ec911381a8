//! Tests of the queue in paused time.

use super::*;
use prometheus::proto::MetricType;
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};

fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Returns the key that can be taken without waiting.
async fn taken<K: Clone + Eq + Hash + Send + Sync + 'static>(queue: &Queue<K>) -> Option<K> {
    tokio::time::timeout(Duration::ZERO, queue.next()).await.ok().flatten()
}

#[tokio::test(start_paused = true)]
async fn a_key_added_during_its_processing_is_processed_again() {
    let queue = Queue::unnamed(&Clock::system());
    queue.add("a", Priority::NORMAL);
    assert_eq!(queue.next().await, Some("a"));
    queue.add("a", Priority::NORMAL);
    queue.add("a", Priority::NORMAL);
    assert_eq!(taken(&queue).await, None, "not handed out twice at a time");
    queue.done(&"a");
    assert_eq!(taken(&queue).await, Some("a"));
    queue.done(&"a");
    assert_eq!(taken(&queue).await, None);
}

#[tokio::test(start_paused = true)]
async fn delays_beyond_the_range_of_the_clock_do_not_affect_other_keys() {
    let queue = Queue::unnamed(&Clock::system());
    queue.add_after("never", Duration::MAX);
    queue.add_after("never either", Duration::from_secs(i64::MAX.unsigned_abs()));
    queue.add_after("soon", millis(10));
    assert_eq!(queue.next().await, Some("soon"));
    assert_eq!(taken(&queue).await, None);
}

#[tokio::test(start_paused = true)]
async fn keys_are_taken_by_priority_and_then_by_order_of_arrival() {
    let queue = Queue::unnamed(&Clock::system());
    for key in ["a", "b", "c"] {
        queue.add(key, Priority::LOW);
    }
    queue.add("d", Priority::NORMAL);
    queue.add("c", Priority::NORMAL);
    queue.add("d", Priority::LOW);
    let mut order = Vec::new();
    while let Some(key) = taken(&queue).await {
        order.push(key);
    }
    assert_eq!(order, ["c", "d", "a", "b"], "c came before d, and lowering does nothing");
}

#[tokio::test(start_paused = true)]
async fn the_earliest_delay_applies_and_an_immediate_add_keeps_it() {
    let queue = Queue::unnamed(&Clock::system());
    let start = Clock::system().instant();
    queue.add_after("a", millis(500));
    queue.add_after("a", millis(100));
    queue.add_after("a", millis(900));
    queue.add("a", Priority::NORMAL);
    assert_eq!(queue.next().await, Some("a"));
    queue.done(&"a");
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(queue.next().await, Some("a"));
    queue.done(&"a");
    assert_eq!(start.elapsed(), millis(100));
    tokio::time::advance(Duration::from_secs(5)).await;
    assert_eq!(taken(&queue).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_delayed_key_is_processed_on_time_while_another_worker_is_busy() {
    let queue = Queue::unnamed(&Clock::system());
    let start = Clock::system().instant();
    let worker = || async {
        let mut late = None;
        while let Some(key) = queue.next().await {
            match key {
                "work" => tokio::time::sleep(Duration::from_secs(60)).await,
                _ => late = Some(start.elapsed()),
            }
            queue.done(&key);
        }
        late
    };
    let feed = async {
        tokio::task::yield_now().await;
        queue.add_after("late", millis(1000));
        tokio::task::yield_now().await;
        queue.add("work", Priority::NORMAL);
        tokio::time::sleep(Duration::from_secs(70)).await;
        queue.shut_down();
    };
    let (one, two, ()) = tokio::join!(worker(), worker(), feed);
    assert_eq!(one.or(two), Some(millis(1000)));
}

#[tokio::test(start_paused = true)]
async fn backoff_keeps_the_priority() {
    let queue = Queue::unnamed(&Clock::system());
    queue.add("a", Priority::LOW);
    assert_eq!(queue.next().await, Some("a"));
    queue.add_rate_limited("a");
    queue.done(&"a");
    assert_eq!(queue.num_requeues(&"a"), 1);
    tokio::time::advance(millis(5)).await;
    queue.add("b", Priority::NORMAL);
    assert_eq!(taken(&queue).await, Some("b"));
    assert_eq!(taken(&queue).await, Some("a"));
}

#[tokio::test(start_paused = true)]
async fn shutting_down_returns_waiting_keys_and_drops_delayed_ones() {
    let queue = Queue::unnamed(&Clock::system());
    queue.add("a", Priority::NORMAL);
    queue.add("b", Priority::NORMAL);
    queue.add_after("c", millis(1));
    assert_eq!(queue.next().await, Some("a"));
    queue.shut_down();
    queue.add("d", Priority::NORMAL);
    let drained = queue.drained();
    let work = async {
        assert_eq!(queue.next().await, Some("b"));
        queue.done(&"b");
        tokio::time::sleep(millis(10)).await;
        queue.done(&"a");
        assert_eq!(queue.next().await, None);
    };
    let start = Clock::system().instant();
    tokio::join!(
        async {
            drained.await;
            assert_eq!(start.elapsed(), millis(10));
        },
        work
    );
}

#[tokio::test(start_paused = true)]
async fn shutting_down_now_wakes_every_worker_without_a_key() {
    let queue = Queue::<&str>::unnamed(&Clock::system());
    let workers = futures::future::join_all((0..4).map(|_| queue.next()));
    let stop = async {
        tokio::time::sleep(millis(10)).await;
        queue.add("a", Priority::NORMAL);
        queue.shut_down_now();
    };
    let (keys, ()) = tokio::join!(workers, stop);
    assert!(keys.iter().filter(|key| key.is_some()).count() <= 1);
}

#[tokio::test(start_paused = true)]
async fn metrics_follow_a_key_through_the_queue() {
    let registry = prometheus::Registry::new();
    let queue = Queue::new("replicaset", &Metrics::register(&registry), &Clock::system());
    let value = |name: &str| {
        let families = registry.gather();
        let family = families.iter().find(|family| family.name() == name).unwrap();
        let metric = &family.get_metric()[0];
        assert_eq!(metric.get_label()[0].value(), "replicaset");
        let histogram = metric.get_histogram();
        (metric.get_counter().get_value()
            + metric.get_gauge().get_value()
            + histogram.get_sample_sum()) as u64
    };
    queue.add("a", Priority::NORMAL);
    assert_eq!((value("workqueue_adds_total"), value("workqueue_depth")), (1, 1));
    tokio::time::advance(Duration::from_secs(3)).await;
    assert_eq!(queue.next().await, Some("a"));
    assert_eq!((value("workqueue_depth"), value("workqueue_queue_duration_seconds")), (0, 3));
    tokio::time::advance(Duration::from_secs(7)).await;
    queue.add("a", Priority::NORMAL);
    assert_eq!((value("workqueue_adds_total"), value("workqueue_depth")), (2, 1));
    assert_eq!(value("workqueue_unfinished_work_seconds"), 7);
    assert_eq!(value("workqueue_longest_running_processor_seconds"), 7);
    queue.add_rate_limited("a");
    queue.done(&"a");
    assert_eq!(
        (value("workqueue_work_duration_seconds"), value("workqueue_retries_total")),
        (7, 1)
    );
    assert_eq!(value("workqueue_unfinished_work_seconds"), 0);
    queue.shut_down_now();
    assert_eq!(value("workqueue_depth"), 0);
}

#[tokio::test(start_paused = true)]
async fn depths_have_the_labels_of_controller_runtime() {
    let registry = prometheus::Registry::new();
    let metrics = Metrics::register_with_controller(&registry);
    let queue = Queue::new("sites", &metrics, &Clock::system());
    let depths = || -> Vec<(String, i64)> {
        let families = registry.gather();
        let family = families.iter().find(|family| family.name() == "workqueue_depth").unwrap();
        let line = |metric: &prometheus::proto::Metric| {
            let labels = metric
                .get_label()
                .iter()
                .map(|label| format!("{}={}", label.name(), label.value()));
            (labels.collect::<Vec<_>>().join(" "), metric.get_gauge().get_value() as i64)
        };
        let mut lines: Vec<(String, i64)> = family.get_metric().iter().map(line).collect();
        lines.sort();
        lines
    };
    let line =
        |priority: i32, depth| (format!("controller=sites name=sites priority={priority}"), depth);
    assert_eq!(depths(), [line(0, 0)]);
    queue.add("a", Priority::LOW);
    queue.add("b", Priority::LOW);
    queue.add("b", Priority::NORMAL);
    assert_eq!(depths(), [line(-100, 1), line(0, 1)], "b was raised");
    assert_eq!(queue.next().await, Some("b"));
    queue.add("b", Priority(7));
    assert_eq!(depths(), [line(-100, 1), line(0, 0), line(7, 1)]);
    let families = registry.gather();
    let added = families.iter().find(|family| family.name() == "workqueue_adds_total").unwrap();
    assert_eq!(added.get_metric()[0].get_label().len(), 2);
    drop(queue);
    assert!(registry.gather().iter().all(|family| family.name() != "workqueue_depth"));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_queue_has_no_running_work() {
    let registry = prometheus::Registry::new();
    let metrics = Metrics::register(&registry);
    let [dropped, kept] =
        ["dropped", "kept"].map(|name| Queue::new(name, &metrics, &Clock::system()));
    for queue in [&dropped, &kept] {
        queue.add("a", Priority::NORMAL);
        assert_eq!(queue.next().await, Some("a"));
    }
    tokio::time::advance(Duration::from_secs(7)).await;
    let running = || {
        let families = registry.gather();
        let all = families.iter().filter(|family| family.name().contains("_seconds"));
        let gauges = all.filter(|family| family.get_field_type() == MetricType::GAUGE);
        let metrics = gauges.flat_map(prometheus::proto::MetricFamily::get_metric);
        let shown =
            metrics.map(|m| (m.get_label()[0].value().to_owned(), m.get_gauge().get_value()));
        shown.collect::<Vec<_>>()
    };
    let both = ["dropped", "kept"].map(|name| (name.to_owned(), 7.0));
    assert_eq!(running(), [both.clone(), both].concat());
    drop(dropped);
    assert_eq!(running(), [("kept".to_owned(), 7.0), ("kept".to_owned(), 7.0)]);
}

#[derive(Debug, Clone)]
enum Step {
    Add(u8, i32),
    AddAfter(u8, u64),
    Take,
    Done(usize),
    Advance(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0u8..5, -2i32..3).prop_map(|(key, priority)| Step::Add(key, priority)),
        (0u8..5, 0u64..50).prop_map(|(key, delay)| Step::AddAfter(key, delay)),
        Just(Step::Take),
        (0usize..3).prop_map(Step::Done),
        (0u64..30).prop_map(Step::Advance),
    ]
}

/// Simple model of the queue: priorities by key, with milliseconds as the time.
#[derive(Default)]
struct Model {
    waiting: HashMap<u8, i32>,
    running: HashMap<u8, (i32, Option<i32>)>,
    delayed: HashMap<u8, (u64, i32)>,
    now: u64,
}

impl Model {
    fn add(&mut self, key: u8, priority: i32) {
        if let Some((_, again)) = self.running.get_mut(&key) {
            *again = Some(again.map_or(priority, |present| present.max(priority)));
        } else {
            let entry = self.waiting.entry(key).or_insert(priority);
            *entry = priority.max(*entry);
        }
    }

    fn add_after(&mut self, key: u8, delay: u64) {
        let priority = self.running.get(&key).map_or(0, |(priority, _)| *priority);
        if delay == 0 {
            return self.add(key, priority);
        }
        let at = self.now + delay;
        let entry = self.delayed.entry(key).or_insert((at, priority));
        *entry = (entry.0.min(at), entry.1.max(priority));
    }

    fn promote(&mut self) {
        let due: Vec<u8> = self
            .delayed
            .iter()
            .filter(|(_, (at, _))| *at <= self.now)
            .map(|(key, _)| *key)
            .collect();
        for key in due {
            let (_, priority) = self.delayed.remove(&key).unwrap();
            self.add(key, priority);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// After any steps, the queue returns a waiting key of the highest priority, never one in process, and
    /// loses none.
    #[test]
    fn the_queue_equals_its_model(steps in proptest::collection::vec(step(), 1..80)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (queue, mut model) = (Queue::<u8>::unnamed(&Clock::system()), Model::default());
            for step in steps {
                match step {
                    Step::Add(key, priority) => {
                        queue.add(key, Priority(priority));
                        model.add(key, priority);
                    }
                    Step::AddAfter(key, delay) => {
                        queue.add_after(key, millis(delay));
                        model.add_after(key, delay);
                    }
                    Step::Advance(by) => {
                        tokio::time::advance(millis(by)).await;
                        model.now += by;
                    }
                    Step::Done(nth) => {
                        let mut keys: Vec<u8> = model.running.keys().copied().collect();
                        keys.sort_unstable();
                        if let Some(key) = keys.get(nth) {
                            queue.done(key);
                            // Like the queue, the model adds due keys only at the next take.
                            model.done(*key);
                        }
                    }
                    Step::Take => {
                        model.promote();
                        let key = taken(&queue).await;
                        let best = model.waiting.values().max().copied();
                        assert_eq!(key.and_then(|key| model.waiting.get(&key).copied()), best);
                        if let Some(key) = key {
                            let priority = model.waiting.remove(&key).unwrap();
                            model.running.insert(key, (priority, None));
                        }
                    }
                }
            }
            let running: HashSet<u8> = model.running.keys().copied().collect();
            assert!(model.waiting.keys().all(|key| !running.contains(key)));
        });
    }
}

impl Model {
    fn done(&mut self, key: u8) {
        if let Some((_, Some(priority))) = self.running.remove(&key) {
            self.add(key, priority);
        }
    }
}
