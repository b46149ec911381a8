//! Metrics of the process, named as in every exporter (`process_*`), and the number of tasks.

use prometheus::{
    Counter, Gauge, Registry,
    core::{Collector, Desc},
    proto::MetricFamily,
};

/// Registers the metrics of the process.
///
/// # Errors
/// Fails if the registry already has these metrics.
pub fn register(registry: &Registry) -> prometheus::Result<()> {
    registry.register(Box::new(Process::new()?))
}

/// Returns the start time of the process in seconds since the epoch, or 0 if it is unknown.
pub fn start_time() -> f64 {
    let boot = read_or_empty("/proc/stat")
        .lines()
        .find_map(|line| line.strip_prefix("btime ")?.trim().parse::<f64>().ok());
    boot.map_or(0.0, |boot| boot + Stat::read().field(Stat::START_TIME) / TICKS_PER_SECOND)
}

/// Clock ticks per second, on every Linux that Rust supports.
const TICKS_PER_SECOND: f64 = 100.0;

/// Collector that reads `/proc/self` at each scrape. Outside of Linux, all values are 0.
struct Process {
    cpu: Counter,
    received: Counter,
    transmitted: Counter,
    resident: Gauge,
    size: Gauge,
    max_size: Gauge,
    files: Gauge,
    max_files: Gauge,
    start: Gauge,
    tasks: Gauge,
}

impl Process {
    fn new() -> prometheus::Result<Self> {
        let process = Self {
            cpu: Counter::new(
                "process_cpu_seconds_total",
                "User and system CPU time spent, in seconds.",
            )?,
            received: Counter::new(
                "process_network_receive_bytes_total",
                "Bytes received by the process's network namespace.",
            )?,
            transmitted: Counter::new(
                "process_network_transmit_bytes_total",
                "Bytes sent by the process's network namespace.",
            )?,
            resident: Gauge::new("process_resident_memory_bytes", "Resident memory, in bytes.")?,
            size: Gauge::new("process_virtual_memory_bytes", "Virtual memory, in bytes.")?,
            max_size: Gauge::new(
                "process_virtual_memory_max_bytes",
                "Virtual memory that may be used, in bytes.",
            )?,
            files: Gauge::new("process_open_fds", "Open file descriptors.")?,
            max_files: Gauge::new("process_max_fds", "File descriptors that may be open.")?,
            start: Gauge::new(
                "process_start_time_seconds",
                "Start of the process, in seconds since the epoch.",
            )?,
            // Upstream's dashboards use this metric. A task here corresponds to a goroutine there.
            tasks: Gauge::new("go_goroutines", "Tasks that are alive; the program is not in Go.")?,
        };
        process.start.set(start_time());
        Ok(process)
    }

    fn refresh(&self) {
        let stat = Stat::read();
        // A counter must not decrease, but rounding can make the new value slightly smaller.
        let spent =
            (stat.field(Stat::USER_TIME) + stat.field(Stat::SYSTEM_TIME)) / TICKS_PER_SECOND;
        self.cpu.inc_by((spent - self.cpu.get()).max(0.0));
        let status = read_or_empty("/proc/self/status");
        self.resident.set(bytes_of_line(&status, "VmRSS:"));
        self.size.set(bytes_of_line(&status, "VmSize:"));
        let limits = read_or_empty("/proc/self/limits");
        self.max_files.set(limit(&limits, "Max open files"));
        self.max_size.set(limit(&limits, "Max address space"));
        let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        self.files.set(open as f64);
        let network = read_or_empty("/proc/self/net/netstat");
        for (counter, column) in [(&self.received, "InOctets"), (&self.transmitted, "OutOctets")] {
            counter.inc_by((ip_octets(&network, column) - counter.get()).max(0.0));
        }
        let tasks = tokio::runtime::Handle::try_current();
        self.tasks.set(tasks.map_or(0, |handle| handle.metrics().num_alive_tasks()) as f64);
    }

    fn collectors(&self) -> [&dyn Collector; 10] {
        [
            &self.cpu,
            &self.received,
            &self.transmitted,
            &self.resident,
            &self.size,
            &self.max_size,
            &self.files,
            &self.max_files,
            &self.start,
            &self.tasks,
        ]
    }
}

impl Collector for Process {
    fn desc(&self) -> Vec<&Desc> {
        self.collectors().into_iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.refresh();
        self.collectors().into_iter().flat_map(Collector::collect).collect()
    }
}

/// Fields of `/proc/self/stat`, from the third one on.
struct Stat(Vec<f64>);

impl Stat {
    // Numbers of fields in proc(5). The times are in clock ticks.
    const USER_TIME: usize = 14;
    const SYSTEM_TIME: usize = 15;
    const START_TIME: usize = 22;

    fn read() -> Self {
        Self::parse(&read_or_empty("/proc/self/stat"))
    }

    /// Parses the fields after the command's name in parentheses, which may contain any character. The first of
    /// them is field 3 of proc(5).
    fn parse(stat: &str) -> Self {
        let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        Self(rest.split_whitespace().map(|field| field.parse().unwrap_or(0.0)).collect())
    }

    /// Returns a field by its number in proc(5), or 0 if it is missing or no number.
    fn field(&self, number: usize) -> f64 {
        self.0.get(number - 3).copied().unwrap_or(0.0)
    }
}

/// Reads a file, or returns an empty string if it cannot be read.
fn read_or_empty(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Returns the size in a line of `/proc/self/status`, in bytes. The line has it in KiB.
fn bytes_of_line(status: &str, name: &str) -> f64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<f64>().ok())
        .map_or(0.0, |kibibytes| kibibytes * 1024.0)
}

/// Returns the soft limit in a line of `/proc/self/limits`. As upstream, no limit is the largest 64-bit number.
fn limit(limits: &str, name: &str) -> f64 {
    let line = limits.lines().find_map(|line| line.strip_prefix(name));
    match line.and_then(|line| line.split_whitespace().next()) {
        Some("unlimited") => u64::MAX as f64,
        Some(number) => number.parse().unwrap_or(0.0),
        None => 0.0,
    }
}

/// Returns a column of the lines `IpExt:` of `/proc/self/net/netstat`. The first line has the names, the second
/// the values.
fn ip_octets(netstat: &str, column: &str) -> f64 {
    let mut lines = netstat.lines().filter_map(|line| line.strip_prefix("IpExt: "));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else { return 0.0 };
    let mut pairs = names.split_whitespace().zip(values.split_whitespace());
    let value = pairs.find(|(name, _)| *name == column).map(|(_, value)| value);
    value.and_then(|value| value.parse().ok()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_read() {
        let stat = Stat::parse("1 (a) b) S 0 1 1 0 -1 4 0 0 0 0 250 50 0 0 20 0 1 0 700 9 9");
        assert_eq!((stat.field(14), stat.field(15), stat.field(22)), (250.0, 50.0, 700.0));
        assert_eq!(Stat::parse("").field(14), 0.0);
        assert_eq!(bytes_of_line("VmSize:\t  2 kB\nVmRSS:\t    3 kB\n", "VmRSS:"), 3072.0);
        let limits = "Limit   Soft Limit\nMax open files   20000   20000   files\nMax address space   unlimited   x\n";
        assert_eq!(limit(limits, "Max open files"), 20_000.0);
        assert_eq!(limit(limits, "Max address space"), 1.844_674_407_370_955_2e19);
        let netstat = "TcpExt: a\nTcpExt: 1\nIpExt: InOctets OutOctets\nIpExt: 5 7\n";
        assert_eq!((ip_octets(netstat, "InOctets"), ip_octets(netstat, "OutOctets")), (5.0, 7.0));
    }

    #[tokio::test]
    async fn metrics_of_this_process_are_plausible() {
        let registry = Registry::new();
        register(&registry).unwrap();
        let families = registry.gather();
        assert_eq!(families.len(), 10);
        let value = |name: &str| {
            let family = families.iter().find(|family| family.name() == name).unwrap();
            family.get_metric()[0].get_gauge().get_value()
        };
        assert!(value("process_resident_memory_bytes") > 1e6);
        assert!(value("process_start_time_seconds") > 1.5e9);
        assert!(value("process_open_fds") >= 3.0 && value("process_max_fds") >= 3.0);
    }
}
