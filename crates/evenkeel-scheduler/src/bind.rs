//! From an assumed pod to a bound one, beside the attempts: permission, preparation, binding.

use evenkeel_api::{View as _, views::Pod};
use evenkeel_runtime::{
    client::{Client, Metadata},
    clock::Clock,
    plan::PatchForm,
};
use futures::future::try_join_all;
use std::sync::Arc;
use tokio::{sync::mpsc::UnboundedSender, time::Instant};

use crate::{
    core::{Assigned, NotBound},
    framework::{
        self, Command, Extender, Point, PreBind, PreBindPreFlight, Profile, Status, WaitingPods,
    },
    metrics::Metrics,
    pod::PodInfo,
    telling::Told,
};

/// Upstream's name of the question which plugins have something to do before a pod is bound.
const PRE_FLIGHT: &str = "PreBindPreFlight";

/// What bindings work with.
#[derive(Clone)]
pub(crate) struct Binder {
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    pub(crate) profiles: Arc<[Profile]>,
    pub(crate) profile: usize,
    pub(crate) extenders: Arc<[Arc<dyn Extender>]>,
    pub(crate) waiting_pods: WaitingPods,
    pub(crate) commands: UnboundedSender<Command>,
    pub(crate) metrics: Metrics,
    /// Whether a pod whose binding takes a while is to say which node it will get.
    pub(crate) nominated_node_name_for_expectation: bool,
}

/// What came of a binding.
pub(crate) struct Answer {
    pub(crate) assigned: Assigned,
    /// When its attempt began.
    pub(crate) began: Instant,
    pub(crate) result: Result<(), NotBound>,
    /// The pod's status names the node, whether or not the cache shows that yet.
    pub(crate) nominated: bool,
}

/// A plugin that has something to do before the pod is bound.
struct Actor<'a> {
    name: &'static str,
    plugin: &'a dyn PreBind,
    parallel: bool,
}

impl Binder {
    /// Waits for permission, prepares and binds, after what is being `told` of the pod.
    pub(crate) async fn bind(
        self,
        assigned: Assigned,
        told: Option<Told>,
        began: Instant,
    ) -> Answer {
        if let Some(told) = told {
            // Else a condition that says that it has no node could be written when it has one.
            told.cancelled().await;
        }
        let asked = Instant::now();
        let actors = self.actors(&assigned);
        let status = if actors.is_empty() { "Skip" } else { "Success" };
        self.metrics.ran(PRE_FLIGHT, status, self.profile().name(), asked.elapsed());
        let mut nominated = false;
        if self.nominated_node_name_for_expectation
            && (!actors.is_empty() || assigned.waiting.is_some())
        {
            // Others (autoscalers, say) should know that the node is taken although that takes a while.
            nominated = self.nominate_expected_node(&assigned).await;
        }
        let result = self.steps(&assigned, &actors).await;
        Answer { assigned, began, result, nominated }
    }

    fn profile(&self) -> &Profile {
        &self.profiles[self.profile]
    }

    fn actors(&self, assigned: &Assigned) -> Vec<Actor<'_>> {
        let mut actors = Vec::new();
        for (_, plugin) in self.profile().at(Point::PreBind) {
            let (name, Some(plugin)) = (plugin.name(), plugin.as_pre_bind()) else { continue };
            let began = assigned.sampled.then(Instant::now);
            let answer = plugin.pre_bind_pre_flight(&assigned.popped.info, &assigned.node);
            let status = if answer == PreBindPreFlight::Skip { "Skip" } else { "Success" };
            self.plugin_ran(name, PRE_FLIGHT, began, status);
            match answer {
                PreBindPreFlight::Skip => {}
                PreBindPreFlight::Act { parallel } => actors.push(Actor { name, plugin, parallel }),
            }
        }
        actors
    }

    async fn nominate_expected_node(&self, assigned: &Assigned) -> bool {
        let (pod, node) = (&assigned.popped.info.pod, &*assigned.node);
        if *pod.status.nominated_node_name == *node {
            return true;
        }
        let patch = serde_json::json!({
            "metadata": { "uid": pod.meta.uid },
            "status": { "nominatedNodeName": node },
        });
        let (kind, meta) = (Pod::kind(), &pod.meta);
        let body = patch.to_string().into();
        let form = PatchForm::Strategic;
        let written = self
            .client
            .patch::<Metadata>(&kind, &meta.namespace, &meta.name, "status", form, body)
            .await;
        if let Err(error) = &written {
            // No reason not to bind it.
            tracing::debug!(namespace = %meta.namespace, name = %meta.name, %error, "Nomination not written");
        }
        written.is_ok()
    }

    async fn steps(&self, assigned: &Assigned, actors: &[Actor<'_>]) -> Result<(), NotBound> {
        let (info, node) = (&assigned.popped.info, &*assigned.node);
        self.permission(assigned).await?;
        let began = Instant::now();
        let prepared = match actors {
            [] => Ok(()),
            actors => self.prepare(info, node, actors, assigned.sampled).await,
        };
        self.ran(Point::PreBind, began, prepared.is_ok());
        prepared.map_err(NotBound::Failed)?;
        let began = Instant::now();
        let bound = self.write(info, node, assigned.sampled).await;
        self.ran(Point::Bind, began, bound.is_ok());
        bound.map_err(NotBound::Failed)
    }

    fn ran(&self, point: Point, began: Instant, well: bool) {
        let name = self.profile().name();
        self.metrics.ran(point.as_str(), status(well), name, began.elapsed());
    }

    /// A plugin ended that is timed if it is known when it began.
    fn plugin_ran(&self, plugin: &str, point: &str, began: Option<Instant>, status: &str) {
        if let Some(began) = began {
            self.metrics.plugin_ran(plugin, point, status, began.elapsed());
        }
    }

    async fn permission(&self, assigned: &Assigned) -> Result<(), NotBound> {
        let Some(waiting) = &assigned.waiting else { return Ok(()) };
        let began = Instant::now();
        let answer = waiting.wait_on_permit(&self.clock).await;
        self.waiting_pods.remove(&assigned.popped.uid);
        let (status, result) = match answer {
            framework::PermitDecision::Allowed => {
                // Whatever happens from now on cannot matter to it. Sending fails once the scheduler has ended.
                drop(self.commands.send(Command::Done(Arc::clone(&assigned.popped.uid))));
                ("Success", Ok(()))
            }
            framework::PermitDecision::Rejected(plugin, why) => {
                let n = self.profile().plugins().find(|(_, known)| known.name() == plugin);
                let why = Status::unschedulable(why);
                ("Unschedulable", Err(NotBound::Rejected(n.map_or(0, |(n, _)| n), why)))
            }
            framework::PermitDecision::Preempted(why) => {
                let message = format!("waiting on permit for pod: {why}");
                ("Error", Err(NotBound::Failed(message)))
            }
        };
        self.metrics.permitted(status, began.elapsed());
        result
    }

    /// Has the plugins do their work, neighbours that allow it at the same time, unless the pod is called back meanwhile.
    async fn prepare(
        &self,
        info: &PodInfo,
        node: &str,
        actors: &[Actor<'_>],
        sampled: bool,
    ) -> Result<(), String> {
        let pod_in_pre_bind = self.waiting_pods.start_pre_bind(info.uid());
        let work = async {
            for group in actors.chunk_by(|one, next| one.parallel && next.parallel) {
                try_join_all(group.iter().map(|actor| async move {
                    let began = sampled.then(Instant::now);
                    let done = actor.plugin.pre_bind(&self.client, info, node).await;
                    self.plugin_ran(
                        actor.name,
                        Point::PreBind.as_str(),
                        began,
                        status(done.is_ok()),
                    );
                    done.map_err(|error| {
                        format!("running PreBind plugin \"{}\": {error}", actor.name)
                    })
                }))
                .await?;
            }
            Ok::<(), String>(())
        };
        let done = pod_in_pre_bind.cancelled.run_until_cancelled(work).await;
        let finished = pod_in_pre_bind.mark_prebound();
        self.waiting_pods.remove(info.uid());
        done.unwrap_or(Ok(())).and(finished)
    }

    /// The first extender or else plugin that does not decline binds.
    async fn write(&self, info: &PodInfo, node: &str, sampled: bool) -> Result<(), String> {
        for extender in self.extenders.iter().filter(|extender| extender.binds()) {
            if !extender.is_interested(info) {
                continue;
            }
            match extender.bind(info, node).await {
                Err(error) if extender.is_ignorable() => {
                    tracing::info!(extender = extender.name(), %error, "Extender left out");
                }
                answer => return answer.map_err(|error| error.to_string()),
            }
        }
        for (_, plugin) in self.profile().at(Point::Bind) {
            let (name, Some(plugin)) = (plugin.name(), plugin.as_bind()) else { continue };
            let began = sampled.then(Instant::now);
            let answer = plugin.bind(&self.client, info, node).await;
            let status = match &answer {
                Ok(false) => "Skip",
                answer => status(answer.is_ok()),
            };
            self.plugin_ran(name, Point::Bind.as_str(), began, status);
            match answer {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) => return Err(format!("running Bind plugin \"{name}\": {error}")),
            }
        }
        Err("no plugin binds pods".to_owned())
    }
}

/// Upstream's label `status`.
fn status(well: bool) -> &'static str {
    if well { "Success" } else { "Error" }
}
