//! Connections to other machines, in `/proc/net`.

use std::collections::HashSet;
use std::fs;
use std::io;

/// The tables of sockets. A kernel without IPv6 lacks some; gVisor has the first two.
const TABLES: [&str; 4] = ["tcp", "tcp6", "udp", "udp6"];

/// States of sockets, as the kernel numbers them.
const ESTABLISHED: u8 = 0x01;
const SYN_SENT: u8 = 0x02;
const LISTEN: u8 = 0x0a;

/// A row of a table.
struct Socket {
    local_port: u16,
    remote: Vec<u8>,
    state: u8,
}

/// The number of connections that programs opened to other machines.
///
/// # Errors
/// When the first table cannot be read.
pub(super) fn outbound() -> io::Result<usize> {
    let mut sockets = Vec::new();
    for table in TABLES {
        match fs::read_to_string(format!("/proc/net/{table}")) {
            Ok(text) => sockets.extend(text.lines().filter_map(parse)),
            Err(_) if table != TABLES[0] => {}
            Err(error) => return Err(error),
        }
    }
    Ok(count(&sockets))
}

/// Connections whose local port is listened on came from outside: those of the gateway.
fn count(sockets: &[Socket]) -> usize {
    let listening = sockets.iter().filter(|socket| socket.state == LISTEN);
    let listening: HashSet<u16> = listening.map(|socket| socket.local_port).collect();
    let outbound = sockets.iter().filter(|socket| {
        matches!(socket.state, ESTABLISHED | SYN_SENT)
            && !is_loopback(&socket.remote)
            && !listening.contains(&socket.local_port)
    });
    outbound.count()
}

/// Parses `sl local_address rem_address st …`; none for the heading.
fn parse(line: &str) -> Option<Socket> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (_, local_port) = fields.next()?.split_once(':')?;
    let (remote, _) = fields.next()?.split_once(':')?;
    Some(Socket {
        local_port: u16::from_str_radix(local_port, 16).ok()?,
        remote: address(remote)?,
        state: u8::from_str_radix(fields.next()?, 16).ok()?,
    })
}

/// The bytes of an address: the kernel prints them as words of the machine's byte order.
fn address(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 2);
    for word in 0..text.len() / 8 {
        let word = text.get(word * 8..word * 8 + 8)?;
        bytes.extend(u32::from_str_radix(word, 16).ok()?.to_ne_bytes());
    }
    matches!(bytes.len(), 4 | 16).then_some(bytes)
}

/// Also true of no address at all, which an unconnected socket has.
fn is_loopback(address: &[u8]) -> bool {
    let v4 = match address {
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, v4 @ ..] => v4,
        address => address,
    };
    match v4 {
        [first, _, _, _] => *first == 127 || v4 == [0; 4],
        [zeros @ .., last] => zeros.iter().all(|byte| *byte == 0) && *last <= 1,
        [] => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(text: &str) -> usize {
        let sockets: Vec<Socket> = text.lines().filter_map(parse).collect();
        count(&sockets)
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn only_connections_to_other_machines_count() {
        let text = "\
  sl  local_address rem_address   st tx_queue rx_queue
   0: 00000000:C33F 00000000:0000 0A 00000000:00000000
   1: 02000B0A:C33F 01000B0A:A000 01 00000000:00000000
   2: 0100007F:A001 0100007F:C33F 01 00000000:00000000
   3: 02000B0A:A002 22D8B85D:01BB 01 00000000:00000000
   4: 02000B0A:A003 22D8B85D:01BB 02 00000000:00000000
   5: 02000B0A:A004 22D8B85D:01BB 06 00000000:00000000
   6: 00000000000000000000000000000000:A005 00000000000000000000000001000000:0050 01 0:0
   7: 0000000000000000FFFF00000100007F:A006 0000000000000000FFFF00000100007F:0050 01 0:0
   8: 0000000000000000FFFF0000020B000A:A007 0000000000000000FFFF000022D8B85D:0050 01 0:0
   9: 00000000:A008 00000000:0000 07 00000000:00000000
";
        assert_eq!(counted(text), 3, "3, 4 and 8");
        assert_eq!(counted("nonsense"), 0);
    }

    #[test]
    fn the_tables_of_this_machine_can_be_read() {
        outbound().unwrap();
    }
}
