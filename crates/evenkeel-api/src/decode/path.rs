//! Field path of a position in a JSON document, for error messages: `serde_json` reports only line and column.

/// An object or array that is open at the current position.
enum Container {
    /// An object with the name of the member at the current position; `None` before its name.
    Object(Option<String>),
    /// An array with the index of the element at the current position; `None` before the first.
    Array(Option<usize>),
}

/// Returns the path, such as `spec.containers[0].image`, of the value at a line and column. The path of the whole
/// document is `.`. As in errors of `serde_json`, lines and columns are counted from 1, and columns in bytes.
///
/// The JSON before that position must be valid, which the parser has checked. Otherwise the path is unspecified.
pub(super) fn field_at(text: &[u8], line: usize, column: usize) -> String {
    let line_start: usize = text
        .split_inclusive(|byte| *byte == b'\n')
        .take(line.saturating_sub(1))
        .map(<[u8]>::len)
        .sum();
    let end = text.len().min(line_start.saturating_add(column));
    path(&open_containers(text.get(..end).unwrap_or(text)))
}

/// Scans a JSON document, which may be truncated, and returns the containers that are open at its end, outermost first.
fn open_containers(text: &[u8]) -> Vec<Container> {
    let mut open = Vec::new();
    let mut position = 0;
    while let Some(byte) = text.get(position) {
        // The first element of an array begins at the first byte that is neither a space nor the array's end.
        let begins_element = !byte.is_ascii_whitespace() && *byte != b']';
        if let Some(Container::Array(index @ None)) = open.last_mut()
            && begins_element
        {
            *index = Some(0);
        }
        match byte {
            b'{' => open.push(Container::Object(None)),
            b'[' => open.push(Container::Array(None)),
            b'}' | b']' => drop(open.pop()),
            b',' => match open.last_mut() {
                Some(Container::Object(name)) => *name = None,
                Some(Container::Array(Some(index))) => {
                    *index = index.saturating_add(1);
                }
                _ => {}
            },
            b'"' => {
                let rest = text.get(position..).unwrap_or_default();
                let length = string_length(rest);
                // The first string in a member of an object is the member's name.
                if let Some(Container::Object(name @ None)) = open.last_mut() {
                    let quoted = rest.get(..length).unwrap_or(rest);
                    *name = Some(serde_json::from_slice(quoted).unwrap_or_default());
                }
                // Move to the closing quote.
                position = position.saturating_add(length.saturating_sub(1));
            }
            _ => {}
        }
        position = position.saturating_add(1);
    }
    open
}

/// Returns the length in bytes of the JSON string at the start of `text`, including its quotes. An unterminated string
/// extends to the end of `text`.
fn string_length(text: &[u8]) -> usize {
    let mut escaped = false;
    for (index, byte) in text.iter().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return index.saturating_add(1),
            _ => {}
        }
    }
    text.len()
}

/// Formats the path that leads through these containers, outermost first.
fn path(open: &[Container]) -> String {
    let mut path = String::new();
    for container in open {
        match container {
            Container::Object(Some(name)) => {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(name);
            }
            Container::Array(Some(index)) => path.push_str(&format!("[{index}]")),
            Container::Object(None) | Container::Array(None) => {}
        }
    }
    if path.is_empty() { ".".into() } else { path }
}

#[cfg(test)]
mod tests {
    use super::field_at;

    /// Removes the mark `^` from the JSON, and returns the path at its position.
    fn path_at_mark(marked: &str) -> String {
        let (before, after) = marked.split_once('^').expect("a mark");
        let line = before.matches('\n').count() + 1;
        let column = before.len() - before.rfind('\n').map_or(0, |line_feed| line_feed + 1);
        field_at(format!("{before}{after}").as_bytes(), line, column)
    }

    #[test]
    fn path_names_the_value_at_a_position() {
        for (text, path) in [
            (r#"{"spec": {"replicas": "x"^}}"#, "spec.replicas"),
            (r#"{"spec": {"replicas": {^}}}"#, "spec.replicas"),
            (
                r#"{"spec": {"containers": [{"name": "a"}, {"image": 7^}]}}"#,
                "spec.containers[1].image",
            ),
            (r#"{"spec": {"containers": [^7]}}"#, "spec.containers"),
            (r#"{"spec": {"containers": [7^]}}"#, "spec.containers[0]"),
            (r#"{"spec": {"containers": []^}}"#, "spec.containers"),
            (r#"{"a": {"b": 1}, "c": true^}"#, "c"),
            (r#"{"a\"b{": "}]\\", "c": [[1], [2, 3^]]}"#, "c[1][1]"),
            (r#"{"a\"b": 1^}"#, "a\"b"),
            ("{\n  \"a\": 1,\n  \"b\": [\n    1^", "b[0]"),
            ("^", "."),
            ("7^", "."),
            (r#"{"a": "no end^"#, "a"),
        ] {
            assert_eq!(path_at_mark(text), path, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn every_position_of_every_text_has_a_path(text: Vec<u8>, line in 0_usize..9, column in 0_usize..99) {
            assert!(!field_at(&text, line, column).is_empty());
        }
    }
}
