//! Simulated kubelets. They register nodes, renew their Leases, report their status, and write the status of pods as if
//! containers ran. No container runs. The kubelets work with any API server.
//!
//! [`run()`] serves all nodes of one process with one pod cache and one queue, which is also the timer wheel. A pod
//! takes a few hundred bytes. The pure function `pod::plan` decides the next writes of the kubelet for a pod.
//!
//! # What pods do
//!
//! Containers start after [`Delays::start`] and are ready [`Delays::ready`] later, but not before the
//! `initialDelaySeconds` of their probes. They run until they are stopped. Containers of a Job's pods exit with code 0
//! after [`Delays::job`], init containers after [`Delays::init`].
//!
//! Init containers run in order, sidecars beside the rest. `restartPolicy`, CrashLoopBackOff (10 s, doubled up to 5
//! min), `activeDeadlineSeconds`, readiness gates and `terminationGracePeriodSeconds` work as on a real node.
//!
//! A command that the interpreter understands takes precedence: `sh -c` (also `bash`, `ash`) with control
//! structures, functions, expansions, redirections, `&`/`wait` and `trap … TERM`, and tools such as `sleep`,
//! `echo`, `printf`, `cat`, `touch`, `test`, `expr`, `seq`, `date`, `rm`, `mkdir` and `ls`. The interpreter
//! executes no program. It ignores a command that it does not understand. Without a command, a bare shell
//! (`busybox`) exits immediately and `pause` waits.
//!
//! Files in an emptyDir outlive the container. Files in a hostPath outlive the pod, but not this process. Exec
//! readiness probes read these files.
//!
//! Annotations of a pod override the delays and the command at any time during the pod's life: [`ANNOTATIONS`].
//!
//! Durations are written as in Go: `300ms`, `5s`, `1m30s`. A value may name a container, with or without a value
//! for the others: `web=5s,log=1s` or `5s,log=1s`. The kubelet ignores an invalid value and reports it in an event
//! `InvalidSimulation` on the pod, or on the node.
//!
//! # Behaviors
//!
//! With [`NodesOptions::behaviors`], custom resources of the kind Behavior ([`behavior_definition`]) set the same
//! values for all pods that they select. An annotation of a pod takes precedence.
//!
//! # Stages
//!
//! With [`NodesOptions::stages`], pods and nodes follow the Stages of KWOK ([`stage_definition`]) while at least one
//! Stage exists.
//!
//! # Resource usage of nodes and pods
//!
//! [`Usage`] builds the objects of `metrics.k8s.io` for a server of that API.
//!
//! # Container logs
//!
//! [`Kubelets`] returns the logs of containers whose command the interpreter understands.
//!
//! # Commands in containers
//!
//! [`Kubelets::exec`] interprets a command in a running container, with the container's files and environment.
//! [`Kubelets::attach`] connects a client to the output of a container, and to its input if its process is a shell.
//!
//! # Ports of containers
//!
//! [`Kubelets::connect`] connects to a port of a pod. A running container listens on the TCP ports that it declares. A
//! container of a well-known web server (nginx, httpd, …) also listens on the port of its image. It responds to HTTP
//! requests with the requested file in the web server's folder, or else with a page that describes the container and
//! the request. While it is not ready, it responds with 503. [`Kubelets::connect_node`] connects to a kubelet:
//! `/healthz`, `/pods`, `/stats/summary`, `/metrics`, `/metrics/resource`, `/configz`,
//! `/containerLogs`.
//!
//! # Faults
//!
//! The annotation `sim.evenkeel.dev/silent: "true"` partitions a node from the API server: its kubelet renews no Lease,
//! and reports neither node nor pod status. The pods continue to run. After the annotation is removed, the kubelet
//! reports the current state again. Other annotations make the kubelet report that the node is not ready or under
//! pressure. With the value `until` and a time, a fault ends by itself.
//!
//! # Volumes
//!
//! With [`NodesOptions::storage`], the simulated storage acts as the CSI driver and provisioner [`DRIVER`], and creates
//! a default StorageClass. A pod's containers start when its claims are bound.

mod addresses;
mod admission;
mod annotations;
mod behaviors;
mod behaviour;
mod exec;
mod faults;
mod heartbeats;
mod kubelet_pages;
mod kubelets;
mod logs;
mod network;
mod node;
mod node_faults;
mod options;
mod pod;
mod pod_workers;
mod run;
mod servers;
mod stages;
mod stdin;
mod storage;
mod template;
mod usage;
mod volumes;
mod volumes_in_use;

pub use annotations::{
    ANNOTATIONS, Annotation, CRASH, DISK_PRESSURE, MEMORY_PRESSURE, NOT_READY, PID_PRESSURE,
    PREFIX, SILENT,
};
pub use behaviors::{BEHAVIOR_DEFINITION, behavior_definition};
pub use exec::{AttachRequest, Chunk, ExecError, ExecRequest, Streams};
pub use faults::{FaultEnd, fault, next_second};
pub use kubelets::Kubelets;
pub use logs::{ContainerRef, LogLine};
pub use node_faults::NodeFaults;
pub use options::{Delays, NodeGroup, NodeOptions, NodesOptions};
pub use run::run;
pub use servers::Connection;
pub use stages::{STAGE_DEFINITION, stage_definition};
pub use storage::{DRIVER, StorageOptions};
pub use usage::{KnownUsage, Usage};
