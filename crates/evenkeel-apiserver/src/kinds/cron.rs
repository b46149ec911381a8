//! Whether a cron schedule can be read, in the dialect that CronJobs take (robfig/cron's standard parser).

const DESCRIPTORS: [&str; 7] =
    ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];
const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// What is wrong with a schedule.
pub(crate) fn check(schedule: &str) -> Result<(), String> {
    if let Some(every) = schedule.strip_prefix("@every ") {
        return if is_duration(every) {
            Ok(())
        } else {
            Err(format!("failed to parse duration {schedule}"))
        };
    }
    if schedule.starts_with('@') {
        return if DESCRIPTORS.contains(&schedule) {
            Ok(())
        } else {
            Err(format!("unrecognized descriptor: {schedule}"))
        };
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != 5 {
        return Err(format!(
            "expected exactly 5 fields, found {}: [{}]",
            fields.len(),
            fields.join(" ")
        ));
    }
    let bounds: [(u32, u32, &[&str]); 5] =
        [(0, 59, &[]), (0, 23, &[]), (1, 31, &[]), (1, 12, &MONTHS), (0, 6, &DAYS)];
    for (field, (low, high, names)) in fields.iter().zip(bounds) {
        for part in field.split(',') {
            range(part, low, high, names)?;
        }
    }
    Ok(())
}

fn range(part: &str, low: u32, high: u32, names: &[&str]) -> Result<(), String> {
    let (span, step) = match part.split_once('/') {
        Some((span, step)) if !step.contains('/') => (span, Some(step)),
        Some(_) => return Err(format!("too many slashes: {part}")),
        None => (part, None),
    };
    let (first, last) = if span == "*" || span == "?" {
        (low, high)
    } else {
        match span.split_once('-') {
            Some((first, last)) => (number(first, low, names)?, number(last, low, names)?),
            None => {
                let first = number(span, low, names)?;
                (first, if step.is_some() { high } else { first })
            }
        }
    };
    if first < low {
        return Err(format!("beginning of range ({first}) below minimum ({low}): {part}"));
    }
    if last > high {
        return Err(format!("end of range ({last}) above maximum ({high}): {part}"));
    }
    if first > last {
        return Err(format!("beginning of range ({first}) beyond end of range ({last}): {part}"));
    }
    match step.map(|step| number(step, 0, &[])) {
        Some(Err(error)) => Err(error),
        Some(Ok(0)) => Err(format!("step of range should be a positive number: {part}")),
        _ => Ok(()),
    }
}

fn number(text: &str, low: u32, names: &[&str]) -> Result<u32, String> {
    if let Some(at) = names.iter().position(|name| name.eq_ignore_ascii_case(text)) {
        return u32::try_from(at).map(|at| at + low).map_err(|error| error.to_string());
    }
    text.parse().map_err(|_| {
        format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax")
    })
}

/// A Go duration, such as `1h30m`.
fn is_duration(text: &str) -> bool {
    let mut rest = text;
    while !rest.is_empty() {
        let digits =
            rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
        if digits == 0 {
            return false;
        }
        rest = &rest[digits..];
        let Some(unit) =
            ["ns", "us", "µs", "ms", "s", "m", "h"].iter().find(|unit| rest.starts_with(**unit))
        else {
            return false;
        };
        rest = &rest[unit.len()..];
    }
    !text.is_empty()
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn schedules() {
        for good in [
            "* * * * *",
            "@hourly",
            "@every 1h30m",
            "0 0 * JAN-MAR MON",
            "*/15 0-6/2 1,15 * ?",
            "5/10 * * * 0",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "bad",
            "* * * *",
            "60 * * * *",
            "* 24 * * *",
            "* * 0 * *",
            "5-1 * * * *",
            "*/0 * * * *",
            "@often",
            "@every x",
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}
