//! Conversations between namespaces, and as whom the one who is called sees the caller.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use lab::frames::{Direction, Frame};
use lab::{Capture, EchoServer, Family, Netns, eventually};

/// How long anything that does come may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// No address, of the family of `like`.
pub(crate) fn unspecified(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// A UDP socket of `place`. It may be there before its address is.
pub(crate) fn udp_socket(place: &impl Netns, address: IpAddr, port: u16) -> UdpSocket {
    // A child of another test that has not become its program yet may still hold an old one.
    let socket = eventually(PATIENCE, "a free port", || {
        let bound = place.enter(|| UdpSocket::bind((address, port))).unwrap();
        match bound {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => None,
            bound => Some(bound),
        }
    });
    let socket = socket.unwrap().unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Sends a datagram to `server` at `to` and gets an answer; as whom the caller was seen.
pub(crate) fn exchange(caller: &UdpSocket, server: &UdpSocket, to: IpAddr) -> io::Result<IpAddr> {
    let port = server.local_addr()?.port();
    caller.send_to(b"question", (to, port))?;
    let from = receive(server)?;
    server.send_to(b"answer", from)?;
    let answered = receive(caller)?;
    if answered != SocketAddr::new(to, port) {
        return Err(io::Error::other(format!("{to} answered as {answered}")));
    }
    Ok(from.ip())
}

/// Who has sent the next datagram.
fn receive(socket: &UdpSocket) -> io::Result<SocketAddr> {
    loop {
        match socket.recv_from(&mut [0; 16]) {
            // A process that is stopped and goes on is told so, and others do that to this one.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            received => return received.map(|(_, from)| from),
        }
    }
}

/// As whom `server` sees `caller` when that asks for it as `to`: by UDP.
pub(crate) fn seen_by_udp(caller: &impl Netns, server: &impl Netns, to: IpAddr) -> IpAddr {
    let calling = udp_socket(caller, unspecified(to), 0);
    let listening = udp_socket(server, to, 0);
    exchange(&calling, &listening, to).unwrap()
}

/// As whom `server` sees `caller` when that asks for it as `to`: by TCP.
pub(crate) fn seen_by_tcp(caller: &impl Netns, server: &impl Netns, to: IpAddr) -> IpAddr {
    let family = match to {
        IpAddr::V4(_) => Family::V4,
        IpAddr::V6(_) => Family::V6,
    };
    let echo = EchoServer::start(server, family, 0).unwrap();
    let address = SocketAddr::new(to, echo.port().unwrap());
    caller.call_echo(address, "word").unwrap()
}

/// As whom `server` sees `caller` when that pings it: in the frames that come in by `link`.
pub(crate) fn seen_by_ping(
    caller: &impl Netns,
    (server, link): (&impl Netns, &str),
    to: IpAddr,
) -> IpAddr {
    let mut capture = Capture::start(server, link).unwrap();
    caller.ping(&to.to_string()).unwrap();
    let is_asked = |frame: &Frame| {
        let is_request = matches!(frame.icmp_type(), Some(8 | 128));
        is_request && frame.direction() == Direction::In && frame.ip_destination() == Some(to)
    };
    let asked = capture.first(PATIENCE, is_asked).unwrap();
    asked.ip_source().unwrap()
}

/// Asserts as whom `server` sees `caller`, by UDP, TCP and ICMP.
#[track_caller]
pub(crate) fn assert_seen(
    caller: &impl Netns,
    (server, link): (&impl Netns, &str),
    to: IpAddr,
    expected: IpAddr,
) {
    let seen = [
        seen_by_udp(caller, server, to),
        seen_by_tcp(caller, server, to),
        seen_by_ping(caller, (server, link), to),
    ];
    assert_eq!(seen, [expected; 3], "by UDP, TCP and ICMP to {to}");
}

/// Both ends of a TCP connection from `caller` to `to`.
pub(crate) fn connect(
    caller: &impl Netns,
    server: &impl Netns,
    to: IpAddr,
) -> (TcpStream, TcpStream) {
    let listening = server.enter(|| TcpListener::bind((to, 0)));
    let listening = listening.unwrap().unwrap();
    let address = listening.local_addr().unwrap();
    let calling = caller.enter(|| TcpStream::connect_timeout(&address, PATIENCE));
    let calling = calling.unwrap().unwrap();
    let (accepted, _) = listening.accept().unwrap();
    for stream in [&calling, &accepted] {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
    }
    (calling, accepted)
}

/// Sends many bytes; whether all of them come out as they went in.
pub(crate) fn carries(from: &mut TcpStream, into: &mut TcpStream, bytes: usize) -> bool {
    // No two packets are the same.
    let sent: Vec<u8> = (0..bytes)
        .map(|place| (place / 251 + place).to_le_bytes()[0])
        .collect();
    let mut got = vec![0; bytes];
    let outcome = thread::scope(|scope| {
        let writing = scope.spawn(|| from.write_all(&sent));
        into.read_exact(&mut got)
            .and_then(|()| writing.join().unwrap())
    });
    outcome.is_ok() && got == sent
}
