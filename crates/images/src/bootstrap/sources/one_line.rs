//! The format of `sources.list`: `deb [options] uri suite components`.

use super::{Entry, SignedBy};

/// Parses the package sources in a file. Invalid lines are skipped: apt itself checks its
/// configuration.
pub(super) fn parse(text: &str) -> Vec<Entry> {
    text.lines().filter_map(line).collect()
}

fn line(line: &str) -> Option<Entry> {
    let line = line.split('#').next()?.trim();
    let rest = line.strip_prefix("deb")?;
    let rest = rest.strip_prefix([' ', '\t'])?.trim_start();
    let (options, rest) = match rest.strip_prefix('[') {
        Some(inside) => inside.split_once(']')?,
        None => ("", rest),
    };
    let mut words = rest.split_whitespace().map(str::to_owned);
    let (uri, suite) = (words.next()?, words.next()?);
    let mut entry = Entry {
        uris: vec![uri],
        suites: vec![suite],
        components: words.collect(),
        architectures: Vec::new(),
        trusted: false,
        signed_by: None,
    };
    for (name, value) in options.split_whitespace().filter_map(|o| o.split_once('=')) {
        match &*name.to_ascii_lowercase() {
            "arch" => entry.architectures = value.split(',').map(str::to_owned).collect(),
            "trusted" => entry.trusted = value == "yes",
            "signed-by" => entry.signed_by = Some(SignedBy::Named(value.to_owned())),
            _ => (),
        }
    }
    usable(entry)
}

/// Filters out sources that cannot be used for an image: discs, and mirrors without suites.
pub(super) fn usable(mut entry: Entry) -> Option<Entry> {
    entry.uris.retain(|uri| !uri.starts_with("cdrom:"));
    entry.suites.retain(|suite| !suite.ends_with('/'));
    let whole = !entry.uris.is_empty() && !entry.suites.is_empty() && !entry.components.is_empty();
    let words = [&entry.uris, &entry.suites, &entry.components];
    // They are written into a file with its own syntax.
    let clean = words.iter().all(|list| {
        list.iter().all(|word| {
            word.bytes()
                .all(|b| b.is_ascii_graphic() && !b"[]#".contains(&b))
        })
    });
    (whole && clean).then_some(entry)
}
