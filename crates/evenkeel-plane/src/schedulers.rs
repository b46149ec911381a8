//! Metrics of several schedulers in one process.

use evenkeel_scheduler::SchedulerOptions;
use prometheus::Registry;
use std::collections::HashMap;

/// Label of the metrics of several schedulers: the name of a scheduler's first profile.
const LABEL: &str = "scheduler";

/// Returns a registry for each scheduler. The schedulers' metrics have the same names, and some of these are also names
/// of controllers' metrics, because upstream's scheduler is a program of its own.
pub(crate) fn registries(schedulers: &[SchedulerOptions]) -> Vec<Registry> {
    let labels = |options: &SchedulerOptions| {
        // The metrics of a single scheduler are upstream's.
        let name = options.profiles.first().filter(|_| schedulers.len() > 1)?.name();
        Some(HashMap::from([(LABEL.to_owned(), name.to_owned())]))
    };
    let registry = |options| {
        Registry::new_custom(None, labels(options)).expect("without a prefix, none is empty")
    };
    schedulers.iter().map(registry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_scheduler::framework::Profile;
    use prometheus::IntCounter;

    /// Returns the labels of a counter of each scheduler, by schedulers with these profiles.
    fn labels(schedulers: &[&[&str]]) -> Vec<Vec<(String, String)>> {
        let options: Vec<_> = schedulers
            .iter()
            .map(|names| SchedulerOptions {
                profiles: names.iter().map(|name| Profile::with_defaults(name)).collect(),
                ..SchedulerOptions::default()
            })
            .collect();
        let registries = registries(&options);
        let of_counter = |registry: &Registry| {
            let counter = IntCounter::new("attempts", "Attempts.").unwrap();
            registry.register(Box::new(counter)).unwrap();
            let families = registry.gather();
            let labels = families[0].get_metric()[0].get_label();
            labels.iter().map(|label| (label.name().to_owned(), label.value().to_owned())).collect()
        };
        registries.iter().map(of_counter).collect()
    }

    #[test]
    fn metrics_of_several_schedulers_have_a_label() {
        assert_eq!(labels(&[&["a", "b"]]), [vec![]], "as upstream's");
        let label = |name: &str| vec![("scheduler".to_owned(), name.to_owned())];
        assert_eq!(labels(&[&["a", "b"], &["c"]]), [label("a"), label("c")]);
        assert!(labels(&[]).is_empty());
    }
}
