//! Evaluates a parsed template.

use serde_json::Value;

use super::{
    Environment,
    functions::{Call, Function},
    parse::{Branch, Node, Operand, Pipeline, Templates},
    print,
};

/// Maximum length of the output in bytes.
const MAX_OUTPUT: usize = 512 * 1024;

/// Maximum number of steps: nodes, operands, and units of work of functions.
const MAX_STEPS: u64 = 200_000;

/// Maximum depth of templates that call each other.
const MAX_CALLS: usize = 8;

/// State of a rendering that functions also use.
pub(super) struct Machine<'a> {
    pub(super) environment: &'a Environment<'a>,
    steps: u64,
    /// Number of draws so far.
    pub(super) draws: u64,
}

impl Machine<'_> {
    /// Adds to the number of steps.
    ///
    /// # Errors
    /// Fails if the template has taken more than [`MAX_STEPS`].
    pub(super) fn count_steps(&mut self, steps: usize) -> Result<(), String> {
        self.steps = self.steps.saturating_add(u64::try_from(steps).unwrap_or(u64::MAX));
        if self.steps > MAX_STEPS {
            return Err(format!("the template takes more than {MAX_STEPS} steps"));
        }
        Ok(())
    }
}

/// Renders a template.
pub(super) fn render(
    body: &[Node],
    templates: &Templates,
    object: &Value,
    environment: &Environment<'_>,
) -> Result<String, String> {
    let machine = Machine { environment, steps: 0, draws: 0 };
    let mut renderer = Renderer { machine, templates, output: String::new(), calls: 0 };
    let mut variables = vec![(String::new(), object.clone())];
    renderer.nodes(body, object, &mut variables)?;
    Ok(renderer.output)
}

/// Continuation of a rendering after a list of nodes.
#[derive(Clone, Copy, PartialEq)]
enum Flow {
    Next,
    Break,
    Continue,
}

/// Variables in scope, the last declaration of a name at the end.
type Variables = Vec<(String, Value)>;

/// Evaluates a template.
struct Renderer<'a> {
    machine: Machine<'a>,
    templates: &'a Templates,
    output: String,
    calls: usize,
}

impl Renderer<'_> {
    /// Appends a string to the output.
    fn print(&mut self, text: &str) -> Result<(), String> {
        if self.output.len() + text.len() > MAX_OUTPUT {
            return Err(format!("the output is longer than {MAX_OUTPUT} bytes"));
        }
        self.output.push_str(text);
        Ok(())
    }

    /// Evaluates nodes. Variables that they declare are in scope only within the list.
    fn nodes(
        &mut self,
        nodes: &[Node],
        dot: &Value,
        variables: &mut Variables,
    ) -> Result<Flow, String> {
        let n_outer = variables.len();
        let mut flow = Flow::Next;
        for node in nodes {
            self.machine.count_steps(1)?;
            flow = self.node(node, dot, variables)?;
            if flow != Flow::Next {
                break;
            }
        }
        variables.truncate(n_outer);
        Ok(flow)
    }

    fn node(
        &mut self,
        node: &Node,
        dot: &Value,
        variables: &mut Variables,
    ) -> Result<Flow, String> {
        match node {
            Node::Text(text) => self.print(text)?,
            Node::Print(pipeline) => {
                let value = self.pipeline(pipeline, dot, variables)?;
                if pipeline.variables.is_empty() {
                    self.print(&print::printed(&value))?;
                } else {
                    set(pipeline, &value, variables);
                }
            }
            Node::If(branch) => return self.choose(branch, dot, variables, false),
            Node::With(branch) => return self.choose(branch, dot, variables, true),
            Node::Range(branch) => return self.range(branch, dot, variables),
            Node::Call(name, argument) => {
                let argument = match argument {
                    Some(pipeline) => self.pipeline(pipeline, dot, variables)?,
                    None => Value::Null,
                };
                let templates = self.templates;
                let body = templates.get(name);
                let body = body.ok_or_else(|| format!("template {name:?} not defined"))?;
                self.calls += 1;
                if self.calls > MAX_CALLS {
                    return Err(format!("templates call each other more than {MAX_CALLS} times"));
                }
                self.nodes(body, &argument, &mut vec![(String::new(), argument.clone())])?;
                self.calls -= 1;
            }
            Node::Break => return Ok(Flow::Break),
            Node::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    /// Evaluates `if`, or `with`, which also sets the dot.
    fn choose(
        &mut self,
        branch: &Branch,
        dot: &Value,
        variables: &mut Variables,
        sets_dot: bool,
    ) -> Result<Flow, String> {
        let n_outer = variables.len();
        let value = self.pipeline(&branch.pipeline, dot, variables)?;
        set(&branch.pipeline, &value, variables);
        let flow = match print::is_true(&value) {
            true => self.nodes(&branch.body, if sets_dot { &value } else { dot }, variables)?,
            false => self.nodes(&branch.otherwise, dot, variables)?,
        };
        variables.truncate(n_outer);
        Ok(flow)
    }

    /// Evaluates `range` over an array, an object by its keys, or the numbers below a number.
    fn range(
        &mut self,
        branch: &Branch,
        dot: &Value,
        variables: &mut Variables,
    ) -> Result<Flow, String> {
        let value = self.pipeline(&branch.pipeline, dot, variables)?;
        let pairs: Vec<(Value, Value)> = match value {
            Value::Null => Vec::new(),
            Value::Array(items) => {
                items.into_iter().enumerate().map(|(index, item)| (index.into(), item)).collect()
            }
            Value::Object(fields) => {
                fields.into_iter().map(|(key, item)| (key.into(), item)).collect()
            }
            Value::Number(ref number) if number.as_i64().is_some() => {
                let count = number.as_i64().unwrap_or_default().max(0);
                self.machine.count_steps(usize::try_from(count).unwrap_or(usize::MAX))?;
                (0..count).map(|n| (n.into(), n.into())).collect()
            }
            other => return Err(format!("range can't iterate over {}", print::printed(&other))),
        };
        if pairs.is_empty() {
            return self.nodes(&branch.otherwise, dot, variables);
        }
        let n_outer = variables.len();
        for (key, item) in pairs {
            match &*branch.pipeline.variables {
                [] => {}
                [one] => declare(one, item.clone(), branch.pipeline.assigns, variables),
                [first, second, ..] => {
                    declare(first, key, branch.pipeline.assigns, variables);
                    declare(second, item.clone(), branch.pipeline.assigns, variables);
                }
            }
            self.machine.count_steps(1)?;
            let flow = self.nodes(&branch.body, &item, variables)?;
            variables.truncate(n_outer);
            if flow == Flow::Break {
                break;
            }
        }
        Ok(Flow::Next)
    }

    fn pipeline(
        &mut self,
        pipeline: &Pipeline,
        dot: &Value,
        variables: &Variables,
    ) -> Result<Value, String> {
        let mut last = None;
        for command in &pipeline.commands {
            last = Some(self.command(command, last, dot, variables)?);
        }
        Ok(last.unwrap_or_default())
    }

    /// Evaluates a command. `last` is the value of the previous command.
    fn command(
        &mut self,
        command: &[Operand],
        last: Option<Value>,
        dot: &Value,
        variables: &Variables,
    ) -> Result<Value, String> {
        self.machine.count_steps(command.len())?;
        let Some((first, arguments)) = command.split_first() else { return Ok(Value::Null) };
        let Operand::Function(function) = first else {
            if !arguments.is_empty() || last.is_some() {
                return Err("a value that is not a function has arguments".to_owned());
            }
            return self.operand(first, dot, variables);
        };
        if let Call::And | Call::Or = function.call {
            return self.and_or(function, arguments, last, dot, variables);
        }
        let mut values = Vec::with_capacity(arguments.len() + 1);
        for argument in arguments {
            values.push(self.operand(argument, dot, variables)?);
        }
        values.extend(last);
        function.run(&values, &mut self.machine)
    }

    /// Evaluates `and` and `or`, which stop at the first argument that decides.
    fn and_or(
        &mut self,
        function: &Function,
        arguments: &[Operand],
        last: Option<Value>,
        dot: &Value,
        variables: &Variables,
    ) -> Result<Value, String> {
        let decides = matches!(function.call, Call::Or);
        let mut value = None;
        for argument in arguments {
            let next = self.operand(argument, dot, variables)?;
            if print::is_true(&next) == decides {
                return Ok(next);
            }
            value = Some(next);
        }
        last.or(value).ok_or_else(|| format!("{}: an argument is missing", function.name))
    }

    fn operand(
        &mut self,
        operand: &Operand,
        dot: &Value,
        variables: &Variables,
    ) -> Result<Value, String> {
        let value = match operand {
            Operand::Dot => dot,
            Operand::Literal(value) => value,
            Operand::Variable(name) => variable(name, variables),
            Operand::Function(function) => return function.run(&[], &mut self.machine),
            Operand::Pipeline(pipeline) => return self.pipeline(pipeline, dot, variables),
            Operand::Fields(base, fields) => match &**base {
                Operand::Dot => field(dot, fields)?,
                Operand::Variable(name) => field(variable(name, variables), fields)?,
                base => return field(&self.operand(base, dot, variables)?, fields).cloned(),
            },
        };
        self.machine.count_steps(print::weight(value))?;
        Ok(value.clone())
    }
}

/// Sets the variables of a pipeline.
fn set(pipeline: &Pipeline, value: &Value, variables: &mut Variables) {
    for name in &pipeline.variables {
        declare(name, value.clone(), pipeline.assigns, variables);
    }
}

/// Declares a variable, or sets the one in scope.
fn declare(name: &str, value: Value, assigns: bool, variables: &mut Variables) {
    let in_scope = variables.iter_mut().rev().find(|(declared, _)| assigns && declared == name);
    match in_scope {
        Some((_, old)) => *old = value,
        None => variables.push((name.to_owned(), value)),
    }
}

/// Returns the value of a variable. The parser has checked that it is in scope.
fn variable<'v>(name: &str, variables: &'v Variables) -> &'v Value {
    variables
        .iter()
        .rev()
        .find(|(declared, _)| declared == name)
        .map_or(&Value::Null, |(_, value)| value)
}

/// Returns a field of a field of a value; `null` where it is missing.
fn field<'v>(value: &'v Value, fields: &[String]) -> Result<&'v Value, String> {
    let mut value = value;
    for name in fields {
        value = match value {
            Value::Object(members) => members.get(name).unwrap_or(&Value::Null),
            Value::Null => return Ok(&Value::Null),
            other => {
                let type_name = print::type_name(other);
                return Err(format!("can't evaluate field {name} in a value of type {type_name}"));
            }
        };
    }
    Ok(value)
}
