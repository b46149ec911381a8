use std::collections::BTreeSet;

use super::{Definition, Field, Shape};
use crate::protobuf::schema::{Kind, Label, Schema};
use crate::views::*;

macro_rules! shapes {
    ($($view:ident),*) => { [$(&$view::SHAPE),*] };
}

/// Returns every definition that is reachable from one of these views.
fn definitions() -> Vec<&'static Definition> {
    fn walk(
        shape: &'static Shape,
        seen: &mut BTreeSet<(&'static str, Vec<u32>)>,
        all: &mut Vec<&'static Definition>,
    ) {
        match shape {
            Shape::Named(_) => {}
            Shape::Repeated(item) | Shape::Map(item) => walk(item, seen, all),
            Shape::Message(definition) => {
                // A message may have several definitions, each with the fields that its readers need.
                let numbers = definition.fields.iter().map(|(number, ..)| *number).collect();
                if seen.insert((definition.name, numbers)) {
                    all.push(definition);
                    definition.fields.iter().for_each(|(_, _, shape)| walk(shape, seen, all));
                }
            }
        }
    }
    let (mut seen, mut all) = (BTreeSet::new(), Vec::new());
    let views = with_all_views!(shapes);
    for shape in
        views.into_iter().chain([&crate::list::ListMeta::SHAPE, &crate::status::Status::SHAPE])
    {
        walk(shape, &mut seen, &mut all);
    }
    all
}

fn agrees(shape: &Shape, label: Label, kind: Kind) -> bool {
    match (shape, label) {
        (Shape::Repeated(item), Label::Repeated) | (Shape::Map(item), Label::Map) => {
            agrees(item, Label::Singular, kind)
        }
        (_, Label::Repeated | Label::Map) => false,
        (Shape::Named("any"), Label::Singular) => true,
        (Shape::Named(name), Label::Singular) => match kind {
            Kind::String => *name == "string",
            Kind::Bool => *name == "bool",
            Kind::Int32 => *name == "int32",
            Kind::Int64 => *name == "int64",
            Kind::Bytes | Kind::Double => false,
            Kind::Message(index) => {
                let message = &*Schema::get().message(index).name;
                match *name {
                    "time" => {
                        message.ends_with("meta.v1.Time") || message.ends_with("meta.v1.MicroTime")
                    }
                    name => name == message,
                }
            }
        },
        (Shape::Message(definition), Label::Singular) => {
            matches!(kind, Kind::Message(index) if *Schema::get().message(index).name == *definition.name)
        }
        (Shape::Repeated(_) | Shape::Map(_), Label::Singular) => false,
    }
}

/// Numbers, names and types in the definitions equal those in upstream's `.proto` files.
#[test]
fn definitions_equal_upstreams_protobuf_fields() {
    let definitions = definitions();
    assert!(definitions.len() > 200, "only {} definitions were found", definitions.len());
    for definition in definitions {
        let message = Schema::get()
            .named(definition.name)
            .unwrap_or_else(|| panic!("{} is unknown", definition.name));
        for (number, json, shape) in definition.fields {
            let field = message.fields.iter().find(|field| field.number == *number);
            let field =
                field.unwrap_or_else(|| panic!("{} has no field {number}", definition.name));
            assert_eq!(*field.json, **json, "{} field {number}", definition.name);
            assert!(
                agrees(shape, field.label, field.kind),
                "{} {json}: {shape:?} is not {:?}",
                definition.name,
                field.kind
            );
        }
    }
}
