//! Metrics of priority and fairness in text form, under upstream's names.

use std::fmt::{Display, Write as _};
use std::sync::Arc;

use super::integrator::{Distribution, HistogramReading};
use super::level::{LevelState, Phase, PriorityLevel, Shared};
use super::queueset::Queuing;
use super::stats::{Bounds, FlowStats, Reason};

const PREFIX: &str = "apiserver_flowcontrol_";

/// Values of the label `request_kind`, and whether the kind's requests are writes.
const REQUEST_KINDS: [(&str, bool); 2] = [("readOnly", false), ("mutating", true)];

/// Writes the help and type lines of a metric family.
fn write_family(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {PREFIX}{name} {help}\n# TYPE {PREFIX}{name} {kind}");
}

fn write_sample(out: &mut String, name: &str, labels: &str, value: impl Display) {
    let _ = writeln!(out, "{PREFIX}{name}{{{labels}}} {value}");
}

fn write_histogram(out: &mut String, name: &str, labels: &str, reading: HistogramReading) {
    let HistogramReading { buckets, count, sum } = reading;
    for (bound, cumulative_count) in buckets {
        let labels = format!("{labels},le=\"{bound}\"");
        write_sample(out, &format!("{name}_bucket"), &labels, cumulative_count);
    }
    write_sample(out, &format!("{name}_bucket"), &format!("{labels},le=\"+Inf\""), count);
    write_sample(out, &format!("{name}_sum"), labels, sum);
    write_sample(out, &format!("{name}_count"), labels, count);
}

/// Writes all metric families.
pub(super) fn render(
    out: &mut String,
    levels: &[Arc<PriorityLevel>],
    fair_fraction: f64,
    shared: &Shared,
) {
    write_schema_counters(out, levels);
    write_schema_histograms(out, levels);
    write_level_gauges(out, levels);
    write_level_histograms(out, levels, shared);
    write_family(
        out,
        "seat_fair_frac",
        "gauge",
        "[ALPHA] Fair fraction of server's concurrency to allocate to each priority level that can use it",
    );
    let _ = writeln!(out, "{PREFIX}seat_fair_frac {fair_fraction}");
    out.push_str("# HELP apiserver_current_inqueue_requests [ALPHA] Maximal number of queued requests in this apiserver per request kind in last second.\n# TYPE apiserver_current_inqueue_requests gauge\n");
    for (kind, mutating) in REQUEST_KINDS {
        let requests = shared.read(Phase::Waiting, mutating).requests;
        let _ = writeln!(
            out,
            "apiserver_current_inqueue_requests{{request_kind=\"{kind}\"}} {requests}"
        );
    }
}

/// Calls `visit` with the labels and counters of each FlowSchema.
fn for_each_schema(levels: &[Arc<PriorityLevel>], mut visit: impl FnMut(&str, &FlowStats)) {
    for level in levels {
        let state = level.lock();
        for stats in &state.queues.schema_stats {
            let labels =
                format!("flow_schema=\"{}\",priority_level=\"{}\"", stats.schema, level.name);
            visit(&labels, stats);
        }
    }
}

fn write_schema_counters(out: &mut String, levels: &[Arc<PriorityLevel>]) {
    write_family(
        out,
        "rejected_requests_total",
        "counter",
        "[BETA] Number of requests rejected by API Priority and Fairness subsystem",
    );
    for_each_schema(levels, |labels, stats| {
        for (reason, count) in Reason::ALL.iter().zip(stats.rejected) {
            if count > 0 {
                let labels = format!("{labels},reason=\"{}\"", reason.as_str());
                write_sample(out, "rejected_requests_total", &labels, count);
            }
        }
    });
    type Value = fn(&FlowStats) -> u64;
    let families: [(&str, &str, &str, Value); 6] = [
        (
            "dispatched_requests_total",
            "counter",
            "[BETA] Number of requests executed by API Priority and Fairness subsystem",
            |stats| stats.dispatched,
        ),
        (
            "current_inqueue_requests",
            "gauge",
            "[BETA] Number of requests currently pending in queues of the API Priority and Fairness subsystem",
            |stats| stats.requests_waiting as u64,
        ),
        (
            "current_inqueue_seats",
            "gauge",
            "[ALPHA] Number of seats currently pending in queues of the API Priority and Fairness subsystem",
            |stats| stats.seats_waiting as u64,
        ),
        (
            "current_executing_requests",
            "gauge",
            "[BETA] Number of requests in initial (for a WATCH) or any (for a non-WATCH) execution stage in the API Priority and Fairness subsystem",
            |stats| stats.requests_executing as u64,
        ),
        (
            "current_executing_seats",
            "gauge",
            "[BETA] Concurrency (number of seats) occupied by the currently executing (initial stage for a WATCH, any stage otherwise) requests in the API Priority and Fairness subsystem",
            |stats| stats.seats_executing as u64,
        ),
        (
            "request_dispatch_no_accommodation_total",
            "counter",
            "[ALPHA] Number of times a dispatch attempt resulted in a non accommodation due to lack of available seats",
            |stats| stats.no_accommodation,
        ),
    ];
    for (name, kind, help, value) in families {
        write_family(out, name, kind, help);
        for_each_schema(levels, |labels, stats| write_sample(out, name, labels, value(stats)));
    }
}

fn write_schema_histograms(out: &mut String, levels: &[Arc<PriorityLevel>]) {
    // Additional labels of a histogram, and its values.
    type LabeledHistogram = (&'static str, fn(&FlowStats) -> &Distribution);
    let families: [(&str, &str, &[LabeledHistogram]); 5] = [
        (
            "request_wait_duration_seconds",
            "[BETA] Length of time a request spent waiting in its queue",
            &[
                (",execute=\"true\"", |stats| &stats.waited),
                (",execute=\"false\"", |stats| &stats.waited_in_vain),
            ],
        ),
        (
            "request_execution_seconds",
            "[ALPHA] Duration of initial stage (for a WATCH) or any (for a non-WATCH) stage of request execution in the API Priority and Fairness subsystem",
            &[
                (",type=\"regular\"", |stats| &stats.executed),
                (",type=\"watch\"", |stats| &stats.watch_initialized),
            ],
        ),
        (
            "request_queue_length_after_enqueue",
            "[ALPHA] Length of queue in the API Priority and Fairness subsystem, as seen by each request after it is enqueued",
            &[("", |stats| &stats.queue_length)],
        ),
        (
            "watch_count_samples",
            "[ALPHA] count of watchers for mutating requests in API Priority and Fairness",
            &[("", |stats| &stats.watch_count)],
        ),
        (
            "work_estimated_seats",
            "[ALPHA] Number of estimated seats (maximum of initial and final seats) associated with requests in API Priority and Fairness",
            &[("", |stats| &stats.estimated_seats)],
        ),
    ];
    for (name, help, histograms) in families {
        write_family(out, name, "histogram", help);
        for_each_schema(levels, |labels, stats| {
            for (label, distribution) in histograms {
                let reading = distribution(stats).read();
                if reading.count > 0 {
                    write_histogram(out, name, &format!("{labels}{label}"), reading);
                }
            }
        });
    }
}

fn write_level_gauges(out: &mut String, levels: &[Arc<PriorityLevel>]) {
    type Value = fn(&LevelState) -> f64;
    let families: [(&str, &str, Value); 12] = [
        (
            "nominal_limit_seats",
            "[BETA] Nominal number of execution seats configured for each priority level",
            |level| level.limits.nominal as f64,
        ),
        (
            "lower_limit_seats",
            "[ALPHA] Configured lower bound on number of execution seats available to each priority level",
            |level| level.limits.min as f64,
        ),
        (
            "upper_limit_seats",
            "[ALPHA] Configured upper bound on number of execution seats available to each priority level",
            |level| level.limits.max as f64,
        ),
        (
            "current_limit_seats",
            "[ALPHA] current derived number of execution seats available to each priority level",
            |level| level.current as f64,
        ),
        (
            "demand_seats_high_watermark",
            "[ALPHA] High watermark, over last adjustment period, of demand_seats",
            |level| level.demand.high_watermark as f64,
        ),
        (
            "demand_seats_average",
            "[ALPHA] Time-weighted average, over last adjustment period, of demand_seats",
            |level| level.demand.average,
        ),
        (
            "demand_seats_stdev",
            "[ALPHA] Time-weighted standard deviation, over last adjustment period, of demand_seats",
            |level| level.demand.deviation,
        ),
        ("demand_seats_smoothed", "[ALPHA] Smoothed seat demands", |level| level.demand.smoothed),
        ("target_seats", "[ALPHA] Seat allocation targets", |level| level.target),
        ("current_r", "[ALPHA] R(time of last change)", |level| level.queues.current_r()),
        ("dispatch_r", "[ALPHA] R(time of last dispatch)", |level| level.queues.stats.dispatch.r),
        ("latest_s", "[ALPHA] S(most recently dispatched request)", |level| {
            level.queues.stats.dispatch.latest_s
        }),
    ];
    for (name, help, value) in families {
        write_family(out, name, "gauge", help);
        for level in levels {
            let labels = format!("priority_level=\"{}\"", level.name);
            write_sample(out, name, &labels, value(&level.lock()));
        }
    }
    type BoundsValue = fn(&LevelState) -> Bounds<f64>;
    let bounds_families: [(&str, &str, BoundsValue); 2] = [
        (
            "next_s_bounds",
            "[ALPHA] min and max, over queues, of S(oldest waiting request in queue)",
            |level| level.queues.stats.dispatch.next_s,
        ),
        (
            "next_discounted_s_bounds",
            "[ALPHA] min and max, over queues, of S(oldest waiting request in queue) - estimated work in progress",
            |level| level.queues.stats.dispatch.discounted_s,
        ),
    ];
    for (name, help, value) in bounds_families {
        write_family(out, name, "gauge", help);
        for level in levels {
            let Bounds { min, max } = value(&level.lock());
            for (bound, value) in [("min", min), ("max", max)] {
                let labels = format!("bound=\"{bound}\",priority_level=\"{}\"", level.name);
                write_sample(out, name, &labels, value);
            }
        }
    }
}

fn write_level_histograms(out: &mut String, levels: &[Arc<PriorityLevel>], shared: &Shared) {
    let now = shared.now();
    let name = "demand_seats";
    write_family(
        out,
        name,
        "histogram",
        "[ALPHA] Observations, at the end of every nanosecond, of (the number of seats each priority level could use) / (nominal number of seats for that level)",
    );
    for level in levels {
        let reading = level.lock().queues.stats.demand_ratio.read(now);
        write_histogram(out, name, &format!("priority_level=\"{}\"", level.name), reading);
    }
    let name = "priority_level_seat_utilization";
    write_family(
        out,
        name,
        "histogram",
        "[ALPHA] Observations, at the end of every nanosecond, of utilization of seats for any stage of execution (but only initial stage for WATCHes)",
    );
    for level in levels {
        let reading = level.lock().queues.stats.seats_executing.read(now);
        let labels = format!("phase=\"executing\",priority_level=\"{}\"", level.name);
        write_histogram(out, name, &labels, reading);
    }
    let name = "priority_level_request_utilization";
    write_family(
        out,
        name,
        "histogram",
        "[ALPHA] Observations, at the end of every nanosecond, of number of requests (as a fraction of the relevant limit) waiting or in any stage of execution (but only initial stage for WATCHes)",
    );
    for level in levels {
        let mut state = level.lock();
        let exempt = state.config.queuing == Queuing::Exempt;
        let stats = &mut state.queues.stats;
        let phases = [
            ("waiting", &mut stats.requests_waiting),
            ("executing", &mut stats.requests_executing),
        ];
        for (phase, requests) in phases {
            if exempt && phase == "waiting" {
                continue;
            }
            let labels = format!("phase=\"{phase}\",priority_level=\"{}\"", level.name);
            write_histogram(out, name, &labels, requests.read(now));
        }
    }
    let name = "read_vs_write_current_requests";
    write_family(
        out,
        name,
        "histogram",
        "[ALPHA] Observations, at the end of every nanosecond, of the number of requests (as a fraction of the relevant limit) waiting or in regular stage of execution",
    );
    for (phase, label) in [(Phase::Waiting, "waiting"), (Phase::Executing, "executing")] {
        for (kind, mutating) in REQUEST_KINDS {
            let reading = shared.read(phase, mutating).ratio;
            let labels = format!("phase=\"{label}\",request_kind=\"{kind}\"");
            write_histogram(out, name, &labels, reading);
        }
    }
}
