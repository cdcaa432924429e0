//! The format of `*.sources`: paragraphs of fields, which may have several lines.

use super::one_line::usable;
use super::{Entry, SignedBy};

/// Parses the package sources in a file.
pub(super) fn parse(text: &str) -> Vec<Entry> {
    paragraphs(text)
        .iter()
        .filter_map(|fields| entry(fields))
        .collect()
}

/// A field's name in lower case, and its lines.
type Field = (String, Vec<String>);

fn paragraphs(text: &str) -> Vec<Vec<Field>> {
    let mut all: Vec<Vec<Field>> = vec![Vec::new()];
    for line in text.lines() {
        if line.trim().is_empty() {
            all.push(Vec::new());
        } else if line.starts_with('#') {
            // A comment may be inside a field.
        } else if line.starts_with([' ', '\t']) {
            if let Some((_, lines)) = all.last_mut().and_then(|fields| fields.last_mut()) {
                let text = line.trim();
                // A dot means an empty line.
                lines.push(if text == "." {
                    String::new()
                } else {
                    text.to_owned()
                });
            }
        } else if let (Some((name, value)), Some(fields)) = (line.split_once(':'), all.last_mut()) {
            fields.push((
                name.trim().to_ascii_lowercase(),
                vec![value.trim().to_owned()],
            ));
        }
    }
    all
}

fn entry(fields: &[Field]) -> Option<Entry> {
    let lines = |name: &str| {
        fields
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, lines)| lines)
    };
    let words = |name: &str| -> Vec<String> {
        let lines = lines(name).map(Vec::as_slice).unwrap_or_default();
        lines
            .iter()
            .flat_map(|line| line.split_whitespace())
            .map(str::to_owned)
            .collect()
    };
    let says = |name: &str, value: &str| words(name).first().is_some_and(|word| word == value);
    if says("enabled", "no") || !words("types").iter().any(|kind| kind == "deb") {
        return None;
    }
    let signed_by = lines("signed-by").map(|lines| match &lines[..] {
        // The keys start on the line after the field's name.
        [first, rest @ ..] if first.is_empty() && !rest.is_empty() => {
            SignedBy::Keys(rest.join("\n") + "\n")
        }
        lines => SignedBy::Named(lines.join(" ").trim().to_owned()),
    });
    usable(Entry {
        uris: words("uris"),
        suites: words("suites"),
        components: words("components"),
        architectures: words("architectures"),
        trusted: says("trusted", "yes"),
        signed_by,
    })
}
