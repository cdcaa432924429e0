//! When idle sandboxes are parked.

use std::time::Duration;

use shoal_core::parking::ParkingSettings;
use shoal_core::resources::Mib;

use super::read::Reader;
use super::units::{duration, parse_size};

/// The values of `parking.after`.
enum Allowed {
    /// No sandbox is parked.
    No,
    /// Only sandboxes with a label are parked.
    Asked,
    /// The idle time of sandboxes without a label.
    After(Duration),
}

/// Reads the settings `parking.*`; the inner value is none when parking is off.
pub(super) fn read(reader: &mut Reader<'_>) -> Option<Option<ParkingSettings>> {
    let after = reader.with(
        "parking.after",
        "a time like 90s or 10m, asked or off",
        |text| match text {
            "off" => Some(Allowed::No),
            "asked" => Some(Allowed::Asked),
            text => duration(text)
                .filter(|time| !time.is_zero())
                .map(Allowed::After),
        },
    );
    let backoff = reader.with("parking.backoff", "a number from 1 to 1000", |text| {
        text.parse().ok().filter(|times| (1..=1000).contains(times))
    });
    let disk_room = reader.with("parking.disk_room", "a size like 512MiB or 10GiB", |text| {
        parse_size(text).or((text == "0").then_some(Mib(0)))
    });
    let (after, backoff, disk_room) = (after?, backoff?, disk_room?);
    let after = match after {
        Allowed::No => return Some(None),
        Allowed::Asked => None,
        Allowed::After(after) => Some(after),
    };
    Some(Some(ParkingSettings {
        after,
        backoff,
        disk_room,
    }))
}
