//! `evenkeel time`: reads and changes the time of a cluster of `evenkeel up --speed`, which can run fast and jump.

mod steps;
mod thread;
mod wire;

use crate::{
    clusters::Connection,
    command::{block_on, print},
    durations,
};
use anyhow::{Context as _, Result, bail};
use evenkeel_api::time::{Timestamp, seconds};
use evenkeel_runtime::clock::Clock;
use http::Method;
use serde::{Deserialize, Serialize};
use std::{process::ExitCode, time::Duration};
use steps::{MAX_AHEAD, parse_speed};
pub(crate) use thread::{ClusterTime, TimeThread};

/// Path of the control socket at which the time is read and changed.
pub(crate) const PATH: &str = "/time";

/// Interval at which the time is read until a jump has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum number of reads without progress of a jump: half a minute.
const MAX_IDLE_POLLS: usize = 300;

/// Arguments of `evenkeel time`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct TimeArgs {
    /// Let the time jump ahead by this duration, such as +6h. All that is due in between happens, in order.
    #[arg(value_name = "+DURATION", value_parser = parse_jump)]
    jump: Option<Duration>,

    /// Let the time pass this many times as fast as the system's, such as 60x. 0 stops it.
    #[arg(long, value_name = "FACTOR", value_parser = parse_speed)]
    speed: Option<f64>,

    /// Name of the cluster. Default: the only one, or that of the kubeconfig's current context, or `default`.
    #[arg(long)]
    name: Option<String>,

    /// Output: text, or json.
    #[arg(short, long, default_value = "text", value_parser = ["text", "json"])]
    output: String,
}

/// Parses the factor of `up --speed`, which may not stop the time.
///
/// # Errors
/// Fails if the factor is not a number above 0 and up to 1000.
pub(crate) fn parse_start_speed(text: &str) -> Result<f64, String> {
    let speed = parse_speed(text)?;
    if speed > 0.0 {
        return Ok(speed);
    }
    Err("the cluster would never be ready; stop its time with: evenkeel time --speed=0".to_owned())
}

fn parse_jump(text: &str) -> Result<Duration, String> {
    let Some(duration) = text.strip_prefix('+') else {
        return Err("time only jumps ahead: write + and a duration, such as +6h".to_owned());
    };
    durations::parse(duration)
}

/// Time of a cluster, as its process reports it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TimeReport {
    /// Time (RFC 3339).
    pub(crate) now: String,
    /// Factor of the system's time.
    pub(crate) speed: f64,
    /// Remaining seconds of a jump.
    pub(crate) jump_seconds: f64,
    /// Whether the time is the cluster's own, and can be changed.
    pub(crate) is_adjustable: bool,
}

impl TimeReport {
    /// Returns the report of a cluster's own time, or of the system's.
    pub(crate) fn of(time: Option<&ClusterTime>, system: &Clock) -> Self {
        match time {
            None => Self {
                now: system.now().to_string(),
                speed: 1.0,
                jump_seconds: 0.0,
                is_adjustable: false,
            },
            Some(time) => Self {
                now: time.now().to_string(),
                speed: time.settings().speed,
                jump_seconds: time.remaining_jump().as_secs_f64(),
                is_adjustable: true,
            },
        }
    }

    /// Returns the time.
    pub(crate) fn timestamp(&self) -> Result<Timestamp> {
        self.now.parse().with_context(|| format!("the process reports the time {:?}", self.now))
    }

    fn text(&self) -> String {
        let suffix = if self.is_adjustable { "" } else { ", the system's time" };
        let now = self.now.parse().map_or_else(|_| self.now.clone(), seconds);
        format!("{now}, {}x{suffix}\n", self.speed)
    }
}

/// Changes a cluster's time according to the query of a request: `speed=60&jump=21600`, with the jump in seconds.
///
/// # Errors
/// Fails if the query is invalid, or the time would be too far ahead.
pub(crate) fn change(time: &ClusterTime, query: &str) -> Result<()> {
    let change = parse_change(query, time.ahead())?;
    if let Some(speed) = change.speed {
        time.set_speed(speed);
    }
    if let Some(jump) = change.jump {
        time.jump(jump);
    }
    Ok(())
}

/// A change of a cluster's time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Change {
    speed: Option<f64>,
    jump: Option<Duration>,
}

/// Reads a query. `ahead` is the time by which the cluster is ahead of the system.
fn parse_change(query: &str, ahead: Duration) -> Result<Change> {
    let mut change = Change::default();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("speed", value)) => {
                change.speed = Some(parse_speed(value).map_err(anyhow::Error::msg)?);
            }
            Some(("jump", value)) => {
                let seconds = value.parse().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
                change.jump = Some(seconds.context("jump: write a number of seconds")?);
            }
            _ => bail!("{pair}: write speed=FACTOR or jump=SECONDS"),
        }
    }
    if change.jump.is_some_and(|jump| ahead.saturating_add(jump) > MAX_AHEAD) {
        let days = |duration: Duration| duration.as_secs() / 86400;
        bail!(
            "a cluster's time can be {} days ahead, because of its certificates, and is {} days ahead now",
            days(MAX_AHEAD),
            days(ahead)
        );
    }
    Ok(change)
}

/// Runs `evenkeel time`.
pub(crate) fn main(args: &TimeArgs) -> ExitCode {
    block_on(async {
        let cluster = Connection::find(args.name.as_deref())?;
        let mut target = PATH.to_owned();
        if let Some(speed) = args.speed {
            target.push_str(&format!("?speed={speed}"));
        }
        if let Some(jump) = args.jump {
            let separator = if args.speed.is_some() { '&' } else { '?' };
            target.push_str(&format!("{separator}jump={}", jump.as_secs_f64()));
        }
        let report = if target == PATH {
            cluster.time().await?
        } else {
            if !cluster.time().await?.is_adjustable {
                bail!(
                    "cluster {} has the system's time; start one with a time of its own: evenkeel up --speed=1x",
                    cluster.name()
                );
            }
            cluster.ask(Method::POST, &target).await?;
            until_jumped(&cluster).await?
        };
        print(&match &*args.output {
            "json" => format!("{}\n", serde_json::to_string(&report)?),
            _ => report.text(),
        });
        Ok(ExitCode::SUCCESS)
    })
}

/// Waits until the time's jump has ended. Returns the time.
async fn until_jumped(cluster: &Connection) -> Result<TimeReport> {
    let (clock, mut idle_polls, mut last) = (Clock::system(), 0, f64::INFINITY);
    loop {
        let report = cluster.time().await?;
        if report.jump_seconds <= 0.0 {
            return Ok(report);
        }
        idle_polls = if report.jump_seconds < last { 0 } else { idle_polls + 1 };
        if idle_polls > MAX_IDLE_POLLS {
            bail!("the time stands at {}; see: evenkeel logs {}", report.now, cluster.name());
        }
        last = report.jump_seconds;
        clock.sleep(POLL_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_read_and_limited() {
        let (speed, jump) = (Some(60.0), Some(Duration::from_secs(21600)));
        for (query, want) in [
            ("", Ok(Change::default())),
            ("speed=60", Ok(Change { speed, jump: None })),
            ("speed=60&jump=21600", Ok(Change { speed, jump })),
            ("speed=-1", Err("a speed is a factor")),
            ("jump=-1", Err("jump: write a number of seconds")),
            ("jump=1e300", Err("jump: write a number of seconds")),
            ("back=1", Err("write speed=FACTOR or jump=SECONDS")),
            ("jump=15552000", Err("180 days ahead, because of its certificates, and is 1 days")),
        ] {
            let found = parse_change(query, Duration::from_secs(90_000));
            match (found, want) {
                (Ok(found), Ok(want)) => assert_eq!(found, want, "{query}"),
                (Err(error), Err(want)) => assert!(error.to_string().contains(want), "{error}"),
                (found, want) => panic!("{query}: {found:?}, not {want:?}"),
            }
        }
    }

    #[test]
    fn jumps_go_ahead_and_a_start_is_not_stopped() {
        assert_eq!(parse_jump("+6h"), Ok(Duration::from_hours(6)));
        assert!(parse_jump("6h").expect_err("no sign").contains("only jumps ahead"));
        assert!(parse_jump("-6h").is_err() && parse_jump("+soon").is_err());
        assert_eq!(parse_start_speed("60x"), Ok(60.0));
        assert!(parse_start_speed("0").expect_err("stopped").contains("never be ready"));
    }
}
