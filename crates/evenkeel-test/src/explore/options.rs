//! Options of an exploration.

use crate::{Program, TestServerBuilder, simulation::FaultKind};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// Default of [`Exploration::max_runs`].
const MAX_RUNS: usize = 300;

/// Default of [`Exploration::seeds`].
const SEEDS: u64 = 2;

/// Default of [`Exploration::quiet`].
const IDLE_PERIOD: Duration = Duration::from_secs(30);

/// Default of [`Exploration::silence`].
const SILENCE: Duration = Duration::from_secs(600);

/// Exploration of an operator's behavior under faults, like [`explore`](super::explore()), with options.
#[must_use = "an exploration does nothing until it is run"]
pub struct Exploration {
    pub(super) operator: Arc<dyn Program>,
    pub(super) server: Box<dyn Fn(TestServerBuilder) -> TestServerBuilder>,
    pub(super) controllers: Vec<String>,
    pub(super) nodes: u32,
    pub(super) replicas: u8,
    pub(super) quiet: Duration,
    pub(super) silence: Duration,
    pub(super) ignored_fields: Vec<String>,
    pub(super) kept: BTreeSet<String>,
    pub(super) after_teardown: Box<dyn Fn()>,
    /// Kinds of faults; `None` for all that apply.
    pub(super) kinds: Option<Vec<FaultKind>>,
    pub(super) seeds: u64,
    pub(super) max_runs: usize,
}

impl Exploration {
    /// Returns an exploration with default options.
    pub fn new(operator: impl Program) -> Self {
        Self {
            operator: Arc::new(operator),
            server: Box::new(|builder| builder),
            controllers: Vec::new(),
            nodes: 0,
            replicas: 1,
            quiet: IDLE_PERIOD,
            silence: SILENCE,
            ignored_fields: Vec::new(),
            kept: BTreeSet::new(),
            after_teardown: Box::new(|| {}),
            kinds: None,
            seeds: SEEDS,
            max_runs: MAX_RUNS,
        }
    }

    /// Changes the options of the API server of each run, such as `TestServerBuilder::crd::<WebApp>`.
    pub fn server(
        mut self,
        change: impl Fn(TestServerBuilder) -> TestServerBuilder + 'static,
    ) -> Self {
        self.server = Box::new(change);
        self
    }

    /// Runs these controllers, by upstream's names, besides the garbage collector and the namespace controller.
    ///
    /// Pods of Deployments need [`DEPLOYMENT_CONTROLLERS`](crate::DEPLOYMENT_CONTROLLERS) and [`Exploration::nodes`].
    pub fn controllers<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.controllers = names.into_iter().map(str::to_owned).collect();
        self
    }

    /// Runs this many simulated nodes, and the scheduler. Default: none.
    pub fn nodes(mut self, count: u32) -> Self {
        self.nodes = count;
        self
    }

    /// Runs the operator in this many replicas. One of them leads. Faults count the writes of all replicas together.
    /// Default: 1.
    pub fn replicas(mut self, count: u8) -> Self {
        self.replicas = count.max(1);
        self
    }

    /// Sets the time without writes after which a cluster counts as settled. It must be longer than the operator's retry and
    /// wait intervals. Default: 30 s.
    pub fn quiet(mut self, time: Duration) -> Self {
        self.quiet = time;
        self
    }

    /// Sets the time after settling in which nothing may be written. Default: 10 minutes.
    pub fn silence(mut self, time: Duration) -> Self {
        self.silence = time;
        self
    }

    /// Leaves a field out of comparisons of end states, such as `/data/password`, which is a JSON pointer, or
    /// `Secret/data/password` for one kind. Fields with times and with values that the cluster chooses are left out anyway.
    pub fn ignores_field(mut self, pointer: &str) -> Self {
        self.ignored_fields.push(pointer.to_owned());
        self
    }

    /// Allows objects of a resource, such as `persistentvolumeclaims`, to outlive the objects that the user has created.
    pub fn keeps(mut self, plural: &str) -> Self {
        self.kept.insert(plural.to_owned());
        self
    }

    /// Calls a function at the end of each run, for example to assert that nothing is left outside the cluster.
    pub fn after_teardown(mut self, check: impl Fn() + 'static) -> Self {
        self.after_teardown = Box::new(check);
        self
    }

    /// Injects faults of these kinds only. Default: all except [`FaultKind::Panic`], and without the faults of leases if the
    /// operator has no leases.
    pub fn kinds(mut self, kinds: impl IntoIterator<Item = FaultKind>) -> Self {
        self.kinds = Some(kinds.into_iter().collect());
        self
    }

    /// Sets the number of seeds, which decide on latencies. With seeds other than 0, watch events are also delayed by up to a
    /// second. Default: 2.
    pub fn seeds(mut self, count: u64) -> Self {
        self.seeds = count.max(1);
        self
    }

    /// Limits the number of runs with a fault. The runs are a sample of all seeds, writes and kinds: each kind occurs once
    /// before a kind occurs twice, and each write is hit before a write is hit twice. So 15 or more runs have every kind of
    /// fault. A larger sample contains the smaller one. The environment variable `EVENKEEL_RUNS` sets another limit. Default:
    /// 300.
    pub fn max_runs(mut self, count: usize) -> Self {
        self.max_runs = count;
        self
    }
}
