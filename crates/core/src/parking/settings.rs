//! The settings that decide whether a sandbox is parked: the operator's, and the sandbox's label.

use std::str::FromStr;
use std::time::Duration;

use super::ParkingRules;
use crate::quantity;
use crate::resources::Mib;
use crate::sandbox::{PARKING_KEY, SandboxSpec};

/// The longest idle time that a label may set.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);

/// The settings of an operator who allows parking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParkingSettings {
    /// The idle time of sandboxes without a label; `None` if only sandboxes with a label are parked.
    pub after: Option<Duration>,
    /// See [`ParkingRules::backoff`].
    pub backoff: u32,
    /// See [`ParkingRules::disk_room`].
    pub disk_room: Mib,
}

/// The value of a sandbox's label [`PARKING_KEY`]: `off`, or a time like `90s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParkingLabel {
    /// The sandbox is not parked.
    Off,
    /// The sandbox is parked after this idle time.
    After(Duration),
}

/// A text that is no [`ParkingLabel`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be `off`, or an idle time of at most 30 days, like `90s` or `10m`")]
pub struct InvalidParkingLabel;

impl FromStr for ParkingLabel {
    type Err = InvalidParkingLabel;

    fn from_str(text: &str) -> Result<Self, InvalidParkingLabel> {
        if text == "off" {
            return Ok(Self::Off);
        }
        quantity::duration(text)
            .filter(|time| !time.is_zero() && *time <= LONGEST)
            .map(Self::After)
            .ok_or(InvalidParkingLabel)
    }
}

impl ParkingSettings {
    /// The rules for a sandbox; `None` if it is not to be parked. A label that cannot be read counts as `off`:
    /// the sandbox only costs memory then.
    #[must_use]
    pub fn rules(&self, spec: &SandboxSpec) -> Option<ParkingRules> {
        let label = spec.metadata.get(PARKING_KEY);
        let after = match label.map(|text| text.parse()) {
            None => self.after?,
            Some(Ok(ParkingLabel::After(after))) => after,
            Some(Ok(ParkingLabel::Off) | Err(InvalidParkingLabel)) => return None,
        };
        Some(ParkingRules {
            after,
            backoff: self.backoff,
            disk_room: self.disk_room,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_off_or_a_time() {
        assert_eq!("off".parse(), Ok(ParkingLabel::Off));
        let time = |seconds| Ok(ParkingLabel::After(Duration::from_secs(seconds)));
        assert_eq!("90s".parse(), time(90));
        assert_eq!("720h".parse(), time(720 * 3600));
        for bad in [
            "",
            "on",
            "Off",
            "0s",
            "90",
            "-1s",
            "1.5m",
            "31d",
            "99999999999999999999s",
        ] {
            assert_eq!(
                bad.parse::<ParkingLabel>(),
                Err(InvalidParkingLabel),
                "{bad}"
            );
        }
    }
}
