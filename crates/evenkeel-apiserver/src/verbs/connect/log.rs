//! Logs of containers: `GET pods/NAME/log`.

use bytes::Bytes;
use evenkeel_api::time::{Timestamp, saturating_sub};
use evenkeel_apimachinery::status::{FieldError, StatusError, quote};
use evenkeel_apimachinery::value::{get, list, text};
use futures::{Stream, StreamExt as _, stream};
use serde_json::Value;
use std::time::Duration;

use super::location;
use crate::api::{Answer, Call};
use crate::kubelet::{LogLine, PodRef};
use crate::request::Query;
use crate::resource::GroupKind;
use crate::response::Body;

/// Requested part of a log.
///
/// Upstream: `PodLogOptions`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct LogOptions {
    /// Whether to send new lines until the client disconnects or the container stops.
    follow: bool,
    /// Whether to return the log of the container's previous process.
    previous: bool,
    /// Whether each line begins with its time.
    timestamps: bool,
    since_seconds: Option<i64>,
    since_time: Option<Timestamp>,
    tail_lines: Option<i64>,
    limit_bytes: Option<i64>,
}

impl LogOptions {
    fn parse(query: &Query) -> Result<Self, StatusError> {
        let time = query.get("sinceTime");
        let since_time = match time {
            "" | "null" => None,
            text => Some(text.parse().map_err(|_| {
                StatusError::bad_request(format!("parsing time {} as RFC 3339 failed", quote(text)))
            })?),
        };
        Ok(Self {
            follow: query.flag("follow"),
            previous: query.flag("previous"),
            timestamps: query.flag("timestamps"),
            since_seconds: query.number("sinceSeconds")?,
            since_time,
            tail_lines: query.number("tailLines")?,
            limit_bytes: query.number("limitBytes")?,
        })
    }

    /// Returns the errors of the options. `has_stream` is whether the query has the parameter `stream`.
    ///
    /// Upstream: `ValidatePodLogOptions`.
    fn validate(&self, has_stream: bool) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if let Some(lines) = self.tail_lines.filter(|lines| *lines < 0) {
            let rule = "must be greater than or equal to 0";
            errors.push(FieldError::invalid("tailLines", lines, rule));
        }
        if let Some(bytes) = self.limit_bytes.filter(|bytes| *bytes < 1) {
            errors.push(FieldError::invalid("limitBytes", bytes, "must be greater than 0"));
        }
        match self.since_seconds {
            Some(_) if self.since_time.is_some() => {
                let rule = "at most one of `sinceTime` or `sinceSeconds` may be specified";
                errors.push(FieldError::forbidden("[]", rule));
            }
            Some(seconds) if seconds < 1 => {
                errors.push(FieldError::invalid("sinceSeconds", seconds, "must be greater than 0"));
            }
            _ => {}
        }
        if has_stream {
            errors.push(FieldError::forbidden("stream", "may not be specified"));
        }
        errors
    }

    /// Returns the time of the first requested line (`sinceTime` or `sinceSeconds`).
    fn since(&self, now: Timestamp) -> Option<Timestamp> {
        match self.since_seconds {
            Some(seconds) => {
                let age = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
                Some(saturating_sub(now, age))
            }
            None => self.since_time,
        }
    }
}

/// Serves a pod's log.
///
/// Upstream: `LogREST.Get`, `LogLocation`.
pub(super) async fn serve(call: &Call<'_>) -> Result<Answer, StatusError> {
    let cx = &call.cx;
    let query = Query(call.query.to_vec());
    let options = LogOptions::parse(&query)?;
    let errors = options.validate(query.has("stream"));
    if !errors.is_empty() {
        let kind = GroupKind { group: "".into(), kind: "PodLogOptions".into() };
        return Err(StatusError::invalid(&kind, cx.name, &errors));
    }
    let Some(pod) = cx.api.read(cx.resource, cx.namespace, cx.name)? else {
        return Err(StatusError::not_found(&cx.resource.name, cx.name));
    };
    let container = location::choose_container(&pod, query.get("container"))?;
    let node = text(&pod, "spec.nodeName");
    if node.is_empty() {
        return Ok(Answer::Nothing);
    }
    location::ensure_node_exists(cx.api, node)?;
    check_log_exists(&pod, &container, options.previous).map_err(StatusError::bad_request)?;
    let Some(kubelet) = cx.api.kubelets.get() else {
        return Ok(Answer::Raw { content_type: "text/plain", body: Body::empty() });
    };
    let pod = PodRef { namespace: cx.namespace, name: cx.name };
    let kubelets = &cx.api.kubelets;
    let printed = kubelets.container_log(&kubelet, pod, &container, options.previous).await;
    let n_printed = printed.len();
    let printed = stream::iter(last_lines(printed, options.tail_lines));
    let lines = if options.follow {
        let later = kubelet.follow_log(pod, &container, options.previous, n_printed);
        printed.chain(later).boxed()
    } else {
        printed.boxed()
    };
    let since = options.since(cx.now);
    let body = Body::stream(encode(lines, &options, since));
    Ok(Answer::Raw { content_type: "text/plain", body })
}

/// Returns an error with the kubelet's message unless the container has a process whose log may exist: a running or
/// terminated process, or the previous one if `previous` is true.
///
/// Upstream: `validateContainerLogStatus`.
fn check_log_exists(pod: &Value, container: &str, previous: bool) -> Result<(), String> {
    let name = text(pod, "metadata.name");
    let (quoted_container, quoted_pod) = (quote(container), quote(name));
    let statuses = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];
    let status = statuses
        .iter()
        .flat_map(|statuses| list(pod, &format!("status.{statuses}")))
        .find(|status| text(status, "name") == container)
        .ok_or_else(|| {
            format!("container {quoted_container} in pod {quoted_pod} is not available")
        })?;
    let last = get(status, "lastState.terminated");
    let has_id = |terminated: &Value| !text(terminated, "containerID").is_empty();
    let is_terminated =
        || Err(format!("container {quoted_container} in pod {quoted_pod} is terminated"));
    if previous {
        return if last.is_some_and(has_id) {
            Ok(())
        } else {
            Err(format!(
                "previous terminated container {quoted_container} in pod {quoted_pod} not found"
            ))
        };
    }
    if get(status, "state.running").is_some() {
        return Ok(());
    }
    if let Some(terminated) = get(status, "state.terminated") {
        return if has_id(terminated) || last.is_some_and(has_id) {
            Ok(())
        } else {
            is_terminated()
        };
    }
    if let Some(last) = last {
        return if has_id(last) { Ok(()) } else { is_terminated() };
    }
    let why = match get(status, "state.waiting").map(|waiting| text(waiting, "reason")) {
        Some("ErrImagePull") => ": image can't be pulled",
        Some("ImagePullBackOff") => ": trying and failing to pull image",
        Some(reason) => {
            return Err(format!(
                "container {quoted_container} in pod {quoted_pod} is waiting to start: {reason}"
            ));
        }
        None => " - no logs yet",
    };
    Err(format!("container {quoted_container} in pod {quoted_pod} is waiting to start{why}"))
}

/// Returns the last `count` lines, or all lines without a count.
fn last_lines(mut lines: Vec<LogLine>, count: Option<i64>) -> Vec<LogLine> {
    let count = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX);
    lines.split_off(lines.len().saturating_sub(count))
}

/// Encodes the lines from the time `since` on, up to the limit of bytes.
///
/// Upstream: `ReadLogs`.
fn encode<S: Stream<Item = LogLine> + Send>(
    lines: S,
    options: &LogOptions,
    since: Option<Timestamp>,
) -> impl Stream<Item = Bytes> + Send + use<S> {
    let timestamps = options.timestamps;
    let limit = options.limit_bytes.and_then(|bytes| usize::try_from(bytes).ok());
    let requested = lines.filter(move |line| {
        let is_requested = since.is_none_or(|since| line.time >= since);
        async move { is_requested }
    });
    requested.scan(limit.unwrap_or(usize::MAX), move |remaining, line| {
        let mut bytes = if timestamps {
            format!("{:.9} {}", line.time, line.text).into_bytes()
        } else {
            line.text.into_bytes()
        };
        bytes.truncate(*remaining);
        *remaining -= bytes.len();
        // The stream ends when no bytes remain.
        let piece = (!bytes.is_empty()).then(|| Bytes::from(bytes));
        async move { piece }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    async fn shown(query: &str) -> String {
        let options = LogOptions::parse(&Query::parse(Some(query))).expect("options");
        let line = |second, text: &str| LogLine { time: at(second), text: text.to_owned() };
        let lines = vec![line(10, "a\n"), line(20, "bb\n"), line(30, "c")];
        let lines = stream::iter(last_lines(lines, options.tail_lines));
        let bytes: Vec<Bytes> = encode(lines, &options, options.since(at(35))).collect().await;
        String::from_utf8(bytes.concat()).expect("text")
    }

    #[tokio::test]
    async fn a_part_of_a_log_is_what_the_options_leave() {
        for (query, expected) in [
            ("", "a\nbb\nc"),
            ("tailLines=2", "bb\nc"),
            ("tailLines=0", ""),
            ("tailLines=9", "a\nbb\nc"),
            ("sinceSeconds=15", "bb\nc"),
            ("sinceSeconds=14", "c"),
            ("sinceTime=1970-01-01T00:00:30Z", "c"),
            ("sinceSeconds=15&tailLines=3", "bb\nc"),
            ("limitBytes=4", "a\nbb"),
            ("limitBytes=5", "a\nbb\n"),
            ("tailLines=1&timestamps=true", "1970-01-01T00:00:30.000000000Z c"),
            ("timestamps=false&tailLines=1", "c"),
        ] {
            assert_eq!(shown(query).await, expected, "{query}");
        }
    }

    #[test]
    fn options_are_refused_in_upstreams_words() {
        for (query, expected) in [
            ("tailLines=-1", "tailLines: Invalid value: -1: must be greater than or equal to 0"),
            ("limitBytes=0", "limitBytes: Invalid value: 0: must be greater than 0"),
            ("sinceSeconds=0", "sinceSeconds: Invalid value: 0: must be greater than 0"),
            (
                "sinceSeconds=1&sinceTime=1970-01-01T00:00:00Z",
                "[]: Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified",
            ),
            ("stream=Stdout", "stream: Forbidden: may not be specified"),
        ] {
            let query = Query::parse(Some(query));
            let errors = LogOptions::parse(&query).expect("options").validate(query.has("stream"));
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            assert_eq!(errors, [expected], "{query:?}");
        }
        for query in ["tailLines=a", "sinceTime=yesterday"] {
            assert!(LogOptions::parse(&Query::parse(Some(query))).is_err(), "{query}");
        }
    }

    #[test]
    fn a_container_without_a_process_has_no_log() {
        let ended = json!({"containerID": "c://1"});
        for (status, newest, previous) in [
            (
                json!({"state": {"running": {}}}),
                None,
                Some("previous terminated container \"a\" in pod \"p\" not found"),
            ),
            (json!({"state": {"running": {}}, "lastState": {"terminated": ended}}), None, None),
            (
                json!({"state": {"terminated": ended}}),
                None,
                Some("previous terminated container \"a\" in pod \"p\" not found"),
            ),
            (
                json!({"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": ended}}),
                None,
                None,
            ),
        ] {
            let mut status = status;
            status["name"] = "a".into();
            let pod = json!({"metadata": {"name": "p"}, "status": {"containerStatuses": [status]}});
            assert_eq!(check_log_exists(&pod, "a", false).err().as_deref(), newest, "{status}");
            assert_eq!(check_log_exists(&pod, "a", true).err().as_deref(), previous, "{status}");
        }
        for (status, expected) in [
            (json!({"name": "b"}), "container \"a\" in pod \"p\" is not available"),
            (
                json!({"name": "a"}),
                "container \"a\" in pod \"p\" is waiting to start - no logs yet",
            ),
            (
                json!({"name": "a", "state": {"terminated": {}}}),
                "container \"a\" in pod \"p\" is terminated",
            ),
            (
                json!({"name": "a", "state": {"waiting": {"reason": "ContainerCreating"}}}),
                "container \"a\" in pod \"p\" is waiting to start: ContainerCreating",
            ),
            (
                json!({"name": "a", "state": {"waiting": {"reason": "ErrImagePull"}}}),
                "container \"a\" in pod \"p\" is waiting to start: image can't be pulled",
            ),
        ] {
            let pod = json!({"metadata": {"name": "p"}, "status": {"containerStatuses": [status]}});
            assert_eq!(check_log_exists(&pod, "a", false), Err(expected.to_owned()), "{status}");
        }
    }
}
