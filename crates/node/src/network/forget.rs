//! Finding and removing an installation's network resources without its server.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use super::index::Indices;
use super::slot::Slot;
use super::{NetworkConfig, interface_prefix, namespace, nft, rules, table_of};

/// The prefix of interface and table names, before the installation's name.
const INTERFACE: &str = "shl";
const TABLE: &str = "shoal_";

/// The network resources of one installation.
#[derive(Debug, Default)]
pub(crate) struct Remains {
    /// Interfaces of the host.
    pub(crate) interfaces: Vec<String>,
    /// Tables of packet filters.
    pub tables: Vec<String>,
    /// Indices of slots, complete or partial.
    pub slots: BTreeSet<u32>,
}

/// The installations that have an interface, a table or a slot on this machine.
///
/// # Errors
/// When the machine cannot be searched.
pub(crate) fn instances(machine: &Path) -> io::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for interface in interfaces()? {
        let middle = interface.strip_prefix(INTERFACE).unwrap_or_default();
        names.extend(middle.split_once('-').map(|(name, _)| name.to_owned()));
    }
    for table in tables()? {
        names.extend(table.strip_prefix(TABLE).map(str::to_owned));
    }
    for file in files(&machine.join("slots"))? {
        names.extend(file.strip_prefix("of-").map(str::to_owned));
    }
    Ok(names)
}

impl Remains {
    /// The resources of the installation `instance`; its namespaces are in `run`.
    ///
    /// # Errors
    /// When the machine cannot be searched.
    pub(crate) fn of(instance: &str, run: &Path, machine: &Path) -> io::Result<Self> {
        let prefix = interface_prefix(instance);
        let mut interfaces = interfaces()?;
        interfaces.retain(|name| name.starts_with(&prefix));
        let mut tables = tables()?;
        tables.retain(|name| *name == table_of(instance));
        let mut slots: BTreeSet<u32> = Indices::of(machine, instance).own()?.into_iter().collect();
        let named = interfaces
            .iter()
            .filter_map(|name| name.strip_prefix(&prefix));
        slots.extend(named.filter_map(|index| index.parse::<u32>().ok()));
        let files = files(&run.join("netns"))?;
        let indices = files.iter().filter_map(|name| name.split('-').next());
        slots.extend(indices.filter_map(|index| index.parse::<u32>().ok()));
        Ok(Self {
            interfaces,
            tables,
            slots,
        })
    }

    /// Removes all of them.
    ///
    /// # Errors
    /// When one remains.
    pub(crate) fn remove(&self, instance: &str, run: &Path, machine: &Path) -> io::Result<()> {
        let indices = Indices::of(machine, instance);
        let namespaces = run.join("netns");
        // Removal does not depend on the address range.
        let range = NetworkConfig::default().range;
        for index in &self.slots {
            Slot::new(*index, range, &interface_prefix(instance), &namespaces).remove()?;
            indices.give_back(*index)?;
        }
        for file in namespace::list(&namespaces).or_else(none_there)? {
            namespace::remove(&file)?;
        }
        if !self.tables.is_empty() {
            nft::apply(&rules::no_host(&table_of(instance)))?;
        }
        indices.close()
    }
}

fn interfaces() -> io::Result<Vec<String>> {
    let mut names = files(Path::new("/sys/class/net"))?;
    names.retain(|name| name.starts_with(INTERFACE));
    Ok(names)
}

fn tables() -> io::Result<Vec<String>> {
    let said = match Command::new("nft")
        .args(["list", "tables", "inet"])
        .output()
    {
        Ok(said) => said,
        // No `nft` means that no table was ever created.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let names = text
        .lines()
        .filter_map(|line| line.split_whitespace().last());
    Ok(names
        .filter(|name| name.starts_with(TABLE))
        .map(str::to_owned)
        .collect())
}

/// The names in a directory; empty when it does not exist.
fn files(directory: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(directory) {
        Err(error) => return none_there(error),
        Ok(entries) => entries,
    };
    entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect()
}

fn none_there<T>(error: io::Error) -> io::Result<Vec<T>> {
    if error.kind() == io::ErrorKind::NotFound {
        Ok(Vec::new())
    } else {
        Err(error)
    }
}
