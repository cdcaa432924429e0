//! Packets that a sandbox makes itself, as a privileged one can.

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, sendto, socket,
};

use super::*;

/// Their destination: a public address.
const TARGET: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);

const UDP: u8 = 17;
const TCP: u8 = 6;

/// Sends a packet with this source and payload, as a raw socket does.
fn send(slot: &Slot, source: Ipv4Addr, protocol: u8, payload: &[u8]) {
    let length = u16::try_from(20 + payload.len()).unwrap().to_be_bytes();
    let mut packet = vec![
        0x45, 0, length[0], length[1], 0, 0, 0, 0, 64, protocol, 0, 0,
    ];
    packet.extend(source.octets());
    packet.extend(TARGET.octets());
    packet.extend(payload);
    let sent = inside(slot, || {
        let raw = socket(
            AddressFamily::Inet,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::Raw,
        )?;
        let target = SockaddrIn::from(SocketAddrV4::new(TARGET, 0));
        Ok(sendto(
            raw.as_raw_fd(),
            &packet,
            &target,
            MsgFlags::empty(),
        )?)
    });
    assert_eq!(sent.unwrap(), packet.len());
}

/// A datagram from port 1000 to port 9, without a checksum.
const DATAGRAM: [u8; 9] = [0x03, 0xe8, 0, 9, 0, 9, 0, 0, b'x'];

/// The reset of a connection that does not exist.
const RESET: [u8; 20] = [
    0x03, 0xe8, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x04, 0, 0, 0, 0, 0, 0,
];

#[tokio::test]
async fn forged_packets_do_not_leave_the_slot() {
    if !is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let network = open(directory.path(), "t12", 0);
    let slot = network.take(&Egress::default()).await.unwrap().unwrap();
    let before = packets_out(&slot);
    send(&slot, GUEST_ADDRESS, UDP, &DATAGRAM);
    let own = packets_out(&slot);
    assert!(own > before, "a packet with its own address leaves");
    for source in [Ipv4Addr::new(203, 0, 113, 9), slot.address] {
        send(&slot, source, UDP, &DATAGRAM);
    }
    send(&slot, GUEST_ADDRESS, TCP, &RESET);
    assert_eq!(packets_out(&slot), own, "nothing else has left");
    network.release(slot.index).await;
    network.close().await.unwrap();
}
