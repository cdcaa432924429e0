//! Words of an instruction: quotes, escapes, variables.

mod split;

use super::scope::{Known, Scope};
pub(super) use split::{flags, split};

/// How deeply `${a:-${b:-…}}` may be nested.
const DEPTH_MAX: u32 = 16;

/// A part of an expanded text.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    /// A literal character.
    Literal(char),
    /// A reference that only the server can resolve, in the server's syntax.
    Live(String),
}

/// An expanded text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Text {
    pieces: Vec<Piece>,
    /// The first variable that only the server knows.
    unknown: Option<String>,
}

impl Text {
    /// The text, if it contains no reference for the server; otherwise the variable in question.
    pub(super) fn known(&self) -> Result<String, String> {
        match &self.unknown {
            Some(name) => Err(name.clone()),
            None => Ok(self.pieces.iter().filter_map(Piece::literal).collect()),
        }
    }

    /// The text in the server's syntax for values: characters that would start a reference are
    /// escaped with a backslash.
    pub(super) fn wire(&self) -> String {
        self.wire_before("")
    }

    /// The same in front of `end`, which the text must not contain unescaped.
    fn wire_before(&self, end: &str) -> String {
        let mut wire = String::new();
        for (at, piece) in self.pieces.iter().enumerate() {
            match piece {
                Piece::Live(reference) => wire.push_str(reference),
                Piece::Literal('\\') => {
                    // A backslash is literal, except before a character that it would escape.
                    let harmless = match self.pieces.get(at + 1) {
                        Some(next) => next.literal().is_some_and(|next| !"$\\}".contains(next)),
                        None => end.is_empty(),
                    };
                    wire.push_str(if harmless { "\\" } else { "\\\\" });
                }
                Piece::Literal(c) => {
                    if *c == '$' || end.contains(*c) {
                        wire.push('\\');
                    }
                    wire.push(*c);
                }
            }
        }
        wire
    }

    pub(super) fn push_str(&mut self, text: &str) {
        self.pieces.extend(text.chars().map(Piece::Literal));
    }

    fn append(&mut self, other: Self) {
        self.pieces.extend(other.pieces);
        self.unknown = self.unknown.take().or(other.unknown);
    }

    fn live(&mut self, name: &str, reference: String) {
        self.pieces.push(Piece::Live(reference));
        self.unknown.get_or_insert_with(|| name.to_owned());
    }
}

impl Piece {
    fn literal(&self) -> Option<char> {
        match self {
            Self::Literal(c) => Some(*c),
            Self::Live(_) => None,
        }
    }
}

/// Removes quotes and escapes from a word, and expands its variables.
///
/// # Errors An unclosed quote or brace, or an unknown form of reference.
pub(super) fn expand(word: &str, escape: char, scope: &Scope) -> Result<Text, String> {
    Expander::new(word, escape, Some(scope), true).until(None, 0)
}

/// Expands the variables of a heredoc, in which quotes are ordinary characters.
///
/// # Errors
/// As [`expand`].
pub(super) fn expand_body(body: &str, escape: char, scope: &Scope) -> Result<Text, String> {
    Expander::new(body, escape, Some(scope), false).until(None, 0)
}

/// Removes quotes and escapes from a word without variables; `None` if a quote is not closed.
pub(super) fn unquote(word: &str, escape: char) -> Option<String> {
    let text = Expander::new(word, escape, None, true).until(None, 0);
    text.ok().and_then(|text| text.known().ok())
}

struct Expander<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    escape: char,
    scope: Option<&'a Scope>,
    quotes: bool,
}

impl<'a> Expander<'a> {
    fn new(text: &'a str, escape: char, scope: Option<&'a Scope>, quotes: bool) -> Self {
        Self {
            rest: text.chars().peekable(),
            escape,
            scope,
            quotes,
        }
    }

    /// Parses to the end, or past the character that ends this part.
    fn until(&mut self, stop: Option<char>, depth: u32) -> Result<Text, String> {
        if depth > DEPTH_MAX {
            return Err("variables within variables go too deep".to_owned());
        }
        let mut text = Text::default();
        while let Some(c) = self.rest.next() {
            match c {
                c if Some(c) == stop => return Ok(text),
                '\'' if self.quotes => self.single(&mut text)?,
                '"' if self.quotes => self.double(&mut text, depth)?,
                '$' if self.scope.is_some() => self.variable(&mut text, depth)?,
                c if c == self.escape => text.pieces.extend(self.rest.next().map(Piece::Literal)),
                c => text.pieces.push(Piece::Literal(c)),
            }
        }
        match stop {
            Some(stop) => Err(format!("a {stop} is missing")),
            None => Ok(text),
        }
    }

    fn single(&mut self, text: &mut Text) -> Result<(), String> {
        for c in self.rest.by_ref() {
            if c == '\'' {
                return Ok(());
            }
            text.pieces.push(Piece::Literal(c));
        }
        Err("a ' is not closed".to_owned())
    }

    fn double(&mut self, text: &mut Text, depth: u32) -> Result<(), String> {
        while let Some(c) = self.rest.next() {
            match c {
                '"' => return Ok(()),
                '$' if self.scope.is_some() => self.variable(text, depth)?,
                c if c == self.escape => {
                    let escape = self.escape;
                    let next = self.rest.next_if(|next| ['"', '$', escape].contains(next));
                    text.pieces.push(Piece::Literal(next.unwrap_or(c)));
                }
                c => text.pieces.push(Piece::Literal(c)),
            }
        }
        Err("a \" is not closed".to_owned())
    }

    fn name(&mut self) -> String {
        let mut name = String::new();
        while let Some(c) = self
            .rest
            .next_if(|c| c.is_ascii_alphanumeric() || *c == '_')
        {
            name.push(c);
        }
        name
    }

    /// Parses the part after a `$`.
    fn variable(&mut self, text: &mut Text, depth: u32) -> Result<(), String> {
        if self.rest.next_if_eq(&'{').is_none() {
            let name = self.name();
            if name.is_empty() {
                text.pieces.push(Piece::Literal('$'));
                return Ok(());
            }
            self.put(text, &name, None);
            return Ok(());
        }
        let name = self.name();
        let missing = || format!("${{{name} has no }}");
        if name.is_empty() {
            return Err("${ without a name".to_owned());
        }
        let first = self.rest.next().ok_or_else(missing)?;
        if first == '}' {
            self.put(text, &name, None);
            return Ok(());
        }
        let colon = first == ':';
        let sign = if colon {
            self.rest.next().ok_or_else(missing)?
        } else {
            first
        };
        if !['-', '+', '?'].contains(&sign) {
            return Err(format!(
                "${{{name}{first}…}} is a form that is not known here: it may be ${{{name}:-…}}, ${{{name}:+…}} or ${{{name}:?…}}"
            ));
        }
        let word = self.until(Some('}'), depth + 1)?;
        if sign == '?' {
            return self.insist(text, &name, colon, &word);
        }
        self.put(text, &name, Some((colon, sign == '+', word)));
        Ok(())
    }

    /// Appends a variable, or the word that replaces an unset or set one.
    fn put(&self, text: &mut Text, name: &str, word: Option<(bool, bool, Text)>) {
        let known = self.scope.map_or(Known::Unset, |scope| scope.look(name));
        let Some((colon, instead, word)) = word else {
            match known {
                Known::Value(value) => text.push_str(value),
                Known::Unset => {}
                Known::Elsewhere => text.live(name, format!("${{{name}}}")),
            }
            return;
        };
        let value = match known {
            Known::Elsewhere => {
                let sign = if instead { '+' } else { '-' };
                let colon = if colon { ":" } else { "" };
                let word = word.wire_before("}");
                text.live(name, format!("${{{name}{colon}{sign}{word}}}"));
                return;
            }
            Known::Value(value) if !(colon && value.is_empty()) => Some(value),
            Known::Value(_) | Known::Unset => None,
        };
        match value {
            Some(_) if instead => text.append(word),
            Some(value) => text.push_str(value),
            None if instead => {}
            None => text.append(word),
        }
    }

    /// `${NAME:?message}`.
    fn insist(&self, text: &mut Text, name: &str, colon: bool, word: &Text) -> Result<(), String> {
        let known = self.scope.map_or(Known::Unset, |scope| scope.look(name));
        let missing = match known {
            Known::Value(value) => colon && value.is_empty(),
            Known::Unset => true,
            Known::Elsewhere => false,
        };
        if missing {
            return Err(format!("{name}: {}", word.known().unwrap_or_default()));
        }
        self.put(text, name, None);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scope() -> Scope {
        let mut scope = Scope::default();
        scope.set_env("A".to_owned(), Some("one".to_owned()));
        scope.set_env("E".to_owned(), Some(String::new()));
        scope.set_env("L".to_owned(), None);
        scope.set_arg("U".to_owned(), None);
        scope
    }

    fn known(word: &str) -> Result<String, String> {
        expand(word, '\\', &scope())?.known()
    }

    fn wire(word: &str) -> String {
        expand(word, '\\', &scope()).unwrap().wire()
    }

    #[test]
    fn variables_are_put_as_docker_puts_them() {
        for (word, value) in [
            ("$A/${A}x", "one/onex"),
            ("'$A' \"$A\" \\$A", "$A one $A"),
            ("\"\\$A \\\" \\x\"", "$A \" \\x"),
            ("${U:-two}${E:-three}${E-no}", "twothree"),
            ("${A:-no}${A:+yes}${E:+no}${E+set}${U+no}", "oneyesset"),
            ("${U:-$A${U:-}}", "one"),
            ("$ $- 100%", "$ $- 100%"),
            ("${U:-a\\}b}", "a}b"),
            ("${A:?must}", "one"),
        ] {
            assert_eq!(known(word).as_deref(), Ok(value), "{word}");
        }
    }

    #[test]
    fn what_is_not_closed_or_not_known_is_refused() {
        for word in [
            "'a",
            "\"a",
            "${A",
            "${A:-x",
            "${",
            "${}",
            "${A#x}",
            "${A:",
            "${U:?must}",
        ] {
            assert!(known(word).is_err(), "{word}");
        }
        let deep = "${U:-".repeat(50) + &"}".repeat(50);
        assert!(known(&deep).is_err());
    }

    #[test]
    fn what_only_the_server_knows_is_left_to_it() {
        assert_eq!(known("$PATH:/x"), Err("PATH".to_owned()));
        for (word, value) in [
            ("$PATH:/x", "${PATH}:/x"),
            ("${L:-a}$L", "${L:-a}${L}"),
            ("/x${PATH:+:$PATH}", "/x${PATH:+:${PATH}}"),
            ("'$PATH'", "\\$PATH"),
            ("'\\'$PATH", "\\\\${PATH}"),
            ("'C:\\dir'", "C:\\dir"),
            ("${PATH:-'}'}", "${PATH:-\\}}"),
        ] {
            assert_eq!(wire(word), value, "{word}");
        }
    }

    #[test]
    fn quotes_in_a_heredoc_are_letters() {
        let text = expand_body("it's \"$A\" \\$A\n", '\\', &scope()).unwrap();
        assert_eq!(text.known().unwrap(), "it's \"one\" $A\n");
    }

    /// Parses a value without references as the server does.
    fn read(wire: &str) -> Option<String> {
        let mut chars = wire.chars().peekable();
        let mut text = String::new();
        while let Some(c) = chars.next() {
            match c {
                '$' => return None,
                '\\' => text.push(chars.next_if(|next| "$\\}".contains(*next)).unwrap_or(c)),
                c => text.push(c),
            }
        }
        Some(text)
    }

    proptest! {
        #[test]
        fn a_quoted_text_comes_back_from_the_wire(text in "[a-c$\\\\{}\" ]{0,12}") {
            let quoted = format!("'{text}'");
            prop_assert_eq!(read(&wire(&quoted)), Some(text));
        }

        #[test]
        fn no_word_makes_expanding_fail(word in "[A$\\{\\}:+?'\"\\\\ -]{0,30}") {
            let _ = expand(&word, '\\', &scope());
            let _ = (split(&word, '\\'), flags(&word, '\\'), unquote(&word, '\\'));
        }
    }
}
