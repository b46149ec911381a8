//! Locates errors in JSON text: from line and column to the field path.

/// An object or array around the current position of the scan.
enum Enclosing {
    /// An object, and the name of the member that the scan is in.
    Object(Option<String>),
    /// An array, and the index of the element that the scan is in.
    Array(Option<usize>),
}

/// Returns the path (`spec.containers[0].image`, `.` for the whole) of the value at a line and column as `serde_json`'s
/// errors count them: both from one, columns in bytes.
///
/// The text before that place must be JSON, which it is when the parser came that far; whatever else, some path is returned.
pub(super) fn field_at(text: &[u8], line: usize, column: usize) -> String {
    let line_start: usize = text
        .split_inclusive(|byte| *byte == b'\n')
        .take(line.saturating_sub(1))
        .map(<[u8]>::len)
        .sum();
    let end = text.len().min(line_start + column);
    path(&enclosing(&text[..end]))
}

/// Scans JSON text, which may end anywhere, for what encloses its end.
fn enclosing(text: &[u8]) -> Vec<Enclosing> {
    let mut around = Vec::new();
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        if let (Some(Enclosing::Array(index @ None)), false) =
            (around.last_mut(), byte.is_ascii_whitespace() || *byte == b']')
        {
            *index = Some(0);
        }
        match byte {
            b'{' => around.push(Enclosing::Object(None)),
            b'[' => around.push(Enclosing::Array(None)),
            b'}' | b']' => drop(around.pop()),
            b',' => match around.last_mut() {
                Some(Enclosing::Object(name)) => *name = None,
                Some(Enclosing::Array(Some(index))) => *index += 1,
                _ => {}
            },
            b'"' => {
                let length = string_length(&text[at..]);
                if let Some(Enclosing::Object(name @ None)) = around.last_mut() {
                    let quoted = &text[at..at + length];
                    *name = Some(serde_json::from_slice(quoted).unwrap_or_default());
                }
                at += length - 1;
            }
            _ => {}
        }
        at += 1;
    }
    around
}

/// Length in bytes of the string that the text begins with, quotes included; of the rest if it does not end.
fn string_length(text: &[u8]) -> usize {
    let mut escaped = false;
    for (at, byte) in text.iter().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

fn path(around: &[Enclosing]) -> String {
    let mut path = String::new();
    for part in around {
        match part {
            Enclosing::Object(Some(name)) => {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(name);
            }
            Enclosing::Array(Some(index)) => path.push_str(&format!("[{index}]")),
            Enclosing::Object(None) | Enclosing::Array(None) => {}
        }
    }
    if path.is_empty() { ".".into() } else { path }
}

#[cfg(test)]
mod tests {
    use super::field_at;

    /// The path where the text has a `^` in it, which is left out.
    fn at(marked: &str) -> String {
        let (before, after) = marked.split_once('^').expect("a mark");
        let line = before.matches('\n').count() + 1;
        let column = before.len() - before.rfind('\n').map_or(0, |at| at + 1);
        field_at(format!("{before}{after}").as_bytes(), line, column)
    }

    #[test]
    fn the_path_of_a_place_in_text() {
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
            assert_eq!(at(text), path, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_place_of_any_text_has_a_path(text: Vec<u8>, line in 0_usize..9, column in 0_usize..99) {
            assert!(!field_at(&text, line, column).is_empty());
        }
    }
}
