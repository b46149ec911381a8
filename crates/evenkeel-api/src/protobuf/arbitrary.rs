//! Random objects of any message, for property tests.

use serde_json::{Map, Value};

use super::schema::{Descriptor, FieldDescriptor, Form, Kind, Label, Schema};

/// A small random generator; the seed determines the object.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mixed = (self.0 ^ (self.0 >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        mixed ^ (mixed >> 33)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn pick<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len() as u64) as usize]
    }

    /// Returns JSON of a message as Go's encoder could have written it. It may also contain values that Go omits.
    pub(crate) fn message(&mut self, descriptor: &'static Descriptor, depth: u32) -> Value {
        match descriptor.form {
            Form::Object => {
                let mut object = Map::new();
                self.fields(descriptor, depth, &mut object);
                Value::Object(object)
            }
            Form::Time => self
                .pick(&["2026-01-02T03:04:05Z", "1970-01-01T00:00:00Z", "1969-12-31T23:59:59Z"])
                .into(),
            Form::MicroTime => {
                self.pick(&["2026-01-02T03:04:05.123456Z", "1969-12-31T23:59:59.000001Z"]).into()
            }
            Form::Quantity => self.pick(&["1", "250m", "1Gi", "1500Mi", "0", "12e6", "3n"]).into(),
            Form::IntOrString if self.below(2) == 0 => (self.next() as i32).into(),
            Form::IntOrString => self.pick(&["25%", "http"]).into(),
            Form::Raw => serde_json::json!({"f:a": {"k": self.below(9)}, "l": [1, null, "x"]}),
            Form::List => Value::Array(vec![self.word().into(), self.word().into()]),
            Form::SchemaOrBool if self.below(2) == 0 => (self.below(2) == 0).into(),
            Form::SchemaOrArray | Form::SchemaOrBool | Form::SchemaOrStrings => {
                serde_json::json!({"type": self.word()})
            }
        }
    }

    fn fields(
        &mut self,
        descriptor: &'static Descriptor,
        depth: u32,
        object: &mut Map<String, Value>,
    ) {
        for field in &descriptor.fields {
            let nested = matches!(field.kind, Kind::Message(index) if Schema::get().message(index).form == Form::Object);
            if (nested && depth == 0) || self.below(5) < 2 {
                continue;
            }
            match field.kind {
                Kind::Message(index) if field.json.is_empty() => {
                    self.fields(Schema::get().message(index), depth - 1, object);
                }
                _ => drop(object.insert(field.json.to_string(), self.field(field, depth))),
            }
        }
    }

    fn field(&mut self, field: &'static FieldDescriptor, depth: u32) -> Value {
        let count = 1 + self.below(2);
        match field.label {
            Label::Singular => self.value(field.kind, depth),
            Label::Repeated => (0..count).map(|_| self.value(field.kind, depth)).collect(),
            Label::Map => (0..count)
                .map(|_| (self.word(), self.value(field.kind, depth)))
                .collect::<Map<_, _>>()
                .into(),
        }
    }

    fn word(&mut self) -> String {
        self.pick(&["a", "app", "example.com/x", "In", "Exists", "zoë \"1\"\n", "Always", "x1"])
            .to_owned()
    }

    fn value(&mut self, kind: Kind, depth: u32) -> Value {
        match kind {
            Kind::String => self.word().into(),
            Kind::Bytes => self.pick(&["AAH/", "aGVsbG8="]).into(),
            Kind::Bool => (self.below(2) == 0).into(),
            Kind::Int32 => (self.next() as i32).into(),
            Kind::Int64 => (self.next() as i64).into(),
            Kind::Double => (self.below(1000) as f64 / 8.0).into(),
            Kind::Message(index) => {
                self.message(Schema::get().message(index), depth.saturating_sub(1))
            }
        }
    }
}
