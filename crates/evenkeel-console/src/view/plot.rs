//! Plots as SVG: lines over time, the newest value at the right.

use askama::Template;

/// Width of the drawing in its own units.
const WIDTH: f64 = 300.0;
/// Height of the drawing in its own units.
const HEIGHT: f64 = 72.0;
/// Space above the highest point, so that its line is not clipped.
const TOP: f64 = 4.0;

/// Values over time, oldest first. A missing value is a gap.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Series {
    /// Name of the line. Empty for the only one.
    pub(crate) name: &'static str,
    /// Seconds before now, and the value.
    pub(crate) points: Vec<(f64, Option<f64>)>,
}

/// Time that a plot shows, up to its newest values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Range {
    /// Length in seconds.
    pub(crate) seconds: f64,
    /// Label of its start, below the plot.
    pub(crate) begin: &'static str,
}

/// A line of a plot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    /// Name of the line. Empty for the only one.
    pub(crate) name: &'static str,
    /// Class in the style sheet: `line0`, `line1`.
    pub(crate) class: String,
    /// Points of each part between gaps, in the format of an SVG polyline.
    pub(crate) parts: Vec<String>,
    /// Newest value with its unit.
    pub(crate) value: String,
}

/// A plot with its title.
#[derive(Debug, Clone, Template)]
#[template(path = "plot.html")]
pub(crate) struct Plot {
    /// Title of the plot.
    pub(crate) title: &'static str,
    /// Lines, each with its color.
    pub(crate) lines: Vec<Line>,
    /// Label of the start of the time axis.
    pub(crate) begin: &'static str,
    /// Highest value of the axis.
    pub(crate) top: String,
    /// Description for screen readers.
    pub(crate) label: String,
}

/// Draws a plot of a range. `unit` follows each value.
pub(crate) fn plot(title: &'static str, unit: &str, range: Range, series: &[Series]) -> Plot {
    let Range { seconds, begin } = range;
    let values = series.iter().flat_map(|s| s.points.iter().filter_map(|(_, value)| *value));
    let highest = values.fold(0.0, f64::max);
    let top = ceiling(highest);
    let lines: Vec<Line> = series
        .iter()
        .enumerate()
        .map(|(index, series)| Line {
            name: series.name,
            class: format!("line{index}"),
            parts: parts(&series.points, seconds, top),
            value: newest(&series.points, unit),
        })
        .collect();
    let described: Vec<String> = lines
        .iter()
        .map(|line| match line.name {
            "" => line.value.clone(),
            name => format!("{name} {}", line.value),
        })
        .collect();
    let label = format!("{title}: now {}; highest {}", described.join(", "), number(highest, unit));
    Plot { title, lines, begin, top: number(top, unit), label }
}

fn newest(points: &[(f64, Option<f64>)], unit: &str) -> String {
    match points.iter().rev().find_map(|(_, value)| *value) {
        Some(value) => number(value, unit),
        None => "–".to_owned(),
    }
}

fn parts(points: &[(f64, Option<f64>)], seconds: f64, top: f64) -> Vec<String> {
    let mut parts: Vec<Vec<String>> = vec![Vec::new()];
    for (ago, value) in points.iter().filter(|(ago, _)| *ago <= seconds) {
        match value {
            Some(value) => {
                let x = WIDTH * (1.0 - ago / seconds);
                let y = HEIGHT - (HEIGHT - TOP) * value / top;
                if let Some(part) = parts.last_mut() {
                    part.push(format!("{x:.1},{y:.1}"));
                }
            }
            None => parts.push(Vec::new()),
        }
    }
    let line = |part: Vec<String>| match part.as_slice() {
        // A line between equal points shows as a dot, because its ends are round.
        [point] => format!("{point} {point}"),
        points => points.join(" "),
    };
    parts.into_iter().filter(|part| !part.is_empty()).map(line).collect()
}

/// Returns the next number of 1, 2, 5, 10, … that is not below a value.
fn ceiling(value: f64) -> f64 {
    if value <= 0.0 || !value.is_finite() {
        return 1.0;
    }
    let unit = 10f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0];
    steps.into_iter().map(|step| step * unit).find(|step| *step >= value).unwrap_or(value)
}

/// Formats a value with two significant digits.
fn number(value: f64, unit: &str) -> String {
    let text = match value {
        0.0 => "0".to_owned(),
        v if v < 1.0 => format!("{v:.2}"),
        v if v < 10.0 && v.fract() != 0.0 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    };
    match unit {
        "" => text,
        unit => format!("{text} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_value_is_at_the_right_and_gaps_part_the_line() {
        let points = [
            (400.0, Some(9000.0)),
            (100.0, Some(10.0)),
            (50.0, None),
            (25.0, Some(20.0)),
            (0.0, Some(5.5)),
        ];
        let range = Range { seconds: 100.0, begin: "100 s ago" };
        let plot =
            plot("Writes", "/s", range, &[Series { name: "", points: points[1..].to_vec() }]);
        assert_eq!(plot.lines[0].parts, ["0.0,38.0 0.0,38.0", "225.0,4.0 300.0,53.3"]);
        assert_eq!((&*plot.lines[0].value, &*plot.top), ("5.5 /s", "20 /s"));
        assert_eq!(plot.label, "Writes: now 5.5 /s; highest 20 /s");
        let old =
            super::plot("Writes", "", range, &[Series { name: "", points: points[..1].to_vec() }]);
        assert!(old.lines[0].parts.is_empty(), "before the time that is shown");
    }

    #[test]
    fn axes_end_at_round_numbers() {
        for (value, want) in
            [(0.0, 1.0), (0.03, 0.05), (1.0, 1.0), (3.0, 5.0), (11.0, 20.0), (900.0, 1000.0)]
        {
            assert!((ceiling(value) - want).abs() < 1e-9, "{value}");
        }
        let range = Range { seconds: 60.0, begin: "a minute ago" };
        let none = plot("Empty", "ms", range, &[Series { name: "reads", points: Vec::new() }]);
        assert!(none.render().expect("rendered").contains("<span>a minute ago</span>"));
        assert_eq!(none.label, "Empty: now reads –; highest 0 ms");
    }
}
