//! Messages of `evenkeel up` to the user: events, as text or as JSON.

use serde::{Deserialize, Serialize};
use std::{io::Write as _, path::PathBuf};

/// Event of a cluster's start or end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(super) enum Event {
    /// A stage of the start is complete.
    Stage {
        stage: String,
        detail: String,
        /// Time since the start.
        elapsed_ms: u64,
    },
    /// A stage of the start is not complete yet.
    Waiting {
        stage: String,
        /// Objects that the stage waits for; empty if they are unknown.
        waiting_for: Vec<String>,
        elapsed_ms: u64,
    },
    /// The cluster can be used.
    Ready {
        name: String,
        context: String,
        url: String,
        /// The cluster's kubeconfig. `None` for a remote API server, because the user has its kubeconfig.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kubeconfig: Option<PathBuf>,
        /// The user's kubeconfig, if the cluster was added to it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        merged_into: Option<PathBuf>,
        /// File of another cluster that `$KUBECONFIG` names. It was not changed, so that this shell does not use the cluster.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        shell_kubeconfig: Option<PathBuf>,
        /// URL of the console, with the token that authenticates the browser.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        console: Option<String>,
        elapsed_ms: u64,
    },
    /// The cluster stops.
    Stopping,
    /// The start or the cluster failed.
    Failed { message: String },
}

/// Format of printed events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// A JSON object on each line.
    Json,
    /// Lines of text for a terminal.
    Text {
        color: bool,
        /// Whether the cluster runs in the background, so that Ctrl-C does not stop it.
        detached: bool,
    },
}

/// Properties of the terminal and of the environment that decide whether colors are used.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TerminalFacts {
    pub(super) is_terminal: bool,
    /// `$NO_COLOR` is set and not empty (no-color.org).
    pub(super) no_color: bool,
    /// `$CLICOLOR_FORCE` is set, and neither empty nor 0.
    pub(super) force_color: bool,
    /// `$TERM` is `dumb`.
    pub(super) is_dumb: bool,
}

impl TerminalFacts {
    /// Returns the facts of standard output.
    pub(super) fn of_stdout() -> Self {
        Self::of(&std::io::stdout())
    }

    /// Returns the facts of an output.
    #[expect(
        clippy::disallowed_methods,
        reason = "the program's edge, where the environment is read"
    )]
    fn of(output: &impl std::io::IsTerminal) -> Self {
        let var = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self {
            is_terminal: output.is_terminal(),
            no_color: var("NO_COLOR").is_some(),
            force_color: var("CLICOLOR_FORCE").is_some_and(|value| value != "0"),
            is_dumb: var("TERM").is_some_and(|value| value == "dumb"),
        }
    }

    /// Returns whether to print colors.
    pub(super) fn wants_color(self) -> bool {
        !self.no_color && (self.force_color || (self.is_terminal && !self.is_dumb))
    }
}

const GREEN: &str = "\x1b[32m";
const YELLOW: &str = "\x1b[33m";
const RED: &str = "\x1b[31m";
const BOLD: &str = "\x1b[1m";
const RESET: &str = "\x1b[0m";

/// Returns the output of an event, with its line feed.
pub(super) fn render(event: &Event, style: Style) -> String {
    match style {
        Style::Json => serde_json::to_string(event).unwrap_or_default() + "\n",
        Style::Text { color, detached } => text(event, color, detached),
    }
}

fn text(event: &Event, color: bool, detached: bool) -> String {
    let paint = |code: &str, text: &str| {
        if color { format!("{code}{text}{RESET}") } else { text.to_owned() }
    };
    match event {
        Event::Stage { stage, detail, .. } => {
            format!("{} {stage:<14} {detail}\n", paint(GREEN, "✓"))
        }
        Event::Waiting { stage, waiting_for, elapsed_ms } => {
            let what = match waiting_for.as_slice() {
                [] => String::new(),
                names => format!(", waits for {}", names.join(", ")),
            };
            let seconds = elapsed_ms / 1000;
            format!("{} {stage:<14} not done after {seconds} s{what}\n", paint(YELLOW, "…"))
        }
        Event::Ready {
            name,
            kubeconfig,
            merged_into,
            shell_kubeconfig,
            console,
            elapsed_ms,
            context,
            ..
        } => {
            let end = if detached {
                format!("`evenkeel down {name}` stops it.")
            } else {
                "Ctrl-C stops it.".to_owned()
            };
            let head = paint(BOLD, &format!("Cluster {name} is ready after {elapsed_ms} ms."));
            let console = match console {
                Some(url) => format!("Console: {url}\n"),
                None => String::new(),
            };
            let Some(kubeconfig) = kubeconfig else { return format!("{head} {end}\n{console}") };
            let export = format!("    export KUBECONFIG={}\n", kubeconfig.display());
            let (note, export) = match (merged_into, shell_kubeconfig) {
                (Some(merged), Some(other)) => {
                    let note = format!(
                        "Context {context} is in {}, because $KUBECONFIG ({}) is another cluster's own file.\n",
                        merged.display(),
                        other.display()
                    );
                    (note, export)
                }
                (Some(_), None) => (String::new(), String::new()),
                (None, _) => (String::new(), export),
            };
            format!(
                "{head} {end}\n{console}{note}Try:\n\n{export}    kubectl create deployment web --image=nginx --replicas=3\n    \
                 kubectl rollout status deployment/web\n    kubectl get all\n"
            )
        }
        Event::Stopping => "Stopping. Press Ctrl-C again to exit immediately.\n".to_owned(),
        Event::Failed { message } => format!("{} {message}\n", paint(RED, "Error:")),
    }
}

/// Prints an event: an error to standard error, others to standard output. Ignores an output that is closed.
pub(super) fn print(event: &Event, style: Style) {
    let _ = match (event, style) {
        (Event::Failed { .. }, Style::Text { detached, .. }) => {
            // Standard error may be a file while standard output is a terminal.
            let color = TerminalFacts::of(&std::io::stderr()).wants_color();
            let text = render(event, Style::Text { color, detached });
            std::io::stderr().write_all(text.as_bytes())
        }
        _ => std::io::stdout().write_all(render(event, style).as_bytes()),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready() -> Event {
        Event::Ready {
            name: "a".to_owned(),
            context: "evenkeel-a".to_owned(),
            url: "https://127.0.0.1:6443".to_owned(),
            kubeconfig: Some("/s/kubeconfig".into()),
            merged_into: None,
            shell_kubeconfig: None,
            console: Some("http://127.0.0.1:1/?token=t".to_owned()),
            elapsed_ms: 80,
        }
    }

    #[test]
    fn events_are_lines_for_people() {
        let plain = Style::Text { color: false, detached: false };
        let stage = Event::Stage {
            stage: "API server".to_owned(),
            detail: "https://127.0.0.1:6443".to_owned(),
            elapsed_ms: 12,
        };
        assert_eq!(render(&stage, plain), "✓ API server     https://127.0.0.1:6443\n");
        let colored = render(&stage, Style::Text { color: true, detached: false });
        assert!(colored.starts_with("\x1b[32m✓\x1b[0m API"), "{colored:?}");
        let waiting = |names: &[&str]| Event::Waiting {
            stage: "controllers".to_owned(),
            waiting_for: names.iter().map(|name| (*name).to_owned()).collect(),
            elapsed_ms: 5200,
        };
        assert_eq!(render(&waiting(&[]), plain), "… controllers    not done after 5 s\n");
        assert_eq!(
            render(&waiting(&["pods", "nodes"]), plain),
            "… controllers    not done after 5 s, waits for pods, nodes\n"
        );
        let failed = Event::Failed { message: "no".to_owned() };
        assert_eq!(render(&failed, plain), "Error: no\n");
    }

    #[test]
    fn the_banner_says_how_to_use_and_to_stop_the_cluster() {
        let text = render(&ready(), Style::Text { color: false, detached: false });
        let head = "Cluster a is ready after 80 ms. Ctrl-C stops it.\nConsole: http://127.0.0.1:1/?token=t\nTry:\n";
        assert!(text.starts_with(head), "{text}");
        assert!(text.contains("    export KUBECONFIG=/s/kubeconfig\n"), "{text}");
        let Event::Ready { name, context, url, kubeconfig, console, elapsed_ms, .. } = ready()
        else {
            unreachable!()
        };
        let merged_into = Some("/home/u/.kube/config".into());
        let merged = |shell_kubeconfig| Event::Ready {
            name: name.clone(),
            context: context.clone(),
            url: url.clone(),
            kubeconfig: kubeconfig.clone(),
            merged_into: merged_into.clone(),
            shell_kubeconfig,
            console: console.clone(),
            elapsed_ms,
        };
        let detached = Style::Text { color: false, detached: true };
        let text = render(&merged(None), detached);
        assert!(text.contains("`evenkeel down a` stops it."), "{text}");
        assert!(!text.contains("export"), "the context is the current one: {text}");
        let text = render(&merged(Some("/s/b/kubeconfig".into())), detached);
        let note = "Context evenkeel-a is in /home/u/.kube/config, because $KUBECONFIG (/s/b/kubeconfig) is another cluster's own file.\n";
        assert!(text.contains(note), "{text}");
        assert!(text.contains("    export KUBECONFIG=/s/kubeconfig\n"), "{text}");
    }

    #[test]
    fn json_events_are_read_again() {
        let waiting = Event::Waiting {
            stage: "s".to_owned(),
            waiting_for: vec!["pods".to_owned()],
            elapsed_ms: 1,
        };
        for event in [ready(), waiting, Event::Stopping, Event::Failed { message: "no".to_owned() }]
        {
            let line = render(&event, Style::Json);
            assert_eq!(line.lines().count(), 1);
            assert_eq!(serde_json::from_str::<Event>(&line).expect("an event"), event);
        }
        assert!(render(&ready(), Style::Json).contains(r#""event":"ready","name":"a""#));
    }

    #[test]
    fn colours_follow_the_terminal_and_the_environment() {
        let facts = TerminalFacts::default();
        let terminal = TerminalFacts { is_terminal: true, ..facts };
        for (facts, want) in [
            (facts, false),
            (terminal, true),
            (TerminalFacts { is_dumb: true, ..terminal }, false),
            (TerminalFacts { no_color: true, ..terminal }, false),
            (TerminalFacts { force_color: true, ..facts }, true),
            (TerminalFacts { force_color: true, no_color: true, ..facts }, false),
        ] {
            assert_eq!(facts.wants_color(), want, "{facts:?}");
        }
    }
}
