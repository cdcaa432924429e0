//! When idle sandboxes are parked.

use shoal_core::parking::ParkingRules;
use shoal_core::resources::Mib;

use super::read::Reader;
use super::units::{duration, parse_size};

/// Reads the settings `parking.*`; the inner value is none when parking is off.
pub(super) fn read(reader: &mut Reader<'_>) -> Option<Option<ParkingRules>> {
    let after = reader.with("parking.after", "a time like 90s or 10m, or off", |text| {
        if text == "off" {
            return Some(None);
        }
        duration(text).filter(|time| !time.is_zero()).map(Some)
    });
    let backoff = reader.with("parking.backoff", "a number from 1 to 1000", |text| {
        text.parse().ok().filter(|times| (1..=1000).contains(times))
    });
    let disk_room = reader.with("parking.disk_room", "a size like 512MiB or 10GiB", |text| {
        parse_size(text).or((text == "0").then_some(Mib(0)))
    });
    let (after, backoff, disk_room) = (after?, backoff?, disk_room?);
    Some(after.map(|after| ParkingRules {
        after,
        backoff,
        disk_room,
    }))
}
