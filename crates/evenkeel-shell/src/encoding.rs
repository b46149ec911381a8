//! Lossless conversion of bytes to strings, for files and streams that are not UTF-8.

/// Private-use character that represents the byte 0 outside of valid UTF-8. The following 255 characters represent
/// the other bytes.
const ZERO_BYTE: u32 = 0x10_FF00;

/// Converts bytes to a string that [`bytes`] converts back to the same bytes. UTF-8 without private-use characters
/// stays unchanged.
pub fn text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if byte_of(c).is_some() {
                let mut encoded = [0; 4];
                text.extend(c.encode_utf8(&mut encoded).bytes().filter_map(char_of));
            } else {
                text.push(c);
            }
        }
        text.extend(chunk.invalid().iter().copied().filter_map(char_of));
    }
    text
}

/// Converts a string from [`text`] back to its bytes.
pub fn bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    for c in text.chars() {
        match byte_of(c) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    bytes
}

fn char_of(byte: u8) -> Option<char> {
    char::from_u32(ZERO_BYTE + u32::from(byte))
}

/// Returns the byte that a private-use character represents.
fn byte_of(c: char) -> Option<u8> {
    u32::from(c).checked_sub(ZERO_BYTE).and_then(|byte| u8::try_from(byte).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn utf8_text_is_unchanged() {
        assert_eq!(text("aß€𝄞\n".as_bytes()), "aß€𝄞\n");
    }

    proptest! {
        #[test]
        fn any_bytes_convert_to_text_and_back(given in proptest::collection::vec(any::<u8>(), 0..64)) {
            prop_assert_eq!(bytes(&text(&given)), given);
        }

        #[test]
        fn private_use_characters_convert_to_text_and_back(given in "[\u{10FF00}-\u{10FFFF}a-c]{0,16}") {
            prop_assert_eq!(bytes(&text(given.as_bytes())), given.as_bytes());
        }
    }
}
