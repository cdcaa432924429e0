//! Here-documents: texts after an instruction.

use super::words;

/// A text after an instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heredoc {
    /// Its delimiter, which is also its file name.
    pub name: String,
    /// The text; with `<<-`, without leading tabs.
    pub body: String,
    /// Whether variables in it are expanded: its delimiter is not quoted.
    pub expand: bool,
}

/// The start of a heredoc in an instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Marker {
    /// Its delimiter.
    pub(super) name: String,
    /// Whether variables in it are expanded.
    pub(super) expand: bool,
    /// Whether leading tabs are removed.
    pub(super) chomp: bool,
}

/// Parses a word as `[fd]<<[-]NAME`; the name may be quoted.
pub(super) fn marker(word: &str, escape: char) -> Option<Marker> {
    let rest = word.trim_start_matches(|c: char| c.is_ascii_digit());
    let rest = rest.strip_prefix("<<")?;
    let (chomp, rest) = match rest.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, rest),
    };
    if rest.is_empty() || rest.contains('<') {
        return None;
    }
    let name = words::unquote(rest, escape)?;
    (!name.is_empty()).then(|| Marker {
        expand: name == rest,
        name,
        chomp,
    })
}

/// All heredocs in a line, in order.
pub(super) fn markers(rest: &str, escape: char) -> Vec<Marker> {
    let words = words::split(rest, escape);
    words
        .iter()
        .filter_map(|word| marker(word, escape))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_has_a_name_and_may_be_quoted() {
        for (word, name, expand, chomp) in [
            ("<<EOF", "EOF", true, false),
            ("<<-EOF", "EOF", true, true),
            ("<<'EOF'", "EOF", false, false),
            ("3<<\"a b\"", "a b", false, false),
        ] {
            let marker = marker(word, '\\').unwrap();
            assert_eq!(
                (marker.name.as_str(), marker.expand, marker.chomp),
                (name, expand, chomp),
                "{word}"
            );
        }
        for word in ["<<", "<<<text", "<EOF", "a<<EOF", "<<'EOF", "<<''"] {
            assert_eq!(marker(word, '\\'), None, "{word}");
        }
    }
}
