//! Tests with real namespaces and real filters. Skipped, with a message, without root.

mod forged;

use std::io::{Read, Write};
use std::net::{
    IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, TcpListener, TcpStream,
};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::time::Duration;

use super::*;

fn is_root() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        eprintln!("skipped: network slots need root");
    }
    root
}

fn open(directory: &Path, instance: &str, warm: usize) -> Network {
    // A separate range, so that these tests affect neither each other nor an installation.
    let number: u8 = instance.trim_start_matches('t').parse().unwrap();
    let range = Ipv4Net::new_assert(Ipv4Addr::new(10, 78, number, 0), 24);
    let config = NetworkConfig {
        range,
        dns: vec![Ipv4Addr::new(10, 1, 2, 3)],
        warm,
    };
    Network::open(config, instance, directory, directory).unwrap()
}

/// Runs `work` in the namespace of the sandbox in `slot`.
fn inside<T: Send>(slot: &Slot, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    namespace::within(&slot.sandbox_namespace, work)
}

fn connect(address: impl Into<IpAddr>, port: u16) -> io::Result<TcpStream> {
    TcpStream::connect_timeout(
        &SocketAddr::new(address.into(), port),
        Duration::from_secs(2),
    )
}

#[tokio::test]
async fn the_gateway_reaches_a_port_of_the_sandbox_and_the_sandbox_reaches_neither_host_nor_peer() {
    if !is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let network = open(directory.path(), "t1", 0);
    let a = network.take(&Egress::default()).await.unwrap().unwrap();
    let b = network.take(&Egress::default()).await.unwrap().unwrap();
    let on_host = TcpListener::bind(("0.0.0.0", 0)).unwrap();
    let host_port = on_host.local_addr().unwrap().port();
    let server = inside(&a, || TcpListener::bind((GUEST_ADDRESS, 8080))).unwrap();

    let caller = connect(a.address, 8080).unwrap();
    let (_, seen) = server.accept().unwrap();
    assert_eq!(
        seen.ip(),
        IpAddr::V4(ROUTER_ADDRESS),
        "the sandbox sees its router, not the host"
    );
    drop(caller);

    for target in [
        a.host_address,
        b.host_address,
        b.address,
        Ipv4Addr::new(169, 254, 169, 254),
    ] {
        for port in [host_port, 8080] {
            assert!(
                inside(&a, || connect(target, port)).is_err(),
                "{target}:{port}"
            );
        }
    }
    assert!(inside(&a, || connect(ROUTER_ADDRESS, host_port)).is_err());

    for slot in [a, b] {
        network.release(slot.index).await;
        assert!(!slot.sandbox_namespace.exists());
    }
    network.close().await.unwrap();
    assert!(network.taken().unwrap().is_empty());
    assert!(
        namespace::list(&directory.path().join("netns"))
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn every_policy_is_accepted_by_the_kernel_and_can_be_replaced() {
    if !is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let network = open(directory.path(), "t2", 0);
    let slot = network.take(&Egress::default()).await.unwrap().unwrap();
    let ranges = |list: &[&str]| list.iter().map(|r| r.parse().unwrap()).collect::<Vec<_>>();
    for (internet, allow, deny) in [
        (None, vec![], vec!["0.0.0.0/0"]),
        (Some(false), vec!["1.1.1.1", "8.8.8.0/24"], vec![]),
        (
            None,
            vec!["1.1.1.1", "1.1.1.0/24", "2606:4700::/32"],
            vec!["0.0.0.0/0", "::/0"],
        ),
        (
            Some(true),
            vec!["0.0.0.0/0"],
            vec!["10.0.0.0/8", "10.1.0.0/16"],
        ),
        (None, vec![], vec![]),
    ] {
        let policy = Egress {
            internet,
            allow: ranges(&allow),
            deny: ranges(&deny),
            dns_servers: Vec::new(),
        };
        network.set_egress(slot.index, &policy).await.unwrap();
    }
    network.release(slot.index).await;
    network.close().await.unwrap();
}

#[tokio::test]
async fn slots_are_created_ahead_of_time_and_removed_when_closing() {
    if !is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let network = open(directory.path(), "t3", 2);
    network.start();
    let slot = network.take(&Egress::default()).await.unwrap().unwrap();
    network.release(slot.index).await;
    network.close().await.unwrap();
    assert!(network.taken().unwrap().is_empty());
    assert!(network.stray_namespaces().unwrap().is_empty());
}

#[tokio::test]
async fn a_slot_is_closed_until_a_policy_is_in_force() {
    if !is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let network = open(directory.path(), "t4", 0);
    let shared = network.shared.clone();
    let made = blocking(move || {
        let index = shared.indices.take()?.unwrap();
        let slot = shared.slot(index);
        slot.make(1500)?;
        Ok::<_, io::Error>(slot)
    });
    let slot = made.await.unwrap();
    let before = packets_out(&slot);
    send_out(&slot);
    assert_eq!(packets_out(&slot), before, "nothing has left");
    let (shared, at) = (network.shared.clone(), slot.clone());
    let opened = blocking(move || shared.apply_egress(&at, &Egress::default()));
    opened.await.unwrap();
    send_out(&slot);
    assert!(packets_out(&slot) > before, "the same datagram leaves now");
    network.release(slot.index).await;
    network.close().await.unwrap();
}

#[tokio::test]
async fn there_is_one_dns_address_for_each_server_and_the_others_refuse_queries() {
    if !is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let network = open(directory.path(), "t5", 0);
    let slot = network.take(&Egress::default()).await.unwrap().unwrap();
    let policy = Egress {
        dns_servers: [7, 8]
            .map(|last| Ipv4Addr::new(198, 51, 100, last))
            .to_vec(),
        ..Egress::default()
    };
    network.set_egress(slot.index, &policy).await.unwrap();
    let [first, second, third] = NAME_ADDRESSES;
    for name in [first, second] {
        let before = packets_out(&slot);
        ask_name(&slot, name).unwrap();
        // No server answers in this test.
        assert!(packets_out(&slot) > before, "{name} leads out");
    }
    let before = packets_out(&slot);
    let asked = ask_name(&slot, third).unwrap();
    asked
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let refused = asked.recv(&mut [0]).unwrap_err();
    assert_ne!(
        refused.kind(),
        io::ErrorKind::WouldBlock,
        "nobody waits for it"
    );
    assert_eq!(packets_out(&slot), before, "{refused}");
    network.release(slot.index).await;
    network.close().await.unwrap();
}

#[tokio::test]
async fn ipv6_is_on_the_loopback_of_a_sandbox_and_nowhere_else() {
    if !is_root() || !Path::new("/proc/net/if_inet6").exists() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let network = open(directory.path(), "t9", 0);
    let slot = network.take(&Egress::default()).await.unwrap().unwrap();
    let loopback = IpAddr::V6(Ipv6Addr::LOCALHOST);
    let spoken = inside(&slot, || {
        let server = TcpListener::bind((loopback, 0))?;
        connect(loopback, server.local_addr()?.port())?;
        server.accept().map(drop)
    });
    spoken.unwrap();
    let addresses = |namespace: &Path| {
        namespace::within(namespace, || {
            fs::read_to_string("/proc/thread-self/net/if_inet6")
        })
    };
    let of_sandbox = addresses(&slot.sandbox_namespace).unwrap();
    let of_sandbox: Vec<&str> = of_sandbox.lines().collect();
    assert_eq!(of_sandbox.len(), 1, "{of_sandbox:?}");
    assert!(of_sandbox[0].ends_with(" lo"), "{of_sandbox:?}");
    assert_eq!(addresses(&slot.slot_namespace).unwrap(), "");
    for target in ["2001:db8::1", "fe80::1", "::ffff:198.51.100.1"] {
        let sent = inside(&slot, || {
            let socket = std::net::UdpSocket::bind(("::", 0))?;
            let target: Ipv6Addr = target.parse().map_err(io::Error::other)?;
            socket.send_to(b"x", SocketAddrV6::new(target, 9, 0, 0))
        });
        // IPv4-mapped addresses are filtered as IPv4.
        assert_eq!(sent.is_ok(), target.contains("ffff:"), "{target}");
    }
    network.release(slot.index).await;
    network.close().await.unwrap();
}

/// Sends a DNS query from the sandbox of `slot`.
fn ask_name(slot: &Slot, at: Ipv4Addr) -> io::Result<std::net::UdpSocket> {
    inside(slot, || {
        let socket = std::net::UdpSocket::bind(("0.0.0.0", 0))?;
        socket.connect((at, 53))?;
        socket.send(b"who?")?;
        Ok(socket)
    })
}

/// Sends a datagram from the sandbox of `slot` to a public address.
fn send_out(slot: &Slot) {
    let sent = inside(slot, || {
        let socket = std::net::UdpSocket::bind(("0.0.0.0", 0))?;
        socket.send_to(b"x", (Ipv4Addr::new(198, 51, 100, 1), 9))
    });
    assert_eq!(sent.unwrap(), 1);
}

/// How many packets have left the slot through its outer interface.
fn packets_out(slot: &Slot) -> u64 {
    let devices = namespace::within(&slot.slot_namespace, || {
        fs::read_to_string("/proc/thread-self/net/dev")
    });
    let devices = devices.unwrap();
    let outer = devices
        .lines()
        .find_map(|line| line.trim().strip_prefix("out0:"));
    // Eight counters of received packets precede the bytes and packets sent.
    let sent = outer.unwrap().split_whitespace().nth(9);
    sent.unwrap().parse().unwrap()
}

/// An unprivileged user of the machine.
const NOBODY: u32 = 65534;

/// Runs `work` as another user of the machine. The filters match the creator of a socket, and a
/// thread can change its own user; the thread ends with `work`.
fn as_nobody<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    namespace::on_thread(|| {
        nix::unistd::setfsuid(nix::unistd::Uid::from_raw(NOBODY));
        work()
    })
}

/// A TCP listener and a UDP socket in the sandbox of `slot`.
fn served(slot: &Slot) -> (TcpListener, std::net::UdpSocket) {
    let streams = inside(slot, || TcpListener::bind((GUEST_ADDRESS, 49983))).unwrap();
    streams.set_nonblocking(true).unwrap();
    let datagrams = inside(slot, || std::net::UdpSocket::bind((GUEST_ADDRESS, 8080))).unwrap();
    datagrams
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    (streams, datagrams)
}

/// Accepts the next connection, which is already on its way.
fn accepted(streams: &TcpListener) -> TcpStream {
    let end = std::time::Instant::now() + Duration::from_secs(60);
    loop {
        match streams.accept() {
            Ok((stream, _)) => return stream,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                assert!(std::time::Instant::now() < end, "nothing arrives");
                std::thread::yield_now();
            }
            Err(error) => panic!("{error}"),
        }
    }
}

fn datagram(to: Ipv4Addr, text: &[u8]) -> io::Result<()> {
    let socket = std::net::UdpSocket::bind(("0.0.0.0", 0))?;
    socket.send_to(text, (to, 8080)).map(drop)
}

/// Starts to connect from a reusable port, without waiting.
fn begin_from(port: u16, to: SocketAddrV4) -> io::Result<OwnedFd> {
    use nix::sys::socket::{
        AddressFamily, SockFlag, SockType, SockaddrIn, bind, connect, setsockopt, socket, sockopt,
    };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let fd = socket(AddressFamily::Inet, SockType::Stream, flags, None)?;
    setsockopt(&fd, sockopt::ReuseAddr, &true)?;
    setsockopt(&fd, sockopt::ReusePort, &true)?;
    bind(fd.as_raw_fd(), &SockaddrIn::new(0, 0, 0, 0, port))?;
    match connect(fd.as_raw_fd(), &SockaddrIn::from(to)) {
        Ok(()) | Err(nix::errno::Errno::EINPROGRESS) => Ok(fd),
        Err(errno) => Err(errno.into()),
    }
}

#[tokio::test]
async fn another_user_of_the_machine_reaches_no_port_of_a_sandbox_and_root_does() {
    if !is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let network = open(directory.path(), "t6", 0);
    let slot = network.take(&Egress::default()).await.unwrap().unwrap();
    let (streams, datagrams) = served(&slot);
    for port in [49983, 8080, 22] {
        let refused = as_nobody(|| connect(slot.address, port)).unwrap_err();
        assert_ne!(
            refused.kind(),
            io::ErrorKind::ConnectionRefused,
            "{port}: the machine refuses, not the sandbox"
        );
    }
    // A whole process of that user, in addition to a thread of this one.
    let line = format!("exec 3<>/dev/tcp/{}/49983", slot.address);
    let ended = std::process::Command::new("bash")
        .args(["-c", &line])
        .uid(NOBODY)
        .stderr(std::process::Stdio::null())
        .status();
    assert!(!ended.unwrap().success());
    // A socket that is closed before a reply arrives.
    let to = SocketAddrV4::new(slot.address, 49983);
    drop(as_nobody(|| begin_from(0, to)));
    let _ = as_nobody(|| datagram(slot.address, b"nobody"));

    datagram(slot.address, b"root").unwrap();
    let mut first = [0; 8];
    let (count, _) = datagrams.recv_from(&mut first).unwrap();
    assert_eq!(&first[..count], b"root", "the other one has not arrived");
    assert!(streams.accept().is_err(), "nothing has arrived");
    let root = connect(slot.address, 49983).unwrap();
    drop(accepted(&streams));
    drop(root);
    network.release(slot.index).await;
    network.close().await.unwrap();
}

#[tokio::test]
async fn the_port_of_a_connection_of_root_does_not_admit_another_user() {
    if !is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let network = open(directory.path(), "t7", 0);
    let slot = network.take(&Egress::default()).await.unwrap().unwrap();
    let (streams, datagrams) = served(&slot);
    let to = SocketAddrV4::new(slot.address, 49983);

    // The kernel still considers the connection established when both ends are closed.
    let root = begin_from(0, to).unwrap();
    let of_root = TcpStream::from(root);
    let port = of_root.local_addr().unwrap().port();
    drop(accepted(&streams));
    drop(of_root);
    drop(as_nobody(|| begin_from(port, to)));
    assert!(streams.accept().is_err(), "nothing has arrived");

    let of_root = std::net::UdpSocket::bind(("0.0.0.0", 0)).unwrap();
    let port = of_root.local_addr().unwrap().port();
    of_root.send_to(b"root", (slot.address, 8080)).unwrap();
    drop(of_root);
    let _ = as_nobody(|| {
        let socket = std::net::UdpSocket::bind(("0.0.0.0", port))?;
        socket.send_to(b"nobody", (slot.address, 8080))
    });
    datagram(slot.address, b"again").unwrap();
    let mut heard = Vec::new();
    for _ in 0..2 {
        let mut text = [0; 8];
        let (count, _) = datagrams.recv_from(&mut text).unwrap();
        heard.push(text[..count].to_vec());
    }
    assert_eq!(heard, [b"root".to_vec(), b"again".to_vec()]);
    network.release(slot.index).await;
    network.close().await.unwrap();
}

#[tokio::test]
async fn bytes_that_root_sent_arrive_after_its_socket_is_closed() {
    if !is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let network = open(directory.path(), "t8", 0);
    let slot = network.take(&Egress::default()).await.unwrap().unwrap();
    let (streams, _datagrams) = served(&slot);
    let mut root = connect(slot.address, 49983).unwrap();
    let mut reader = accepted(&streams);
    root.set_nonblocking(true).unwrap();
    // More than the receiver buffers: the rest is sent after the socket is closed.
    let mut sent = 0;
    loop {
        match root.write(&[7; 1 << 16]) {
            Ok(count) => sent += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
    }
    drop(root);
    reader.set_nonblocking(false).unwrap();
    reader
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let mut read = Vec::new();
    reader.read_to_end(&mut read).unwrap();
    assert_eq!(read.len(), sent);
    network.release(slot.index).await;
    network.close().await.unwrap();
}
