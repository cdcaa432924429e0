//! The progress of `mmdebstrap`, derived from its output.

use shoal_core::image::Progress;

/// The download step, measured in bytes.
const DOWNLOAD: &str = "downloading packages";

/// The unpacking and configuration step, measured in packages.
const INSTALL: &str = "installing packages";

/// Parses the output.
#[derive(Debug, Default)]
pub(super) struct Follower {
    fetched: u64,
    to_fetch: u64,
    installed: u64,
    to_install: u64,
}

impl Follower {
    /// The progress in one line.
    pub(super) fn line(&mut self, line: &str) -> Option<Progress> {
        if let Some(step) = line.strip_prefix("I: ") {
            let step = step.trim_end_matches('.').to_owned();
            return Some(Progress {
                step,
                done: 0,
                total: None,
            });
        }
        if let Some(rest) = line.strip_prefix("Need to get ") {
            // `29.7 MB of archives`, or `1,000 kB/29.7 MB` when some are already present.
            let amount = rest.split(" of ").next()?;
            self.to_fetch += bytes(amount.split('/').next()?)?;
            return Some(self.download());
        }
        if line.starts_with("Get:") && self.to_fetch > 0 {
            let size = line.rsplit_once('[')?.1.strip_suffix(']')?;
            self.fetched += bytes(size)?;
            return Some(self.download());
        }
        if let Some((before, _)) = line.split_once(" newly installed") {
            let count: u64 = before.rsplit(' ').next()?.parse().ok()?;
            self.to_install += count;
            return None;
        }
        if line.starts_with("Setting up ") {
            self.installed += 1;
            return Some(Progress {
                step: INSTALL.to_owned(),
                done: self.installed,
                total: Some(self.to_install.max(self.installed)),
            });
        }
        None
    }

    fn download(&self) -> Progress {
        Progress {
            step: DOWNLOAD.to_owned(),
            done: self.fetched,
            // The announced sizes are rounded.
            total: Some(self.to_fetch.max(self.fetched)),
        }
    }
}

/// A size in apt's notation: `37.6 kB`, `1,234 B`.
fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = text.trim().rsplit_once(' ')?;
    let (whole, tenths) = number.split_once('.').unwrap_or((number, "0"));
    let whole: u64 = whole.replace(',', "").parse().ok()?;
    let tenths: u64 = tenths.get(..1)?.parse().ok()?;
    let factor: u64 = match unit {
        "B" => 1,
        "kB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        _ => return None,
    };
    whole.checked_mul(factor)?.checked_add(tenths * factor / 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_parsed_from_real_output() {
        let output = "\
I: running apt-get update...
Get:1 http://mirror.example/debian bookworm InRelease [151 kB]
I: downloading packages with apt...
0 upgraded, 2 newly installed, 0 to remove and 0 not upgraded.
Need to get 29.7 MB of archives.
Get:1 http://mirror.example/debian bookworm/main amd64 mawk amd64 1.3 [119 kB]
Setting up mawk (1.3) ...
0 upgraded, 1 newly installed, 0 to remove and 0 not upgraded.
Need to get 1,000 B of archives.
Setting up less (590) ...
W: something else [1 kB]";
        let mut follower = Follower::default();
        let said: Vec<_> = output
            .lines()
            .filter_map(|line| follower.line(line))
            .map(|p| (p.step, p.done, p.total))
            .collect();
        let expected = [
            ("running apt-get update", 0, None),
            ("downloading packages with apt", 0, None),
            (DOWNLOAD, 0, Some(29_700_000)),
            (DOWNLOAD, 119_000, Some(29_700_000)),
            (INSTALL, 1, Some(2)),
            (DOWNLOAD, 119_000, Some(29_701_000)),
            (INSTALL, 2, Some(3)),
        ];
        assert_eq!(
            said,
            expected.map(|(step, done, total)| (step.to_owned(), done, total))
        );
    }

    #[test]
    fn an_invalid_size_is_ignored() {
        for text in [
            "",
            "1",
            "x kB",
            "1 furlong",
            "1. kB",
            "99999999999999999999 GB",
        ] {
            assert_eq!(bytes(text), None, "{text}");
        }
        let mut follower = Follower::default();
        assert_eq!(follower.line("Need to get nothing"), None);
        assert_eq!(follower.line("Get:1 no size"), None);
    }
}
