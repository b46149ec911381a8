//! Expressions by seed.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};

use crate::grammar::{FORMS, Kind, MACROS, RANGES};
use crate::literals::{LITERALS, UNKNOWN};

/// Scope of expressions: the variables and fields that they can read, by type.
pub(crate) struct Scope {
    pub(crate) leaves: &'static [(Kind, &'static [&'static str])],
}

/// A generated expression, and the change that was made to it.
#[derive(Debug, Clone)]
pub(crate) struct Generated {
    pub(crate) seed: u64,
    pub(crate) source: String,
    /// Change of a valid expression; empty for none.
    pub(crate) change: &'static str,
}

/// Changes of a valid expression, each with its frequency per hundred expressions.
const CHANGES: &[(&str, u32)] = &[
    ("token removed", 6),
    ("token doubled", 3),
    ("tokens swapped", 3),
    ("letter inserted", 4),
    ("part unknown", 8),
    ("another type", 14),
];

/// Letters that are inserted.
const LETTERS: [char; 16] =
    ['#', '$', '\\', '\'', '"', '(', ')', '?', '.', 'é', '😀', '\u{1}', '\n', '`', '&', ';'];

/// Returns the expression of a seed, with a result of this type.
pub(crate) fn generated(seed: u64, scope: &Scope, kind: Kind) -> Generated {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut roll = rng.random_range(0..100u32);
    let change = CHANGES.iter().find(|(_, often)| match roll.checked_sub(*often) {
        Some(rest) => {
            roll = rest;
            false
        }
        None => true,
    });
    let change = change.map_or("valid", |(change, _)| *change);
    let depth = rng.random_range(1..4);
    let is_mixed = change == "another type";
    let locals = Vec::new();
    let mut making = Making { rng: &mut rng, scope, locals, is_mixed, room: 24 };
    let source = making.expression(kind, depth);
    let source = changed(source, change, &mut rng);
    Generated { seed, source, change }
}

/// Generation of one expression.
struct Making<'m> {
    rng: &'m mut StdRng,
    scope: &'m Scope,
    /// Variables of macros, with their types.
    locals: Vec<(&'static str, Kind)>,
    /// Whether some parts have another type than the right one.
    is_mixed: bool,
    /// Number of forms that the expression may still have.
    room: u32,
}

fn of(table: &[(Kind, &'static [&'static str])], kind: &str) -> &'static [&'static str] {
    table.iter().find(|(known, _)| *known == kind).map_or(&[], |(_, all)| all)
}

impl Making<'_> {
    fn one(&mut self, all: &[&'static str]) -> &'static str {
        all.choose(self.rng).copied().unwrap_or("null")
    }

    fn expression(&mut self, kind: Kind, depth: u32) -> String {
        let mut kind = kind;
        if self.is_mixed && self.rng.random_bool(0.15) {
            kind = FORMS.choose(self.rng).map_or(kind, |(other, _)| other);
        }
        self.room = self.room.saturating_sub(1);
        let forms = of(FORMS, kind);
        if depth == 0 || self.room == 0 || forms.is_empty() {
            return self.leaf(kind);
        }
        let macros: Vec<&'static str> =
            MACROS.iter().filter(|(result, _)| *result == kind).map(|(_, form)| *form).collect();
        if !macros.is_empty() && self.rng.random_bool(0.2) {
            let form = self.one(&macros);
            return self.comprehension(form, depth - 1);
        }
        let form = self.one(forms);
        self.filled(form, depth - 1)
    }

    fn leaf(&mut self, kind: Kind) -> String {
        let locals: Vec<&'static str> =
            self.locals.iter().filter(|(_, of)| *of == kind).map(|(name, _)| *name).collect();
        if !locals.is_empty() && self.rng.random_bool(0.6) {
            return self.one(&locals).to_owned();
        }
        let leaves = of(self.scope.leaves, kind);
        if !leaves.is_empty() && self.rng.random_bool(0.5) {
            return self.one(leaves).to_owned();
        }
        let literals = of(LITERALS, kind);
        if literals.is_empty() {
            // The first form of a type without literals is a small one.
            let form = of(FORMS, kind).first().copied().unwrap_or("null");
            return self.filled(form, 0);
        }
        self.one(literals).to_owned()
    }

    fn comprehension(&mut self, form: &'static str, depth: u32) -> String {
        let Some((range, first, second)) = RANGES.choose(self.rng).copied() else {
            return "true".to_owned();
        };
        let range = self.filled(range, depth);
        let before = self.locals.len();
        let names = ["x", "y", "k", "v", "w", "item"];
        let (v, w) = (self.one(&names), self.one(&names));
        let has_two = form.contains("$w");
        // The first of two variables of a list is the index.
        let is_list = first == second && first != "any" && has_two;
        self.locals.push((v, if is_list { "int" } else { first }));
        if has_two {
            self.locals.push((w, second));
        }
        let form = form.replace("$r", &range).replace("$v", v).replace("$w", w);
        let made = self.filled(&form, depth);
        self.locals.truncate(before);
        made
    }

    /// Replaces the placeholders of expressions.
    fn filled(&mut self, form: &str, depth: u32) -> String {
        let mut parts = form.split('$');
        let mut made = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let end = part.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(part.len());
            let (name, rest) = part.split_at(end);
            let known = FORMS.iter().map(|(kind, _)| kind);
            let kind =
                known.chain(LITERALS.iter().map(|(kind, _)| kind)).find(|kind| **kind == name);
            match kind {
                Some(kind) => {
                    let inner = self.expression(kind, depth);
                    // A method of an operator's result needs brackets.
                    let is_operand = rest.starts_with(['.', '[']) && !is_simple(&inner);
                    made.push_str(&if is_operand { format!("({inner})") } else { inner });
                }
                None => {
                    made.push('$');
                    made.push_str(name);
                }
            }
            made.push_str(rest);
        }
        made
    }
}

fn is_simple(source: &str) -> bool {
    !source.contains(' ') && !source.starts_with('-')
}

fn changed(source: String, change: &str, rng: &mut StdRng) -> String {
    let mut tokens = tokens(&source);
    if tokens.is_empty() {
        return source;
    }
    let at = rng.random_range(0..tokens.len());
    match change {
        "token removed" => {
            tokens.remove(at);
        }
        "token doubled" => tokens.insert(at, tokens[at].clone()),
        "tokens swapped" => {
            let other = (at + 1) % tokens.len();
            tokens.swap(at, other);
        }
        "letter inserted" => {
            let letter = LETTERS.choose(rng).copied().unwrap_or('#');
            tokens.insert(at, letter.to_string());
        }
        "part unknown" => {
            let other = UNKNOWN.choose(rng).copied().unwrap_or("nope");
            let words: Vec<usize> = (0..tokens.len())
                .filter(|at| {
                    tokens[*at].starts_with(|c: char| c.is_ascii_alphanumeric() || c == '\'')
                })
                .collect();
            match words.choose(rng) {
                Some(at) => tokens[*at] = other.to_owned(),
                None => return other.to_owned(),
            }
        }
        _ => return source,
    }
    tokens.concat()
}

/// Splits an expression into words, strings, symbols and spaces.
fn tokens(source: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut letters = source.chars().peekable();
    while let Some(letter) = letters.next() {
        let mut token = letter.to_string();
        if letter == '\'' || letter == '"' {
            while let Some(next) = letters.next() {
                token.push(next);
                if next == '\\' {
                    token.extend(letters.next());
                } else if next == letter {
                    break;
                }
            }
        } else if letter.is_alphanumeric() || letter == '_' {
            while let Some(next) = letters.next_if(|c| c.is_alphanumeric() || *c == '_') {
                token.push(next);
            }
        } else if "=!<>&|".contains(letter)
            && let Some(next) = letters.next_if(|c| "=&|".contains(*c))
        {
            token.push(next);
        }
        tokens.push(token);
    }
    tokens
}
