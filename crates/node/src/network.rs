//! Network slots: created ahead of time, used by one sandbox each.

mod forget;
mod index;
mod namespace;
mod nft;
mod pool;
mod resolver;
mod rules;
mod slot;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;

use ipnet::Ipv4Net;
use parking_lot::Mutex;
use shoal_core::network::{Egress, MAX_DNS_SERVERS};

pub(crate) use self::forget::{Remains, instances};
use self::index::Indices;
use self::pool::Pool;
pub use self::slot::Slot;
use crate::{blocking, modes};

/// The sandbox's address in its own namespace, the same in every slot.
pub const GUEST_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 11, 0, 2);
/// The sandbox's router, which is also its first name server.
pub(crate) const ROUTER_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 11, 0, 1);
/// The sandbox's name servers, in order, as many as a resolver tries: the router and two unassigned
/// addresses behind it. Each is forwarded to one name server.
pub const NAME_ADDRESSES: [Ipv4Addr; MAX_DNS_SERVERS] = [
    ROUTER_ADDRESS,
    Ipv4Addr::new(10, 11, 0, 5),
    Ipv4Addr::new(10, 11, 0, 9),
];
const INNER_BITS: u8 = 30;
/// Fixed, so that a resumed sandbox's ARP entry for its router is valid in any slot.
const GUEST_MAC: [u8; 6] = [0x02, 0x5a, 0, 0, 0, 2];
const ROUTER_MAC: [u8; 6] = [0x02, 0x5a, 0, 0, 0, 1];

/// The prefix of every installation's host interfaces.
const ANY_INTERFACE: &str = "shl*";

/// How slots are created.
#[derive(Debug, Clone)]
pub struct NetworkConfig {
    /// The range of the slots' addresses on this machine, four per slot.
    pub range: Ipv4Net,
    /// The name servers for sandboxes; the host's when empty.
    pub dns: Vec<Ipv4Addr>,
    /// How many slots are kept ready.
    pub warm: usize,
}

impl Default for NetworkConfig {
    /// 16384 sandboxes in a range that machines rarely use, with 16 slots ready.
    fn default() -> Self {
        let range = Ipv4Net::new_assert(Ipv4Addr::new(10, 79, 0, 0), 16);
        Self {
            range,
            dns: Vec::new(),
            warm: 16,
        }
    }
}

/// The network slots of this installation.
#[derive(Debug, Clone)]
pub struct Network {
    shared: Arc<Shared>,
    pool: Pool,
}

#[derive(Debug)]
struct Shared {
    config: NetworkConfig,
    indices: Indices,
    /// The prefix of this installation's host interfaces.
    prefix: String,
    /// This installation's table on the host.
    table: String,
    namespaces: PathBuf,
    mtu: u32,
    resolvers: Vec<Ipv4Addr>,
    /// Unused slots whose removal failed.
    leaving: Mutex<BTreeSet<u32>>,
}

impl Network {
    /// Installs the host's rules. `instance` is a short name of this installation, unique on this
    /// machine. `run` is its directory on a file system that a reboot clears; `machine` is the one
    /// that all installations share.
    ///
    /// # Errors
    /// When the kernel or `nft` refuses, or a directory cannot be created.
    pub fn open(
        config: NetworkConfig,
        instance: &str,
        run: &std::path::Path,
        machine: &std::path::Path,
    ) -> io::Result<Self> {
        let prefix = interface_prefix(instance);
        let table = table_of(instance);
        let namespaces = run.join("netns");
        modes::make(&namespaces)?;
        fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
        nft::apply(&rules::host(
            &table,
            &format!("{prefix}*"),
            ANY_INTERFACE,
            config.range,
        ))?;
        let count = 1 << (30 - u32::from(config.range.prefix_len()).min(30));
        let indices = Indices::open(machine.join("slots"), instance.to_owned(), count)?;
        let resolvers = if config.dns.is_empty() {
            resolver::of_host()
        } else {
            config.dns.clone()
        };
        let warm = config.warm;
        let mtu = mtu_of_default_route().unwrap_or(1500);
        let shared = Arc::new(Shared {
            config,
            indices,
            prefix,
            table,
            namespaces,
            mtu,
            resolvers,
            leaving: Mutex::default(),
        });
        Ok(Self {
            pool: Pool::new(shared.clone(), warm),
            shared,
        })
    }

    /// Starts to keep slots ready, on the caller's runtime.
    pub fn start(&self) {
        self.pool.start();
    }

    /// A slot with `egress` in force; none when the range is used up.
    ///
    /// # Errors
    /// When the slot cannot be created; nothing remains of it.
    pub async fn take(&self, egress: &Egress) -> io::Result<Option<Slot>> {
        let Some(slot) = self.pool.take().await? else {
            return Ok(None);
        };
        // A ready slot already has the default policy.
        if !egress.same_rules(&Egress::default())
            && let Err(error) = self.set_egress(slot.index, egress).await
        {
            self.release(slot.index).await;
            return Err(error);
        }
        Ok(Some(slot))
    }

    /// The slot of a run that has ended, for the next run of the same sandbox, with `egress` in force.
    ///
    /// # Errors
    /// When it cannot be used again, and must be released.
    pub async fn take_again(&self, index: u32, egress: &Egress) -> io::Result<Slot> {
        let (shared, egress) = (self.shared.clone(), egress.clone());
        blocking(move || {
            let slot = shared.slot(index);
            // Before anything can run in it.
            shared.apply_egress(&slot, &egress)?;
            slot.renew()?;
            Ok(slot)
        })
        .await
    }

    /// Replaces the rules atomically.
    ///
    /// # Errors
    /// On failure the old rules stay in force.
    pub async fn set_egress(&self, index: u32, egress: &Egress) -> io::Result<()> {
        let (shared, egress) = (self.shared.clone(), egress.clone());
        blocking(move || shared.apply_egress(&shared.slot(index), &egress)).await
    }

    /// Removes a slot and frees its index. Idempotent. If the system has run out of a resource, the
    /// removal is retried until it succeeds; until then the index stays in use.
    pub async fn release(&self, index: u32) {
        let shared = self.shared.clone();
        let released = blocking(move || {
            shared.dispose_or_keep(index);
            Ok::<(), io::Error>(())
        })
        .await;
        if released.is_err() {
            self.shared.leaving.lock().insert(index);
        }
        self.pool.wake();
    }

    /// The bytes that the sandbox of a slot has received, and those that it has sent. None without the interface.
    ///
    /// # Errors
    /// When the counters cannot be read.
    pub fn traffic(&self, index: u32) -> io::Result<(u64, u64)> {
        let slot = self.shared.slot(index);
        let statistics = std::path::Path::new("/sys/class/net")
            .join(&slot.interface)
            .join("statistics");
        let counter = |name: &str| match fs::read_to_string(statistics.join(name)) {
            Ok(text) => text.trim().parse().map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error),
        };
        // The host's end of the cable sends the packets that the sandbox receives.
        Ok((counter("tx_bytes")?, counter("rx_bytes")?))
    }

    /// The slots of this installation, ready or in use.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn taken(&self) -> io::Result<Vec<u32>> {
        self.shared.indices.own()
    }

    /// The namespace files of this installation that belong to no slot in use.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn stray_namespaces(&self) -> io::Result<Vec<PathBuf>> {
        let taken = self.taken()?;
        let mut files = namespace::list(&self.shared.namespaces)?;
        files.retain(|file| {
            let name = file
                .file_name()
                .and_then(|n| n.to_str())
                .unwrap_or_default();
            let index = name.split('-').next().and_then(|i| i.parse::<u32>().ok());
            index.is_none_or(|index| !taken.contains(&index))
        });
        Ok(files)
    }

    /// Removes a stray namespace.
    ///
    /// # Errors
    /// When it stays.
    pub fn remove_namespace(&self, file: &std::path::Path) -> io::Result<()> {
        namespace::remove(file)
    }

    /// Stops keeping slots ready and removes the ready ones. Removes the host's rules too when no
    /// sandbox has a slot.
    ///
    /// # Errors
    /// When one remains.
    pub async fn close(&self) -> io::Result<()> {
        self.pool.close().await?;
        let shared = self.shared.clone();
        blocking(move || {
            shared.dispose_leaving()?;
            if shared.indices.own()?.is_empty() {
                nft::apply(&rules::no_host(&shared.table))?;
                shared.indices.close()?;
            }
            Ok(())
        })
        .await
    }
}

/// The prefix of an installation's interface names.
fn interface_prefix(instance: &str) -> String {
    format!("shl{instance}-")
}

/// The installation's table on the host.
fn table_of(instance: &str) -> String {
    format!("shoal_{instance}")
}

impl Shared {
    fn slot(&self, index: u32) -> Slot {
        Slot::new(index, self.config.range, &self.prefix, &self.namespaces)
    }

    /// Creates a slot with the default policy in force; `None` when the range is used up.
    fn make(&self) -> io::Result<Option<Slot>> {
        let Some(index) = self.indices.take()? else {
            return Ok(None);
        };
        let slot = self.slot(index);
        let made = slot
            .make(self.mtu)
            .and_then(|()| self.apply_egress(&slot, &Egress::default()));
        match made {
            Ok(()) => Ok(Some(slot)),
            Err(error) => {
                self.dispose_or_keep(index);
                Err(error)
            }
        }
    }

    fn apply_egress(&self, slot: &Slot, egress: &Egress) -> io::Result<()> {
        let ruleset = rules::egress(egress, &self.resolvers);
        namespace::within(&slot.slot_namespace, || nft::apply(&ruleset))
    }

    fn dispose(&self, index: u32) -> io::Result<()> {
        self.slot(index).remove()?;
        self.indices.give_back(index)
    }

    /// Removes a slot, or records it for a later retry.
    fn dispose_or_keep(&self, index: u32) {
        if let Err(error) = self.dispose(index) {
            tracing::warn!(%error, index, "a network slot cannot be removed yet");
            self.leaving.lock().insert(index);
        }
    }

    /// Retries the removals that failed.
    fn dispose_leaving(&self) -> io::Result<()> {
        let leaving: Vec<u32> = self.leaving.lock().iter().copied().collect();
        for index in leaving {
            self.dispose(index)?;
            self.leaving.lock().remove(&index);
        }
        Ok(())
    }
}

/// The path MTU of the host's default route: a slot with larger packets would lose them on networks
/// that do not report it.
fn mtu_of_default_route() -> Option<u32> {
    let routes = fs::read_to_string("/proc/net/route").ok()?;
    let interface = routes.lines().skip(1).find_map(|line| {
        let mut fields = line.split_whitespace();
        let (interface, destination) = (fields.next()?, fields.next()?);
        (destination == "00000000").then(|| interface.to_owned())
    })?;
    fs::read_to_string(format!("/sys/class/net/{interface}/mtu"))
        .ok()?
        .trim()
        .parse()
        .ok()
}

#[cfg(test)]
mod tests;
