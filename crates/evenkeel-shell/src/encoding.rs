//! Bytes as text, for files and streams that are no UTF-8.

/// What a byte that belongs to no character becomes: a private character, which texts do not have.
const ZERO_BYTE: u32 = 0x10_FF00;

/// Returns bytes as a text from which [`bytes`] makes the same bytes again.
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

/// Returns the bytes of a text.
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

/// The byte that a private character stands for.
fn byte_of(c: char) -> Option<u8> {
    u32::from(c).checked_sub(ZERO_BYTE).and_then(|byte| u8::try_from(byte).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_stays_as_it_is() {
        assert_eq!(text("aß€𝄞\n".as_bytes()), "aß€𝄞\n");
    }

    proptest! {
        #[test]
        fn any_bytes_come_back(given in proptest::collection::vec(any::<u8>(), 0..64)) {
            prop_assert_eq!(bytes(&text(&given)), given);
        }

        #[test]
        fn characters_that_stand_for_bytes_come_back(given in "[\u{10FF00}-\u{10FFFF}a-c]{0,16}") {
            prop_assert_eq!(bytes(&text(given.as_bytes())), given.as_bytes());
        }
    }
}
