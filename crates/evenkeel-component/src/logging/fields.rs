//! Fields of events and spans, including the message.

use std::{error::Error, fmt};
use tracing::field::{Field, Visit};

/// Value of a field.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Text(String),
    Bool(bool),
    Int(i128),
    Float(f64),
}

/// Message and named values. Each name occurs once.
#[derive(Debug, Default)]
pub(super) struct Fields {
    pub(super) message: String,
    pub(super) values: Vec<(&'static str, Value)>,
}

impl Fields {
    /// Adds the fields of an outer span. A name that already has a value keeps it.
    pub(super) fn add_outer(&mut self, outer: &Self) {
        for (name, value) in &outer.values {
            if !self.values.iter().any(|(inner, _)| inner == name) {
                self.values.push((name, value.clone()));
            }
        }
    }

    fn set(&mut self, field: &Field, value: Value) {
        let name = match field.name() {
            "message" => {
                if let Value::Text(text) = value {
                    self.message = text;
                }
                return;
            }
            // klog's name for the field.
            "error" => "err",
            other => other,
        };
        match self.values.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => self.values.push((name, value)),
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.set(field, Value::Text(format!("{value:?}")));
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, Value::Text(value.to_owned()));
    }
    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        let mut text = value.to_string();
        let mut source = value.source();
        while let Some(error) = source {
            text.push_str(&format!(": {error}"));
            source = error.source();
        }
        self.set(field, Value::Text(text));
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, Value::Bool(value));
    }
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, Value::Int(value.into()));
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, Value::Int(value.into()));
    }
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field, Value::Float(value));
    }
}
