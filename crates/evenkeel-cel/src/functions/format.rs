//! Formatting of values: the method `format` of strings. Upstream: cel-go's `ext/formatting.go`.

use evenkeel_api::quote::quote;

use super::convert;
use super::number::{double_text, parse_i64};
use crate::eval::Failure;
use crate::value::Val;

/// Maximum number of decimal places of a double that are not all 0: the least positive one is 2^-1074.
const MAX_DECIMAL_PLACES: usize = 1_074;

/// Formats the verbs `%s`, `%d`, `%f`, `%e`, `%b`, `%x`, `%X` and `%o`; `%f` and `%e` may have a precision.
///
/// # Errors
/// Fails if a verb or its value is wrong, or the result is longer than `limit` in bytes.
pub(crate) fn format(text: &str, args: &Val<'_>, limit: u64) -> Result<String, Failure> {
    let mut out = Output { text: String::new(), limit };
    let mut rest = text;
    let mut args = args.elements();
    let mut index = 0;
    while let Some(at) = rest.find('%') {
        let (before, after) = rest.split_at(at);
        out.push(before)?;
        let after = &after[1..];
        if let Some(after) = after.strip_prefix('%') {
            out.push("%")?;
            rest = after;
            continue;
        }
        let value = args.next().ok_or_else(|| format!("index {index} out of range"))?;
        if after.is_empty() {
            return Err("unexpected end of string".to_owned().into());
        }
        let (verb, precision, after) =
            clause(after).map_err(|error| format!("could not parse formatting clause: {error}"))?;
        out.push_formatted(verb, precision, &value)?;
        rest = after;
        index += 1;
    }
    out.push(rest)?;
    Ok(out.text)
}

/// Parses the clause after a percent sign: returns the verb, the precision, and the rest.
pub(crate) fn clause(text: &str) -> Result<(char, Option<usize>, &str), String> {
    let wrong = |why: &str| format!("error while parsing precision: {why}");
    let (precision, rest) = match text.strip_prefix('.') {
        None => (None, text),
        Some(rest) => {
            let length = rest
                .find(|c: char| !c.is_ascii_digit())
                .ok_or_else(|| wrong("could not find end of precision specifier"))?;
            let (digits, rest) = rest.split_at(length);
            let number = parse_i64(digits).map_err(|error| {
                wrong(&format!("error while converting precision to integer: {error}"))
            })?;
            (usize::try_from(number).ok(), rest)
        }
    };
    let mut letters = rest.chars();
    match letters.next() {
        Some(verb @ ('s' | 'd' | 'f' | 'e' | 'b' | 'x' | 'X' | 'o')) => {
            Ok((verb, precision, letters.as_str()))
        }
        // Upstream shows the first byte.
        other => {
            let first = other.map_or(0, |c| c.encode_utf8(&mut [0; 4]).as_bytes()[0]);
            Err(format!("unrecognized formatting clause \"{}\"", char::from(first)))
        }
    }
}

/// Formatted string with a maximum length. A longer string fails as if it exceeded the cost budget.
struct Output {
    text: String,
    /// Maximum length in bytes.
    limit: u64,
}

impl Output {
    fn push(&mut self, text: &str) -> Result<(), Failure> {
        self.check_limit(text.len())?;
        self.text.push_str(text);
        Ok(())
    }

    /// Appends `with` to the string `count` times.
    fn pad(&mut self, with: &str, count: usize) -> Result<(), Failure> {
        self.check_limit(count.saturating_mul(with.len()))?;
        self.text.push_str(&with.repeat(count));
        Ok(())
    }

    /// Checks that this number of bytes can be added.
    fn check_limit(&self, length: usize) -> Result<(), Failure> {
        let total = (self.text.len() as u64).saturating_add(length as u64);
        if total > self.limit { Err(Failure::BudgetExceeded) } else { Ok(()) }
    }

    /// Formats a value by the verb of a clause, such as `d` of `%d`.
    fn push_formatted(
        &mut self,
        verb: char,
        precision: Option<usize>,
        value: &Val<'_>,
    ) -> Result<(), Failure> {
        let wrong = |what: &str| -> Failure {
            format!("error during formatting: {what}, was given {}", value.type_name()).into()
        };
        match (verb, value) {
            ('s', value) => self.push_as_string(value, false),
            ('d', Val::Int(_) | Val::Uint(_)) => self.push(&value.shown()),
            ('d', _) => Err(wrong("decimal clause can only be used on integers")),
            ('f', value) => {
                let number = double(value)
                    .ok_or_else(|| wrong("fixed-point clause can only be used on doubles"))?;
                self.fixed(number, precision.unwrap_or(6))
            }
            ('e', value) => {
                let number = double(value)
                    .ok_or_else(|| wrong("scientific clause can only be used on doubles"))?;
                let text = scientific(number);
                // Upstream uses the precision as the width.
                let width = precision.unwrap_or(6);
                self.pad(" ", width.saturating_sub(text.chars().count()))?;
                self.push(&text)
            }
            ('b', Val::Bool(b)) => self.push(if *b { "1" } else { "0" }),
            ('b' | 'o' | 'x' | 'X', Val::Int(n)) => {
                let sign = if *n < 0 { "-" } else { "" };
                self.push(&format!("{sign}{}", in_base(verb, n.unsigned_abs())))
            }
            ('b' | 'o' | 'x' | 'X', Val::Uint(n)) => self.push(&in_base(verb, *n)),
            ('x' | 'X', Val::Str(text)) => self.hexadecimal(verb, text.as_bytes()),
            ('x' | 'X', Val::Bytes(bytes)) => self.hexadecimal(verb, bytes),
            ('b', _) => Err(wrong("only integers and bools can be formatted as binary")),
            ('o', _) => Err(wrong("octal clause can only be used on integers")),
            _ => Err(wrong("only integers, byte buffers, and strings can be formatted as hex")),
        }
    }

    fn hexadecimal(&mut self, verb: char, bytes: &[u8]) -> Result<(), Failure> {
        self.check_limit(bytes.len().saturating_mul(2))?;
        for byte in bytes {
            self.push(&if verb == 'x' { format!("{byte:02x}") } else { format!("{byte:02X}") })?;
        }
        Ok(())
    }

    /// Formats a number with commas between thousands, as upstream's printer for `en_US` does.
    fn fixed(&mut self, number: f64, precision: usize) -> Result<(), Failure> {
        if !number.is_finite() {
            return self.push(not_finite(number));
        }
        let text = format!("{:.*}", precision.min(MAX_DECIMAL_PLACES), number.abs());
        let (integer, fraction) = text.split_once('.').unwrap_or((&text, ""));
        if number < 0.0 {
            self.push("-")?;
        }
        for (index, digit) in integer.char_indices() {
            if index > 0 && (integer.len() - index) % 3 == 0 {
                self.push(",")?;
            }
            self.push(digit.encode_utf8(&mut [0; 4]))?;
        }
        if precision > 0 {
            self.push(".")?;
            self.push(fraction)?;
            self.pad("0", precision.saturating_sub(MAX_DECIMAL_PLACES))?;
        }
        Ok(())
    }

    /// Formats a value for `%s`. A value within a list or map is formatted as a literal, so that strings have quotes.
    fn push_as_string(&mut self, value: &Val<'_>, is_nested: bool) -> Result<(), Failure> {
        if value.list_len().is_some() {
            self.push("[")?;
            for (index, item) in value.elements().enumerate() {
                self.push(if index > 0 { ", " } else { "" })?;
                self.push_as_string(&item, true)?;
            }
            return self.push("]");
        }
        if let Some(pairs) = value.pairs() {
            return self.map(pairs);
        }
        match value {
            Val::Null => self.push("null"),
            Val::Type(name) => self.push(name),
            Val::Double(n) if is_nested => {
                let is_literal = n.is_finite();
                let text = if is_literal { format!("{n:.6}") } else { quote(&double_text(*n)) };
                self.push(&text)
            }
            Val::Bool(_)
            | Val::Int(_)
            | Val::Uint(_)
            | Val::Double(_)
            | Val::Str(_)
            | Val::Bytes(_)
            | Val::Time(_)
            | Val::Duration(_) => {
                let text = convert::string(value).map_err(|error| {
                    format!(
                        "error during formatting: could not convert argument {} to string",
                        quote(&error)
                    )
                })?;
                let Val::Str(text) = text else { return Ok(()) };
                match value {
                    Val::Str(_) if is_nested => self.push(&quote(&text)),
                    Val::Bytes(_) if is_nested => self.push(&format!("b{}", quote(&text))),
                    Val::Time(_) if is_nested => self.push(&format!("timestamp({})", quote(&text))),
                    Val::Duration(_) if is_nested => self.push(&format!("duration({})", quote(&text))),
                    _ => self.push(&text),
                }
            }
            value if is_nested => Err(format!(
                "error during formatting: no formatting function for {}",
                value.type_name()
            )
            .into()),
            value => Err(format!(
                "error during formatting: string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps, was given {}",
                value.type_name()
            )
            .into()),
        }
    }

    fn map<'a>(&mut self, pairs: impl Iterator<Item = (Val<'a>, Val<'a>)>) -> Result<(), Failure> {
        let mut entries = Vec::new();
        let mut length = self.text.len() as u64;
        for (key, value) in pairs {
            let key = match key {
                Val::Str(text) => quote(&text),
                Val::Bool(_) | Val::Int(_) | Val::Uint(_) => key.shown(),
                other => {
                    return Err(format!(
                        "error during formatting: no formatting function for map key of type {}",
                        other.type_name()
                    )
                    .into());
                }
            };
            length = length.saturating_add(key.len() as u64);
            if length > self.limit {
                return Err(Failure::BudgetExceeded);
            }
            entries.push((key, value));
        }
        entries.sort_by(|(a, _), (b, _)| a.cmp(b));
        self.push("{")?;
        for (index, (key, value)) in entries.iter().enumerate() {
            self.push(if index > 0 { ", " } else { "" })?;
            self.push(key)?;
            self.push(":")?;
            self.push_as_string(value, true)?;
        }
        self.push("}")
    }
}

/// Returns a double, or the special value of a string such as `Infinity`; `None` for other values.
fn double(value: &Val<'_>) -> Option<f64> {
    match value {
        Val::Double(n) => Some(*n),
        Val::Str(text) => match &**text {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

/// Formats NaN or an infinity.
fn not_finite(number: f64) -> &'static str {
    if number.is_nan() {
        "NaN"
    } else if number > 0.0 {
        "∞"
    } else {
        "-∞"
    }
}

/// Formats a number with six digits and a power of ten, as upstream's printer does.
fn scientific(number: f64) -> String {
    if !number.is_finite() {
        return not_finite(number).to_owned();
    }
    // Adding 0 makes a negative zero positive.
    let text = format!("{:.6e}", number + 0.0);
    let Some((digits, exponent)) = text.split_once('e') else { return text };
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(exponent) => ("⁻", exponent),
        None => ("", exponent),
    };
    let superscript: String = format!("{exponent:0>2}")
        .chars()
        .map(|digit| digit.to_digit(10).map_or(digit, |number| SUPERSCRIPTS[number as usize]))
        .collect();
    format!("{digits}×10{sign}{superscript}")
}

/// Superscript digits for an exponent.
const SUPERSCRIPTS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];

fn in_base(verb: char, number: u64) -> String {
    match verb {
        'b' => format!("{number:b}"),
        'o' => format!("{number:o}"),
        'x' => format!("{number:x}"),
        _ => format!("{number:X}"),
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::assert_results;

    #[test]
    fn verbs_are_formatted_as_upstream_formats_them() {
        for (format, args, want) in [
            ("%.3f", "1234567.5", "1,234,567.500"),
            ("%f", "-1234.5", "-1,234.500000"),
            ("%f", "0.0 / 0.0", "NaN"),
            ("%f", "'-Infinity'", "-∞"),
            ("%.0f", "2.5", "2"),
            ("%.40f", "0.1", "0.1000000000000000055511151231257827021182"),
            ("%e", "1052.032911275", "1.052033×10⁰³"),
            ("%e", "1e-7", "1.000000×10⁻⁰⁷"),
            ("%.20e", "1.5", "       1.500000×10⁰⁰"),
            ("%s", "1e20", "1e+20"),
            ("%s", "[1.0, 2.5]", "[1.000000, 2.500000]"),
            ("%s", "['a', 'b']", "['a', 'b']"),
            (
                "%s",
                "{'b': 1, 'a': [1.5, null], 'B': b'x'}",
                "{'B':b'x', 'a':[1.500000, null], 'b':1}",
            ),
            (
                "%s",
                "[duration('1h'), timestamp('2026-01-01T00:00:00.5Z'), type(1)]",
                "[duration('3600s'), timestamp('2026-01-01T00:00:00.5Z'), int]",
            ),
            ("%s", "duration('1h')", "3600s"),
            ("%s", "b'ab'", "ab"),
            ("%s", "[1.0 / 0.0]", "['+Inf']"),
            ("%d", "-9223372036854775808", "-9223372036854775808"),
            ("%b", "-5", "-101"),
            ("%b", "true", "1"),
            ("%o", "8u", "10"),
            ("%x", "-255", "-ff"),
            ("%X", "'hello'", "68656C6C6F"),
            ("é%s%%", "'é'", "éé%"),
        ] {
            let want = serde_json::json!(want.replace('\'', "\"")).to_string();
            assert_results(&[(&format!("'{format}'.format([{args}])"), &want)]);
        }
    }

    #[test]
    fn a_wrong_verb_or_value_is_an_error() {
        for (format, args, want) in [
            ("%s %s", "'a'", "index 1 out of range"),
            ("%s", "", "index 0 out of range"),
            ("%", "'a'", "unexpected end of string"),
            (
                "%.",
                "'a'",
                "could not parse formatting clause: error while parsing precision: could not find end of precision specifier",
            ),
            (
                "%.s",
                "'a'",
                "could not parse formatting clause: error while parsing precision: error while converting precision to integer: strconv.Atoi: parsing \"\": invalid syntax",
            ),
            (
                "%z",
                "'a'",
                "could not parse formatting clause: unrecognized formatting clause \"z\"",
            ),
            (
                "%é",
                "'a'",
                "could not parse formatting clause: unrecognized formatting clause \"Ã\"",
            ),
            (
                "%f",
                "1",
                "error during formatting: fixed-point clause can only be used on doubles, was given int",
            ),
            (
                "%e",
                "'x'",
                "error during formatting: scientific clause can only be used on doubles, was given string",
            ),
            (
                "%d",
                "1.0",
                "error during formatting: decimal clause can only be used on integers, was given double",
            ),
            (
                "%b",
                "'a'",
                "error during formatting: only integers and bools can be formatted as binary, was given string",
            ),
            (
                "%o",
                "'a'",
                "error during formatting: octal clause can only be used on integers, was given string",
            ),
            (
                "%x",
                "1.5",
                "error during formatting: only integers, byte buffers, and strings can be formatted as hex, was given double",
            ),
            (
                "%s",
                "quantity('1')",
                "error during formatting: string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps, was given kubernetes.Quantity",
            ),
        ] {
            assert_results(&[(&format!("'{format}'.format([{args}])"), &format!("error: {want}"))]);
        }
    }

    #[test]
    fn a_precision_is_charged_before_the_digits_are_written() {
        assert_results(&[
            ("'%.70000f'.format([1.0]).size()", "70002"),
            ("'%.999999999f'.format([1.0])", "cost"),
            ("'%.999999999e'.format([1.0])", "cost"),
            (
                "'%.99999999999999999999f'.format([1.0])",
                "error: could not parse formatting clause: error while parsing precision: error while converting precision to integer: strconv.Atoi: parsing \"99999999999999999999\": value out of range",
            ),
        ]);
    }
}
