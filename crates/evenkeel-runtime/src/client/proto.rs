//! The few protobuf messages around objects: envelope, list, watch event, Status. What is inside an object is the view's.

use super::{Cause, Status};
use std::{borrow::Cow, time::Duration};

/// What every protobuf object from the API server starts with.
const MAGIC: &[u8] = b"k8s\0";

/// A message's fields in order: number and value, until the end or the first byte that makes no sense.
struct Fields<'a> {
    rest: &'a [u8],
    broken: bool,
}

#[derive(Clone, Copy)]
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    fn bytes(self) -> &'a [u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Number(_) => &[],
        }
    }

    fn text(self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.bytes())
    }

    fn number(self) -> u64 {
        match self {
            Self::Number(number) => number,
            Self::Bytes(_) => 0,
        }
    }
}

fn fields(message: &[u8]) -> Fields<'_> {
    Fields { rest: message, broken: false }
}

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for at in 0..10 {
            let (byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(n)?;
        self.rest = rest;
        Some(taken)
    }

    fn field(&mut self) -> Option<(u64, Value<'a>)> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Value::Number(self.varint()?),
            1 => Value::Bytes(self.take(8)?),
            2 => {
                let n = usize::try_from(self.varint()?).ok()?;
                Value::Bytes(self.take(n)?)
            }
            5 => Value::Bytes(self.take(4)?),
            _ => return None,
        };
        Some((tag >> 3, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() || self.broken {
            return None;
        }
        let field = self.field();
        self.broken = field.is_none();
        field
    }
}

/// Takes magic and `runtime.Unknown` off an object; none when they are not there.
pub(crate) fn open(bytes: &[u8]) -> Option<&[u8]> {
    let mut envelope = fields(bytes.strip_prefix(MAGIC)?);
    // An object without any field set has no raw part.
    let raw = envelope
        .by_ref()
        .filter(|(number, _)| *number == 2)
        .last()
        .map_or(&[][..], |(_, raw)| raw.bytes());
    (!envelope.broken).then_some(raw)
}

/// A list's parts: version, continue token, raw items.
pub(crate) struct Parts<'a> {
    pub(crate) version: Cow<'a, str>,
    pub(crate) continue_: Cow<'a, str>,
    pub(crate) items: Vec<&'a [u8]>,
}

pub(crate) fn list(message: &[u8]) -> Option<Parts<'_>> {
    let mut parts =
        Parts { version: Cow::Borrowed(""), continue_: Cow::Borrowed(""), items: Vec::new() };
    let mut list = fields(message);
    for (number, value) in list.by_ref() {
        match number {
            1 => {
                for (number, value) in fields(value.bytes()) {
                    match number {
                        2 => parts.version = value.text(),
                        3 => parts.continue_ = value.text(),
                        _ => {}
                    }
                }
            }
            2 => parts.items.push(value.bytes()),
            _ => {}
        }
    }
    (!list.broken).then_some(parts)
}

/// A watch event: its type and its object, envelope taken off.
pub(crate) fn event(message: &[u8]) -> Option<(Cow<'_, str>, &[u8])> {
    let (mut kind, mut object) = (Cow::Borrowed(""), &[][..]);
    let mut event = fields(message);
    for (number, value) in event.by_ref() {
        match number {
            1 => kind = value.text(),
            2 => {
                let raw = fields(value.bytes()).find(|(number, _)| *number == 1);
                object = open(raw?.1.bytes())?;
            }
            _ => {}
        }
    }
    (!event.broken && !kind.is_empty()).then_some((kind, object))
}

/// A Status message.
pub(crate) fn status(message: &[u8]) -> Status {
    let mut status = Status::default();
    for (number, value) in fields(message) {
        match number {
            3 => status.message = value.text().into(),
            4 => status.reason = value.text().into(),
            5 => details(value.bytes(), &mut status),
            6 => status.code = u16::try_from(value.number()).unwrap_or(0),
            _ => {}
        }
    }
    status
}

fn details(message: &[u8], status: &mut Status) {
    let mut causes = Vec::new();
    for (number, value) in fields(message) {
        match number {
            4 => causes.push(cause(value.bytes())),
            5 if value.number() > 0 => {
                status.retry_after = Some(Duration::from_secs(value.number()));
            }
            _ => {}
        }
    }
    status.causes = causes.into();
}

fn cause(message: &[u8]) -> Cause {
    let mut cause = Cause::default();
    for (number, value) in fields(message) {
        match number {
            1 => cause.reason = value.text().into(),
            2 => cause.message = value.text().into(),
            3 => cause.field = value.text().into(),
            _ => {}
        }
    }
    cause
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Writes a field of bytes; lengths up to 16,383.
    pub(crate) fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2];
        if bytes.len() < 0x80 {
            out.push(bytes.len() as u8);
        } else {
            out.extend([(bytes.len() & 0x7f) as u8 | 0x80, (bytes.len() >> 7) as u8]);
        }
        out.extend_from_slice(bytes);
        out
    }

    pub(crate) fn envelope(raw: &[u8]) -> Vec<u8> {
        [MAGIC, &field(1, b""), &field(2, raw), &field(4, b"")].concat()
    }

    #[test]
    fn an_envelope_is_taken_off() {
        assert_eq!(open(&envelope(b"hello")), Some(&b"hello"[..]));
        assert_eq!(open(b"k8s\0"), Some(&b""[..]));
        assert_eq!(open(b"{}"), None);
        assert_eq!(open(b"k8s\0\x12\x7fx"), None);
    }

    #[test]
    fn a_list_is_taken_apart() {
        let meta = [field(2, b"17"), field(3, b"more")].concat();
        let message = [field(1, &meta), field(2, b"a"), field(2, b"b")].concat();
        let parts = list(&message).unwrap();
        assert_eq!((&*parts.version, &*parts.continue_), ("17", "more"));
        assert_eq!(parts.items, [b"a", b"b"]);
    }

    #[test]
    fn an_event_is_taken_apart() {
        let message = [field(1, b"ADDED"), field(2, &field(1, &envelope(b"pod")))].concat();
        let (kind, object) = event(&message).unwrap();
        assert_eq!((&*kind, object), ("ADDED", &b"pod"[..]));
    }

    #[test]
    fn a_status_is_read() {
        let cause = [field(1, b"NamespaceTerminating"), field(2, b"being terminated")].concat();
        let details = [field(4, &cause), vec![5 << 3, 3]].concat();
        let message =
            [field(3, b"no"), field(4, b"Forbidden"), field(5, &details), vec![6 << 3, 0x93, 0x03]]
                .concat();
        let status = status(&message);
        assert_eq!((status.code, &*status.reason, &*status.message), (403, "Forbidden", "no"));
        assert_eq!(&*status.causes[0].reason, "NamespaceTerminating");
        assert_eq!(status.retry_after, Some(Duration::from_secs(3)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = (list(&bytes).is_some(), event(&bytes).is_some(), status(&bytes));
            let _ = open(&[MAGIC, &bytes].concat());
        }
    }
}
