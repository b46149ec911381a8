use proptest::prelude::*;

use super::*;

fn decode(bytes: &[u8]) -> Result<Vec<Frame>, FrameError> {
    let mut decoder = Decoder::default();
    decoder.push(bytes);
    let mut frames = Vec::new();
    while let Some(frame) = decoder.next()? {
        frames.push(frame);
    }
    Ok(frames)
}

fn control_frame(kind: u16, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x80, 3];
    bytes.extend(kind.to_be_bytes());
    bytes.extend(flags_and_length(flags, payload.len()).expect("a length").to_be_bytes());
    bytes.extend(payload);
    bytes
}

#[test]
fn frames_have_the_bytes_of_the_protocol() {
    let mut encoder = Encoder::default();
    for (frame, bytes) in [
        (Frame::Ping(1), &b"\x80\x03\0\x06\0\0\0\x04\0\0\0\x01"[..]),
        (Frame::Reset { stream: 5, status: 3 }, b"\x80\x03\0\x03\0\0\0\x08\0\0\0\x05\0\0\0\x03"),
        (Frame::GoAway { last: 7, status: 0 }, b"\x80\x03\0\x07\0\0\0\x08\0\0\0\x07\0\0\0\0"),
        (
            Frame::WindowUpdate { stream: 1, delta: 65536 },
            b"\x80\x03\0\x09\0\0\0\x08\0\0\0\x01\0\x01\0\0",
        ),
        (
            Frame::Data { stream: 3, fin: true, bytes: Bytes::from_static(b"ab") },
            b"\0\0\0\x03\x01\0\0\x02ab",
        ),
        (Frame::Data { stream: 3, fin: true, bytes: Bytes::new() }, b"\0\0\0\x03\x01\0\0\0"),
    ] {
        assert_eq!(&*encoder.encode(&frame).expect("it is encoded"), bytes);
        assert_eq!(decode(bytes), Ok(vec![frame]));
    }
    // A SETTINGS frame has entries, and the next frame follows them.
    let mut bytes = control_frame(4, 0, b"\0\0\0\x01\0\0\0\x07\0\0\x10\0");
    bytes.extend(control_frame(6, 0, &[0, 0, 0, 9]));
    assert_eq!(decode(&bytes), Ok(vec![Frame::Settings, Frame::Ping(9)]));
}

#[test]
fn a_stream_that_a_go_client_opens_is_read() {
    // Written by the SPDY library of client-go: stream 1 with the headers of a port-forward's error stream, a ping, and the end
    // of the stream.
    let frames = decode(include_bytes!("testdata/client-go")).expect("frames");
    let headers: Headers = [("port", "8080"), ("requestid", "0"), ("streamtype", "error")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
    assert_eq!(
        frames,
        [
            Frame::SynStream { stream: 1, fin: false, headers },
            Frame::Ping(1),
            Frame::Data { stream: 1, fin: true, bytes: Bytes::new() },
        ]
    );
}

#[test]
fn bytes_that_are_no_frames_are_refused() {
    for (bytes, error) in [
        // Data of stream 0.
        (b"\0\0\0\0\0\0\0\0".to_vec(), FrameError::Malformed),
        // Version 2, and types that do not exist.
        (b"\x80\x02\0\x06\0\0\0\x04\0\0\0\x01".to_vec(), FrameError::Unknown),
        (control_frame(5, 0, b""), FrameError::Unknown),
        (control_frame(10, 0, b""), FrameError::Unknown),
        // Too short, too long, or with invalid values.
        (control_frame(1, 0, &[0, 0, 0, 1, 0, 0]), FrameError::Malformed),
        (control_frame(3, 0, &[0, 0, 0, 1]), FrameError::Malformed),
        (control_frame(3, 0, &[0, 0, 0, 1, 0, 0, 0, 0]), FrameError::Malformed),
        (control_frame(3, 0, &[0, 0, 0, 0, 0, 0, 0, 1]), FrameError::Malformed),
        (control_frame(3, 0, &[0, 0, 0, 1, 0, 0, 0, 1, 0]), FrameError::Malformed),
        (control_frame(4, 0, &[0xff, 0xff, 0xff, 0xff]), FrameError::Malformed),
        (control_frame(4, 0, b""), FrameError::Malformed),
        (control_frame(6, 0, &[0, 0, 0, 0]), FrameError::Malformed),
        (control_frame(7, 0, &[0, 0, 0, 0]), FrameError::Malformed),
        (control_frame(9, 0, &[0, 0, 0, 1, 0, 0, 0, 0]), FrameError::Malformed),
        // A control frame of 16 MiB. Only its head has arrived.
        (b"\x80\x03\0\x04\0\xff\xff\xff".to_vec(), FrameError::TooLarge),
    ] {
        assert_eq!(decode(&bytes), Err(error), "{bytes:?}");
    }
    assert_eq!(
        Encoder::default().encode(&Frame::Data {
            stream: 1,
            fin: false,
            bytes: vec![0; 1 << 24].into()
        }),
        Err(FrameError::TooLarge)
    );
}

fn headers() -> impl Strategy<Value = Headers> {
    proptest::collection::btree_map("[a-z-]{1,12}", "\\PC{0,40}", 0..6)
}

fn frame() -> impl Strategy<Value = Frame> {
    let stream = 1..=STREAM_ID_MASK;
    let bytes = proptest::collection::vec(any::<u8>(), 0..300).prop_map(Bytes::from);
    prop_oneof![
        (stream.clone(), any::<bool>(), headers())
            .prop_map(|(stream, fin, headers)| Frame::SynStream { stream, fin, headers }),
        (stream.clone(), any::<bool>(), headers())
            .prop_map(|(stream, fin, headers)| Frame::SynReply { stream, fin, headers }),
        (stream.clone(), any::<bool>(), headers())
            .prop_map(|(stream, fin, headers)| Frame::Headers { stream, fin, headers }),
        (stream.clone(), 1..u32::MAX).prop_map(|(stream, status)| Frame::Reset { stream, status }),
        Just(Frame::Settings),
        (1..u32::MAX).prop_map(Frame::Ping),
        (0..STREAM_ID_MASK, any::<u32>()).prop_map(|(last, status)| Frame::GoAway { last, status }),
        (0..STREAM_ID_MASK, 1..STREAM_ID_MASK)
            .prop_map(|(stream, delta)| Frame::WindowUpdate { stream, delta }),
        (stream, any::<bool>(), bytes).prop_map(|(stream, fin, bytes)| Frame::Data {
            stream,
            fin,
            bytes
        }),
    ]
}

/// Joins the chunks of each data frame.
fn joined(frames: Vec<Frame>) -> Vec<Frame> {
    let mut all: Vec<Frame> = Vec::new();
    for frame in frames {
        match (all.last_mut(), frame) {
            (
                Some(Frame::Data { stream, fin: fin @ false, bytes }),
                Frame::Data { stream: same, fin: last, bytes: more },
            ) if *stream == same => {
                *fin = last;
                *bytes = [&**bytes, &*more].concat().into();
            }
            (_, frame) => all.push(frame),
        }
    }
    all
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(
        frames in proptest::collection::vec(frame(), 0..20),
        sizes in proptest::collection::vec(1..40_usize, 1..20),
    ) {
        let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
        let mut bytes = BytesMut::new();
        for frame in &frames {
            bytes.extend_from_slice(&encoder.encode(frame).expect("it is encoded"));
        }
        let (mut decoded, mut sizes) = (Vec::new(), sizes.iter().cycle());
        while !bytes.is_empty() {
            let size = sizes.next().copied().unwrap_or(1).min(bytes.len());
            decoder.push(&bytes.split_to(size));
            while let Some(frame) = decoder.next().expect("a frame") {
                decoded.push(frame);
            }
        }
        prop_assert_eq!(joined(decoded), joined(frames));
    }

    #[test]
    fn any_bytes_are_frames_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..400), kind in 1..10_u8) {
        let _ = decode(&bytes);
        let _ = decode(&control_frame(u16::from(kind), 0, &bytes));
    }
}
