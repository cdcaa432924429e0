//! Splits a command line into words, as a POSIX shell does without expansions.

/// Why a command line has no words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum InvalidWords {
    /// A quotation without end.
    #[error("No closing quotation")]
    Quotation,
    /// A backslash at the end.
    #[error("No escaped character")]
    Escape,
}

/// Splits a command line. Quotes and backslashes mean what they mean in a shell; nothing else is
/// special, `#` included.
///
/// # Errors
/// If a quotation or an escape has no end.
pub(super) fn split(line: &str) -> Result<Vec<String>, InvalidWords> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            ' ' | '\t' | '\r' | '\n' => words.extend(word.take()),
            // A quotation makes a word even if it is empty.
            '\'' | '"' => quoted(character, &mut characters, word.get_or_insert_default())?,
            '\\' => {
                let escaped = characters.next().ok_or(InvalidWords::Escape)?;
                word.get_or_insert_default().push(escaped);
            }
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    Ok(words)
}

/// Reads a quotation up to its end.
fn quoted(
    quote: char,
    characters: &mut std::str::Chars<'_>,
    word: &mut String,
) -> Result<(), InvalidWords> {
    loop {
        match characters.next().ok_or(InvalidWords::Quotation)? {
            end if end == quote => return Ok(()),
            '\\' if quote == '"' => match characters.next().ok_or(InvalidWords::Escape)? {
                escaped @ ('"' | '\\') => word.push(escaped),
                // Other backslashes stay.
                other => word.extend(['\\', other]),
            },
            other => word.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_are_those_of_a_shell() {
        for (line, words) in [
            ("", &[][..]),
            (" \t\r\n", &[]),
            ("ls -la", &["ls", "-la"]),
            ("  a   b\n", &["a", "b"]),
            ("echo 'a b'", &["echo", "a b"]),
            (r#"echo "it's""#, &["echo", "it's"]),
            (r#"a"b c"'d e'f"#, &["ab cd ef"]),
            ("''", &[""]),
            (r#"x "" y"#, &["x", "", "y"]),
            (r"a\ b", &["a b"]),
            (r#""\"\\\n$HOME""#, &[r#""\\n$HOME"#]),
            (r"'\n'", &[r"\n"]),
            ("echo # no comment", &["echo", "#", "no", "comment"]),
            ("a;b|c&&d >e", &["a;b|c&&d", ">e"]),
            ("naïve 日本", &["naïve", "日本"]),
        ] {
            assert_eq!(split(line).unwrap(), words, "{line:?}");
        }
    }

    #[test]
    fn unfinished_lines_are_refused() {
        for line in ["'", "a \"b", "\"a\\\""] {
            assert_eq!(split(line), Err(InvalidWords::Quotation), "{line:?}");
        }
        for line in ["\\", "a\\", "\"\\"] {
            assert_eq!(split(line), Err(InvalidWords::Escape), "{line:?}");
        }
    }

    proptest! {
        #[test]
        fn a_quoted_word_is_itself(word in "\\PC{0,30}") {
            let line = format!("'{}'", word.replace('\'', r#"'"'"'"#));
            prop_assert_eq!(split(&line).unwrap(), [word]);
        }
    }
}
