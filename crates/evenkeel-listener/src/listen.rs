//! Opens ports, and refuses plain HTTP on a port of TLS.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Maximum number of connections that wait to be accepted.
const LISTEN_BACKLOG: u32 = 1024;

/// Listens on an address. The unspecified IPv4 address also includes IPv6. `share_address` sets `SO_REUSEADDR`, and
/// `share_port` sets `SO_REUSEPORT`.
///
/// # Errors
/// Fails if the address is not available.
pub fn listen(
    address: SocketAddr,
    share_address: bool,
    share_port: bool,
) -> io::Result<TcpListener> {
    let open = |address: SocketAddr| {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // Go always sets this option on Unix, so that a restarted program need not wait for its old
        // connections.
        socket.set_reuseaddr(share_address || cfg!(unix))?;
        #[cfg(unix)]
        socket.set_reuseport(share_port)?;
        socket.bind(address)?;
        socket.listen(LISTEN_BACKLOG)
    };
    if address.ip().is_unspecified() && address.is_ipv4() {
        // An IPv6 socket on the unspecified address also accepts IPv4 connections.
        let dual_stack = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), address.port());
        // On a machine without IPv6, listen on IPv4 only.
        if let Ok(listener) = open(dual_stack) {
            return Ok(listener);
        }
    }
    open(address)
}

/// Answers a client that sends plain HTTP where TLS is expected. Returns whether it did.
///
/// # Errors
/// Fails if the connection breaks.
///
/// Upstream: Go's `http.Server.Serve` with `tls.RecordHeaderError`.
pub async fn refuse_plain_http(stream: &mut TcpStream) -> io::Result<bool> {
    // The first bytes of a request in plain HTTP. A TLS handshake begins with other bytes.
    const PLAIN_HTTP: [&[u8; 5]; 5] = [b"GET /", b"HEAD ", b"POST ", b"PUT /", b"OPTIO"];
    const ANSWER: &[u8] =
        b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
    let mut first_bytes = [0; 5];
    let length = stream.peek(&mut first_bytes).await?;
    if length < first_bytes.len() || !PLAIN_HTTP.contains(&&first_bytes) {
        return Ok(false);
    }
    stream.write_all(ANSWER).await?;
    stream.shutdown().await?;
    Ok(true)
}
