//! Splitting a line at its blanks.

/// The words of a line, with their quotes and escapes.
pub(crate) fn split(text: &str, escape: char) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quote = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if quote.is_none() && c.is_whitespace() {
            if !word.is_empty() {
                words.push(std::mem::take(&mut word));
            }
            continue;
        }
        word.push(c);
        match quote {
            // Single quotes escape everything.
            _ if c == escape && quote != Some('\'') => word.extend(chars.next()),
            None if c == '\'' || c == '"' => quote = Some(c),
            Some(open) if open == c => quote = None,
            _ => {}
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

/// A flag's name and its value.
type Flag = (String, Option<String>);

/// Parses `--name[=value]` at the start of a line; a bare `--` ends the flags.
pub(crate) fn flags(text: &str, escape: char) -> (Vec<Flag>, String) {
    let mut flags = Vec::new();
    let mut rest = text.trim_start();
    while rest.starts_with("--") {
        let Some(word) = split(rest, escape).into_iter().next() else {
            break;
        };
        // The word is at the start of the text, so its length is the offset.
        rest = rest.get(word.len()..).unwrap_or_default().trim_start();
        if word == "--" {
            break;
        }
        let flag = word.trim_start_matches('-');
        flags.push(match flag.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (flag.to_owned(), None),
        });
    }
    (flags, rest.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_end_at_blanks_outside_quotes() {
        assert_eq!(
            split("a  'b c' d\\ e \"f\\\" g\"", '\\'),
            ["a", "'b c'", "d\\ e", "\"f\\\" g\""]
        );
    }
}
