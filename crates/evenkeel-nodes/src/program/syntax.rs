//! The shell's language as it is understood here.

use evenkeel_api::Text;
use std::sync::Arc;

/// Commands one after the other.
pub(super) type List = Vec<Item>;

/// Pipelines joined by `&&` and `||`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) first: Pipeline,
    pub(super) rest: Vec<(Join, Pipeline)>,
    /// Ends in `&`.
    pub(super) background: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Join {
    And,
    Or,
}

/// Commands joined by `|`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pipeline {
    /// Begins with `!`.
    pub(super) negated: bool,
    pub(super) stages: Vec<Command>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) what: What,
    pub(super) redirects: Vec<Redirect>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum What {
    Simple {
        set: Vec<Assignment>,
        words: Vec<Word>,
    },
    Group(List),
    Subshell(List),
    If {
        branches: Vec<(List, List)>,
        otherwise: List,
    },
    Loop {
        until: bool,
        condition: List,
        body: List,
    },
    For {
        name: Text,
        over: Option<Vec<Word>>,
        body: List,
    },
    Case {
        of: Word,
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
pub(super) struct Assignment {
    pub(super) name: Text,
    /// `+=`.
    pub(super) append: bool,
    pub(super) value: Word,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Redirect {
    pub(super) fd: u32,
    pub(super) to: To,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum To {
    Write(Word),
    Append(Word),
    Read(Word),
    /// A here-document, or the word after `<<<`.
    Text(Word),
    /// Where that other one leads.
    Same(u32),
}

/// What becomes no word, one, or several.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Word(pub(super) Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    /// Stands in quotes: it is neither split nor a pattern.
    pub(super) quoted: bool,
    pub(super) part: Part,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    Text(String),
    /// `$NAME`, `${NAME}` and what may follow the name.
    Variable {
        name: Text,
        with: With,
    },
    /// `$(…)`.
    Output(List),
    /// `$((…))`.
    Arithmetic(Word),
}

/// What `${NAME…}` makes of a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum With {
    Itself,
    /// `${#NAME}`.
    Length,
    /// `-`, `=`, `?` or `+` and a word; an empty value counts as none after a colon.
    Instead {
        how: char,
        colon: bool,
        word: Word,
    },
    /// `#`, `##`, `%` or `%%` and a pattern.
    Without {
        suffix: bool,
        longest: bool,
        pattern: Word,
    },
}

impl Word {
    /// The word, if it is nothing but unquoted text.
    pub(super) fn plain(&self) -> Option<&str> {
        match &*self.0 {
            [Piece { quoted: false, part: Part::Text(text) }] => Some(text),
            _ => None,
        }
    }
}
