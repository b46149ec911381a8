//! Collection of validation errors with their field paths.
//!
//! Upstream: `k8s.io/apimachinery/pkg/util/validation/field`.

use crate::status::{BadValue, FieldError};
use serde_json::Value;
use std::collections::HashSet;
use std::fmt::{self, Display};

/// Field path as a linked list on the stack, which is formatted only for an error.
#[derive(Clone, Copy, Debug)]
pub struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

/// Step of a field's path.
#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    Name(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> Path<'a> {
    /// Returns a path that begins with a field, or with several joined by dots.
    pub fn new(name: &'a str) -> Self {
        Self { parent: None, step: Step::Name(name) }
    }

    /// Returns the path of a field of this value.
    pub fn field(&'a self, name: &'a str) -> Path<'a> {
        Path { parent: Some(self), step: Step::Name(name) }
    }

    /// Returns the path of an item of this list.
    pub fn index(&'a self, index: usize) -> Path<'a> {
        Path { parent: Some(self), step: Step::Index(index) }
    }

    /// Returns the path of an entry of this map.
    pub fn key(&'a self, key: &'a str) -> Path<'a> {
        Path { parent: Some(self), step: Step::Key(key) }
    }
}

impl Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.step {
            Step::Name(name) if self.parent.is_some() => write!(f, ".{name}"),
            Step::Name(name) => f.write_str(name),
            Step::Index(index) => write!(f, "[{index}]"),
            Step::Key(key) => write!(f, "[{key}]"),
        }
    }
}

/// Validation errors of one object, in order. Their total size is limited, because a body of 3 MiB can cause a million
/// errors.
///
/// Upstream: `ErrorList`.
#[derive(Debug, Default)]
pub struct Errors {
    found: Vec<FieldError>,
    /// Total size of the errors' messages in bytes.
    size: usize,
    is_truncated: bool,
}

impl Errors {
    /// Returns the errors without duplicates.
    pub fn into_vec(self) -> Vec<FieldError> {
        let mut seen = HashSet::with_capacity(self.found.len());
        let is_first: Vec<bool> = self.found.iter().map(|error| seen.insert(error)).collect();
        let mut is_first = is_first.into_iter();
        let mut unique = self.found;
        unique.retain(|_| is_first.next().unwrap_or_default());
        if self.is_truncated {
            unique.push(FieldError::not_all_listed());
        }
        unique
    }

    /// Returns whether further errors are dropped. Callers check this before they copy a large value into an error.
    pub fn is_full(&self) -> bool {
        self.size >= FieldError::MAX_TOTAL_SIZE
    }

    /// Adds an error unless the list is full. `error` is called only if there is room, since it may copy a large
    /// value.
    fn push(&mut self, error: impl FnOnce() -> FieldError) {
        if self.is_full() {
            self.is_truncated = true;
            return;
        }
        let error = error();
        self.size += error.size();
        self.found.push(error);
    }

    /// Adds the errors of another list, in their order.
    pub fn extend(&mut self, other: Self) {
        other.found.into_iter().for_each(|error| self.push(|| error));
        self.is_truncated |= other.is_truncated;
    }

    /// Returns whether no error was added.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Adds an error: the value at `path` is missing.
    pub fn required(&mut self, path: &Path<'_>, detail: &str) {
        self.push(|| FieldError::required(path.to_string(), detail));
    }

    /// Adds an error: the value at `path` is invalid.
    pub fn invalid(&mut self, path: &Path<'_>, value: impl Into<BadValue>, detail: &str) {
        self.push(|| FieldError::invalid(path.to_string(), value, detail));
    }

    /// Adds an error like [`Errors::invalid`] with a value that is large: it is copied only if there is room.
    pub fn invalid_large<V: Into<BadValue>>(
        &mut self,
        path: &Path<'_>,
        value: impl FnOnce() -> V,
        detail: &str,
    ) {
        self.push(|| FieldError::invalid(path.to_string(), value(), detail));
    }

    /// Adds an error for an invalid value at `path`. The message does not show the value.
    pub fn invalid_whole(&mut self, path: &Path<'_>, detail: &str) {
        self.push(|| FieldError::invalid_whole(path.to_string(), detail));
    }

    /// Adds an error: the list at `path` has more than `most` items.
    pub fn too_many(&mut self, path: &Path<'_>, items: usize, most: usize) {
        self.push(|| FieldError::too_many(path.to_string(), items as u64, most as u64));
    }

    /// Adds an error for each detail: the value at `path` is invalid.
    pub fn invalid_for_each(&mut self, path: &Path<'_>, value: &str, details: &[String]) {
        for detail in details {
            self.invalid(path, value, detail);
        }
    }

    /// Adds an error if the string at `path` is empty, else one for each message of `check`.
    pub fn required_valid(&mut self, path: &Path<'_>, value: &str, check: fn(&str) -> Vec<String>) {
        match value {
            "" => self.required(path, ""),
            _ => self.invalid_for_each(path, value, &check(value)),
        }
    }

    /// Adds an error: the value at `path` is forbidden.
    pub fn forbidden(&mut self, path: &Path<'_>, detail: &str) {
        self.push(|| FieldError::forbidden(path.to_string(), detail));
    }

    /// Adds an error: a rule could not be evaluated for the value at `path`.
    pub fn internal(&mut self, path: &Path<'_>, detail: &str) {
        self.push(|| FieldError::internal(path.to_string(), detail));
    }

    /// Adds an error: the value at `path` is a duplicate.
    pub fn duplicate(&mut self, path: &Path<'_>, value: impl Into<BadValue>) {
        self.push(|| FieldError::duplicate(path.to_string(), value));
    }

    /// Adds an error: the object that the value at `path` names does not exist.
    pub fn not_found(&mut self, path: &Path<'_>, value: impl Into<BadValue>) {
        self.push(|| FieldError::not_found(path.to_string(), value));
    }

    /// Adds an error like [`Errors::not_found`] with a detail.
    pub fn not_found_because(&mut self, path: &Path<'_>, value: impl Into<BadValue>, detail: &str) {
        self.push(|| FieldError {
            detail: detail.to_owned(),
            ..FieldError::not_found(path.to_string(), value)
        });
    }

    /// Adds an error: the value at `path` has more than `limit` bytes.
    pub fn too_long(&mut self, path: &Path<'_>, limit: usize) {
        self.push(|| FieldError::too_long(path.to_string(), limit));
    }

    /// Adds an error: the value at `path` has more than `limit` characters.
    pub fn too_long_characters(&mut self, path: &Path<'_>, limit: usize) {
        self.push(|| FieldError::too_long_characters(path.to_string(), limit));
    }

    /// Adds an error: the value at `path` is not among `supported`.
    pub fn not_supported(
        &mut self,
        path: &Path<'_>,
        value: impl Into<BadValue>,
        supported: &[&str],
    ) {
        self.push(|| FieldError::not_supported(path.to_string(), value, supported));
    }

    /// Adds an error unless the value, which may be empty, is among `supported`.
    pub fn one_of(&mut self, path: &Path<'_>, value: &str, supported: &[&str]) {
        if !supported.contains(&value) {
            self.not_supported(path, value, supported);
        }
    }

    /// Adds an error if the value is empty, or else unless it is among `supported`.
    pub fn required_one_of(&mut self, path: &Path<'_>, value: &str, supported: &[&str]) {
        match value {
            "" => self.required(path, ""),
            _ => self.one_of(path, value, supported),
        }
    }

    /// Adds an error like [`Errors::one_of`], but accepts an unset value (a nil pointer in Go).
    pub fn one_of_if_set(&mut self, path: &Path<'_>, value: Option<&Value>, supported: &[&str]) {
        if let Some(value) = value.and_then(Value::as_str) {
            self.one_of(path, value, supported);
        }
    }

    /// Adds an error if a field has changed.
    ///
    /// Upstream: `ValidateImmutableField`.
    pub fn immutable(&mut self, path: &Path<'_>, new: Option<&Value>, old: Option<&Value>) {
        if !crate::value::same(new, old) {
            self.invalid_large(path, || new.cloned().unwrap_or_default(), "field is immutable");
        }
    }

    /// Validates like [`Errors::immutable_as`] that a field has not changed. The field is a pointer in Go, so that an
    /// unset field differs from an empty value.
    pub fn immutable_pointer(
        &mut self,
        path: &Path<'_>,
        new: Option<&Value>,
        old: Option<&Value>,
        quoted: impl FnOnce(Option<&Value>) -> BadValue,
    ) {
        let is_set = |value: Option<&Value>| value.is_some_and(|value| !value.is_null());
        if is_set(new) == is_set(old) {
            return self.immutable_as(path, new, old, quoted);
        }
        self.invalid_large(path, || quoted(new), "field is immutable");
    }

    /// Adds an error if a field has changed. `quoted` formats the new value for the error.
    pub fn immutable_as(
        &mut self,
        path: &Path<'_>,
        new: Option<&Value>,
        old: Option<&Value>,
        quoted: impl FnOnce(Option<&Value>) -> BadValue,
    ) {
        if !crate::value::same(new, old) {
            self.invalid_large(path, || quoted(new), "field is immutable");
        }
    }

    /// Validates that a number is not negative.
    ///
    /// Upstream: `ValidateNonnegativeField`.
    pub fn non_negative(&mut self, path: &Path<'_>, number: Option<i64>) {
        if let Some(number) = number.filter(|number| *number < 0) {
            self.invalid(path, number, "must be greater than or equal to 0");
        }
    }

    /// Adds an error if a number is outside a range that includes both ends.
    pub fn in_range(&mut self, path: &Path<'_>, number: Option<i64>, low: i64, high: i64) {
        if let Some(number) = number.filter(|number| !(low..=high).contains(number)) {
            self.invalid(path, number, &format!("must be between {low} and {high}, inclusive"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicate_errors_are_dropped_and_the_total_size_is_limited() {
        let path = Path::new("spec");
        let mut errors = Errors::default();
        for i in 0..4 {
            errors.invalid(&path, i % 2, "odd or even");
        }
        let fields: Vec<Option<BadValue>> =
            errors.into_vec().into_iter().map(|e| e.value).collect();
        assert_eq!(fields, [Some(BadValue::from(0)), Some(BadValue::from(1))]);

        let mut errors = Errors::default();
        let large = vec![Value::from("x".repeat(1024)); 64];
        let before = (0..1000).take_while(|i| {
            errors.invalid(&path.index(*i), large.clone(), "is large");
            !errors.is_full()
        });
        assert_eq!(before.count(), 3);
        let listed = errors.into_vec();
        assert_eq!(listed.len(), 4, "the last one that fits, and no note: nothing was dropped");

        let mut errors = Errors::default();
        for i in 0..1_000_000 {
            errors.required(&path.index(i), "");
        }
        let listed = errors.into_vec();
        assert!(listed.len() < 30_000, "{}", listed.len());
        assert_eq!(listed.last(), Some(&FieldError::not_all_listed()));
    }

    #[test]
    fn errors_have_upstreams_text() {
        let root = Path::new("spec");
        let ports = root.field("ports");
        let port = ports.index(1);
        let mut errors = Errors::default();
        errors.invalid(&port.field("name"), "A\"", "bad");
        errors.not_supported(&root.field("type"), "x", &["A", "B"]);
        errors.required(&Path::new("metadata").field("labels").key("a/b"), "");
        let lines: Vec<String> = errors.into_vec().iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                r#"spec.ports[1].name: Invalid value: "A\"": bad"#,
                r#"spec.type: Unsupported value: "x": supported values: "A", "B""#,
                "metadata.labels[a/b]: Required value",
            ]
        );
    }
}
