//! Functions of Go's templates and of KWOK.

use evenkeel_api::time::Timestamp;
use serde_json::{Value, json};
use std::cmp::Ordering;

use super::{eval::Machine, print, sprig};

/// A function with its name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Function {
    pub(super) name: &'static str,
    pub(super) call: Call,
}

/// Implementation of a function. The renderer evaluates `and` and `or` itself, because they stop at the first argument
/// that decides.
#[derive(Debug, Clone, Copy)]
pub(super) enum Call {
    And,
    Or,
    /// Function of the values of all its arguments.
    Values(Body),
}

/// Number of bytes of strings that a function reads or writes in one step. Without these steps, a template could spend
/// much time on long strings within its limit of steps.
pub(super) const BYTES_PER_STEP: usize = 16;

/// Body of a function. The error is the end of a sentence that starts with the function's name.
pub(super) type Body = fn(&[Value], &mut Machine<'_>) -> Result<Value, String>;

impl Function {
    /// Calls the function with the values of its arguments.
    pub(super) fn run(
        &self,
        arguments: &[Value],
        machine: &mut Machine<'_>,
    ) -> Result<Value, String> {
        machine.count_steps(1)?;
        match self.call {
            Call::Values(body) => {
                let value = body(arguments, machine);
                let value = value.map_err(|why| format!("{}: {why}", self.name))?;
                machine.count_steps(print::weight(&value))?;
                Ok(value)
            }
            // This call has no arguments, because the renderer evaluates calls with arguments.
            Call::And | Call::Or => Err(format!("{}: an argument is missing", self.name)),
        }
    }
}

/// Functions of Go and of KWOK.
const FUNCTIONS: &[(&str, Body)] = &[
    ("not", |arguments, _| Ok((!print::is_true(one(arguments)?)).into())),
    ("len", |arguments, _| {
        Ok(match one(arguments)? {
            Value::String(text) => text.len(),
            Value::Array(items) => items.len(),
            Value::Object(fields) => fields.len(),
            other => return Err(format!("a {} has no length", print::type_name(other))),
        }
        .into())
    }),
    ("index", |arguments, _| {
        let (container, keys) = arguments.split_first().ok_or("an argument is missing")?;
        keys.iter().try_fold(container.clone(), |container, key| index(&container, key))
    }),
    ("slice", slice),
    ("print", |arguments, _| Ok(print_all(arguments).into())),
    // As in Go, `println` separates all arguments by spaces, and `print` only separates arguments that are not strings.
    ("println", |arguments, _| {
        let texts: Vec<String> = arguments.iter().map(print::text).collect();
        Ok(format!("{}\n", texts.join(" ")).into())
    }),
    ("printf", |arguments, machine| {
        let (format, arguments) = arguments.split_first().ok_or("the format is missing")?;
        machine.count_steps(print::text(format).len() / BYTES_PER_STEP)?;
        Ok(print::printf(&print::text(format), arguments)?.into())
    }),
    ("html", |arguments, _| Ok(escape(&print_all(arguments)).into())),
    ("eq", |arguments, _| {
        let (first, others) = arguments.split_first().ok_or("an argument is missing")?;
        if others.is_empty() {
            return Err("an argument is missing".to_owned());
        }
        for other in others {
            if equal(first, other)? {
                return Ok(true.into());
            }
        }
        Ok(false.into())
    }),
    ("ne", |arguments, _| two(arguments).and_then(|(a, b)| Ok((!equal(a, b)?).into()))),
    ("lt", |arguments, _| compare(arguments, Ordering::is_lt)),
    ("le", |arguments, _| compare(arguments, Ordering::is_le)),
    ("gt", |arguments, _| compare(arguments, Ordering::is_gt)),
    ("ge", |arguments, _| compare(arguments, Ordering::is_ge)),
    ("Quote", |arguments, _| {
        Ok(match one(arguments)? {
            Value::String(text) => print::quoted(text),
            // As in KWOK, quote the JSON of a value that is not a string.
            other => print::quoted(&other.to_string()),
        }
        .into())
    }),
    ("Now", |_, machine| Ok(format_time(machine.environment.now).into())),
    ("StartTime", |_, machine| Ok(format_time(machine.environment.start).into())),
    ("Version", |_, _| Ok(concat!("v", env!("CARGO_PKG_VERSION")).into())),
    ("YAML", |arguments, machine| {
        let (value, options) = arguments.split_first().ok_or("an argument is missing")?;
        let text = print::yaml(value);
        machine.count_steps(text.len() / BYTES_PER_STEP)?;
        let requested_levels = options.first().and_then(Value::as_u64).unwrap_or_default();
        let levels = usize::try_from(requested_levels).ok().filter(|levels| *levels <= 100);
        let levels = levels.ok_or("the indentation is above 100")?;
        if levels == 0 {
            return Ok(text.into());
        }
        let pad = format!("\n{}", " ".repeat(levels * 2));
        Ok(format!("\n{text}").replace('\n', &pad).into())
    }),
    ("NodeConditions", |_, _| Ok(node_conditions())),
    ("NodeName", |_, machine| Ok(machine.environment.node_name.into())),
    ("NodeIP", |_, machine| Ok(machine.environment.node_ip.into())),
    ("NodePort", |_, machine| Ok(machine.environment.node_port.into())),
    // KWOK's functions `…With` take the node's name and the pod's identity, and select an address pool by them. Here, the
    // environment has the addresses of node and pod, so the arguments are ignored.
    ("NodeIPWith", |_, machine| Ok(machine.environment.node_ip.into())),
    ("NodeIPsWith", |_, machine| Ok(json!([machine.environment.node_ip]))),
    ("PodIP", |_, machine| Ok(machine.environment.pod_ip.into())),
    ("PodIPWith", |_, machine| Ok(machine.environment.pod_ip.into())),
    ("PodIPsWith", |_, machine| Ok(json!([machine.environment.pod_ip]))),
];

/// Returns the function with this name.
pub(super) fn find(name: &str) -> Option<Function> {
    match name {
        "and" => return Some(Function { name: "and", call: Call::And }),
        "or" => return Some(Function { name: "or", call: Call::Or }),
        _ => {}
    }
    let mut all = FUNCTIONS.iter().chain(sprig::FUNCTIONS);
    all.find(|(known, _)| *known == name)
        .map(|(name, body)| Function { name, call: Call::Values(*body) })
}

/// Formats a time as KWOK's `Now` does: RFC 3339, without trailing zeros of the fraction.
fn format_time(time: Timestamp) -> String {
    time.to_string()
}

/// Returns the conditions of a healthy node with the kubelet's reasons and messages.
fn node_conditions() -> Value {
    let conditions = [
        ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
        (
            "MemoryPressure",
            "False",
            "KubeletHasSufficientMemory",
            "kubelet has sufficient memory available",
        ),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("NetworkUnavailable", "False", "RouteCreated", "RouteController created a route"),
    ];
    let condition = |(type_, status, reason, message)| json!({"type": type_, "status": status, "reason": reason, "message": message});
    conditions.map(condition).into_iter().collect()
}

/// Returns the only argument, or an error if there is another number of them.
pub(super) fn one(arguments: &[Value]) -> Result<&Value, String> {
    match arguments {
        [one] => Ok(one),
        other => Err(format!("wrong number of args: want 1 got {}", other.len())),
    }
}

/// Returns both arguments, or an error if there is another number of them.
pub(super) fn two(arguments: &[Value]) -> Result<(&Value, &Value), String> {
    match arguments {
        [one, two] => Ok((one, two)),
        other => Err(format!("wrong number of args: want 2 got {}", other.len())),
    }
}

/// Prints all arguments as Go's `fmt.Sprint`: with a space between two arguments if neither is a string.
fn print_all(arguments: &[Value]) -> String {
    let mut out = String::new();
    for (index, argument) in arguments.iter().enumerate() {
        let before = index.checked_sub(1).and_then(|before| arguments.get(before));
        if before.is_some_and(|before| !before.is_string() && !argument.is_string()) {
            out.push(' ');
        }
        out.push_str(&print::text(argument));
    }
    out
}

/// Returns an item of an array, a field of an object or a byte of a string.
fn index(container: &Value, key: &Value) -> Result<Value, String> {
    let position = || key.as_u64().and_then(|key| usize::try_from(key).ok());
    let out_of_range = || format!("index out of range: {}", print::text(key));
    match container {
        Value::Object(fields) => {
            let key = key
                .as_str()
                .ok_or_else(|| format!("a {} can't be the key of a map", print::type_name(key)))?;
            Ok(fields.get(key).cloned().unwrap_or_default())
        }
        Value::Array(items) => {
            let item = position().and_then(|position| items.get(position));
            item.cloned().ok_or_else(out_of_range)
        }
        Value::String(text) => {
            let byte = position().and_then(|position| text.as_bytes().get(position));
            byte.map(|byte| (*byte).into()).ok_or_else(out_of_range)
        }
        Value::Null => Err("index of untyped nil".to_owned()),
        other => Err(format!("can't index a {}", print::type_name(other))),
    }
}

fn slice(arguments: &[Value], _: &mut Machine<'_>) -> Result<Value, String> {
    let (container, bounds) = arguments.split_first().ok_or("an argument is missing")?;
    let bound = |index: usize, default: usize| match bounds.get(index) {
        None => Ok(default),
        Some(value) => {
            let bound = value.as_u64().and_then(|bound| usize::try_from(bound).ok());
            bound.ok_or_else(|| format!("index out of range: {}", print::text(value)))
        }
    };
    let out_of_range = || "index out of range".to_owned();
    match container {
        Value::String(text) => {
            let part = text.get(bound(0, 0)?..bound(1, text.len())?);
            part.map(Value::from).ok_or_else(out_of_range)
        }
        Value::Array(items) => {
            let part = items.get(bound(0, 0)?..bound(1, items.len())?);
            part.map(|part| part.to_vec().into()).ok_or_else(out_of_range)
        }
        other => Err(format!("can't slice a {}", print::type_name(other))),
    }
}

fn escape(text: &str) -> String {
    let pairs = [("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("\"", "&#34;"), ("'", "&#39;")];
    pairs.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// Returns whether two values are equal. `nil` equals only itself, and may be compared with any type. A number equals
/// the string that it prints as, because KWOK's templates get numbers of the object as strings of digits.
fn equal(one: &Value, two: &Value) -> Result<bool, String> {
    match (one, two) {
        (Value::Null, _) | (_, Value::Null) => Ok(one == two),
        (Value::Number(a), Value::Number(b)) => Ok(a == b || a.as_f64() == b.as_f64()),
        (Value::Number(_), Value::String(_)) | (Value::String(_), Value::Number(_)) => {
            Ok(print::text(one) == print::text(two))
        }
        (Value::Bool(_), Value::Bool(_)) | (Value::String(_), Value::String(_)) => Ok(one == two),
        _ => Err("incompatible types for comparison".to_owned()),
    }
}

fn compare(arguments: &[Value], holds: fn(Ordering) -> bool) -> Result<Value, String> {
    let ordering = match two(arguments)? {
        (Value::Number(a), Value::Number(b)) => match (a.as_i64(), b.as_i64()) {
            (Some(a), Some(b)) => Some(a.cmp(&b)),
            _ => a.as_f64().partial_cmp(&b.as_f64()),
        },
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        _ => None,
    };
    Ok(holds(ordering.ok_or("incompatible types for comparison")?).into())
}
