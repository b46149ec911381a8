//! Geometry of plots: pure functions from numbers to coordinates in units of the drawing's view box.

use std::time::Duration;

/// Width of all drawings.
pub(super) const WIDTH: f64 = 720.0;
/// Space for labels at the left and the right.
pub(super) const LEFT: f64 = 44.0;
const RIGHT: f64 = 14.0;
/// Maximum number of columns in which a line is drawn.
const COLUMNS: usize = 480;

/// Possible steps between ticks on a time axis, in seconds.
const TIME_STEPS: [u64; 18] =
    [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400];
/// Maximum number of ticks on a time axis.
const MAX_TIME_TICKS: u64 = 8;

/// Time axis, from the change to an end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct TimeAxis {
    pub(super) end: Duration,
}

/// Tick mark on an axis, with its label.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tick {
    pub(super) at: f64,
    pub(super) label: String,
}

/// Bar of a drawing.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Bar {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) label: String,
}

impl TimeAxis {
    /// Returns the axis that shows times up to `last` and a little more, but not more than `whole`.
    pub(super) fn until(last: Duration, whole: Duration) -> Self {
        let with_room = last + last / 20;
        Self {
            end: with_room.max(Duration::from_secs(10)).min(whole).max(Duration::from_millis(1)),
        }
    }

    /// Returns the position of a time.
    pub(super) fn x(&self, time: Duration) -> f64 {
        let share = (time.as_secs_f64() / self.end.as_secs_f64()).clamp(0.0, 1.0);
        round(LEFT + share * (WIDTH - LEFT - RIGHT))
    }

    /// Returns ticks at round times.
    pub(super) fn ticks(&self) -> Vec<Tick> {
        let seconds = self.end.as_secs();
        let fits = |step: &&u64| seconds / **step < MAX_TIME_TICKS;
        let days = 86_400 * (seconds / 86_400 / MAX_TIME_TICKS + 1);
        let step = TIME_STEPS.iter().find(fits).copied().unwrap_or(days);
        let times = (0..=seconds / step).map(|number| number * step);
        times
            .map(|time| Tick { at: self.x(Duration::from_secs(time)), label: short_time(time) })
            .collect()
    }

    /// Returns the index of the column that contains a time. `columns` is their number.
    pub(super) fn column(&self, time: Duration, columns: usize) -> usize {
        let share = (time.as_secs_f64() / self.end.as_secs_f64()).clamp(0.0, 1.0);
        ((share * columns as f64) as usize).min(columns.saturating_sub(1))
    }
}

/// Number axis, from zero at the bottom to a top.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct NumberAxis {
    top: f64,
    /// Positions of the highest and the lowest number.
    range: (f64, f64),
}

impl NumberAxis {
    /// Returns an axis that shows numbers up to the highest one between two positions.
    pub(super) fn until(highest: usize, top: f64, bottom: f64) -> Self {
        Self { top: highest.max(1) as f64, range: (top, bottom) }
    }

    /// Returns the position of a number.
    pub(super) fn y(&self, number: usize) -> f64 {
        let (top, bottom) = self.range;
        round(bottom - number as f64 / self.top * (bottom - top))
    }
}

/// Returns the path of a step line: it keeps each value until the next one. In each column of the drawing, it shows the lowest
/// and the last value.
pub(super) fn steps(history: &[(Duration, usize)], time: TimeAxis, numbers: NumberAxis) -> String {
    let mut path = String::new();
    let mut last: Option<usize> = None;
    let mut index = 0;
    while let Some(&(at, first)) = history.get(index) {
        if at > time.end {
            break;
        }
        let column = time.column(at, COLUMNS);
        let (mut lowest, mut value) = (first, first);
        while let Some(&(next, number)) = history.get(index) {
            if next > time.end || time.column(next, COLUMNS) != column {
                break;
            }
            (lowest, value) = (lowest.min(number), number);
            index += 1;
        }
        let x = time.x(at);
        match last {
            None => path += &format!("M{x} {}", numbers.y(value)),
            Some(before) if before == value && lowest == value => {}
            Some(_) => {
                path += &format!("H{x}");
                if lowest < value {
                    path += &format!("V{}", numbers.y(lowest));
                }
                path += &format!("V{}", numbers.y(value));
            }
        }
        last = Some(value);
    }
    if last.is_some() {
        path += &format!("H{}", time.x(time.end));
    }
    path
}

/// Returns the number of times in each column. `columns` is the number of columns.
pub(super) fn histogram(times: &[Duration], time: TimeAxis, columns: usize) -> Vec<usize> {
    let mut counts = vec![0; columns];
    for at in times.iter().filter(|at| **at <= time.end) {
        if let Some(count) = counts.get_mut(time.column(*at, columns)) {
            *count += 1;
        }
    }
    counts
}

/// Returns the spans as positions and widths. Joins spans without a visible gap, and widens those that are too narrow to see.
pub(super) fn spans(spans: &[(Duration, Duration)], time: TimeAxis) -> Vec<(f64, f64)> {
    let mut drawn: Vec<(f64, f64)> = Vec::new();
    for (from, to) in spans.iter().filter(|(from, _)| *from <= time.end) {
        let (from, to) = (time.x(*from), time.x(*to));
        match drawn.last_mut() {
            Some((start, width)) if from - (*start + *width) < 1.0 => {
                *width = round((to - *start).max(*width));
            }
            _ => drawn.push((from, round((to - from).max(1.5)))),
        }
    }
    drawn
}

/// Formats a round time of an axis.
fn short_time(seconds: u64) -> String {
    let (days, hours) = (seconds / 86_400, seconds / 3600 % 24);
    let (minutes, rest) = (seconds / 60 % 60, seconds % 60);
    let parts = [(days, "d"), (hours, "h"), (minutes, "m"), (rest, "s")];
    let text: String = parts
        .iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, unit)| format!("{number}{unit}"))
        .collect();
    if text.is_empty() { "0".to_owned() } else { text }
}

/// Rounds to a tenth.
pub(super) fn round(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn ticks_are_at_round_times() {
        let labels = |end: u64| {
            let ticks = TimeAxis { end: at(end) }.ticks();
            ticks.into_iter().map(|tick| tick.label).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(labels(10), "0 2s 4s 6s 8s 10s");
        assert_eq!(labels(3600), "0 10m 20m 30m 40m 50m 1h");
        assert_eq!(labels(86_400), "0 6h 12h 18h 1d");
        assert_eq!(labels(30 * 86_400), "0 4d 8d 12d 16d 20d 24d 28d");
    }

    #[test]
    fn a_time_series_is_drawn_in_steps() {
        let time = TimeAxis { end: at(100) };
        let numbers = NumberAxis::until(4, 0.0, 100.0);
        let (start, half, end) = (time.x(at(0)), time.x(at(50)), time.x(at(100)));
        let history = [(at(0), 4), (at(50), 2), (at(200), 0)];
        assert_eq!(steps(&history, time, numbers), format!("M{start} 0H{half}V50H{end}"));
        // A dip within a column stays visible.
        let dip = [(at(0), 4), (at(50), 1), (at(50), 4)];
        assert_eq!(steps(&dip, time, numbers), format!("M{start} 0H{half}V75V0H{end}"));
        assert_eq!(steps(&[], time, numbers), "");
        let long: Vec<_> =
            (0..50_000u64).map(|n| (Duration::from_millis(2 * n), (n % 5) as usize)).collect();
        assert!(steps(&long, time, numbers).len() < 60 * COLUMNS);
    }

    #[test]
    fn times_are_counted_and_spans_joined() {
        let time = TimeAxis { end: at(100) };
        assert_eq!(histogram(&[at(0), at(1), at(99), at(100), at(101)], time, 4), [2, 0, 0, 2]);
        let joined =
            spans(&[(at(0), at(10)), (at(10), at(20)), (at(50), at(50)), (at(101), at(102))], time);
        assert_eq!(joined.len(), 2, "{joined:?}");
        assert_eq!(joined[0].0 + joined[0].1, time.x(at(20)));
        assert_eq!(joined[1].1, 1.5);
    }

    #[test]
    fn an_axis_ends_a_little_after_the_last_event() {
        assert_eq!(TimeAxis::until(at(100), at(86_400)).end, at(105));
        assert_eq!(TimeAxis::until(at(0), at(86_400)).end, at(10));
        assert_eq!(TimeAxis::until(at(3600), at(3600)).end, at(3600));
    }
}
