//! `--controllers`: the known and the enabled controllers.

use evenkeel_component::flags::Reader;

/// All controllers of upstream's program. `--controllers` may name them even if they are not implemented.
const UPSTREAM: &str = include_str!("../../data/controllers.tsv");

/// A controller of upstream's program, implemented or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownController {
    /// Name of the controller, as in `--controllers`.
    pub name: &'static str,
    /// Whether `*` enables it.
    pub on_by_default: bool,
    /// Former names that `--controllers` still accepts.
    pub aliases: Vec<&'static str>,
    /// Feature gates that the controller needs.
    pub gates: Vec<&'static str>,
}

/// Returns all controllers of upstream's program, sorted by name.
pub fn known_controllers() -> Vec<KnownController> {
    let list = |text: &'static str| text.split(',').filter(|part| !part.is_empty()).collect();
    let parse_row = |line: &'static str| {
        let mut columns = line.split('\t');
        let mut next = || columns.next().unwrap_or_default();
        let (name, on_by_default) = (next(), next() == "yes");
        KnownController { name, on_by_default, aliases: list(next()), gates: list(next()) }
    };
    UPSTREAM.lines().skip(1).map(parse_row).collect()
}

/// Controllers that `--controllers` enables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// Items in the order of the flag, with the controllers' current names: `*`, `name` or `-name`.
    pub items: Vec<String>,
    /// Former names that were used, each with the current name.
    pub old_names: Vec<(String, &'static str)>,
}

impl Choice {
    /// Reads `--controllers`, and reports unknown names to `read`.
    pub(super) fn from_flags(read: &Reader) -> Self {
        let (known_controllers, mut unknown) = (known_controllers(), Vec::new());
        let mut choice = Self { items: Vec::new(), old_names: Vec::new() };
        for item in read.list("controllers") {
            let (sign, name) =
                item.strip_prefix('-').map_or(("", item.as_str()), |name| ("-", name));
            let found = known_controllers
                .iter()
                .find(|known| known.name == name || known.aliases.contains(&name));
            match found {
                Some(known) => {
                    choice.items.push(format!("{sign}{}", known.name));
                    if known.name != name {
                        choice.old_names.push((name.to_owned(), known.name));
                    }
                }
                None if item == "*" => choice.items.push(item),
                None => unknown.push(format!("{name:?} is not in the list of known controllers")),
            }
        }
        if !unknown.is_empty() {
            read.record_invalid("controllers", unknown.join(", "));
        }
        choice
    }

    /// Returns the enabled controllers. `known_controllers` contains their names, each with whether `*` enables it. The first
    /// item that names a controller decides; `*` enables all others that are on by default.
    pub fn enabled<'a>(
        &self,
        known_controllers: impl IntoIterator<Item = (&'a str, bool)>,
    ) -> Vec<&'a str> {
        let has_star = self.items.iter().any(|item| item == "*");
        let is_enabled = |name: &str, on_by_default: bool| {
            let mut items = self.items.iter();
            match items.find(|item| item.strip_prefix('-').unwrap_or(item) == name) {
                Some(item) => !item.starts_with('-'),
                None => has_star && on_by_default,
            }
        };
        let known_controllers = known_controllers.into_iter();
        let enabled = known_controllers.filter(|(name, default)| is_enabled(name, *default));
        enabled.map(|(name, _)| name).collect()
    }

    /// Returns the help text's list of controllers.
    pub(super) fn options() -> String {
        let known_controllers = known_controllers();
        let all: Vec<&str> = known_controllers.iter().map(|known| known.name).collect();
        let off = known_controllers.iter().filter(|known| !known.on_by_default);
        let off: Vec<&str> = off.map(|known| known.name).collect();
        let (all, off) = (all.join(", "), off.join(", "));
        format!("All controllers: {all}\nDisabled-by-default controllers: {off}")
    }
}
