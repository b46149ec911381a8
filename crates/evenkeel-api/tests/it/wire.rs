//! Decodes recorded responses of upstream's server (v1.37): one ConfigMap `a`, read in each form and encoding.

use bytes::Bytes;
use evenkeel_api::{
    Encoding, View,
    list::List,
    protobuf::Envelope,
    status::Status,
    views::{ConfigMap, Metadata},
    watch::{Event, EventType, Frames},
};

const BOTH: [Encoding; 2] = [Encoding::Json, Encoding::Protobuf];
const INITIAL_END: &str = "k8s.io/initial-events-end";

macro_rules! recorded {
    ($name:literal, $encoding:expr) => {
        match $encoding {
            Encoding::Json => &include_bytes!(concat!("wire/", $name, ".json"))[..],
            Encoding::Protobuf => &include_bytes!(concat!("wire/", $name, ".pb"))[..],
        }
    };
}

/// Returns a response without its envelope.
fn inside(answer: &'static [u8], encoding: Encoding) -> &'static [u8] {
    match encoding {
        Encoding::Json => answer,
        Encoding::Protobuf => Envelope::open(answer).unwrap().raw,
    }
}

/// Decodes the events of a watch whose body arrives in chunks of `size` bytes.
fn events<V: View>(stream: &[u8], encoding: Encoding, size: usize) -> Vec<(EventType, V)> {
    let (mut frames, mut found) = (Frames::new(encoding), Vec::new());
    for chunk in stream.chunks(size) {
        frames.push(Bytes::copy_from_slice(chunk));
        while let Some(frame) = frames.next_frame().unwrap() {
            let event = Event::read(&frame, encoding).unwrap();
            found.push((event.type_, V::decode(event.object, encoding).unwrap()));
        }
    }
    found
}

#[test]
fn watch_of_objects() {
    for encoding in BOTH {
        for size in [1, 7, 100, 10_000] {
            let found = events::<ConfigMap>(recorded!("watch", encoding), encoding, size);
            let [(EventType::Added, map), (EventType::Bookmark, end)] = &found[..] else {
                panic!("{found:?}")
            };
            assert_eq!((&*map.meta.name, map.meta.labels.get("x")), ("a", Some("y")));
            assert_eq!(map.meta.resource_version.as_ref(), "210");
            assert_eq!(end.meta.annotations.get(INITIAL_END), Some("true"));
        }
    }
}

#[test]
fn watch_of_metadata() {
    for encoding in BOTH {
        let found = events::<Metadata>(recorded!("meta-watch", encoding), encoding, 64);
        let [(EventType::Added, map), (EventType::Bookmark, end)] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!((&*map.meta.name, &*map.meta.namespace), ("a", "default"));
        assert_eq!(end.meta.annotations.get(INITIAL_END), Some("true"));
    }
}

#[test]
fn list_of_metadata() {
    for encoding in BOTH {
        let body = inside(recorded!("meta-list", encoding), encoding);
        let list = List::<Metadata>::decode(body, encoding).unwrap();
        assert!(list.skipped.is_empty() && list.continue_.is_empty());
        assert!(list.resource_version.parse::<u64>().is_ok());
        let map = list.items.iter().find(|item| &*item.meta.name == "a").unwrap();
        assert_eq!(map.meta.labels.get("x"), Some("y"));
    }
}

#[test]
fn error_status() {
    for encoding in BOTH {
        let status =
            Status::decode(inside(recorded!("404", encoding), encoding), encoding).unwrap();
        assert_eq!((status.code, &*status.reason), (404, "NotFound"));
        assert_eq!(&*status.message, "configmaps \"none\" not found");
    }
}

/// The server responds to a complete deletion with a Status, even if the client requested metadata only. The Status
/// decodes as an object without a name.
#[test]
fn status_of_a_deletion() {
    for encoding in BOTH {
        let body = inside(recorded!("delete", encoding), encoding);
        let meta = Metadata::decode(body, encoding).unwrap().meta;
        assert_eq!((&*meta.name, meta.version()), ("", 0));
    }
}
