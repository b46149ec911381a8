//! Simulated behavior of a pod's containers: `sim.evenkeel.dev/` annotations override the node's defaults.

use evenkeel_api::{StrMap, quantity::Quantity, views::Pod};
use std::time::Duration;

use crate::{
    Delays,
    annotations::{self, PREFIX},
    behaviors::happens,
    faults::Crash,
};

/// Maximum duration: 100 years.
const MAX_DURATION: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Exit code of a container that crashes, unless an annotation or a Behavior sets another one.
pub(crate) const CRASH_EXIT_CODE: i32 = 1;

/// Simulated run of one container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Script {
    /// Time after which the container exits by itself; never if `None`.
    pub(crate) run_time: Option<Duration>,
    /// Exit code when `run_time` is over. With `failure`, only failing runs have this code.
    pub(crate) exit_code: i32,
    /// Whether the end after `run_time` is a crash.
    pub(crate) crashes: bool,
    /// Number of runs that end by themselves; later runs do not end. `None` for no limit.
    pub(crate) crash_limit: Option<u32>,
    /// Time from the moment that the container may start until it runs: image pull and creation.
    pub(crate) start_delay: Duration,
    /// Time from running to ready.
    pub(crate) ready_delay: Duration,
    /// Whether the container ever becomes ready.
    pub(crate) ready: bool,
    /// Time from SIGTERM to the container's exit.
    pub(crate) termination_time: Duration,
    /// Whether its image can be pulled.
    pub(crate) pullable: bool,
    /// Duration of the pull to a node that lacks the image.
    pub(crate) pull: Pull,
    /// Times at which the container crashes. They take precedence over all other exits. `None` if it never crashes.
    pub(crate) crash: Option<Crash>,
    /// Runs that fail; `None` if no run fails.
    pub(crate) failure: Option<Failure>,
    /// Flags of the values that annotations set. Such values take precedence over the container's command.
    pub(crate) annotated: AnnotatedValues,
}

/// Pull of a container's image.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Pull {
    /// Fixed time of the pull, which does not depend on the size of the image.
    pub(crate) time: Option<Duration>,
    /// Thousandths of bytes of the image.
    pub(crate) size: Option<i64>,
    /// Thousandths of bytes in a second.
    pub(crate) rate: Option<i64>,
}

impl Pull {
    /// Returns the duration of the pull, at most 100 years.
    pub(crate) fn duration(&self) -> Duration {
        let of_size = || {
            let (size, rate) = self.size.zip(self.rate.filter(|rate| *rate > 0))?;
            // The rounding error is far below a millisecond.
            Duration::try_from_secs_f64(size as f64 / rate as f64).ok()
        };
        self.time.or_else(of_size).unwrap_or_default().min(MAX_DURATION)
    }
}

/// Random failures of a container's runs, drawn by the number of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Rate of runs that fail, in millionths.
    pub(crate) rate: u32,
    /// Hash that determines the draws.
    pub(crate) hash: u64,
}

/// Flags for the values of a [`Script`] that come from annotations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct AnnotatedValues {
    pub(crate) run_time: bool,
    pub(crate) exit_code: bool,
    pub(crate) termination_time: bool,
    pub(crate) readiness: bool,
}

impl Script {
    /// Returns whether the run after `restarts` restarts fails.
    pub(crate) fn fails(&self, restarts: u32) -> bool {
        self.failure.is_some_and(|failure| happens(failure.hash, restarts, failure.rate))
    }

    /// Returns the configured exit code of a run that ends by itself. It takes precedence over the exit code of the
    /// container's command. `None` if none is configured.
    pub(crate) fn own_exit_code(&self) -> Option<i32> {
        if self.annotated.exit_code {
            return Some(self.exit_code);
        }
        self.crashes.then_some(CRASH_EXIT_CODE)
    }

    /// Returns whether the run after `restarts` restarts may end by itself.
    pub(crate) fn may_end(&self, restarts: u32) -> bool {
        self.crash_limit.is_none_or(|limit| restarts < limit)
    }
}

/// Returns the default run of a container, without annotations.
pub(crate) fn defaults(delays: &Delays, run_time: Option<Duration>) -> Script {
    Script {
        run_time,
        exit_code: 0,
        crashes: false,
        crash_limit: None,
        start_delay: delays.start,
        ready_delay: delays.ready,
        ready: true,
        termination_time: delays.termination,
        pullable: true,
        pull: Pull::default(),
        crash: None,
        failure: None,
        annotated: AnnotatedValues::default(),
    }
}

/// Image tags that cannot be pulled, so that users can make a rollout fail by its image.
const UNPULLABLE_TAGS: [&str; 3] = ["404", "non-existent", "nonexistent"];

/// Returns whether the image can be pulled: its tag is not one of `UNPULLABLE_TAGS`.
pub(crate) fn is_pullable(image: &str) -> bool {
    let name = image.rsplit('/').next().unwrap_or_default();
    name.split_once(':').is_none_or(|(_, tag)| !UNPULLABLE_TAGS.contains(&tag))
}

/// Returns the image of a pod's container with this name.
pub(crate) fn image_of<'p>(pod: &'p Pod, container: &str) -> Option<&'p str> {
    let containers = pod.spec.init_containers.iter().chain(&*pod.spec.containers);
    let ephemerals = pod.spec.ephemeral_containers.iter().map(|ephemeral| &ephemeral.common);
    let images = containers.map(|container| (&container.name, &container.image));
    let mut images = images.chain(ephemerals.map(|common| (&common.name, &common.image)));
    images.find(|(name, _)| ***name == *container).map(|(_, image)| &**image)
}

/// Overrides `script` with the annotations for the container `name`. Invalid values change nothing; see
/// [`annotation_errors`].
pub(crate) fn read(annotations: &StrMap, name: &str, mut script: Script) -> Script {
    for (key, value) in simulation_annotations(annotations) {
        if let Some(value) = value_for(value, name) {
            let _reported_by_annotation_errors = apply(&mut script, key, value);
        }
    }
    script
}

/// Returns one sentence per error in the annotations, for events on the pod.
pub(crate) fn annotation_errors(annotations: &StrMap, containers: &[&str]) -> Vec<String> {
    let mut errors = Vec::new();
    for (key, value) in simulation_annotations(annotations) {
        if annotations::of_pod(key).is_none() {
            let known: Vec<&str> = annotations::of_pods().map(|known| known.name).collect();
            errors.push(format!(
                "annotation {PREFIX}{key} is unknown; known are {}",
                known.join(", ")
            ));
            continue;
        }
        for (name, value) in container_values(value) {
            if let Some(name) = name.filter(|name| !containers.contains(name)) {
                errors.push(format!(
                    "annotation {PREFIX}{key} names container {name:?}, which the pod does not have"
                ));
            }
            let mut unused_script = defaults(&Delays::default(), None);
            if let Err(reason) = apply(&mut unused_script, key, value) {
                errors.push(format!("annotation {PREFIX}{key} is ignored: {value:?} {reason}"));
            }
        }
    }
    errors
}

/// Iterates over the simulation annotations: each name without the prefix, and its value.
fn simulation_annotations(annotations: &StrMap) -> impl Iterator<Item = (&str, &str)> {
    annotations.iter().filter_map(|(key, value)| Some((key.strip_prefix(PREFIX)?, value)))
}

/// Splits `5s`, `web=5s,log=1s` or `5s,log=1s` into values; a value without a container name applies to all
/// containers.
fn container_values(value: &str) -> impl Iterator<Item = (Option<&str>, &str)> {
    value.split(',').map(|entry| match entry.split_once('=') {
        Some((name, value)) => (Some(name.trim()), value.trim()),
        None => (None, entry.trim()),
    })
}

/// Returns the value for a container: the one that names it, else the one for all containers.
fn value_for<'v>(value: &'v str, name: &str) -> Option<&'v str> {
    let of_container = container_values(value).find(|(container, _)| *container == Some(name));
    of_container
        .or_else(|| container_values(value).find(|(container, _)| container.is_none()))
        .map(|(_, value)| value)
}

/// Sets the value of one annotation. The error is the end of a sentence about the value.
fn apply(script: &mut Script, key: &str, value: &str) -> Result<(), &'static str> {
    let annotation = annotations::of_pod(key).ok_or("belongs to an unknown annotation")?;
    (annotation.apply)(script, value)
}

/// Returns the usage that an annotation sets for the container `name`; `None` if it is absent or invalid.
pub(crate) fn annotated_usage(annotations: &StrMap, key: &str, name: &str) -> Option<Quantity> {
    let (_, value) =
        simulation_annotations(annotations).find(|(annotation, _)| *annotation == key)?;
    quantity(value_for(value, name)?).ok()
}

/// Parses an amount that is not negative.
pub(crate) fn quantity(value: &str) -> Result<Quantity, &'static str> {
    let amount = Quantity::parse(value).ok().filter(|amount| amount.sign() >= 0);
    amount.ok_or("is not an amount such as 250m, 2 or 64Mi")
}

/// Parses an amount above 0.
pub(crate) fn positive_quantity(value: &str) -> Result<Quantity, &'static str> {
    let amount = Quantity::parse(value).ok().filter(|amount| amount.milli_value() > 0);
    amount.ok_or("is not an amount above 0 such as 250m, 2 or 64Mi")
}

/// Parses an exit code from 0 to 255.
pub(crate) fn exit_code(value: &str) -> Result<i32, &'static str> {
    value.parse::<u8>().map(i32::from).map_err(|_| "is not an exit code (0 to 255)")
}

/// Returns true for the value `yes`, and false for the value `no`.
pub(crate) fn parse_choice(value: &str, yes: &str, no: &str) -> Result<bool, &'static str> {
    if value == yes {
        Ok(true)
    } else if value == no {
        Ok(false)
    } else {
        Err(match yes {
            "always" => "is neither \"always\" nor \"never\"",
            _ => "is neither \"ok\" nor \"fail\"",
        })
    }
}

/// Parses a Go duration of at most 100 years, such as `300ms`, `1.5s`, `1m30s`, `2h` or `0`.
pub(crate) fn duration(text: &str) -> Result<Duration, &'static str> {
    const INVALID: &str = "is not a duration such as 300ms, 5s, 1m30s or 2h";
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let (mut rest, mut seconds) = (text, 0.0_f64);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or(INVALID)?;
        let (number, tail) = rest.split_at(digits);
        let unit_length = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_length);
        let scale = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => return Err(INVALID),
        };
        seconds += number.parse::<f64>().map_err(|_| INVALID)? * scale;
        rest = tail;
    }
    if text.is_empty() || seconds > MAX_DURATION.as_secs_f64() {
        return Err(INVALID);
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| INVALID)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the run of the container `name` with these annotations; their names have no prefix.
    fn script(annotations: &[(&str, &str)], name: &str) -> Script {
        let annotations: StrMap =
            annotations.iter().map(|(k, v)| (format!("{PREFIX}{k}"), *v)).collect();
        read(&annotations, name, defaults(&Delays::default(), None))
    }

    #[test]
    fn durations_are_parsed_as_in_go() {
        for (text, want) in [
            ("0", Some(Duration::ZERO)),
            ("300ms", Some(Duration::from_millis(300))),
            ("1.5s", Some(Duration::from_millis(1500))),
            ("1m30s", Some(Duration::from_secs(90))),
            ("2h", Some(Duration::from_secs(7200))),
            ("5", None),
            ("", None),
            ("-1s", None),
            ("1x", None),
            ("s", None),
            ("1..2s", None),
            ("99999999999999999999h", None),
        ] {
            assert_eq!(duration(text).ok(), want, "{text:?}");
        }
    }

    #[test]
    fn pulls_take_their_time_or_that_of_the_size() {
        for (annotations, want) in [
            (&[][..], 0),
            (&[("image-size", "1Gi")], 0),
            (&[("image-size", "1Gi"), ("image-pull-rate", "64Mi")], 16_000),
            (&[("image-size", "1Gi"), ("image-pull-rate", "0")], 0),
            (&[("image-size", "3"), ("image-pull-rate", "2")], 1500),
            (&[("image-size", "1Gi"), ("image-pull-rate", "1"), ("image-pull-time", "5s")], 5000),
        ] {
            let pull = script(annotations, "web").pull.duration();
            assert_eq!(pull, Duration::from_millis(want), "{annotations:?}");
        }
        let endless = [("image-size", "8E"), ("image-pull-rate", "1m")];
        assert_eq!(script(&endless, "web").pull.duration(), MAX_DURATION);
    }

    #[test]
    fn a_value_applies_to_all_containers_or_to_one() {
        let annotations = [("run-time", "5s,log=1m"), ("exit-code", "log=3")];
        assert_eq!(script(&annotations, "web").run_time, Some(Duration::from_secs(5)));
        assert_eq!(script(&annotations, "web").exit_code, 0);
        assert_eq!(script(&annotations, "log").run_time, Some(Duration::from_secs(60)));
        assert_eq!(script(&annotations, "log").exit_code, 3);
    }

    #[test]
    fn runs_crash_until_the_crash_limit() {
        let crash = script(&[("crash-after", "2s"), ("crash-limit", "3")], "web");
        assert_eq!(crash.own_exit_code(), Some(1));
        assert_eq!(crash.run_time, Some(Duration::from_secs(2)));
        assert!(crash.may_end(2) && !crash.may_end(3));
        let with_code = script(&[("crash-after", "2s"), ("exit-code", "7")], "web");
        assert_eq!(with_code.own_exit_code(), Some(7));
    }

    #[test]
    fn a_run_time_of_higher_precedence_replaces_a_crash() {
        let mut behavior = defaults(&Delays::default(), None);
        apply(&mut behavior, "crash-after", "2s").unwrap();
        let annotations: StrMap = [(format!("{PREFIX}run-time"), "5s")].into_iter().collect();
        let run = read(&annotations, "web", behavior.clone());
        assert_eq!((run.run_time, run.own_exit_code()), (Some(Duration::from_secs(5)), None));
        let annotations: StrMap = [(format!("{PREFIX}exit-code"), "0")].into_iter().collect();
        assert_eq!(read(&annotations, "web", behavior).own_exit_code(), Some(0));
    }

    #[test]
    fn invalid_values_are_reported_and_ignored() {
        let invalid = [
            ("run-time", "soon"),
            ("readiness", "perhaps"),
            ("exit-code", "300"),
            ("colour", "red"),
        ];
        assert_eq!(script(&invalid, "web"), defaults(&Delays::default(), None));
        let annotations: StrMap =
            invalid.iter().map(|(k, v)| (format!("{PREFIX}{k}"), *v)).collect();
        let errors = annotation_errors(&annotations, &["web"]);
        assert_eq!(errors.len(), 4, "{errors:?}");
        assert!(
            errors.iter().any(|text| text.contains("run-time") && text.contains("soon")),
            "{errors:?}"
        );
        let annotations: StrMap = [(format!("{PREFIX}run-time"), "other=1s")].into_iter().collect();
        assert!(annotation_errors(&annotations, &["web"])[0].contains("\"other\""));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_text_is_parsed_or_rejected(key in "[a-z-]{0,12}", value in ".{0,20}") {
            let annotations: StrMap = [(format!("{PREFIX}{key}"), value)].into_iter().collect();
            read(&annotations, "web", defaults(&Delays::default(), None));
            annotation_errors(&annotations, &["web"]);
        }
    }
}
