//! Paths into objects as printer columns and selectable fields have them (upstream: `client-go/util/jsonpath`).

use serde_json::Value;

/// A path, taken apart. What cannot be read finds nothing.
#[derive(Debug, Clone, Default)]
pub(crate) struct JsonPath(Vec<Step>);

#[derive(Debug, Clone)]
enum Step {
    Field(Box<str>),
    /// Negative ones count from the end.
    Index(i64),
    Slice(Option<i64>, Option<i64>),
    All,
    /// All that is below, at any depth.
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
    /// Reads a path such as `.spec.items[0].name` or `.status.conditions[?(@.type=="Ready")].status`.
    pub(crate) fn parse(text: &str) -> Self {
        let mut steps = Vec::new();
        let mut rest = text.trim();
        rest = rest.strip_prefix('$').or_else(|| rest.strip_prefix('@')).unwrap_or(rest);
        while !rest.is_empty() {
            rest = match rest.as_bytes()[0] {
                b'.' if rest.starts_with("..") => {
                    steps.push(Step::Deep);
                    // What follows is a field without a dot of its own.
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
                b'[' => match closing(rest) {
                    Some(end) => {
                        steps.push(bracket(rest[1..end].trim()));
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

    /// All that the path leads to.
    pub(crate) fn find<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        let mut found = vec![value];
        for step in &self.0 {
            found = found.into_iter().flat_map(|value| step.apply(value)).collect();
        }
        found
    }
}

/// A field's name up to the next dot or bracket; a backslash keeps a dot.
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

/// Where the bracket that `text` begins with ends.
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

fn bracket(text: &str) -> Step {
    if text == "*" {
        return Step::All;
    }
    if let Some(filter) = text.strip_prefix("?(").and_then(|t| t.strip_suffix(')')) {
        return filter_step(filter);
    }
    if let Some(name) = unquoted(text) {
        return Step::Field(name.into());
    }
    if text.contains(',') {
        return Step::Union(text.split(',').map(|part| bracket(part.trim())).collect());
    }
    if let Some((from, to)) = text.split_once(':') {
        let number = |t: &str| t.trim().parse().ok();
        return Step::Slice(number(from), number(to.split(':').next().unwrap_or_default()));
    }
    text.parse().map_or(Step::Nothing, Step::Index)
}

fn unquoted(text: &str) -> Option<&str> {
    ['\'', '"'].into_iter().find_map(|q| text.strip_prefix(q)?.strip_suffix(q))
}

fn filter_step(text: &str) -> Step {
    const OPERATORS: [(&str, Operator); 6] = [
        ("==", Operator::Equal),
        ("!=", Operator::NotEqual),
        ("<=", Operator::LessOrEqual),
        (">=", Operator::GreaterOrEqual),
        ("<", Operator::Less),
        (">", Operator::Greater),
    ];
    for (sign, operator) in OPERATORS {
        if let Some((left, right)) = text.split_once(sign) {
            let right = right.trim();
            let operand = match unquoted(right) {
                Some(text) => Operand::Value(Value::from(text)),
                None if right.starts_with('@') => Operand::Path(JsonPath::parse(right)),
                None => Operand::Value(serde_json::from_str(right).unwrap_or_default()),
            };
            return Step::Filter(JsonPath::parse(left.trim()), operator, operand);
        }
    }
    Step::Filter(JsonPath::parse(text.trim()), Operator::Exists, Operand::Value(Value::Null))
}

impl Step {
    fn apply<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match self {
            Self::Field(name) => value.get(&**name).into_iter().collect(),
            Self::Index(at) => {
                let items = value.as_array().map_or(&[][..], Vec::as_slice);
                let at = if *at < 0 { items.len() as i64 + at } else { *at };
                usize::try_from(at).ok().and_then(|at| items.get(at)).into_iter().collect()
            }
            Self::Slice(from, to) => {
                let items = value.as_array().map_or(&[][..], Vec::as_slice);
                let length = items.len() as i64;
                let place = |at: i64| (if at < 0 { length + at } else { at }).clamp(0, length);
                let (from, to) = (place(from.unwrap_or(0)), place(to.unwrap_or(length)));
                items.iter().skip(from as usize).take((to - from).max(0) as usize).collect()
            }
            Self::All => children(value).collect(),
            Self::Deep => {
                let mut all = vec![value];
                let mut at = 0;
                while let Some(value) = all.get(at).copied() {
                    all.extend(children(value));
                    at += 1;
                }
                all
            }
            Self::Filter(path, operator, operand) => {
                children(value).filter(|item| keeps(item, path, *operator, operand)).collect()
            }
            Self::Union(steps) => steps.iter().flat_map(|step| step.apply(value)).collect(),
            Self::Nothing => Vec::new(),
        }
    }
}

fn children(value: &Value) -> impl Iterator<Item = &Value> {
    let items = value.as_array().map_or(&[][..], Vec::as_slice);
    items.iter().chain(value.as_object().into_iter().flat_map(serde_json::Map::values))
}

fn keeps(item: &Value, path: &JsonPath, operator: Operator, operand: &Operand) -> bool {
    let Some(left) = path.find(item).first().copied() else { return false };
    if operator == Operator::Exists {
        return true;
    }
    let right = match operand {
        Operand::Value(value) => value,
        Operand::Path(path) => match path.find(item).first() {
            Some(value) => value,
            None => return false,
        },
    };
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
    fn finds() {
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
            (".spec.nope", json!([])),
            (".spec.l[", json!([])),
        ] {
            assert_eq!(json!(JsonPath::parse(path).find(&object)), want, "{path}");
        }
    }
}
