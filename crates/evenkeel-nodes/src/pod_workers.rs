//! Pod workers: sync the pods of all nodes of the process from one queue, which also delays their next syncs. They perform
//! the decisions of `pod::plan`.

mod admitted;
mod staged;

use evenkeel_api::{
    Text, View,
    time::Timestamp,
    views::{Node, Pod, PodCommand},
};
use evenkeel_component_helpers::scheduling::corev1;
use evenkeel_runtime::{
    cache::{Cache, CacheEvent, Caches, Index},
    client::{ApiError, Client, DeleteOptions, Metadata},
    clock::Clock,
    events::EventRecorder,
    plan::{EventRecord, Key, PatchType, Target},
    queue::{Priority, Queue},
};
use evenkeel_shell::{
    Environment, Files, Full, NodeFields, Processes, Scope, Write, entrypoint_is_shell,
};
use std::{
    collections::HashMap,
    net::Ipv4Addr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::Notify;

use crate::pod::memory::run_id;
use crate::{
    NodeFaults, NodesOptions,
    addresses::Addresses,
    admission,
    behaviors::{Behavior, Behaviors},
    behaviour::image_of,
    faults,
    logs::{ContainerRef, LoggedRun},
    pod::{
        facts::Facts,
        memory::{CommandWrites, Memory, ShellExit},
        observe,
        plan::{Decision, INVALID_SIMULATION, NodeWrites, plan},
    },
    stages::{ResourceRef, StageController},
    usage::{NodeUsage, node_usage},
    volumes::Volumes,
};
use staged::StagedPod;

/// Pod workers of all simulated kubelets of the process.
pub(crate) struct PodWorkers {
    client: Client,
    clock: Clock,
    recorder: EventRecorder,
    options: NodesOptions,
    /// Indexes into `options.nodes` by name.
    nodes: HashMap<Text, usize>,
    node_cache: Cache<Node>,
    pods: Cache<Pod>,
    pods_by_node: Index<Pod>,
    pods_by_ip: Index<Pod>,
    volumes: Volumes,
    /// Behaviors of the cluster, if it has them.
    behaviors: Option<Behaviors>,
    /// Faults of the nodes.
    faults: NodeFaults,
    /// Applies the Stages of the cluster, if it has them.
    stage_controller: Option<Arc<StageController>>,
    queue: Queue<Key>,
    state: Mutex<State>,
    /// Wakes the followers of logs when the state of a pod changes.
    changed: Arc<Notify>,
}

/// State that the workers share.
struct State {
    /// Pods that follow the built-in life cycle, after their first sync.
    synced_pods: HashMap<Key, SyncedPod>,
    /// Uids of the pods whose admission has begun, and whose memory is not stored yet.
    admissions: HashMap<Key, Text>,
    /// Pods that follow Stages; they are not in `synced_pods`.
    staged_pods: HashMap<Key, StagedPod>,
    addresses: Addresses,
    /// Files that pods wrote to each node, by index of the node.
    node_files: HashMap<usize, Arc<Files>>,
    /// Images of each node, by index of the node, with the times of their availability.
    images: HashMap<usize, HashMap<String, Timestamp>>,
}

/// State of a pod that follows the built-in life cycle.
struct SyncedPod {
    uid: Text,
    host_network: bool,
    memory: Memory,
    processes: Arc<Processes>,
    /// Writes of commands since the current sync started. The sync's result does not include them.
    commands: Vec<CommandWrites>,
    /// Exits of the containers' shells that ended on input of attached clients.
    exits: Vec<ShellExit>,
    /// Size of the pod's files in bytes when a command last wrote one.
    file_bytes: usize,
}

/// Maximum total size in bytes of the files of all pods that commands have written to.
const MAX_FILE_BYTES: usize = 256 * 1024 * 1024;

/// Current run of a running container.
#[derive(Debug, Clone)]
pub(crate) struct CurrentRun {
    /// ID of the run: `UID/CONTAINER/RESTARTS`.
    pub(crate) id: String,
    /// Restart count of the container.
    pub(crate) restarts: u32,
    pub(crate) address: Ipv4Addr,
    pub(crate) files: Arc<Files>,
    pub(crate) node_files: Arc<Files>,
    key: Key,
    uid: Text,
    /// Index of the node.
    node: usize,
}

impl CurrentRun {
    /// Returns counters that increase when the files of the pod and of the node change.
    pub(crate) fn changes(&self) -> (u64, u64) {
        (self.files.changes(), self.node_files.changes())
    }
}

impl PodWorkers {
    pub(crate) fn new(
        client: Client,
        clock: Clock,
        recorder: EventRecorder,
        options: NodesOptions,
        caches: &Caches,
        (behaviors, stage_controller): (Option<Behaviors>, Option<Arc<StageController>>),
        queue: Queue<Key>,
    ) -> Arc<Self> {
        let pods = caches.of::<Pod>();
        let nodes = options
            .nodes
            .iter()
            .enumerate()
            .map(|(index, node)| (node.name.as_str().into(), index))
            .collect();
        let pods_by_node = pods.index("node", corev1::node_key);
        let pods_by_ip = pods.index("pod IP", |pod, key| {
            if !pod.status.pod_ip.is_empty() {
                key(&pod.status.pod_ip);
            }
        });
        let state = State {
            synced_pods: HashMap::new(),
            admissions: HashMap::new(),
            staged_pods: HashMap::new(),
            addresses: Addresses::new(options.first_pod_ip),
            node_files: HashMap::new(),
            images: HashMap::new(),
        };
        let pod_workers = Self {
            client,
            clock,
            recorder,
            options,
            nodes,
            node_cache: caches.of(),
            volumes: Volumes::new(caches, &pods),
            pods,
            pods_by_node,
            pods_by_ip,
            faults: NodeFaults::of(behaviors.clone()),
            behaviors,
            stage_controller,
            queue,
            state: Mutex::new(state),
            changed: Arc::default(),
        };
        let pod_workers = Arc::new(pod_workers);
        pod_workers.subscribe();
        pod_workers
    }

    /// Subscribes to changes of pods, nodes, volumes, Behaviors and Stages. Each enqueues the pods that it affects.
    fn subscribe(self: &Arc<Self>) {
        let pod_workers = Arc::downgrade(self);
        self.pods.subscribe(move |event| {
            let Some(pod_workers) = pod_workers.upgrade() else { return };
            let (pod, priority) = match event {
                CacheEvent::Added { object, initial: true } => (object, Priority::LOW),
                CacheEvent::Added { object, .. } | CacheEvent::Deleted(object) => {
                    (object, Priority::NORMAL)
                }
                CacheEvent::Updated { new, .. } => (new, Priority::NORMAL),
            };
            if pod_workers.nodes.contains_key(&pod.spec.node_name) {
                pod_workers.queue.add(key(pod), priority);
            }
        });
        let pod_workers = Arc::downgrade(self);
        self.node_cache.subscribe(move |event| {
            let Some(pod_workers) = pod_workers.upgrade() else { return };
            pod_workers.report_fault_errors(event);
            if let Some(node) = faults::resumed_node(event, pod_workers.clock.now()) {
                for pod in pod_workers.pods_by_node.get(&node.meta.name) {
                    pod_workers.queue.add(key(&pod), Priority::NORMAL);
                }
            }
        });
        if let Some(behaviors) = &self.behaviors {
            let pod_workers = Arc::downgrade(self);
            behaviors.subscribe(move || {
                if let Some(pod_workers) = pod_workers.upgrade() {
                    pod_workers.enqueue_all();
                }
            });
        }
        if let Some(stage_controller) = &self.stage_controller {
            let pod_workers = Arc::downgrade(self);
            stage_controller.stages.subscribe(move || {
                if let Some(pod_workers) = pod_workers.upgrade() {
                    pod_workers.enqueue_all();
                }
            });
        }
        let pod_workers = Arc::downgrade(self);
        self.volumes.subscribe(move |pod| {
            let Some(pod_workers) = pod_workers.upgrade() else { return };
            if pod_workers.nodes.contains_key(&pod.spec.node_name) {
                pod_workers.queue.add(key(pod), Priority::NORMAL);
            }
        });
    }

    /// Records an event for each fault annotation of a simulated node whose value is invalid.
    fn report_fault_errors(&self, event: &CacheEvent<Node>) {
        let meta = &event.object().meta;
        if !self.nodes.contains_key(&meta.name) {
            return;
        }
        for message in faults::new_errors(event) {
            let regarding = Target {
                kind: Node::kind(),
                namespace: Arc::from(""),
                name: Arc::from(&*meta.name),
                uid: Arc::from(&*meta.uid),
            };
            let reason = INVALID_SIMULATION.into();
            self.recorder.record(&EventRecord { regarding, warning: true, reason, message });
        }
    }

    /// Enqueues the pods of all nodes.
    fn enqueue_all(&self) {
        for node in self.nodes.keys() {
            self.pods_by_node.for_each(node, |pod| self.queue.add(key(pod), Priority::LOW));
        }
    }

    /// Returns the Behaviors that select a pod, by precedence.
    fn behaviors_of(&self, pod: &Pod) -> Vec<Arc<Behavior>> {
        self.behaviors.as_ref().map(|behaviors| behaviors.of_pod(pod)).unwrap_or_default()
    }

    /// Syncs pods until the queue is shut down.
    pub(crate) async fn work(&self) {
        while let Some(key) = self.queue.next().await {
            self.queue.process(&key, self.sync_and_requeue(&key)).await;
        }
    }

    /// Syncs one pod, and enqueues it for its next sync.
    async fn sync_and_requeue(&self, key: &Key) {
        match self.sync_pod(key).await {
            Ok(next_sync) => {
                self.queue.forget(key);
                if let Some(delay) = next_sync {
                    self.queue.add_after(key.clone(), delay);
                }
            }
            Err(error) => {
                tracing::debug!(namespace = %key.namespace, name = %key.name, %error, "Pod status not written");
                self.queue.add_rate_limited(key.clone());
            }
        }
    }

    /// Syncs one pod. Returns the time until its next sync even if nothing changes.
    ///
    /// Upstream: `SyncPod`.
    async fn sync_pod(&self, key: &Key) -> Result<Option<Duration>, ApiError> {
        let Some(pod) = self.pods.get(&key.namespace, &key.name) else {
            self.forget(key);
            return Ok(None);
        };
        let Some(node) = self.nodes.get(&pod.spec.node_name) else { return Ok(None) };
        let now = self.clock.now();
        let of_node = self.node_cache.get("", &pod.spec.node_name);
        if let Some(end) = of_node.and_then(|node| self.faults.pod_sync_pause(&node, now)) {
            return Ok(end.remaining(now));
        }
        if let Some(controller) = self.pod_stage_controller() {
            return self.play_stage(controller, key, &pod, *node).await;
        }
        let host_ip = self.options.nodes[*node].ip;
        let Some(processes) = self.processes(key, &pod, host_ip).await? else { return Ok(None) };
        let (delays, normal_events) = (&self.options.delays, self.options.normal_events);
        let mut facts =
            observe::facts(&pod, host_ip, delays, &self.behaviors_of(&pod), normal_events)
                .with_processes(&processes, self.node_files(*node))
                .with_images(|image| self.image_at(*node, image));
        facts.mounted = self.volumes.are_mountable(&pod);
        let memory = self.recall_memory(key, &pod, &mut facts, *node);
        let Decision { mut memory, patch, remove, wake, events, node_writes, images } =
            plan(&facts, &memory, self.clock.now());
        let mut is_gone = false;
        if let Some(patch) = patch {
            match self.patch_status(key, patch).await {
                Ok(Some(version)) => memory.version = version,
                Ok(None) => is_gone = true,
                Err(error) => {
                    self.release_unstored(key, &pod, memory.ip);
                    return Err(error);
                }
            }
        }
        for event in events {
            let regarding = target(&pod);
            self.recorder.record(&EventRecord {
                regarding,
                warning: event.warning,
                reason: event.reason.into(),
                message: event.message,
            });
        }
        memory.removed |= is_gone;
        self.record_node_writes(*node, node_writes);
        self.record_images(*node, images);
        // Store the memory before the deletion. If the deletion fails, the retry repeats neither the events nor the
        // writes.
        self.store_memory(key, &pod, memory, processes);
        if remove && !is_gone {
            self.delete(key, &pod.meta.uid).await?;
            if let Some(synced) = self.lock().synced_pods.get_mut(key) {
                synced.memory.removed = true;
            }
        }
        let now = self.clock.now();
        Ok(wake.map(|time| Duration::try_from(time.duration_since(now)).unwrap_or(Duration::ZERO)))
    }

    /// Writes a status. Returns the new resourceVersion; `None` if the pod no longer exists.
    async fn patch_status(&self, key: &Key, patch: String) -> Result<Option<u64>, ApiError> {
        let (namespace, name) = (&key.namespace, &key.name);
        let form = PatchType::Strategic;
        let kind = Pod::kind();
        match self
            .client
            .patch::<Metadata>(&kind, namespace, name, "status", form, patch.into())
            .await
        {
            Ok(written) => Ok(Some(written.meta.version())),
            // A conflict is an error: another pod may have the name now. The cache has that pod before the retry.
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Deletes a pod with grace period 0, unless it no longer exists.
    async fn delete(&self, key: &Key, uid: &str) -> Result<(), ApiError> {
        let options = DeleteOptions {
            uid: uid.to_owned(),
            grace_seconds: Some(0),
            ..DeleteOptions::default()
        };
        match self.client.delete(&Pod::kind(), &key.namespace, &key.name, &options).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns the memory of a pod. Before its first sync, recovers the memory from the pod's status, and admits the pod if it
    /// has not started.
    fn recall_memory(&self, key: &Key, pod: &Pod, facts: &mut Facts<'_>, node: usize) -> Memory {
        let mut state = self.lock();
        state.stop_following_stages(key, Some(pod));
        let known = state.synced_pods.get_mut(key);
        if let Some(synced) = known.filter(|synced| *synced.uid == *pod.meta.uid) {
            synced.commands.clear();
            facts.exits.clone_from(&synced.exits);
            let mut memory = synced.memory.clone();
            observe::notice_changes(pod, &mut memory);
            return memory;
        }
        drop(state);
        let status_ip: Option<Ipv4Addr> = pod.status.pod_ip.parse().ok();
        let ip = match status_ip {
            _ if pod.spec.host_network => facts.host_ip,
            Some(ip) => {
                self.lock().addresses.mark_in_use(ip);
                ip
            }
            None => self.allocate_address(),
        };
        if pod.status.start_time.is_none() && pod.meta.deletion.is_none() {
            let pods_on_node = self.pods_by_node.get(&pod.spec.node_name);
            let admitted = self.lock().begin_admission(key, pod, pods_on_node);
            facts.rejection = admission::reject(
                pod,
                admitted.iter().map(|pod| &**pod),
                &self.options.nodes[node].capacity,
            );
            if facts.rejection.is_some() {
                self.lock().end_admission(key);
            }
        }
        observe::recover_memory(pod, facts, ip, self.clock.now())
    }

    /// Returns the processes of the pod's containers; `None` if the pod no longer exists. The first sync reads them,
    /// and each sync after ephemeral containers were added reads them again.
    async fn processes(
        &self,
        key: &Key,
        pod: &Pod,
        host_ip: Ipv4Addr,
    ) -> Result<Option<Arc<Processes>>, ApiError> {
        let n_ephemerals = pod.spec.ephemeral_containers.len();
        if let Some(synced) =
            self.lock().synced_pods.get(key).filter(|synced| *synced.uid == *pod.meta.uid)
            && synced.memory.ephemerals.len() >= n_ephemerals
        {
            return Ok(Some(Arc::clone(&synced.processes)));
        }
        let mut containers = pod.spec.init_containers.iter().chain(&*pod.spec.containers);
        let has_processes = n_ephemerals > 0
            || containers.any(|container| {
                !container.command.is_empty()
                    || !container.args.is_empty()
                    || entrypoint_is_shell(&container.image)
            });
        if !has_processes
            || !self.options.interprets_commands
            || matches!(&*pod.status.phase, "Succeeded" | "Failed")
        {
            return Ok(Some(Arc::default()));
        }
        match self.client.get::<PodCommand>(&key.namespace, &key.name).await {
            Ok(read) if read.meta.uid != pod.meta.uid => Ok(None),
            Ok(read) => {
                let image = |name: &str| image_of(pod, name);
                let node = NodeFields { name: &pod.spec.node_name, host_ip };
                Ok(Some(Arc::new(Processes::read(&read, node, image))))
            }
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the files that pods wrote to the node.
    fn node_files(&self, node: usize) -> Arc<Files> {
        self.lock().node_files.get(&node).cloned().unwrap_or_default()
    }

    /// Records the writes of runs to the node's files.
    fn record_node_writes(&self, node: usize, writes: Vec<NodeWrites>) {
        if writes.is_empty() {
            return;
        }
        let mut state = self.lock();
        let files = Arc::make_mut(state.node_files.entry(node).or_default());
        for NodeWrites { by, start, writes } in writes {
            files.replace(&by, start, &writes.iter().collect::<Vec<_>>());
        }
    }

    /// Returns when a node has an image: a recorded pull ends, or the Node's status lists the image. `None` if the node
    /// lacks it.
    fn image_at(&self, node: usize, image: &str) -> Option<Timestamp> {
        let pulled = self.lock().images.get(&node).and_then(|images| images.get(image)).copied();
        pulled.or_else(|| {
            let object = self.node_cache.get("", &self.options.nodes[node].name)?;
            let mut names = object.status.images.iter().flat_map(|image| &*image.names);
            names.any(|name| **name == *image).then_some(Timestamp::UNIX_EPOCH)
        })
    }

    /// Records images with the times when a node has them. If two containers pull an image at the same time, the
    /// earlier end counts.
    fn record_images(&self, node: usize, images: Vec<(String, Timestamp)>) {
        if images.is_empty() {
            return;
        }
        let mut state = self.lock();
        let known = state.images.entry(node).or_default();
        for (image, at) in images {
            let first = known.entry(image).or_insert(at);
            *first = at.min(*first);
        }
    }

    /// Stores the memory after a sync, with the writes that commands made during the sync.
    fn store_memory(&self, key: &Key, pod: &Pod, mut memory: Memory, processes: Arc<Processes>) {
        let (uid, host_network) = (pod.meta.uid.clone(), pod.spec.host_network);
        let mut state = self.lock();
        state.end_admission(key);
        let (mut commands, mut exits, mut file_bytes) = (Vec::new(), Vec::new(), 0);
        if let Some(previous) =
            state.synced_pods.get_mut(key).filter(|previous| *previous.uid == *pod.meta.uid)
        {
            commands = std::mem::take(&mut previous.commands);
            exits = std::mem::take(&mut previous.exits);
            file_bytes = previous.file_bytes;
        }
        for command in &commands {
            // The writes fit, because they did fit into the previous memory.
            let _ = memory.record(pod, command);
        }
        exits.retain(|exit: &ShellExit| {
            memory.slot(pod, &exit.container).is_some_and(|slot| slot.restarts == exit.restarts)
        });
        let synced_pod =
            SyncedPod { uid, host_network, memory, processes, commands, exits, file_bytes };
        if let Some(previous) = state.synced_pods.insert(key.clone(), synced_pod)
            && *previous.uid != *pod.meta.uid
        {
            state.release_address(&previous);
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Allocates an IP that no pod has, also none that an earlier process allocated and that was not synced yet.
    fn allocate_address(&self) -> Ipv4Addr {
        loop {
            let ip = self.lock().addresses.allocate();
            if self.pods_by_ip.get(&ip.to_string()).is_empty() {
                return ip;
            }
        }
    }

    /// Releases the IP that a first sync allocated and failed to write. The retry allocates one again.
    fn release_unstored(&self, key: &Key, pod: &Pod, ip: Ipv4Addr) {
        let mut state = self.lock();
        let is_synced =
            state.synced_pods.get(key).is_some_and(|synced| *synced.uid == *pod.meta.uid);
        if !is_synced && !pod.spec.host_network && pod.status.pod_ip.is_empty() {
            state.addresses.release(ip);
        }
    }

    /// Removes the state of a deleted pod, and releases its IP.
    fn forget(&self, key: &Key) {
        let mut state = self.lock();
        state.end_admission(key);
        if let Some(deleted) = state.synced_pods.remove(key) {
            state.release_address(&deleted);
        }
        state.stop_following_stages(key, None);
        drop(state);
        if let Some(stage_controller) = &self.stage_controller {
            stage_controller.forget(ResourceRef::Pod, key);
        }
        self.changed.notify_waiters();
    }

    /// Returns a pod of a simulated node from the cache.
    pub(crate) fn cached_pod(&self, namespace: &str, name: &str) -> Option<Arc<Pod>> {
        let pod = self.pods.get(namespace, name)?;
        self.nodes.contains_key(&pod.spec.node_name).then_some(pod)
    }

    /// Returns whether a simulated node has this name.
    pub(crate) fn has_node(&self, name: &str) -> bool {
        self.nodes.contains_key(name)
    }

    /// Returns the PodList of a node's pods in JSON, read from the API server.
    pub(crate) async fn pod_list(&self, node: &str) -> Result<String, String> {
        let path = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{node}");
        let request =
            http::Request::get(path).body(Vec::new()).map_err(|error| error.to_string())?;
        self.client.unfenced_kube().request_text(request).await.map_err(|error| error.to_string())
    }

    /// Returns the usage of a node and of its pods.
    pub(crate) fn usage_of(&self, node: &str) -> NodeUsage {
        let behaviors = |pod: &Pod| self.behaviors_of(pod);
        node_usage(node, &self.pods.list(), &behaviors, self.clock.now())
    }

    pub(crate) fn options(&self) -> &NodesOptions {
        &self.options
    }

    /// Returns the notifier that fires after each sync of a pod.
    pub(crate) fn changed(&self) -> Arc<Notify> {
        Arc::clone(&self.changed)
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns the run that the container's log comes from; `None` if the container has not run.
    pub(crate) fn logged_run(&self, container: &ContainerRef) -> Option<LoggedRun> {
        let pod = self.pods.get(&container.namespace, &container.pod)?;
        let node = *self.nodes.get(&pod.spec.node_name)?;
        let node_files = self.node_files(node);
        let state = self.lock();
        let synced =
            state.synced_pods.get(&key(&pod)).filter(|synced| *synced.uid == *pod.meta.uid)?;
        let SyncedPod { memory, processes, .. } = synced;
        let slot = memory.slot(&pod, &container.name)?;
        LoggedRun::select(&synced.uid, container, slot, memory, processes, node_files)
    }

    /// Returns the current run of a container; `None` unless the container runs.
    pub(crate) fn current_run(&self, container: &ContainerRef) -> Option<CurrentRun> {
        let pod = self.pods.get(&container.namespace, &container.pod)?;
        let node = *self.nodes.get(&pod.spec.node_name)?;
        let node_files = self.node_files(node);
        let state = self.lock();
        let key = key(&pod);
        let synced = state.synced_pods.get(&key).filter(|synced| *synced.uid == *pod.meta.uid)?;
        let slot = synced.memory.slot(&pod, &container.name)?;
        slot.running()?;
        Some(CurrentRun {
            id: run_id(&synced.uid, &container.name, slot.restarts),
            address: synced.memory.ip,
            files: Arc::clone(&synced.memory.files),
            node_files,
            uid: synced.uid.clone(),
            restarts: slot.restarts,
            key,
            node,
        })
    }

    /// Returns whether the container runs according to the pod's status in the API server.
    pub(crate) async fn has_written_running(&self, container: &ContainerRef) -> bool {
        let pod = self.client.get::<Pod>(&container.namespace, &container.pod).await;
        pod.is_ok_and(|pod| {
            let status = &pod.status;
            let statuses = status.init_container_statuses.iter().chain(&*status.container_statuses);
            let mut statuses = statuses.chain(&*status.ephemeral_container_statuses);
            statuses.any(|status| *status.name == *container.name && status.state.running.is_some())
        })
    }

    /// Returns the environment of a command in a container, read from the API server; `None` if the pod does not exist.
    pub(crate) async fn environment(
        &self,
        container: &ContainerRef,
    ) -> Result<Option<Environment>, ApiError> {
        let (namespace, name) = (&container.namespace, &container.pod);
        match self.client.get::<PodCommand>(namespace, name).await {
            Ok(pod) => {
                let cached = self.pods.get(namespace, name);
                let node = cached.as_ref().and_then(|pod| self.nodes.get(&pod.spec.node_name));
                let Some(node) = node.map(|node| &self.options.nodes[*node]) else {
                    return Ok(None);
                };
                let image = cached.as_ref().and_then(|pod| image_of(pod, &container.name));
                let image = image.unwrap_or_default();
                let node = NodeFields { name: &node.name, host_ip: node.ip };
                Ok(Environment::read(&pod, &container.name, image, node))
            }
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Ends a container whose process is a shell that has ended.
    pub(crate) fn end_shell(&self, run: &CurrentRun, container: &str, exit_code: i32) {
        let mut state = self.lock();
        let synced = state.synced_pods.get_mut(&run.key).filter(|synced| *synced.uid == *run.uid);
        let Some(synced) = synced else { return };
        let (container, restarts, at) = (container.to_owned(), run.restarts, self.clock.now());
        synced.exits.retain(|exit| exit.container != container);
        synced.exits.push(ShellExit { container, restarts, at, exit_code });
        drop(state);
        self.queue.add(run.key.clone(), Priority::NORMAL);
    }

    /// Records the writes of a command, and enqueues the pod, because its other processes may read the files. Does
    /// nothing if the pod no longer exists.
    ///
    /// # Errors
    /// Fails if the pod's files have no space left.
    pub(crate) fn record(&self, run: &CurrentRun, command: CommandWrites) -> Result<(), Full> {
        let Some(pod) = self.pods.get(&run.key.namespace, &run.key.name) else { return Ok(()) };
        let mut state = self.lock();
        let total_bytes: usize = state.synced_pods.values().map(|synced| synced.file_bytes).sum();
        let added_bytes: usize = command.writes.iter().map(Write::size).sum();
        let synced = state.synced_pods.get_mut(&run.key);
        let Some(synced) =
            synced.filter(|synced| synced.uid == pod.meta.uid && *synced.uid == *run.uid)
        else {
            return Ok(());
        };
        if total_bytes + added_bytes > MAX_FILE_BYTES {
            return Err(Full);
        }
        synced.memory.record(&pod, &command)?;
        synced.file_bytes = synced.memory.files.size();
        let node_writes: Vec<&Write> =
            command.writes.iter().filter(|write| write.path.scope == Scope::Node).collect();
        let (by, start) = (Arc::clone(&command.by), command.start);
        if !node_writes.is_empty() {
            let files = Arc::make_mut(state.node_files.entry(run.node).or_default());
            files.record(&by, start, &node_writes)?;
        }
        if let Some(synced) = state.synced_pods.get_mut(&run.key) {
            synced.commands.retain(|other| other.by != by);
            synced.commands.push(command);
        }
        drop(state);
        self.queue.add(run.key.clone(), Priority::NORMAL);
        self.changed.notify_waiters();
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Releases the IP of a pod, unless it uses the host network.
    fn release_address(&mut self, pod: &SyncedPod) {
        if !pod.host_network {
            self.addresses.release(pod.memory.ip);
        }
    }
}

fn key(pod: &Pod) -> Key {
    Key { namespace: Arc::from(&*pod.meta.namespace), name: Arc::from(&*pod.meta.name) }
}

/// Returns the pod as the object of an event.
fn target(pod: &Pod) -> Target {
    Target {
        kind: Pod::kind(),
        namespace: Arc::from(&*pod.meta.namespace),
        name: Arc::from(&*pod.meta.name),
        uid: Arc::from(&*pod.meta.uid),
    }
}

#[cfg(test)]
mod tests;
