//! Syntax tree of the supported part of the shell's language.

use evenkeel_api::Text;
use std::sync::Arc;

/// Commands in sequence.
pub(crate) type List = Vec<AndOrList>;

/// Pipelines joined by `&&` and `||`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AndOrList {
    pub(crate) first: Pipeline,
    /// Further pipelines, each with the operator before it.
    pub(crate) rest: Vec<(Connector, Pipeline)>,
    /// Whether the pipelines run in the background (`&`).
    pub(crate) background: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Connector {
    And,
    Or,
}

/// Commands joined by `|`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pipeline {
    /// Whether the pipeline begins with `!`.
    pub(crate) negated: bool,
    pub(crate) stages: Vec<Command>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) kind: CommandKind,
    pub(crate) redirects: Vec<Redirect>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CommandKind {
    /// Assignments, and a command with its arguments.
    Simple {
        assignments: Vec<Assignment>,
        words: Vec<Word>,
    },
    /// List in braces: `{ …; }`.
    Group(List),
    /// List in parentheses, which runs in a child process: `( … )`.
    Subshell(List),
    If {
        /// Conditions with their commands.
        branches: Vec<(List, List)>,
        otherwise: List,
    },
    /// `while` or `until`.
    Loop {
        until: bool,
        condition: List,
        body: List,
    },
    For {
        name: Text,
        /// Words after `in`; `None` for the positional parameters.
        over: Option<Vec<Word>>,
        body: List,
    },
    Case {
        word: Word,
        /// Patterns with their commands.
        arms: Vec<(Vec<Word>, List)>,
    },
    Function {
        name: Text,
        body: Arc<Command>,
    },
    /// The words between `[[` and `]]`.
    Test(Vec<Word>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Assignment {
    pub(crate) name: Text,
    /// Whether the operator is `+=`.
    pub(crate) append: bool,
    pub(crate) value: Word,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Redirect {
    /// File descriptor to redirect.
    pub(crate) fd: u32,
    pub(crate) to: RedirectTarget,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RedirectTarget {
    Write(Word),
    Append(Word),
    Read(Word),
    /// Here-document, or the word after `<<<`.
    Text(Word),
    /// Copy of this file descriptor (`2>&1`).
    Duplicate(u32),
}

/// Word before expansion, which yields any number of fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Word(pub(crate) Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Whether the piece is quoted. A quoted piece is neither split nor a pattern.
    pub(crate) quoted: bool,
    pub(crate) part: Part,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    Text(String),
    /// `$NAME` or `${NAME…}`.
    Variable {
        name: Text,
        modifier: Modifier,
    },
    /// Command substitution, `$(…)`.
    CommandSubstitution(List),
    /// Arithmetic expansion, `$((…))`.
    Arithmetic(Word),
}

/// Operation of `${NAME…}` on a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Modifier {
    /// No operation: the value itself.
    None,
    /// Length of the value: `${#NAME}`.
    Length,
    /// `-`, `=`, `?` or `+` with a word. With a colon, an empty value counts as unset.
    Default { operator: char, colon: bool, word: Word },
    /// `#`, `##`, `%` or `%%` with a pattern.
    Remove { suffix: bool, longest: bool, pattern: Word },
}

impl Word {
    /// Returns the word's string if it is a single unquoted literal.
    pub(crate) fn plain(&self) -> Option<&str> {
        match &*self.0 {
            [Piece { quoted: false, part: Part::Text(text) }] => Some(text),
            _ => None,
        }
    }
}
