//! JSON paths of printer columns and selectable fields.
//!
//! Upstream: `k8s.io/client-go/util/jsonpath`.

use serde_json::Value;

/// Maximum nesting of brackets. A path with deeper nesting selects nothing.
const MAX_NESTING: usize = 16;

/// Maximum number of values that one search visits. Steps such as `..` multiply their results, so even a short path
/// could run for hours. A search that exceeds the limit selects nothing.
const MAX_VISITS: usize = 1_000_000;

/// Parsed JSON path. A step that cannot be parsed selects nothing.
#[derive(Debug, Clone, Default)]
pub struct JsonPath(Vec<Step>);

/// Step of a path.
#[derive(Debug, Clone)]
enum Step {
    Field(Box<str>),
    /// An element. A negative index counts from the end.
    Index(i64),
    /// Every `step`-th element of a range. A negative bound counts from the end.
    Slice {
        from: Option<i64>,
        to: Option<i64>,
        step: usize,
    },
    /// All elements or fields: `*`.
    All,
    /// The value and all nested values: `..`.
    Descendants,
    /// The elements whose value at the path compares to the operand.
    Filter(JsonPath, Operator, Operand),
    /// The values that any of these steps selects.
    Union(Vec<Step>),
    /// No value, because the step cannot be parsed.
    Nothing,
}

/// Operator of a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Exists,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Operand of a filter.
#[derive(Debug, Clone)]
enum Operand {
    Value(Value),
    Path(JsonPath),
}

impl JsonPath {
    /// Parses a path such as `.spec.items[0].name` or `.status.conditions[?(@.type=="Ready")].status`.
    pub fn parse(text: &str) -> Self {
        Self::parse_nested(text, MAX_NESTING)
    }

    /// Parses a path like [`JsonPath::parse`]. Brackets may nest at most `remaining_nesting` deep.
    fn parse_nested(text: &str, remaining_nesting: usize) -> Self {
        let mut steps = Vec::new();
        let mut rest = text.trim();
        rest = rest.strip_prefix('$').or_else(|| rest.strip_prefix('@')).unwrap_or(rest);
        while !rest.is_empty() {
            rest = match rest.as_bytes()[0] {
                b'.' if rest.starts_with("..") => {
                    steps.push(Step::Descendants);
                    // The field name follows directly, without another dot.
                    let (step, after) = parse_field(&rest[2..]);
                    steps.push(step);
                    after
                }
                b'.' => {
                    if rest.len() == 1 || rest[1..].starts_with('[') {
                        &rest[1..]
                    } else {
                        let (step, after) = parse_field(&rest[1..]);
                        steps.push(step);
                        after
                    }
                }
                b'[' => match (closing_bracket(rest), remaining_nesting.checked_sub(1)) {
                    (Some(end), Some(remaining_nesting)) => {
                        steps.push(parse_bracket(rest[1..end].trim(), remaining_nesting));
                        &rest[end + 1..]
                    }
                    _ => {
                        steps.push(Step::Nothing);
                        ""
                    }
                },
                _ => {
                    let (step, after) = parse_field(rest);
                    steps.push(step);
                    after
                }
            };
        }
        Self(steps)
    }

    /// Returns all values that the path selects.
    pub fn find<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        self.search(value, &mut { MAX_VISITS }).unwrap_or_default()
    }

    /// Returns the selected values, or `None` if more than the remaining `visits` are needed.
    fn search<'a>(&self, value: &'a Value, visits: &mut usize) -> Option<Vec<&'a Value>> {
        let mut found = vec![value];
        for step in &self.0 {
            let mut next = Vec::new();
            for value in found {
                step.apply(value, &mut next, visits)?;
            }
            found = next;
        }
        Some(found)
    }
}

/// Deducts `count` from the remaining visits. Returns `None` if too few remain.
fn visit(visits: &mut usize, count: usize) -> Option<()> {
    *visits = visits.checked_sub(count)?;
    Some(())
}

/// Parses a field name up to the next dot or bracket. Returns its step, and the rest of `text`. A backslash escapes a
/// dot.
fn parse_field(text: &str) -> (Step, &str) {
    let mut name = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => name.extend(chars.next().map(|(_, c)| c)),
            '.' | '[' => return (field_step(name), &text[at..]),
            _ => name.push(c),
        }
    }
    (field_step(name), "")
}

fn field_step(name: String) -> Step {
    if name == "*" { Step::All } else { Step::Field(name.into()) }
}

/// Returns the index of the bracket that closes the first one, or `None` if it is never closed.
fn closing_bracket(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0, None);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(q), c) if q == c => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// Parses the expression within brackets.
fn parse_bracket(text: &str, remaining_nesting: usize) -> Step {
    if text == "*" {
        return Step::All;
    }
    if let Some(filter) = text.strip_prefix("?(").and_then(|t| t.strip_suffix(')')) {
        return parse_filter(filter, remaining_nesting);
    }
    if let Some(name) = unquoted(text) {
        return Step::Field(name.into());
    }
    let parts = split_outside_quotes(text, ',');
    if parts.len() > 1 {
        let steps = parts.into_iter().map(|part| parse_bracket(part.trim(), remaining_nesting));
        return Step::Union(steps.collect());
    }
    if let Some((from, to)) = text.split_once(':') {
        let number = |text: &str| text.trim().parse().ok();
        let (to, step) = to.split_once(':').unwrap_or((to, ""));
        let step = if step.trim().is_empty() { Ok(1) } else { step.trim().parse() };
        return match step {
            Ok(step) if step > 0 => Step::Slice { from: number(from), to: number(to), step },
            // Upstream refuses a step below one.
            _ => Step::Nothing,
        };
    }
    text.parse().map_or(Step::Nothing, Step::Index)
}

/// Returns the string within single or double quotes; `None` without quotes.
fn unquoted(text: &str) -> Option<&str> {
    let inner = |q: char| text.strip_prefix(q)?.strip_suffix(q).filter(|inner| !inner.contains(q));
    ['\'', '"'].into_iter().find_map(inner)
}

/// Splits a string at each separator that is not in quotes.
fn split_outside_quotes(text: &str, separator: char) -> Vec<&str> {
    let (mut parts, mut start, mut quote) = (Vec::new(), 0, None);
    for (at, c) in text.char_indices() {
        match quote {
            Some(q) if q == c => quote = None,
            Some(_) => {}
            None if matches!(c, '\'' | '"') => quote = Some(c),
            None if c == separator => {
                parts.push(&text[start..at]);
                start = at + c.len_utf8();
            }
            None => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

/// Parses a filter such as `@.type=="Ready"`; without an operator, it tests whether the path exists.
fn parse_filter(text: &str, remaining_nesting: usize) -> Step {
    const OPERATORS: [(&str, Operator); 6] = [
        ("==", Operator::Equal),
        ("!=", Operator::NotEqual),
        ("<=", Operator::LessOrEqual),
        (">=", Operator::GreaterOrEqual),
        ("<", Operator::Less),
        (">", Operator::Greater),
    ];
    let parse_path = |text: &str| JsonPath::parse_nested(text.trim(), remaining_nesting);
    let is_operator_char = |c: char| matches!(c, '!' | '<' | '>' | '=');
    // The operand may be a string that contains operators, so that only the first one counts.
    let Some(start) = text.find(is_operator_char) else {
        return Step::Filter(parse_path(text), Operator::Exists, Operand::Value(Value::Null));
    };
    let (path, rest) = text.split_at(start);
    let length = rest.find(|c| !is_operator_char(c)).unwrap_or(rest.len());
    let (symbol, right) = rest.split_at(length);
    let Some((_, operator)) = OPERATORS.iter().find(|(known, _)| *known == symbol) else {
        return Step::Nothing;
    };
    let right = right.trim();
    let operand = match unquoted(right) {
        Some(text) => Operand::Value(Value::from(text)),
        None if right.starts_with('@') => Operand::Path(parse_path(right)),
        None => Operand::Value(serde_json::from_str(right).unwrap_or_default()),
    };
    Step::Filter(parse_path(path), *operator, operand)
}

impl Step {
    /// Appends the values that the step selects to `found`. Returns `None` if more than the remaining `visits` are
    /// needed.
    fn apply<'a>(
        &self,
        value: &'a Value,
        found: &mut Vec<&'a Value>,
        visits: &mut usize,
    ) -> Option<()> {
        visit(visits, 1)?;
        let before = found.len();
        match self {
            Self::Field(name) => found.extend(value.get(&**name)),
            Self::Index(at) => {
                let items = value.as_array().map_or(&[][..], Vec::as_slice);
                let at = if *at < 0 { items.len() as i64 + at } else { *at };
                found.extend(usize::try_from(at).ok().and_then(|at| items.get(at)));
            }
            Self::Slice { from, to, step } => {
                let items = value.as_array().map_or(&[][..], Vec::as_slice);
                let length = items.len() as i64;
                let clamped = |at: i64| (if at < 0 { length + at } else { at }).clamp(0, length);
                let (from, to) = (clamped(from.unwrap_or(0)), clamped(to.unwrap_or(length)));
                let range = items.iter().skip(from as usize).take((to - from).max(0) as usize);
                found.extend(range.step_by(*step));
            }
            Self::All => found.extend(children(value)),
            Self::Descendants => {
                found.push(value);
                let mut at = before;
                while let Some(value) = found.get(at).copied() {
                    found.extend(children(value));
                    at += 1;
                }
            }
            Self::Filter(path, operator, operand) => {
                for item in children(value) {
                    if matches_filter(item, path, *operator, operand, visits)? {
                        found.push(item);
                    }
                }
            }
            Self::Union(steps) => {
                for step in steps {
                    step.apply(value, found, visits)?;
                }
            }
            Self::Nothing => {}
        }
        visit(visits, found.len() - before)
    }
}

/// Iterates over the elements of a list, or the values of an object's fields.
fn children(value: &Value) -> impl Iterator<Item = &Value> {
    let items = value.as_array().map_or(&[][..], Vec::as_slice);
    items.iter().chain(value.as_object().into_iter().flat_map(serde_json::Map::values))
}

/// Returns whether an item matches a filter, or `None` if more than the remaining `visits` are needed.
fn matches_filter(
    item: &Value,
    path: &JsonPath,
    operator: Operator,
    operand: &Operand,
    visits: &mut usize,
) -> Option<bool> {
    let Some(left) = path.search(item, visits)?.first().copied() else { return Some(false) };
    if operator == Operator::Exists {
        return Some(true);
    }
    let right = match operand {
        Operand::Value(value) => value,
        Operand::Path(path) => match path.search(item, visits)?.first() {
            Some(value) => value,
            None => return Some(false),
        },
    };
    Some(compare(left, operator, right))
}

fn compare(left: &Value, operator: Operator, right: &Value) -> bool {
    let order = match (left, right) {
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::Number(a), Value::Number(b)) => {
            a.as_f64().zip(b.as_f64()).and_then(|(a, b)| a.partial_cmp(&b))
        }
        _ => None,
    };
    match operator {
        Operator::Exists => true,
        Operator::Equal => left == right,
        Operator::NotEqual => left != right,
        Operator::Less => order.is_some_and(std::cmp::Ordering::is_lt),
        Operator::LessOrEqual => order.is_some_and(std::cmp::Ordering::is_le),
        Operator::Greater => order.is_some_and(std::cmp::Ordering::is_gt),
        Operator::GreaterOrEqual => order.is_some_and(std::cmp::Ordering::is_ge),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::JsonPath;

    #[test]
    fn paths_select_fields_elements_slices_unions_and_filtered_items() {
        let object =
            json!({"spec": {"l": [{"x": "p", "n": 1}, {"x": "q", "n": 2}], "m": {"a.b": 5}}});
        for (path, want) in [
            (".spec.l[0].x", json!(["p"])),
            (".spec.l[-1].x", json!(["q"])),
            (".spec.l[*].x", json!(["p", "q"])),
            (".spec.l[?(@.x==\"q\")].n", json!([2])),
            (".spec.l[?(@.n>1)].x", json!(["q"])),
            (".spec.l[?(@.x)].n", json!([1, 2])),
            (".spec.m['a.b']", json!([5])),
            (".spec.m.a\\.b", json!([5])),
            ("..x", json!(["p", "q"])),
            (".spec.l[0:1].n", json!([1])),
            (".spec.l[0,1].n", json!([1, 2])),
            (".spec.l[0:2:2].n", json!([1])),
            (".spec.l[0:2:0].n", json!([])),
            (".spec.l[0]['x','n']", json!(["p", 1])),
            (".spec.l[?(@.x!=\"a==b\")].n", json!([1, 2])),
            (".spec.l[?(@.x=\"q\")].n", json!([])),
            (".spec.nope", json!([])),
            (".spec.l[", json!([])),
        ] {
            assert_eq!(json!(JsonPath::parse(path).find(&object)), want, "{path}");
        }
    }

    #[test]
    fn paths_that_nest_or_multiply_without_bound_select_nothing() {
        let mut nest = json!({});
        for _ in 0..200 {
            nest = json!([nest, 1]);
        }
        for path in [
            "..".repeat(20) + "x",
            "..*".repeat(20),
            "[0,0]".repeat(200),
            format!("{}{}", "[?(@".repeat(100_000), ")]".repeat(100_000)),
            format!("{}x{}", "[?(@..".repeat(10), ")]".repeat(10)),
        ] {
            assert!(JsonPath::parse(&path).find(&nest).is_empty(), "{}", &path[..20]);
        }
    }
}
