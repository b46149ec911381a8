//! Splits the output of a container into log lines.

use std::time::Duration;

use crate::interpreter::Printed;

/// Line that a container prints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// Time between the start of the container and the end of the line.
    pub after: Duration,
    /// Text of the line with its newline. Only the last line may lack the newline.
    pub text: String,
}

/// Sorts the output up to `until` by time and splits it into lines. When the container ends, remaining output without a
/// newline is a line, too.
pub(crate) fn lines(
    mut printed: Vec<Printed>,
    until: Duration,
    end: Option<Duration>,
) -> Vec<LogLine> {
    printed.retain(|printed| printed.at <= end.unwrap_or(until));
    printed.sort_by_key(|printed| printed.at);
    let (mut lines, mut incomplete) = (Vec::new(), String::new());
    for Printed { at: after, text, .. } in printed {
        for segment in text.split_inclusive('\n') {
            incomplete.push_str(segment);
            if segment.ends_with('\n') {
                lines.push(LogLine { after, text: std::mem::take(&mut incomplete) });
            }
        }
    }
    if let Some(after) = end.filter(|_| !incomplete.is_empty()) {
        lines.push(LogLine { after, text: incomplete });
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_at(at: Duration, text: &str) -> Printed {
        Printed { at, stream: 0, job: 0, text: text.to_owned() }
    }

    #[test]
    fn output_is_sorted_by_time_and_split_into_lines() {
        type Pieces = &'static [(u64, &'static str)];
        let table: [(Pieces, Pieces); 6] = [
            (&[], &[]),
            (&[(1, "a\nb\n")], &[(1, "a\n"), (1, "b\n")]),
            (&[(1, "a"), (2, "b\n")], &[(2, "ab\n")]),
            (&[(5, "job\n"), (1, "main\n")], &[(1, "main\n"), (5, "job\n")]),
            (&[(1, "a\n"), (2, "b")], &[(1, "a\n"), (9, "b")]),
            (&[(9, "a\n"), (10, "late\n")], &[(9, "a\n")]),
        ];
        for (printed, expected) in table {
            let seconds = Duration::from_secs;
            let given: Vec<_> =
                printed.iter().map(|(at, text)| text_at(seconds(*at), text)).collect();
            let expected: Vec<LogLine> = expected
                .iter()
                .map(|(at, text)| LogLine { after: seconds(*at), text: (*text).to_owned() })
                .collect();
            let ended = lines(given.clone(), seconds(99), Some(seconds(9)));
            assert_eq!(ended, expected, "{printed:?}");
            let runs = lines(given, seconds(9), None);
            let whole = expected.iter().filter(|line| line.text.ends_with('\n'));
            assert!(runs.iter().eq(whole), "{printed:?}");
        }
    }
}
