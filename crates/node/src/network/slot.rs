//! One network slot.
//!
//! ```text
//!   sandbox namespace          slot namespace                        host
//!   eth0 10.11.0.2/30  ─────  in0 10.11.0.1/30 │ out0 .2/30  ───── shl<instance>-<n> .1/30
//!   (the same in every slot)      filters and address translation    masquerade
//! ```
//!
//! The sandbox sees the same addresses in every slot, so a sandbox saved in one resumes in another.
//! A slot is used by one sandbox, so no tenant meets state that another left in its tables.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::path::PathBuf;

use futures_util::TryStreamExt;
use ipnet::Ipv4Net;
use rtnetlink::packet_route::link::{InfoData, InfoVeth, LinkMessage};
use rtnetlink::packet_route::neighbour::NeighbourState;
use rtnetlink::{Handle, LinkMessageBuilder, LinkUnspec, LinkVeth, RouteMessageBuilder};

use super::rules::{INNER, OUTER};
use super::{
    GUEST_ADDRESS, GUEST_MAC, INNER_BITS, ROUTER_ADDRESS, ROUTER_MAC, namespace, nft, rules,
};

/// The prefix length of the network between a slot and the host.
const OUTER_BITS: u8 = 30;

/// The sandbox's interface.
const GUEST: &str = "eth0";

/// The addresses and names of a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// Its index on this machine.
    pub index: u32,
    /// The sandbox's address, as seen from the host.
    pub address: Ipv4Addr,
    /// The host's address.
    pub(super) host_address: Ipv4Addr,
    /// The host's interface.
    pub(super) interface: String,
    /// The namespace of the sandbox.
    pub sandbox_namespace: PathBuf,
    /// The namespace with the filters.
    pub(super) slot_namespace: PathBuf,
}

impl Slot {
    /// The slot with this index, whether or not it exists.
    pub(super) fn new(
        index: u32,
        range: Ipv4Net,
        prefix: &str,
        directory: &std::path::Path,
    ) -> Self {
        let base = u32::from(range.network()) + index * 4;
        Self {
            index,
            address: Ipv4Addr::from(base + 2),
            host_address: Ipv4Addr::from(base + 1),
            interface: format!("{prefix}{index}"),
            sandbox_namespace: directory.join(format!("{index}-sandbox")),
            slot_namespace: directory.join(format!("{index}-slot")),
        }
    }

    /// Creates the slot, closed to the outside. Blocks for some milliseconds; call it on a separate
    /// thread. When it fails, call [`Slot::remove`].
    ///
    /// # Errors
    /// Names the step that the kernel refused.
    pub(super) fn make(&self, mtu: u32) -> io::Result<()> {
        namespace::on_thread(|| {
            let host = namespace::own()?;
            let sandbox = namespace::enter_new(&self.sandbox_namespace)?;
            without_ipv6()?;
            ipv6("lo", true)?;
            let _slot = namespace::enter_new(&self.slot_namespace)?;
            without_ipv6()?;
            fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
            // Install the filters before connecting anything, so that the slot is closed from the
            // start.
            nft::apply(&rules::slot())?;
            netlink(async |handle| {
                let inner = veth(
                    INNER,
                    ROUTER_MAC,
                    GUEST,
                    GUEST_MAC,
                    namespace::raw(&sandbox),
                    mtu,
                );
                handle.link().add(inner).execute().await?;
                let outer = outer_veth(&self.interface, namespace::raw(&host), mtu);
                handle.link().add(outer).execute().await?;
                raise(&handle, "lo", None).await?;
                raise(&handle, INNER, Some((ROUTER_ADDRESS, INNER_BITS))).await?;
                raise(&handle, OUTER, Some((self.address, OUTER_BITS))).await?;
                default_route(&handle, self.host_address).await?;
                let inner = index_of(&handle, INNER).await?;
                // The first packet must not wait for ARP.
                let neighbours = handle.neighbours();
                let guest = neighbours.add(inner, GUEST_ADDRESS.into());
                guest
                    .link_layer_address(&GUEST_MAC)
                    .state(NeighbourState::Permanent)
                    .execute()
                    .await
            })?;
            namespace::enter(sandbox.as_fd())?;
            netlink(async |handle| {
                raise(&handle, "lo", None).await?;
                raise(&handle, GUEST, Some((GUEST_ADDRESS, INNER_BITS))).await?;
                default_route(&handle, ROUTER_ADDRESS).await
            })?;
            namespace::enter(host.as_fd())?;
            netlink(async |handle| {
                raise(
                    &handle,
                    &self.interface,
                    Some((self.host_address, OUTER_BITS)),
                )
                .await
            })
        })
    }

    /// Gives the sandbox's interface its address again: gVisor takes it over from the kernel, and it is gone with the run.
    /// Blocks for some milliseconds; call it on a separate thread.
    ///
    /// # Errors
    /// When the slot does not exist any more.
    pub(super) fn renew(&self) -> io::Result<()> {
        namespace::within(&self.sandbox_namespace, || {
            netlink(async |handle| {
                let guest = index_of(&handle, GUEST).await?;
                let addresses = handle.address();
                let address = addresses.add(guest, GUEST_ADDRESS.into(), INNER_BITS);
                address.replace().execute().await?;
                let up = LinkUnspec::new_with_index(guest).up().build();
                handle.link().set(up).execute().await?;
                let route = RouteMessageBuilder::<Ipv4Addr>::new()
                    .gateway(ROUTER_ADDRESS)
                    .build();
                handle.route().add(route).replace().execute().await
            })
        })
    }

    /// Removes the slot, complete or partial. Idempotent.
    ///
    /// # Errors
    /// When a namespace or the interface remains.
    pub(super) fn remove(&self) -> io::Result<()> {
        // Deleting the interface deletes its peer, and with it the slot's way out.
        let interface = namespace::on_thread(|| {
            netlink(
                async |handle| match index_of(&handle, &self.interface).await {
                    Ok(index) => handle.link().del(index).execute().await,
                    Err(error) if is_absent(&error) => Ok(()),
                    Err(error) => Err(error),
                },
            )
        });
        let sandbox = namespace::remove(&self.sandbox_namespace);
        let slot = namespace::remove(&self.slot_namespace);
        interface.and(sandbox).and(slot)
    }
}

/// Disables IPv6 in a slot, so that no rule has to consider it. Only the sandbox's loopback has it:
/// many programs resolve `localhost` to `::1`.
fn without_ipv6() -> io::Result<()> {
    ["all", "default"]
        .iter()
        .try_for_each(|which| ipv6(which, false))
}

/// Enables or disables IPv6 for an interface, or for future ones.
fn ipv6(which: &str, on: bool) -> io::Result<()> {
    let disable = if on { "0" } else { "1" };
    let file = format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6");
    match fs::write(file, disable) {
        // A kernel without IPv6 needs no switch.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        switched => switched,
    }
}

/// Runs `work` with a netlink connection in the namespace of the calling thread.
fn netlink<F>(work: F) -> io::Result<()>
where
    F: AsyncFnOnce(Handle) -> Result<(), rtnetlink::Error>,
{
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    runtime.block_on(async {
        let (connection, handle, _) = rtnetlink::new_connection()?;
        let connection = tokio::spawn(connection);
        let done = work(handle).await.map_err(io::Error::other);
        connection.abort();
        done
    })
}

/// Creates two connected interfaces, the second in another namespace.
fn veth(
    name: &str,
    mac: [u8; 6],
    peer: &str,
    peer_mac: [u8; 6],
    peer_namespace: i32,
    mtu: u32,
) -> LinkMessage {
    let peer = LinkMessageBuilder::<LinkUnspec>::new()
        .name(peer)
        .address(peer_mac.to_vec())
        .mtu(mtu)
        .setns_by_fd(peer_namespace)
        .build();
    LinkVeth::new(name, "")
        .address(mac.to_vec())
        .mtu(mtu)
        .set_info_data(InfoData::Veth(InfoVeth::Peer(peer)))
        .build()
}

fn outer_veth(host_interface: &str, host: i32, mtu: u32) -> LinkMessage {
    let peer = LinkMessageBuilder::<LinkUnspec>::new()
        .name(host_interface)
        .mtu(mtu)
        .setns_by_fd(host)
        .build();
    LinkVeth::new(OUTER, "")
        .mtu(mtu)
        .set_info_data(InfoData::Veth(InfoVeth::Peer(peer)))
        .build()
}

async fn index_of(handle: &Handle, name: &str) -> Result<u32, rtnetlink::Error> {
    let mut links = handle.link().get().match_name(name.to_owned()).execute();
    match links.try_next().await? {
        Some(link) => Ok(link.header.index),
        None => Err(rtnetlink::Error::RequestFailed),
    }
}

/// Whether the kernel reports that the interface does not exist.
fn is_absent(error: &rtnetlink::Error) -> bool {
    match error {
        rtnetlink::Error::RequestFailed => true,
        rtnetlink::Error::NetlinkError(said) => said.raw_code() == -libc::ENODEV,
        _ => false,
    }
}

/// Assigns an interface its address and brings it up.
async fn raise(
    handle: &Handle,
    name: &str,
    address: Option<(Ipv4Addr, u8)>,
) -> Result<(), rtnetlink::Error> {
    let index = index_of(handle, name).await?;
    if let Some((address, bits)) = address {
        handle
            .address()
            .add(index, address.into(), bits)
            .execute()
            .await?;
    }
    handle
        .link()
        .set(LinkUnspec::new_with_index(index).up().build())
        .execute()
        .await
}

async fn default_route(handle: &Handle, gateway: Ipv4Addr) -> Result<(), rtnetlink::Error> {
    let route = RouteMessageBuilder::<Ipv4Addr>::new()
        .gateway(gateway)
        .build();
    handle.route().add(route).execute().await
}
