//! JSON paths of printer columns and selectable fields.
//!
//! Upstream: `k8s.io/client-go/util/jsonpath`.

use serde_json::Value;

/// Maximum nesting of brackets. A deeper path selects nothing.
const MAX_NESTED: usize = 16;

/// Maximum number of values that one search visits. Steps such as `..` multiply their results, so even a short path
/// could run for hours. A search that exceeds the limit selects nothing.
const MAX_VISITS: usize = 1_000_000;

/// Parsed JSON path. A step that cannot be parsed selects nothing.
#[derive(Debug, Clone, Default)]
pub struct JsonPath(Vec<Step>);

#[derive(Debug, Clone)]
enum Step {
    Field(Box<str>),
    /// An element. A negative index counts from the end.
    Index(i64),
    /// Every n-th element of a range.
    Slice(Option<i64>, Option<i64>, usize),
    All,
    /// The value and all values below it.
    Deep,
    Filter(JsonPath, Operator, Operand),
    Union(Vec<Step>),
    Nothing,
}

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

#[derive(Debug, Clone)]
enum Operand {
    Value(Value),
    Path(JsonPath),
}

impl JsonPath {
    /// Parses a path such as `.spec.items[0].name` or `.status.conditions[?(@.type=="Ready")].status`.
    pub fn parse(text: &str) -> Self {
        Self::nested(text, MAX_NESTED)
    }

    /// Parses a path like [`JsonPath::parse`], with at most `left` more levels of nested brackets.
    fn nested(text: &str, left: usize) -> Self {
        let mut steps = Vec::new();
        let mut rest = text.trim();
        rest = rest.strip_prefix('$').or_else(|| rest.strip_prefix('@')).unwrap_or(rest);
        while !rest.is_empty() {
            rest = match rest.as_bytes()[0] {
                b'.' if rest.starts_with("..") => {
                    steps.push(Step::Deep);
                    // The field name follows directly, without another dot.
                    let (name, more) = field(&rest[2..]);
                    steps.push(name);
                    more
                }
                b'.' => {
                    if rest.len() == 1 || rest[1..].starts_with('[') {
                        &rest[1..]
                    } else {
                        let (name, more) = field(&rest[1..]);
                        steps.push(name);
                        more
                    }
                }
                b'[' => match closing(rest).zip(left.checked_sub(1)) {
                    Some((end, left)) => {
                        steps.push(bracket(rest[1..end].trim(), left));
                        &rest[end + 1..]
                    }
                    None => {
                        steps.push(Step::Nothing);
                        ""
                    }
                },
                _ => {
                    let (name, more) = field(rest);
                    steps.push(name);
                    more
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

/// Parses a field name up to the next dot or bracket. A backslash escapes a dot.
fn field(text: &str) -> (Step, &str) {
    let mut name = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => name.extend(chars.next().map(|(_, c)| c)),
            '.' | '[' => return (named(name), &text[at..]),
            _ => name.push(c),
        }
    }
    (named(name), "")
}

fn named(name: String) -> Step {
    if name == "*" { Step::All } else { Step::Field(name.into()) }
}

/// Returns the index of the bracket that closes the first one, or `None` if it is never closed.
fn closing(text: &str) -> Option<usize> {
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

fn bracket(text: &str, left: usize) -> Step {
    if text == "*" {
        return Step::All;
    }
    if let Some(filter) = text.strip_prefix("?(").and_then(|t| t.strip_suffix(')')) {
        return filter_step(filter, left);
    }
    if let Some(name) = unquoted(text) {
        return Step::Field(name.into());
    }
    let parts = outside_quotes(text, ',');
    if parts.len() > 1 {
        return Step::Union(parts.into_iter().map(|part| bracket(part.trim(), left)).collect());
    }
    if let Some((from, to)) = text.split_once(':') {
        let number = |t: &str| t.trim().parse().ok();
        let (to, step) = to.split_once(':').unwrap_or((to, ""));
        return match step.trim() {
            "" => Step::Slice(number(from), number(to), 1),
            // Upstream refuses a step below one.
            step => match step.parse() {
                Ok(step) if step > 0 => Step::Slice(number(from), number(to), step),
                _ => Step::Nothing,
            },
        };
    }
    text.parse().map_or(Step::Nothing, Step::Index)
}

fn unquoted(text: &str) -> Option<&str> {
    let inner = |q: char| text.strip_prefix(q)?.strip_suffix(q).filter(|inner| !inner.contains(q));
    ['\'', '"'].into_iter().find_map(inner)
}

/// Splits a text at a separator that is not in quotes.
fn outside_quotes(text: &str, separator: char) -> Vec<&str> {
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

fn filter_step(text: &str, left: usize) -> Step {
    const OPERATORS: [(&str, Operator); 6] = [
        ("==", Operator::Equal),
        ("!=", Operator::NotEqual),
        ("<=", Operator::LessOrEqual),
        (">=", Operator::GreaterOrEqual),
        ("<", Operator::Less),
        (">", Operator::Greater),
    ];
    // The first operator counts: what follows it may be a text with further ones.
    let is_sign = |c: char| matches!(c, '!' | '<' | '>' | '=');
    if let Some(at) = text.find(is_sign) {
        let (path, rest) = text.split_at(at);
        let (sign, right) = rest.split_at(rest.find(|c| !is_sign(c)).unwrap_or(rest.len()));
        let operator = OPERATORS.iter().find(|(known, _)| *known == sign);
        return operator.map_or(Step::Nothing, |(_, operator)| {
            let right = right.trim();
            let operand = match unquoted(right) {
                Some(text) => Operand::Value(Value::from(text)),
                None if right.starts_with('@') => Operand::Path(JsonPath::nested(right, left)),
                None => Operand::Value(serde_json::from_str(right).unwrap_or_default()),
            };
            Step::Filter(JsonPath::nested(path.trim(), left), *operator, operand)
        });
    }
    Step::Filter(JsonPath::nested(text.trim(), left), Operator::Exists, Operand::Value(Value::Null))
}

impl Step {
    /// Appends the values that the step selects to `found`.
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
            Self::Slice(from, to, step) => {
                let items = value.as_array().map_or(&[][..], Vec::as_slice);
                let length = items.len() as i64;
                let clamped = |at: i64| (if at < 0 { length + at } else { at }).clamp(0, length);
                let (from, to) = (clamped(from.unwrap_or(0)), clamped(to.unwrap_or(length)));
                let range = items.iter().skip(from as usize).take((to - from).max(0) as usize);
                found.extend(range.step_by(*step));
            }
            Self::All => found.extend(children(value)),
            Self::Deep => {
                found.push(value);
                let mut at = before;
                while let Some(value) = found.get(at).copied() {
                    found.extend(children(value));
                    at += 1;
                }
            }
            Self::Filter(path, operator, operand) => {
                for item in children(value) {
                    if keeps(item, path, *operator, operand, visits)? {
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

fn children(value: &Value) -> impl Iterator<Item = &Value> {
    let items = value.as_array().map_or(&[][..], Vec::as_slice);
    items.iter().chain(value.as_object().into_iter().flat_map(serde_json::Map::values))
}

/// Returns whether an item passes a filter, or `None` if more than the remaining `visits` are needed.
fn keeps(
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
