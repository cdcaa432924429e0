//! Here-documents: texts that follow an instruction.

use super::words;

/// A text that follows an instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heredoc {
    /// What ends it, and what its file is called.
    pub name: String,
    /// The text, tabs at the beginning of lines taken off where `<<-` says so.
    pub body: String,
    /// Whether variables in it count: its name is not quoted.
    pub expand: bool,
}

/// A heredoc that an instruction names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Marker {
    /// What ends it.
    pub(super) name: String,
    /// Whether variables in it count.
    pub(super) expand: bool,
    /// Whether tabs at the beginning of its lines are taken off.
    pub(super) chomp: bool,
}

/// Reads a word as `[fd]<<[-]NAME`, the name perhaps quoted.
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

/// All that a line names, in order.
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
