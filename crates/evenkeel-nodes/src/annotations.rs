//! Table of the annotations that steer the simulation. The parser, the check of names and the documentation are derived
//! from it.

use crate::{
    behaviour::{Script, duration, exit_code, parse_choice, positive_quantity, quantity},
    faults::Crash,
};

/// Prefix of all simulation annotations.
pub const PREFIX: &str = "sim.evenkeel.dev/";

// Names of annotations that are not only read for a container's run.
pub(crate) const CPU: &str = "cpu";
pub(crate) const CPU_LOAD: &str = "cpu-load";
pub(crate) const MEMORY: &str = "memory";
/// Full name of the annotation that partitions a node.
pub const SILENT: &str = "sim.evenkeel.dev/silent";
/// Full name of the annotation of a node that reports that it is not ready.
pub const NOT_READY: &str = "sim.evenkeel.dev/not-ready";
/// Full name of the annotation of a node that reports memory pressure.
pub const MEMORY_PRESSURE: &str = "sim.evenkeel.dev/memory-pressure";
/// Full name of the annotation of a node that reports disk pressure.
pub const DISK_PRESSURE: &str = "sim.evenkeel.dev/disk-pressure";
/// Full name of the annotation of a node that reports PID pressure.
pub const PID_PRESSURE: &str = "sim.evenkeel.dev/pid-pressure";
/// Full name of the annotation of a pod whose containers crash.
pub const CRASH: &str = "sim.evenkeel.dev/crash";

/// Accepted values of the annotations for node faults, in Markdown.
const FAULT_VALUES: &str = "`true`, or `until 2026-01-02T03:04:05Z`";

/// Annotation of pods or nodes that steers the simulation.
#[derive(Debug)]
pub struct Annotation {
    /// Name after [`PREFIX`].
    pub name: &'static str,
    /// Kind of the annotated objects.
    pub kind: &'static str,
    /// Accepted values, in Markdown.
    pub values: &'static str,
    /// Value or behavior without the annotation, in Markdown.
    pub default: &'static str,
    /// Effect of the annotation, in Markdown.
    pub meaning: &'static str,
    /// Applies a value to the run of a container.
    pub(crate) apply: Apply,
}

/// Applies a value to the run of a container. The error is the end of a sentence about the value.
pub(crate) type Apply = fn(&mut Script, &str) -> Result<(), &'static str>;

/// All simulation annotations.
pub const ANNOTATIONS: [Annotation; 21] = [
    Annotation {
        name: "run-time",
        kind: "Pod",
        values: "duration, or `forever`",
        default: "the command's time; without one, 1s in a Job's pods, 0 in init containers, else `forever`",
        meaning: "the container ends by itself this long after it started",
        apply: |script, value| {
            script.run_time = if value == "forever" { None } else { Some(duration(value)?) };
            script.annotated.run_time = true;
            script.crashes = false;
            Ok(())
        },
    },
    Annotation {
        name: "exit-code",
        kind: "Pod",
        values: "0 to 255",
        default: "the command's, else 0",
        meaning: "exit code when the container ends by itself",
        apply: |script, value| {
            script.exit_code = exit_code(value)?;
            script.annotated.exit_code = true;
            Ok(())
        },
    },
    Annotation {
        name: "crash-after",
        kind: "Pod",
        values: "duration",
        default: "none",
        meaning: "like `run-time`, but with exit code 1 unless `exit-code` sets another",
        apply: |script, value| {
            script.run_time = Some(duration(value)?);
            script.annotated.run_time = true;
            script.crashes = true;
            Ok(())
        },
    },
    Annotation {
        name: "crash",
        kind: "Pod",
        values: "`true`, `until 2026-01-02T03:04:05Z` or `at 2026-01-02T03:04:05Z`",
        default: "none",
        meaning: "the container crashes with exit code 1: a second after each start, forever or until a time, or once at a time",
        apply: |script, value| {
            script.crash = Some(Crash::parse(value)?);
            Ok(())
        },
    },
    Annotation {
        name: "crash-limit",
        kind: "Pod",
        values: "count",
        default: "none",
        meaning: "this many runs end by themselves; later runs do not end",
        apply: |script, value| {
            script.crash_limit = Some(value.parse().map_err(|_| "is not a count")?);
            Ok(())
        },
    },
    Annotation {
        name: "start-delay",
        kind: "Pod",
        values: "duration",
        default: "100ms",
        meaning: "time from when the container may start, and its image is on the node, to running",
        apply: |script, value| {
            script.start_delay = duration(value)?;
            Ok(())
        },
    },
    Annotation {
        name: "ready-delay",
        kind: "Pod",
        values: "duration",
        default: "0, or the longest `initialDelaySeconds` of the readiness and startup probes",
        meaning: "time from running to ready",
        apply: |script, value| {
            script.ready_delay = duration(value)?;
            Ok(())
        },
    },
    Annotation {
        name: "readiness",
        kind: "Pod",
        values: "`always` or `never`",
        default: "`always`, unless the command's files fail a readiness probe",
        meaning: "whether the container ever becomes ready",
        apply: |script, value| {
            script.ready = parse_choice(value, "always", "never")?;
            script.annotated.readiness = true;
            Ok(())
        },
    },
    Annotation {
        name: "termination-time",
        kind: "Pod",
        values: "duration",
        default: "0, or the time of the command's trap",
        meaning: "time from SIGTERM to exit; the grace period limits it (exit code 137)",
        apply: |script, value| {
            script.termination_time = duration(value)?;
            script.annotated.termination_time = true;
            Ok(())
        },
    },
    Annotation {
        name: "image-pull",
        kind: "Pod",
        values: "`ok` or `fail`",
        default: "`ok`, unless the image's tag is `404`, `non-existent` or `nonexistent`",
        meaning: "whether the image can be pulled",
        apply: |script, value| {
            script.pullable = parse_choice(value, "ok", "fail")?;
            Ok(())
        },
    },
    Annotation {
        name: "image-pull-time",
        kind: "Pod",
        values: "duration",
        default: "`image-size` at `image-pull-rate`; without both, 0",
        meaning: "time to pull the container's image to a node that lacks it, before `start-delay`",
        apply: |script, value| {
            script.pull.time = Some(duration(value)?);
            Ok(())
        },
    },
    Annotation {
        name: "image-size",
        kind: "Pod",
        values: "quantity",
        default: "none",
        meaning: "size of the container's image in bytes, to pull at `image-pull-rate`",
        apply: |script, value| {
            script.pull.size = Some(quantity(value)?.milli_value());
            Ok(())
        },
    },
    Annotation {
        name: "image-pull-rate",
        kind: "Pod",
        values: "quantity above 0",
        default: "none",
        meaning: "bytes of the container's image that its node pulls in a second",
        apply: |script, value| {
            script.pull.rate = Some(positive_quantity(value)?.milli_value());
            Ok(())
        },
    },
    Annotation {
        name: CPU,
        kind: "Pod",
        values: "quantity",
        default: "half of the container's request, else 1m",
        meaning: "CPU usage of the container",
        apply: check_quantity,
    },
    Annotation {
        name: CPU_LOAD,
        kind: "Pod",
        values: "quantity",
        default: "none",
        meaning: "CPU load that all running pods of the owner share evenly; `cpu` takes precedence",
        apply: check_quantity,
    },
    Annotation {
        name: MEMORY,
        kind: "Pod",
        values: "quantity",
        default: "half of the container's request, else 8Mi",
        meaning: "memory usage of the container",
        apply: check_quantity,
    },
    Annotation {
        name: "silent",
        kind: "Node",
        values: FAULT_VALUES,
        default: "`false`",
        meaning: "partitions the node from the API server: its kubelet writes nothing, while the pods run on",
        apply: refuse_on_pods,
    },
    Annotation {
        name: "not-ready",
        kind: "Node",
        values: FAULT_VALUES,
        default: "`false`",
        meaning: "the kubelet reports `Ready=False`, as with a container runtime that is down, and syncs no pods",
        apply: refuse_on_pods,
    },
    Annotation {
        name: "memory-pressure",
        kind: "Node",
        values: FAULT_VALUES,
        default: "`false`",
        meaning: "the kubelet reports `MemoryPressure=True`",
        apply: refuse_on_pods,
    },
    Annotation {
        name: "disk-pressure",
        kind: "Node",
        values: FAULT_VALUES,
        default: "`false`",
        meaning: "the kubelet reports `DiskPressure=True`",
        apply: refuse_on_pods,
    },
    Annotation {
        name: "pid-pressure",
        kind: "Node",
        values: FAULT_VALUES,
        default: "`false`",
        meaning: "the kubelet reports `PIDPressure=True`",
        apply: refuse_on_pods,
    },
];

/// Refuses an annotation of nodes on a pod.
fn refuse_on_pods(_: &mut Script, _: &str) -> Result<(), &'static str> {
    Err("has no effect on a pod: the annotation belongs to nodes")
}

/// Accepts a value that is not part of a run's script: `annotated_usage` reads it from the annotations.
fn check_quantity(_: &mut Script, value: &str) -> Result<(), &'static str> {
    quantity(value).map(|_| ())
}

/// Iterates over the annotations of pods.
pub(crate) fn of_pods() -> impl Iterator<Item = &'static Annotation> {
    const { &ANNOTATIONS }.iter().filter(|annotation| annotation.kind == "Pod")
}

/// Returns the annotation of pods with this name.
pub(crate) fn of_pod(name: &str) -> Option<&'static Annotation> {
    of_pods().find(|annotation| annotation.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Delays, behaviour::defaults};

    #[test]
    fn names_that_are_read_elsewhere_are_in_the_table() {
        for name in [CPU, CPU_LOAD, MEMORY] {
            assert!(of_pod(name).is_some(), "{name}");
        }
        assert!(of_pod(CRASH.trim_start_matches(PREFIX)).is_some());
        let of_nodes = ANNOTATIONS.iter().filter(|annotation| annotation.kind == "Node");
        let names: Vec<String> =
            of_nodes.map(|annotation| format!("{PREFIX}{}", annotation.name)).collect();
        assert_eq!(
            names,
            [SILENT, NOT_READY, MEMORY_PRESSURE, DISK_PRESSURE, PID_PRESSURE].map(str::to_owned)
        );
    }

    /// Returns the value at the start of a description: `0` of `0, or …`.
    fn first_value(text: &str) -> &str {
        text.split([',', ' ']).next().unwrap_or_default().trim_matches('`')
    }

    #[test]
    fn documented_defaults_are_those_of_the_delays() {
        for name in ["start-delay", "ready-delay", "readiness", "termination-time", "image-pull"] {
            let annotation = of_pod(name).unwrap();
            let mut script = defaults(&Delays::default(), None);
            (annotation.apply)(&mut script, first_value(annotation.default)).unwrap();
            script.annotated = crate::behaviour::AnnotatedValues::default();
            assert_eq!(script, defaults(&Delays::default(), None), "{name}");
        }
    }

    #[test]
    fn documented_values_are_accepted_and_others_refused() {
        for annotation in of_pods() {
            let quoted: Vec<&str> = annotation.values.split('`').skip(1).step_by(2).collect();
            let sample = match annotation.values.split([' ', ',']).next() {
                Some("duration") => "1m30s",
                Some("quantity") => "250m",
                _ => "3",
            };
            let samples = if annotation.values.starts_with('`') { None } else { Some(sample) };
            for value in quoted.into_iter().chain(samples) {
                let mut script = defaults(&Delays::default(), None);
                assert_eq!((annotation.apply)(&mut script, value), Ok(()), "{}", annotation.name);
            }
            let mut script = defaults(&Delays::default(), None);
            assert!((annotation.apply)(&mut script, "perhaps").is_err(), "{}", annotation.name);
        }
    }
}
