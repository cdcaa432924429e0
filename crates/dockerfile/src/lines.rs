//! Parsing a text into instructions: directives, comments, continuations, heredocs, flags.

use shoal_core::similar::nearest;

use super::heredoc::{self, Heredoc, Marker};
use super::{Dockerfile, Instruction, Problem, words};

/// The largest Dockerfile; a larger file is a mistake.
const TEXT_MAX: usize = 4 << 20;

/// All instructions.
const KEYWORDS: [&str; 18] = [
    "ADD",
    "ARG",
    "CMD",
    "COPY",
    "ENTRYPOINT",
    "ENV",
    "EXPOSE",
    "FROM",
    "HEALTHCHECK",
    "LABEL",
    "MAINTAINER",
    "ONBUILD",
    "RUN",
    "SHELL",
    "STOPSIGNAL",
    "USER",
    "VOLUME",
    "WORKDIR",
];

/// Parses a Dockerfile.
///
/// # Errors The first problem, with its line.
pub fn parse(text: &str) -> Result<Dockerfile, Problem> {
    if text.len() > TEXT_MAX {
        return Err(Problem::new(0, "it is larger than 4 MiB"));
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = Reader {
        lines: text.lines().collect(),
        next: 0,
        escape: '\\',
    };
    reader.directives()?;
    let mut instructions = Vec::new();
    while let Some((line, text)) = reader.logical_line() {
        instructions.push(reader.instruction(line, &text)?);
    }
    if !instructions.iter().any(|one| one.keyword == "FROM") {
        return Err(Problem::new(
            0,
            "it has no FROM: name the base of the build",
        ));
    }
    Ok(Dockerfile {
        instructions,
        escape: reader.escape,
    })
}

/// The lines, and the position of the parser.
struct Reader<'a> {
    lines: Vec<&'a str>,
    next: usize,
    escape: char,
}

/// The number of a line, from 1.
fn number(index: usize) -> u32 {
    u32::try_from(index + 1).unwrap_or(u32::MAX)
}

/// Whether a line is a comment, or empty.
fn is_empty(line: &str) -> bool {
    let line = line.trim_start();
    line.is_empty() || line.starts_with('#')
}

impl<'a> Reader<'a> {
    /// Parses `# name=value` at the top, up to the first other line.
    fn directives(&mut self) -> Result<(), Problem> {
        let mut seen: Vec<String> = Vec::new();
        for (index, line) in self.lines.iter().enumerate() {
            let Some(comment) = line.trim_start().strip_prefix('#') else {
                return Ok(());
            };
            let Some((name, value)) = comment.split_once('=') else {
                return Ok(());
            };
            let (name, value) = (name.trim().to_ascii_lowercase(), value.trim());
            if !["syntax", "escape", "check"].contains(&name.as_str()) {
                return Ok(());
            }
            if seen.contains(&name) {
                let message = format!("the directive {name} is there twice");
                return Err(Problem::new(number(index), message));
            }
            if name == "escape" {
                self.escape = match value {
                    "\\" => '\\',
                    "`" => '`',
                    _ => {
                        let message = format!("escape={value}: it is \\ or `");
                        return Err(Problem::new(number(index), message));
                    }
                };
            }
            seen.push(name);
        }
        Ok(())
    }

    /// The next line with its continuation lines, and its number.
    fn logical_line(&mut self) -> Option<(u32, String)> {
        while is_empty(self.lines.get(self.next)?) {
            self.next += 1;
        }
        let line = number(self.next);
        let mut text = String::new();
        while let Some(part) = self.lines.get(self.next) {
            self.next += 1;
            // Comments and empty lines do not end a continued instruction.
            if !text.is_empty() && is_empty(part) {
                continue;
            }
            let part = if text.is_empty() {
                part.trim_start()
            } else {
                part
            };
            let Some(part) = self.continued(part) else {
                text.push_str(part);
                break;
            };
            text.push_str(part);
        }
        Some((line, text))
    }

    /// The line without its escape character, if it continues: one such character, not two.
    fn continued(&self, line: &'a str) -> Option<&'a str> {
        let before = line
            .trim_end_matches([' ', '\t'])
            .strip_suffix(self.escape)?;
        (!before.ends_with(self.escape)).then_some(before)
    }

    fn instruction(&mut self, line: u32, text: &str) -> Result<Instruction, Problem> {
        let (keyword, rest) = match text.split_once(char::is_whitespace) {
            Some((keyword, rest)) => (keyword, rest.trim()),
            None => (text.trim_end(), ""),
        };
        let keyword = keyword.to_ascii_uppercase();
        if !KEYWORDS.contains(&keyword.as_str()) {
            let shown: String = keyword.chars().take(40).collect();
            let problem = Problem::new(line, format!("{shown} is no instruction"));
            return Err(match nearest(&keyword, KEYWORDS) {
                Some(near) => problem.with_hint(format!("Did you mean {near}?")),
                None => problem,
            });
        }
        let (flags, rest) = words::flags(rest, self.escape);
        if rest.is_empty() {
            return Err(Problem::new(
                line,
                format!("{keyword} of what? Nothing follows it"),
            ));
        }
        let mut heredocs = Vec::new();
        if ["RUN", "COPY", "ADD"].contains(&keyword.as_str()) && !rest.starts_with('[') {
            for marker in heredoc::markers(&rest, self.escape) {
                heredocs.push(self.heredoc(line, marker)?);
            }
        }
        Ok(Instruction {
            line,
            keyword,
            flags,
            rest,
            heredocs,
        })
    }

    /// Reads the lines of a heredoc up to its delimiter.
    fn heredoc(&mut self, line: u32, marker: Marker) -> Result<Heredoc, Problem> {
        let mut body = String::new();
        while let Some(text) = self.lines.get(self.next) {
            self.next += 1;
            let text = if marker.chomp {
                text.trim_start_matches('\t')
            } else {
                text
            };
            if text == marker.name {
                return Ok(Heredoc {
                    name: marker.name,
                    body,
                    expand: marker.expand,
                });
            }
            body.push_str(text);
            body.push('\n');
        }
        let message = format!("<<{0} has no end: no line is {0} alone", marker.name);
        Err(Problem::new(line, message))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rests(text: &str) -> Vec<(u32, String, String)> {
        let parsed = parse(text).unwrap();
        let all = parsed.instructions.into_iter();
        all.map(|one| (one.line, one.keyword, one.rest)).collect()
    }

    fn one(line: u32, keyword: &str, rest: &str) -> (u32, String, String) {
        (line, keyword.to_owned(), rest.to_owned())
    }

    #[test]
    fn lines_go_on_over_comments_and_keep_their_numbers() {
        let text = "\u{feff}# syntax=docker/dockerfile:1\n\n  from a\n\nrun one \\\n# no\n\n  two \\  \n three\nUSER x\n";
        assert_eq!(
            rests(text),
            [
                one(3, "FROM", "a"),
                one(5, "RUN", "one   two  three"),
                one(10, "USER", "x"),
            ]
        );
    }

    #[test]
    fn an_escape_is_what_the_directive_says_and_two_end_the_line() {
        let text = "# escape=`\nFROM a\nRUN x `\n y\\\nRUN z\n";
        assert_eq!(
            rests(text),
            [
                one(2, "FROM", "a"),
                one(3, "RUN", "x  y\\"),
                one(5, "RUN", "z")
            ]
        );
        assert_eq!(rests("FROM a\nRUN x \\\\\nRUN y").len(), 3);
        assert_eq!(parse("# escape=x\nFROM a").unwrap_err().line, 1);
        // After a comment, a directive is only a comment.
        assert_eq!(parse("# hello\n# escape=x\nFROM a").unwrap().escape, '\\');
    }

    #[test]
    fn heredocs_end_where_their_names_stand_alone() {
        let text = "FROM a\nRUN cat <<A > f && cat <<-'B'\n# $x \\\nA\n\tb\n\tB\nUSER x\n";
        let parsed = parse(text).unwrap();
        let run = &parsed.instructions[1];
        assert_eq!(run.rest, "cat <<A > f && cat <<-'B'");
        assert_eq!(run.heredocs[0].body, "# $x \\\n");
        assert_eq!(run.heredocs[1].body, "b\n");
        assert!(run.heredocs[0].expand && !run.heredocs[1].expand);
        assert_eq!(parsed.instructions[2].line, 7);
        let problem = parse("FROM a\nRUN <<A\nx\n").unwrap_err();
        assert_eq!(problem.line, 2);
    }

    #[test]
    fn flags_stand_before_the_rest() {
        let parsed = parse("FROM a\nCOPY --from=b --link a --c d\n").unwrap();
        let copy = &parsed.instructions[1];
        let flag = |name: &str, value: Option<&str>| (name.to_owned(), value.map(str::to_owned));
        assert_eq!(copy.flags, [flag("from", Some("b")), flag("link", None)]);
        assert_eq!(copy.rest, "a --c d");
    }

    #[test]
    fn what_is_no_instruction_is_refused_by_line() {
        let problem = parse("FROM a\n\nCPOY a b\n").unwrap_err();
        assert_eq!(
            (problem.line, problem.hint.as_deref()),
            (3, Some("Did you mean COPY?"))
        );
        assert_eq!(parse("# nothing\n").unwrap_err().line, 0);
        assert_eq!(parse("FROM a\nRUN\n").unwrap_err().line, 2);
    }

    proptest! {
        #[test]
        fn no_text_makes_parsing_fail(text in "(FROM|RUN|COPY|\\n|\\\\|<<A|A|#|=|[ \t'\"$\\{\\}a-z\\[\\]-]){0,40}") {
            if let Ok(parsed) = parse(&text) {
                let lines = u32::try_from(text.lines().count()).unwrap();
                prop_assert!(parsed.instructions.iter().all(|one| one.line >= 1 && one.line <= lines));
                let ordered = parsed.instructions.windows(2).all(|two| two[0].line < two[1].line);
                prop_assert!(ordered);
            }
        }
    }
}
