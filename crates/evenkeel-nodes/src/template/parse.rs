//! Parses the tokens of a template into a tree.

use serde_json::Value;
use std::collections::BTreeMap;

use super::{
    functions::{Function, find},
    lex::{Kind, Piece, Token, split},
};

/// Maximum depth of nested actions and parentheses.
const MAX_DEPTH: usize = 32;

/// Part of a parsed template.
#[derive(Debug, Clone)]
pub(super) enum Node {
    Text(String),
    /// Pipeline whose value is printed, unless it declares or assigns a variable.
    Print(Pipeline),
    If(Branch),
    With(Branch),
    Range(Branch),
    /// Call of a named template, with its dot.
    Call(String, Option<Pipeline>),
    Break,
    Continue,
}

/// Action with a body that depends on a pipeline's value.
#[derive(Debug, Clone)]
pub(super) struct Branch {
    pub(super) pipeline: Pipeline,
    pub(super) body: Vec<Node>,
    pub(super) otherwise: Vec<Node>,
}

/// Commands. The value of each is the last argument of the next one.
#[derive(Debug, Clone)]
pub(super) struct Pipeline {
    /// Variables that the value is assigned to.
    pub(super) variables: Vec<String>,
    /// Whether the variables exist already (`=`).
    pub(super) assigns: bool,
    pub(super) commands: Vec<Vec<Operand>>,
}

/// Operand of a command.
#[derive(Debug, Clone)]
pub(super) enum Operand {
    Dot,
    Literal(Value),
    Function(Function),
    Variable(String),
    Pipeline(Box<Pipeline>),
    /// Fields of an operand.
    Fields(Box<Self>, Vec<String>),
}

/// Templates by their names.
pub(super) type Templates = BTreeMap<String, Vec<Node>>;

/// Parses a template. Returns its body and the templates that it defines.
pub(super) fn parse(source: &str) -> Result<(Vec<Node>, Templates), String> {
    let pieces = split(source)?;
    let mut parser = Parser { pieces: pieces.into_iter(), templates: Templates::new(), depth: 0 };
    let (body, end) = parser.nodes(&mut vec![String::new()])?;
    match end {
        End::Template => Ok((body, parser.templates)),
        End::Keyword => Err("an {{end}} stands without its beginning".to_owned()),
        End::Else(_) => Err("an {{else}} stands without its {{if}}".to_owned()),
    }
}

/// End of a list of nodes.
enum End {
    /// The end of the source.
    Template,
    /// `{{end}}`.
    Keyword,
    /// `{{else}}`, with the tokens after it.
    Else(Vec<Token>),
}

/// Parser of a template.
struct Parser {
    pieces: std::vec::IntoIter<Piece>,
    templates: Templates,
    depth: usize,
}

/// Names of the variables in scope.
type Names = Vec<String>;

impl Parser {
    /// Parses nodes up to the end of their list.
    fn nodes(&mut self, names: &mut Names) -> Result<(Vec<Node>, End), String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("actions are nested more than {MAX_DEPTH} times"));
        }
        let (mut nodes, n_outer) = (Vec::new(), names.len());
        let end = loop {
            let tokens = match self.pieces.next() {
                None => break End::Template,
                Some(Piece::Text(text)) => {
                    nodes.push(Node::Text(text));
                    continue;
                }
                Some(Piece::Action(tokens)) => tokens,
            };
            let keyword = match tokens.first() {
                Some(Token { kind: Kind::Word(word), .. }) => word.clone(),
                _ => String::new(),
            };
            let arguments = tokens.get(1..).unwrap_or_default();
            match &*keyword {
                "end" => break End::Keyword,
                "else" => break End::Else(arguments.to_vec()),
                "if" => nodes.push(Node::If(self.branch("if", arguments, names)?)),
                "with" => nodes.push(Node::With(self.branch("with", arguments, names)?)),
                "range" => nodes.push(Node::Range(self.branch("range", arguments, names)?)),
                "break" => nodes.push(Node::Break),
                "continue" => nodes.push(Node::Continue),
                "define" | "block" => {
                    let (name, rest) = template_name(arguments)?;
                    let body = self.body(&mut vec![String::new()])?;
                    self.templates.insert(name.clone(), body);
                    if keyword == "block" {
                        nodes.push(Node::Call(name, Some(pipeline(rest, names)?)));
                    }
                }
                "template" => {
                    let (name, rest) = template_name(arguments)?;
                    let dot = (!rest.is_empty()).then(|| pipeline(rest, names)).transpose()?;
                    nodes.push(Node::Call(name, dot));
                }
                _ => nodes.push(Node::Print(pipeline(&tokens, names)?)),
            }
        };
        self.depth -= 1;
        names.truncate(n_outer);
        Ok((nodes, end))
    }

    /// Parses the nodes up to an `{{end}}`.
    fn body(&mut self, names: &mut Names) -> Result<Vec<Node>, String> {
        match self.nodes(names)? {
            (nodes, End::Keyword) => Ok(nodes),
            (_, End::Template) => Err("an {{end}} is missing".to_owned()),
            (_, End::Else(_)) => Err("an {{else}} stands without its {{if}}".to_owned()),
        }
    }

    /// Parses an action with a body and an optional alternative.
    fn branch(
        &mut self,
        keyword: &str,
        tokens: &[Token],
        names: &mut Names,
    ) -> Result<Branch, String> {
        let n_outer = names.len();
        let pipeline = pipeline(tokens, names)?;
        if pipeline.variables.len() > 1 && keyword != "range" {
            return Err(format!("{keyword} declares more than one variable"));
        }
        let (body, end) = self.nodes(names)?;
        let otherwise = match end {
            End::Template => return Err(format!("the {{{{end}}}} of {keyword} is missing")),
            End::Keyword => Vec::new(),
            End::Else(tokens) => match tokens.first() {
                None => self.body(names)?,
                Some(Token { kind: Kind::Word(word), .. })
                    if matches!(&**word, "if" | "with") && keyword != "range" =>
                {
                    self.depth += 1;
                    if self.depth > MAX_DEPTH {
                        return Err(format!("actions are nested more than {MAX_DEPTH} times"));
                    }
                    let nested = self.branch(word, &tokens[1..], names)?;
                    self.depth -= 1;
                    vec![if word == "if" { Node::If(nested) } else { Node::With(nested) }]
                }
                Some(_) => return Err("an {{else}} has something beside it".to_owned()),
            },
        };
        names.truncate(n_outer);
        Ok(Branch { pipeline, body, otherwise })
    }
}

/// Reads the name of a template. Also returns the tokens after it.
fn template_name(tokens: &[Token]) -> Result<(String, &[Token]), String> {
    match tokens.split_first() {
        Some((Token { kind: Kind::Literal(Value::String(name)), .. }, rest)) => {
            Ok((name.clone(), rest))
        }
        _ => Err("a template has no name in quotation marks".to_owned()),
    }
}

/// Parses a whole pipeline with its declarations.
fn pipeline(tokens: &[Token], names: &mut Names) -> Result<Pipeline, String> {
    let (mut variables, mut assigns, mut rest) = (Vec::new(), false, tokens);
    let declaration = tokens.iter().position(|t| matches!(t.kind, Kind::Declare | Kind::Assign));
    if let Some(at) = declaration {
        for (index, token) in tokens[..at].iter().enumerate() {
            match &token.kind {
                Kind::Variable(name) if index % 2 == 0 => variables.push(name.clone()),
                Kind::Comma if index % 2 == 1 => {}
                _ => return Err("a declaration has no variable on its left side".to_owned()),
            }
        }
        if variables.is_empty() || variables.len() > 2 {
            return Err("a declaration has neither one nor two variables".to_owned());
        }
        assigns = tokens[at].kind == Kind::Assign;
        rest = &tokens[at + 1..];
    }
    let mut position = 0;
    let commands = commands(rest, &mut position, names, 0)?;
    if position < rest.len() {
        return Err("a parenthesis is closed that is not open".to_owned());
    }
    for name in &variables {
        if assigns && !names.contains(name) {
            return Err(format!("undefined variable \"${name}\""));
        }
        if !assigns {
            names.push(name.clone());
        }
    }
    Ok(Pipeline { variables, assigns, commands })
}

/// Parses commands up to the end or a closing parenthesis, which it does not consume.
fn commands(
    tokens: &[Token],
    position: &mut usize,
    names: &Names,
    depth: usize,
) -> Result<Vec<Vec<Operand>>, String> {
    if depth > MAX_DEPTH {
        return Err(format!("parentheses are nested more than {MAX_DEPTH} times"));
    }
    let (mut commands, mut command) = (Vec::new(), Vec::new());
    while let Some(token) = tokens.get(*position) {
        match &token.kind {
            Kind::Close => break,
            Kind::Pipe => {
                if command.is_empty() {
                    return Err("a command is missing before \"|\"".to_owned());
                }
                commands.push(std::mem::take(&mut command));
                *position += 1;
            }
            _ => command.push(operand(tokens, position, names, depth)?),
        }
    }
    if command.is_empty() {
        return Err("a command is missing".to_owned());
    }
    commands.push(command);
    let mut later = commands.iter().skip(1).filter_map(|command| command.first());
    if later.any(|first| matches!(first, Operand::Literal(_) | Operand::Dot)) {
        return Err("a command after \"|\" is not a function".to_owned());
    }
    Ok(commands)
}

/// Parses one operand with its fields.
fn operand(
    tokens: &[Token],
    position: &mut usize,
    names: &Names,
    depth: usize,
) -> Result<Operand, String> {
    let mut fields = Vec::new();
    let operand = match &tokens[*position].kind {
        Kind::Dot => Operand::Dot,
        Kind::Field(name) => {
            fields.push(name.clone());
            Operand::Dot
        }
        Kind::Variable(name) if names.contains(name) => Operand::Variable(name.clone()),
        Kind::Variable(name) => return Err(format!("undefined variable \"${name}\"")),
        Kind::Literal(value) => Operand::Literal(value.clone()),
        Kind::Word(word) => match &**word {
            "true" => Operand::Literal(true.into()),
            "false" => Operand::Literal(false.into()),
            "nil" => Operand::Literal(Value::Null),
            name => {
                let function = find(name);
                Operand::Function(function.ok_or_else(|| format!("function {name:?} not defined"))?)
            }
        },
        Kind::Open => {
            *position += 1;
            let commands = commands(tokens, position, names, depth + 1)?;
            if tokens.get(*position).is_none_or(|token| token.kind != Kind::Close) {
                return Err("a parenthesis is not closed".to_owned());
            }
            Operand::Pipeline(Box::new(Pipeline {
                variables: Vec::new(),
                assigns: false,
                commands,
            }))
        }
        other => return Err(format!("unexpected {other:?} in an action")),
    };
    *position += 1;
    while let Some(Token { kind: Kind::Field(name), spaced: false }) = tokens.get(*position) {
        fields.push(name.clone());
        *position += 1;
    }
    if fields.is_empty() {
        return Ok(operand);
    }
    match operand {
        Operand::Literal(_) | Operand::Function(_) => {
            Err(format!("\".{}\" follows what has no fields", fields.join(".")))
        }
        operand => Ok(Operand::Fields(Box::new(operand), fields)),
    }
}
