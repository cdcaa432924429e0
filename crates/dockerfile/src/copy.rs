//! `COPY` and `ADD`.

use shoal_protocol::build::Step;

use super::arguments::{Allowed, What};
use super::heredoc;
use super::plan::StagedStep;
use super::stage::{Around, Builder, account, unknown};
use super::{Instruction, Problem, words};

/// The owner of copied files without `--chown`: Docker's default, independent of `USER`.
const OWNER: &str = "root:root";

/// Files that a step copies from the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyFiles {
    /// The sources, in order.
    pub sources: Vec<Source>,
    /// The destination; a directory if it ends with `/`.
    pub dest: String,
    /// Whether archives are unpacked, as `ADD` does.
    pub unpacks: bool,
}

/// A source of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A path in the context, which may contain `*`, `?` and `[…]`.
    Path(String),
    /// A text in the Dockerfile.
    Inline {
        /// Its file name.
        name: String,
        /// The text.
        text: String,
    },
}

const COPY_FLAGS: [Allowed; 9] = [
    Allowed {
        name: "from",
        what: What::Take,
    },
    Allowed {
        name: "chown",
        what: What::Take,
    },
    Allowed {
        name: "chmod",
        what: What::Take,
    },
    // It affects how layers are stored, not their contents.
    Allowed {
        name: "link",
        what: What::Pass,
    },
    Allowed {
        name: "exclude",
        what: What::Refuse("Name what is not wanted in .dockerignore."),
    },
    Allowed {
        name: "parents",
        what: What::Refuse("Copy each directory to its own place."),
    },
    Allowed {
        name: "keep-git-dir",
        what: What::Refuse("Clone the repository by RUN git clone."),
    },
    Allowed {
        name: "checksum",
        what: What::Refuse("Fetch and check the file by RUN: curl, then sha256sum -c."),
    },
    Allowed {
        name: "unpack",
        what: What::Refuse("COPY the archive, then RUN tar -xf."),
    },
];

/// The options of a `COPY`.
struct CopyOptions {
    dest: String,
    owner: String,
    mode: String,
    from: Option<String>,
}

impl Builder {
    pub(super) fn copy(
        &mut self,
        instruction: &Instruction,
        around: &Around<'_>,
    ) -> Result<(), Problem> {
        let all = match instruction.json() {
            Some(words) => words,
            None => words::split(&instruction.rest, around.escape),
        };
        let Some((dest, sources)) = all.split_last().filter(|(_, sources)| !sources.is_empty())
        else {
            return Err(instruction.problem("say from where and to where"));
        };
        if heredoc::marker(dest, around.escape).is_some() {
            return Err(instruction.problem("a text cannot be where files go to"));
        }
        let said = self.copy_said(instruction, dest, sources.len(), around)?;
        let sources = self.sources(instruction, sources, around)?;
        match &said.from {
            Some(from) => self.copy_from(instruction, from, &said, sources, around),
            None => {
                self.copy_files(instruction, said, sources);
                Ok(())
            }
        }
    }

    fn copy_said(
        &self,
        instruction: &Instruction,
        dest: &str,
        sources: usize,
        around: &Around<'_>,
    ) -> Result<CopyOptions, Problem> {
        let mut dest = self.word(instruction, dest, around)?;
        if dest.is_empty() {
            return Err(instruction.problem("where the files go to comes out empty"));
        }
        if dest == "." || dest == ".." || dest.ends_with("/.") || dest.ends_with("/..") {
            dest.push('/');
        }
        if sources > 1 && !dest.ends_with('/') {
            let problem = instruction.problem(format!("several files cannot become {dest}"));
            return Err(problem.with_hint(format!("A directory ends with a slash: {dest}/")));
        }
        let mut said = CopyOptions {
            dest,
            owner: OWNER.to_owned(),
            mode: String::new(),
            from: None,
        };
        for (name, value) in instruction.flags(&COPY_FLAGS)? {
            match name {
                "from" => said.from = Some(value.to_owned()),
                "chown" => {
                    said.owner = self.word(instruction, value, around)?;
                    let mut names = said.owner.splitn(2, ':');
                    names.try_for_each(|name| account(instruction, name))?;
                }
                _ => said.mode = mode(instruction, &self.word(instruction, value, around)?)?,
            }
        }
        if said.from.is_some() && instruction.keyword == "ADD" {
            let problem = instruction.problem("--from is no flag of it");
            return Err(problem.with_hint("COPY takes files of other stages."));
        }
        Ok(said)
    }

    fn sources(
        &self,
        instruction: &Instruction,
        all: &[String],
        around: &Around<'_>,
    ) -> Result<Vec<Source>, Problem> {
        let mut heredocs = instruction.heredocs.iter();
        let mut sources = Vec::new();
        for word in all {
            if heredoc::marker(word, around.escape).is_some()
                && let Some(heredoc) = heredocs.next()
            {
                sources.push(self.inline(instruction, heredoc, around)?);
                continue;
            }
            let path = self.word(instruction, word, around)?;
            if instruction.keyword == "ADD" && is_remote(&path) {
                let problem = instruction.problem(format!("{path} is not fetched"));
                return Err(
                    problem.with_hint("Fetch it by RUN: curl -fsSL -o FILE URL, or git clone.")
                );
            }
            sources.push(Source::Path(path));
        }
        Ok(sources)
    }

    fn inline(
        &self,
        instruction: &Instruction,
        heredoc: &heredoc::Heredoc,
        around: &Around<'_>,
    ) -> Result<Source, Problem> {
        let text = if heredoc.expand {
            let text = words::expand_body(&heredoc.body, around.escape, &self.scope);
            let text = text.map_err(|why| instruction.problem(why))?;
            text.known().map_err(|name| {
                let plain = format!("To keep ${name} as it is, write <<'{}'.", heredoc.name);
                unknown(instruction, &name).with_hint(plain)
            })?
        } else {
            heredoc.body.clone()
        };
        Ok(Source::Inline {
            name: heredoc.name.clone(),
            text,
        })
    }

    fn copy_files(&mut self, instruction: &Instruction, said: CopyOptions, sources: Vec<Source>) {
        let shown = sources.iter().map(|source| match source {
            Source::Path(path) => path.as_str(),
            Source::Inline { name, .. } => name.as_str(),
        });
        let shown = shown.collect::<Vec<_>>().join(" ");
        let line = instruction.line;
        self.push_staged(StagedStep {
            line,
            step: Step {
                kind: "COPY".to_owned(),
                args: vec![shown, said.dest.clone(), said.owner, said.mode],
                line: Some(line),
                ..Step::default()
            },
            files: Some(CopyFiles {
                sources,
                dest: said.dest,
                unpacks: instruction.keyword == "ADD",
            }),
        });
    }

    /// Each source becomes a separate step: only the server knows where its files are.
    fn copy_from(
        &mut self,
        instruction: &Instruction,
        from: &str,
        said: &CopyOptions,
        sources: Vec<Source>,
        around: &Around<'_>,
    ) -> Result<(), Problem> {
        let (from_stage, from_image) = origin(instruction, from, around)?;
        for source in sources {
            let Source::Path(path) = source else {
                return Err(instruction.problem("a text does not come from a stage"));
            };
            let path = format!("/{}", path.trim_start_matches('/'));
            self.push_staged(StagedStep {
                line: instruction.line,
                step: Step {
                    kind: "COPY".to_owned(),
                    args: vec![
                        path,
                        said.dest.clone(),
                        said.owner.clone(),
                        said.mode.clone(),
                    ],
                    from_stage,
                    from_image: from_image.clone(),
                    line: Some(instruction.line),
                    ..Step::default()
                },
                files: None,
            });
        }
        Ok(())
    }
}

/// The source of `--from`: an earlier stage by name or number, otherwise an image.
fn origin(
    instruction: &Instruction,
    from: &str,
    around: &Around<'_>,
) -> Result<(Option<usize>, Option<String>), Problem> {
    if from.contains('$') {
        let problem = instruction.problem("--from takes no variables");
        return Err(problem.with_hint("Give the image a name above: FROM IMAGE AS NAME."));
    }
    let named = around
        .earlier
        .iter()
        .position(|stage| stage.is_called(from));
    if named.is_some() {
        return Ok((named, None));
    }
    match from.parse::<usize>() {
        Ok(number) if number < around.earlier.len() => Ok((Some(number), None)),
        Ok(number) => {
            Err(instruction.problem(format!("--from={number}: there is no such stage above")))
        }
        Err(_) => Ok((None, Some(from.to_owned()))),
    }
}

/// File permissions as four digits.
fn mode(instruction: &Instruction, text: &str) -> Result<String, Problem> {
    let octal = (3..=4).contains(&text.len()) && text.bytes().all(|b| (b'0'..=b'7').contains(&b));
    if octal {
        return Ok(format!("{text:0>4}"));
    }
    let problem = instruction.problem(format!("--chmod={text} is no mode"));
    Err(problem.with_hint("Say it in octal digits: 755, 0644."))
}

fn is_remote(path: &str) -> bool {
    let scheme = path.split_once("://").map(|(scheme, _)| scheme);
    let scheme = scheme.is_some_and(|scheme| {
        scheme
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    });
    scheme || path.starts_with("git@")
}
