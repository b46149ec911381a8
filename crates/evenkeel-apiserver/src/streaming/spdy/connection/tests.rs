use tokio::io::AsyncWriteExt as _;

use super::*;
use crate::streaming::spdy::client::{Client, data, go_away, reply, reset};

const A: &[(&str, &str)] = &[("name", "a")];

fn accepts(headers: &Headers) -> Result<(), String> {
    if headers.get("name").is_some_and(|name| name == "bad") {
        Err("bad".to_owned())
    } else {
        Ok(())
    }
}

/// Sends the data of each stream back, until the client ends the stream.
async fn echo(mut streams: mpsc::Receiver<Stream>) {
    while let Some(Stream { mut receiver, sender, .. }) = streams.recv().await {
        loop {
            match receiver.receive().await {
                Received::Data(piece) => sender.send(piece.bytes).await,
                Received::Finished => break,
                Received::Reset => return,
            }
        }
        sender.finish().await;
    }
}

#[tokio::test]
async fn streams_are_opened_and_finished() {
    let (mut client, transport) = Client::new();
    let client = async {
        client.open_accepted(1, A).await;
        client.send(Frame::Ping(7)).await;
        assert_eq!(client.receive().await, Some(Frame::Ping(7)));
        client.data(1, b"abc", false).await;
        assert_eq!(client.receive().await, data(1, b"abc", false));
        // The connection ignores these frames.
        client.send(Frame::Ping(2)).await;
        client.send(Frame::Settings).await;
        client.send(Frame::WindowUpdate { stream: 1, delta: u32::MAX >> 1 }).await;
        client.data(9, b"lost", true).await;
        client.data(1, b"d", true).await;
        assert_eq!(client.receive().await, data(1, b"d", false));
        assert_eq!(client.receive().await, data(1, b"", true));
        client.open_accepted(3, A).await;
        client.send(Frame::Reset { stream: 3, status: 5 }).await;
        // The server has finished, sends GOAWAY, and closes its direction.
        assert_eq!(client.receive().await, go_away());
        assert_eq!(client.receive().await, None);
        drop(client);
    };
    futures::join!(client, serve(transport, accepts, echo));
}

#[tokio::test]
async fn streams_that_may_not_be_are_refused() {
    let (mut client, transport) = Client::new();
    let client = async {
        for (stream, name, answer) in [
            (3, "a", reply(3)),
            // Numbers are odd, and grow.
            (2, "a", reset(2, PROTOCOL_ERROR)),
            (3, "a", reset(3, PROTOCOL_ERROR)),
            (1, "a", reset(1, PROTOCOL_ERROR)),
            (5, "bad", reset(5, CANCEL)),
        ] {
            client.open(stream, &[("name", name)]).await;
            assert_eq!(client.receive().await, answer, "{stream}");
        }
        // An invalid frame ends the connection.
        client.io.write_all(b"\x80\x02\0\x06\0\0\0\x04\0\0\0\x01").await.expect("it is written");
        assert_eq!(client.receive().await, None);
    };
    futures::join!(client, serve(transport, accepts, echo));
}

#[tokio::test]
async fn a_connection_has_only_so_many_streams() {
    let (mut client, transport) = Client::new();
    let hold = async |mut streams: mpsc::Receiver<Stream>| {
        let mut held = Vec::new();
        while let Some(stream) = streams.recv().await {
            held.push(stream);
        }
    };
    let client = async {
        let mut id = 1;
        for _ in 0..MAX_STREAMS {
            client.open_accepted(id, A).await;
            id += 2;
        }
        client.open(id, A).await;
        assert_eq!(client.receive().await, reset(id, REFUSED_STREAM));
        // One that the client ends makes room.
        client.send(Frame::Reset { stream: 1, status: 5 }).await;
        client.open_accepted(id + 2, A).await;
        drop(client);
    };
    futures::join!(client, serve(transport, accepts, hold));
}

#[tokio::test]
async fn a_client_that_is_not_read_from_is_held_back() {
    let (mut client, transport) = Client::new();
    let blocked = Notify::new();
    let piece = [7; 4096];
    let total = 4 * MAX_WAITING_BYTES / piece.len();
    // Reads nothing until flow control blocks the client.
    let slow = async |mut streams: mpsc::Receiver<Stream>| {
        let Some(mut stream) = streams.recv().await else { return };
        blocked.notified().await;
        let mut size = 0;
        while let Received::Data(piece) = stream.receiver.receive().await {
            size += piece.bytes.len();
        }
        assert_eq!(size, total * piece.len());
    };
    let client = async {
        client.open_accepted(1, A).await;
        let mut was_held_back = false;
        for n in 0..total {
            let bytes = Bytes::copy_from_slice(&piece);
            let mut sending =
                std::pin::pin!(client.send(Frame::Data { stream: 1, fin: n + 1 == total, bytes }));
            // Repeat until the server has read all that it will read.
            let mut sent = false;
            for _ in 0..100 {
                sent = futures::poll!(&mut sending).is_ready();
                if sent || was_held_back {
                    break;
                }
                tokio::task::yield_now().await;
            }
            if !sent {
                if !was_held_back {
                    assert!(n * piece.len() <= MAX_WAITING_BYTES + 64 * 1024, "{n} pieces");
                    was_held_back = true;
                    blocked.notify_one();
                }
                sending.await;
            }
        }
        assert!(was_held_back);
        drop(client);
    };
    futures::join!(client, serve(transport, accepts, slow));
}

#[tokio::test(start_paused = true)]
async fn idle_connections_end() {
    let (mut client, transport) = Client::new();
    let client = async {
        client.open_accepted(1, A).await;
        assert_eq!(client.receive().await, None);
    };
    futures::join!(client, serve(transport, accepts, echo));
}
