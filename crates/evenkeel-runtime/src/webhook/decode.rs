//! Decoding of JSON, with errors that name the field.

use evenkeel_api::json;
use serde::de::DeserializeOwned;

/// Decodes JSON of bounded depth.
///
/// # Errors
/// Returns the reason, after the path of the field.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let mut reader = json::deserializer(bytes).map_err(|error| error.to_string())?;
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let (path, reason) = (error.path().to_string(), error.inner().to_string());
        if matches!(&*path, "." | "?") { reason } else { format!("{path}: {reason}") }
    })?;
    reader.end().map_err(|error| error.to_string())?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;

    #[test]
    fn an_error_names_the_field() {
        let body = br#"{"spec":{"containers":[{"name":"a"},{"name":"b","ports":[{"containerPort":"x"}]}]}}"#;
        let error = decode::<Pod>(body).unwrap_err();
        assert!(
            error.starts_with("spec.containers[1].ports[0].containerPort: invalid type"),
            "{error}"
        );
        assert!(decode::<Pod>(b"{} {}").unwrap_err().contains("trailing characters"));
        let deep = "[".repeat(100_000);
        assert_eq!(decode::<serde_json::Value>(deep.as_bytes()).unwrap_err(), json::TOO_DEEP);
    }
}
