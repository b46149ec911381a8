//! Simulated kubelets: nodes that register, renew their leases and report their status, and pods that live and die on
//! them as a pod's status shows it, without a container anywhere. They work against any API server.
//!
//! [`run()`] stands for all nodes of one process: one pod cache, one queue that is also the timer wheel, a few hundred bytes
//! a pod. What a kubelet writes next for a pod is decided in `pod::plan`, which is pure.
//!
//! # What pods do
//!
//! Containers start after [`Delays::start`], are ready [`Delays::ready`] later (with a probe not before its
//! `initialDelaySeconds`) and run until they are stopped;
//! those of a Job's pods end with exit code 0 after [`Delays::job`], init containers after [`Delays::init`]. Init containers run
//! in order, sidecars beside the rest; `restartPolicy`, crash-loop back-off (10 s doubling to 5 min),
//! `activeDeadlineSeconds`, readiness gates and `terminationGracePeriodSeconds` mean what they mean on a real node.
//!
//! A container's command says otherwise where it is understood: `sh -c` (also `bash`, `ash`) with the shell's control
//! structures, functions, expansions, redirections, `&`/`wait` and `trap … TERM`, and `sleep`, `echo`, `printf`, `cat`, `touch`,
//! `test`, `expr`, `seq`, `date`, `rm`, `mkdir`, `ls` and their like. Files in emptyDirs outlive a container, those in hostPaths
//! the pod (not this process); readiness probes that execute such a command are answered from them. Nothing is executed;
//! a command that is not understood changes nothing. Without one, a bare shell (`busybox`) ends at once and `pause` waits.
//!
//! Annotations of a pod win over both, at any time in its life:
//!
//! | annotation | value | meaning |
//! |---|---|---|
//! | `sim.evenkeel.dev/run-time` | duration or `forever` | the container ends by itself this long after it started |
//! | `sim.evenkeel.dev/exit-code` | 0 to 255 | with this code (0) |
//! | `sim.evenkeel.dev/crash-after` | duration | as `run-time`, with exit code 1 unless `exit-code` says another |
//! | `sim.evenkeel.dev/crash-limit` | count | only so many runs end by themselves, then one stays up |
//! | `sim.evenkeel.dev/start-delay` | duration | from being bound (or its turn) to running |
//! | `sim.evenkeel.dev/ready-delay` | duration | from running to ready |
//! | `sim.evenkeel.dev/readiness` | `always`, `never` | whether it becomes ready at all |
//! | `sim.evenkeel.dev/termination-time` | duration | from the signal to its end; cut short by the grace period (exit code 137) |
//! | `sim.evenkeel.dev/image-pull` | `ok`, `fail` | whether its image can be pulled (there is any but those with the tag `404` or `non-existent`) |
//! | `sim.evenkeel.dev/cpu` | quantity | it uses so much of the CPU (half of what it requests) |
//! | `sim.evenkeel.dev/cpu-load` | quantity | the container's part of so much, which all running pods of its owner share evenly |
//! | `sim.evenkeel.dev/memory` | quantity | it uses so much memory (half of what it requests) |
//!
//! Durations are written as in Go: `300ms`, `5s`, `1m30s`. A value may also be given container by container, with or without
//! one for the rest: `web=5s,log=1s` or `5s,log=1s`. A value that cannot be understood is ignored and reported in an
//! event `InvalidSimulation` on the pod.
//!
//! # What nodes and pods use
//!
//! [`Usage`] makes the objects of `metrics.k8s.io`, for whoever serves that API.
//!
//! # What containers print
//!
//! [`Kubelets`] has the logs of containers whose command is understood.
//!
//! # Commands in containers
//!
//! [`Kubelets::exec`] interprets a command in a running container: on its files, with its environment, in the same language.
//! [`Kubelets::attach`] connects somebody to what a container prints, and to a shell that is its process.
//!
//! # What nodes do
//!
//! A node with the annotation `sim.evenkeel.dev/silent: "true"` is as good as cut off: its lease is not renewed, its status
//! not reported, and nothing is written of its pods, which run on unheard. Without the annotation it is back, and says how
//! things stand.

//! # Volumes
//!
//! With [`NodesOptions::storage`] the nodes have storage, too: a driver and provisioner [`DRIVER`] with a default class. A pod's
//! containers start when its claims are bound.

mod addresses;
mod admission;
mod behaviour;
mod exec;
mod heartbeats;
mod kubelets;
mod logs;
mod node;
mod options;
mod partition;
mod pod;
mod pod_workers;
mod run;
mod stdin;
mod storage;
mod usage;
mod volumes;
mod volumes_in_use;

pub use behaviour::PREFIX;
pub use exec::{AttachRequest, Chunk, ExecError, ExecRequest, Streams};
pub use kubelets::Kubelets;
pub use logs::{ContainerRef, LogLine};
pub use options::{Delays, NodeOptions, NodesOptions};
pub use run::run;
pub use storage::{DRIVER, StorageOptions};
pub use usage::Usage;
