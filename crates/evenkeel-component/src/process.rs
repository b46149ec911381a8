//! `process_*`, as every exporter has them.

use prometheus::{Registry, core::Collector};

/// Registers them.
///
/// # Errors
/// When the registry has them already.
pub fn register(registry: &Registry) -> prometheus::Result<()> {
    registry.register(Box::new(Process::default()))
}

/// Reads `/proc/self` when asked.
#[derive(Default)]
struct Process {
    described: Vec<prometheus::core::Desc>,
}

impl Collector for Process {
    fn desc(&self) -> Vec<&prometheus::core::Desc> {
        self.described.iter().collect()
    }

    fn collect(&self) -> Vec<prometheus::proto::MetricFamily> {
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let stat = text("/proc/self/stat");
        // After the command's name in parentheses, which may contain anything; field 3 of proc(5) comes first.
        let fields: Vec<&str> =
            stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
        let field =
            |n: usize| fields.get(n - 3).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
        // Clock ticks are 100 a second on every Linux that Rust supports; pages are 4 KiB on those we ship for.
        let (ticks, page) = (100.0, 4096.0);
        let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        let boot = text("/proc/stat")
            .lines()
            .find_map(|line| line.strip_prefix("btime ")?.trim().parse::<f64>().ok());
        let gauge = |name: &str, help: &str, value: f64| {
            let gauge = prometheus::Gauge::new(name, help).ok()?;
            gauge.set(value);
            Some(gauge.collect())
        };
        let cpu = prometheus::Counter::new(
            "process_cpu_seconds_total",
            "User and system CPU time spent, in seconds.",
        )
        .ok()
        .map(|cpu| {
            cpu.inc_by((field(14) + field(15)) / ticks);
            cpu.collect()
        });
        let gauges = [
            gauge("process_resident_memory_bytes", "Resident memory, in bytes.", field(24) * page),
            gauge("process_virtual_memory_bytes", "Virtual memory, in bytes.", field(23)),
            gauge("process_open_fds", "Open file descriptors.", open as f64),
            gauge(
                "process_start_time_seconds",
                "Start of the process, in seconds since the epoch.",
                boot.unwrap_or(0.0) + field(22) / ticks,
            ),
        ];
        cpu.into_iter().chain(gauges.into_iter().flatten()).flatten().collect()
    }
}
