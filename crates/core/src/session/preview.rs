//! The preview of a session: the host name of its public port, and how often requests start its machine.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::id::{ID_DIGITS, InvalidId, base36};

/// The only port of a session's machine that can be reached from outside.
pub const PREVIEW_PORT: u16 = 8080;

/// The label between the hash and the server's domain.
const LABEL: &str = "preview";

/// The domain of a server that has none: browsers resolve it to their own machine.
const NO_DOMAIN: &str = "localhost";

/// How often in a row requests start the machine of a session.
const WAKES: u32 = 4;

/// How much longer than a machine lives it takes until requests may start another one. So traffic alone keeps a machine up
/// for a quarter of the time.
const REST: u32 = 4;

/// The first label of a preview's host name: twenty of `[a-z0-9]`. It is a secret: everyone who knows it sees the preview.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PreviewHash(String);

impl PreviewHash {
    /// Makes a new hash from 128 random bits, of which it keeps 103.
    #[must_use]
    pub fn from_entropy(entropy: [u8; 16]) -> Self {
        Self(base36(u128::from_le_bytes(entropy)))
    }

    /// The hash as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for PreviewHash {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        if text.len() == ID_DIGITS && text.bytes().all(good) {
            return Ok(Self(text.to_owned()));
        }
        Err(InvalidId::new("preview hash", text, "20 of a-z and 0-9"))
    }
}

impl TryFrom<String> for PreviewHash {
    type Error = InvalidId;

    fn try_from(text: String) -> Result<Self, InvalidId> {
        text.parse()
    }
}

impl From<PreviewHash> for String {
    fn from(hash: PreviewHash) -> Self {
        hash.0
    }
}

/// The target of a host name under the domain of previews.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PreviewName {
    /// This preview, if there is one.
    Hash(PreviewHash),
    /// No preview, although there may be sessions.
    Nothing,
}

/// The domain of previews: `preview.<domain of the server>`, in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreviewDomain(String);

impl PreviewDomain {
    /// The domain of previews for a server with this domain.
    #[must_use]
    pub fn of(server: Option<&str>) -> Self {
        let server = server.unwrap_or(NO_DOMAIN).to_ascii_lowercase();
        Self(format!("{LABEL}.{server}"))
    }

    /// The host name of a preview.
    #[must_use]
    pub fn host(&self, hash: &PreviewHash) -> String {
        format!("{}.{}", hash.as_str(), self.0)
    }

    /// The target of `host`, which has no port; `None` for other hosts. Case and a dot at the end do not count.
    #[must_use]
    pub fn find(&self, host: &str) -> Option<PreviewName> {
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        let label = host.strip_suffix(&self.0)?.strip_suffix('.')?;
        Some(
            label
                .parse()
                .map_or(PreviewName::Nothing, PreviewName::Hash),
        )
    }
}

impl fmt::Display for PreviewDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether, and how often, requests to the preview start the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Wakes {
    /// Whether they start it at all.
    pub allowed: bool,
    /// When the starts by requests so far are paid off.
    pub paid: Timestamp,
}

impl Wakes {
    /// Counts a start by a request, of a machine that lives for `life`.
    ///
    /// # Errors
    /// When requests have started too many machines: how long it is until they start another.
    pub fn take(&mut self, now: Timestamp, life: Duration) -> Result<(), Duration> {
        let price = life * REST;
        let after = self.paid.max(now) + price;
        let wait = after.since(now + price * WAKES);
        if !wait.is_zero() {
            return Err(wait);
        }
        self.paid = after;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::session::life::IDLE;

    const BEGUN: Timestamp = Timestamp::from_unix_seconds(1_000_000);

    #[test]
    fn r2_063_and_r2_065_a_host_is_read_as_it_is_written() {
        let hash = PreviewHash::from_entropy([7; 16]);
        assert_ne!(hash, PreviewHash::from_entropy([8; 16]));
        assert_eq!(hash.as_str().len(), 20);
        let domain = PreviewDomain::of(Some("E2B.localhost"));
        let host = domain.host(&hash);
        assert_eq!(host, format!("{}.preview.e2b.localhost", hash.as_str()));
        let found = Some(PreviewName::Hash(hash.clone()));
        for same in [host.clone(), host.to_ascii_uppercase(), format!("{host}.")] {
            assert_eq!(domain.find(&same), found, "{same}");
        }
        let local = PreviewDomain::of(None);
        assert_eq!(
            local.host(&hash),
            format!("{}.preview.localhost", hash.as_str())
        );
        assert_eq!(local.find(&local.host(&hash)), found);
    }

    #[test]
    fn other_hosts_under_the_domain_name_nothing_and_those_elsewhere_are_not_its_own() {
        let domain = PreviewDomain::of(Some("e2b.localhost"));
        let hash = "0123456789abcdefghij";
        for nothing in [
            "x.preview.e2b.localhost".to_owned(),
            format!("{hash}k.preview.e2b.localhost"),
            format!("8080-{hash}.preview.e2b.localhost"),
            format!("www.{hash}.preview.e2b.localhost"),
            format!("{hash}.preview.e2b.localhost.."),
            format!("{hash}..preview.e2b.localhost"),
            ".preview.e2b.localhost".to_owned(),
        ] {
            let found = domain.find(&nothing);
            let own = nothing.ends_with("..");
            assert_eq!(found, (!own).then_some(PreviewName::Nothing), "{nothing}");
        }
        for elsewhere in [
            "preview.e2b.localhost".to_owned(),
            "e2b.localhost".to_owned(),
            format!("{hash}.e2b.localhost"),
            format!("{hash}.xpreview.e2b.localhost"),
            format!("{hash}.preview.localhost"),
            format!("{hash}.preview.e2b.localhost.example"),
            String::new(),
        ] {
            assert_eq!(domain.find(&elsewhere), None, "{elsewhere}");
        }
    }

    #[test]
    fn requests_start_four_machines_in_a_row_and_then_one_for_each_rest() {
        let mut wakes = Wakes::default();
        for _ in 0..WAKES {
            assert_eq!(wakes.take(BEGUN, IDLE), Ok(()));
        }
        let next = BEGUN + IDLE * REST;
        assert_eq!(wakes.take(BEGUN, IDLE), Err(IDLE * REST));
        let before = wakes;
        assert_eq!(wakes.take(BEGUN + IDLE, IDLE), Err(IDLE * (REST - 1)));
        assert_eq!(wakes, before, "a refusal costs nothing");
        assert_eq!(wakes.take(next, IDLE), Ok(()));
        assert_eq!(wakes.take(next, IDLE), Err(IDLE * REST));
        // Unused wakes add up to four.
        let later = next + IDLE * REST * 100;
        for _ in 0..WAKES {
            assert_eq!(wakes.take(later, IDLE), Ok(()));
        }
        assert!(wakes.take(later, IDLE).is_err());
    }

    proptest! {
        #[test]
        fn traffic_alone_keeps_no_machine_up(gaps in proptest::collection::vec(0u64..20_000, 1..200)) {
            let (mut wakes, mut now, mut started) = (Wakes::default(), BEGUN, 0);
            for gap in gaps {
                now = now + Duration::from_secs(gap);
                started += u32::from(wakes.take(now, IDLE).is_ok());
            }
            let passed = now.since(BEGUN).as_secs() / (IDLE * REST).as_secs();
            prop_assert!(u64::from(started) <= passed + u64::from(WAKES));
        }

        #[test]
        fn no_host_panics(host in "[ -~]{0,80}") {
            let _ = PreviewDomain::of(Some("e2b.localhost")).find(&host);
        }
    }
}
