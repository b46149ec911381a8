//! The reference page of a configuration file, from its JSON schema.

use super::reference::{NOTE, cell};
use serde_json::Value;
use std::collections::BTreeSet;

/// Prefix of references to the schema's other types.
const DEFINITION: &str = "#/$defs/";

/// Returns the page of the file's type and of all object types in it, with their fields.
pub(super) fn page(schema: &Value) -> String {
    let root = schema["title"].as_str().unwrap_or_default();
    let mut page = format!(
        "{NOTE}\n# Fields of the {root}\n\n`evenkeel up --config FILE` reads this type. [The guide](../cluster-config.md) has an example, and \
         says what belongs together. Fields in bold must be set.\n"
    );
    let mut known = BTreeSet::from([root.to_owned()]);
    let mut due = vec![(root.to_owned(), schema)];
    while !due.is_empty() {
        let mut found = Vec::new();
        for (name, object) in due {
            push_object(&mut page, &name, object, schema);
            for field in properties(object) {
                for used in used_objects(field.1, schema) {
                    if known.insert(used.clone()) {
                        let definition = &schema["$defs"][&used];
                        found.push((used, definition));
                    }
                }
            }
        }
        due = found;
    }
    page
}

/// Returns the names and schemas of an object's fields.
fn properties(object: &Value) -> impl Iterator<Item = (&String, &Value)> {
    object["properties"].as_object().into_iter().flatten()
}

fn push_object(page: &mut String, name: &str, object: &Value, schema: &Value) {
    let meaning = cell(object["description"].as_str().unwrap_or_default());
    page.push_str(&format!(
        "\n## {name}\n\n{}\n\n| field | value | meaning |\n|---|---|---|\n",
        meaning.replace("<br>", " ")
    ));
    let is_required = |field: &str| {
        let mut required = object["required"].as_array().into_iter().flatten();
        required.any(|name| name == field)
    };
    for (field, value) in properties(object) {
        let mark = if is_required(field) { "**" } else { "" };
        let meaning = cell(value["description"].as_str().unwrap_or_default());
        page.push_str(&format!(
            "| {mark}`{field}`{mark} | {} | {} |\n",
            type_name(value, schema),
            meaning.replace("<br>", " ")
        ));
    }
}

/// Returns the definition that a schema's `$ref` names, with the name.
fn referred<'a>(value: &'a Value, schema: &'a Value) -> Option<(&'a str, &'a Value)> {
    let name = value["$ref"].as_str()?.strip_prefix(DEFINITION)?;
    Some((name, &schema["$defs"][name]))
}

/// Returns the alternatives of a schema except `null`.
fn alternatives(value: &Value) -> Option<impl Iterator<Item = &Value>> {
    let all = value["anyOf"].as_array().or_else(|| value["oneOf"].as_array())?;
    Some(all.iter().filter(|one| one["type"] != "null"))
}

/// Returns the name of a field's type.
fn type_name(value: &Value, schema: &Value) -> String {
    if let Some((name, definition)) = referred(value, schema) {
        return match definition["type"] == "object" {
            true => format!("[{name}](#{})", name.to_lowercase()),
            false => type_name(definition, schema),
        };
    }
    if let Some(constant) = value["const"].as_str() {
        return format!("`{constant}`");
    }
    if let Some(alternatives) = alternatives(value) {
        let names: Vec<String> = alternatives.map(|one| type_name(one, schema)).collect();
        return names.join(" or ");
    }
    match simple_type(value) {
        "array" => format!("list of {}", many(&value["items"], schema)),
        "object" if value["additionalProperties"].is_object() => {
            format!("map of {}", many(&value["additionalProperties"], schema))
        }
        "object" => match properties(value).next() {
            Some((field, value)) => format!("object with `{field}` ({})", type_name(value, schema)),
            None => "object".to_owned(),
        },
        "string" if value["format"] == "ip" => "IP address".to_owned(),
        other => other.to_owned(),
    }
}

/// Returns the plural name of the element type of a list or a map.
fn many(value: &Value, schema: &Value) -> String {
    let name = type_name(value, schema);
    let is_word = matches!(&*name, "boolean" | "integer" | "number" | "object" | "string");
    if is_word { name + "s" } else { name }
}

/// Returns the type of a schema. For a type that is either `null` or another one, returns the other one.
fn simple_type(value: &Value) -> &str {
    let types = value["type"].as_array();
    let mut types = types.into_iter().flatten().filter_map(Value::as_str);
    let other = types.find(|name| *name != "null");
    value["type"].as_str().or(other).unwrap_or("any value")
}

/// Returns the names of the object types that a field accepts, in their order.
fn used_objects(value: &Value, schema: &Value) -> Vec<String> {
    if let Some((name, definition)) = referred(value, schema) {
        return match definition["type"] == "object" {
            true => vec![name.to_owned()],
            false => used_objects(definition, schema),
        };
    }
    let parts = alternatives(value).into_iter().flatten();
    let parts = parts.chain([&value["items"], &value["additionalProperties"]]);
    parts.filter(|part| part.is_object()).flat_map(|part| used_objects(part, schema)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_object_type_has_a_table_of_its_fields() {
        let schema = json!({
            "title": "File", "description": "A file.\nOf two lines.", "type": "object", "required": ["kind"],
            "properties": {
                "kind": {"$ref": "#/$defs/Kind", "description": "Type."},
                "groups": {"type": ["array", "null"], "items": {"$ref": "#/$defs/Group"}, "description": "a|b"},
                "port": {"anyOf": [{"$ref": "#/$defs/Port"}, {"type": "null"}]},
            },
            "$defs": {
                "Kind": {"oneOf": [{"const": "A"}, {"const": "B"}]},
                "Port": {"anyOf": [{"type": "integer"}, {"type": "string", "const": "none"}]},
                "Group": {"type": "object", "description": "A group.", "properties": {
                    "inner": {"type": "object", "additionalProperties": {"$ref": "#/$defs/Group"}},
                    "ip": {"type": "string", "format": "ip"},
                    "names": {"type": "array", "items": {"type": "string"}},
                }},
                "Unused": {"type": "object"},
            },
        });
        let page = page(&schema);
        let (_, tables) = page.split_once("must be set.\n").expect("an introduction");
        assert_eq!(
            tables,
            "\n## File\n\nA file. Of two lines.\n\n| field | value | meaning |\n|---|---|---|\n\
             | `groups` | list of [Group](#group) | a\\|b |\n| **`kind`** | `A` or `B` | Type. |\n\
             | `port` | integer or `none` |  |\n\
             \n## Group\n\nA group.\n\n| field | value | meaning |\n|---|---|---|\n\
             | `inner` | map of [Group](#group) |  |\n| `ip` | IP address |  |\n\
             | `names` | list of strings |  |\n"
        );
    }
}
