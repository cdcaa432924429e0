//! Arguments of instructions: flags, JSON arrays, names with values.

use super::{Instruction, Problem, words};

/// A flag that an instruction supports.
pub(super) struct Allowed {
    /// Its name.
    pub(super) name: &'static str,
    /// How it is handled.
    pub(super) what: What,
}

/// How a flag is handled.
pub(super) enum What {
    /// It is applied.
    Take,
    /// It is ignored, because it has no effect on the result.
    Pass,
    /// It is refused, for this reason.
    Refuse(&'static str),
}

impl Instruction {
    /// The flags to apply. Others are ignored or refused.
    pub(super) fn flags(&self, allowed: &[Allowed]) -> Result<Vec<(&str, &str)>, Problem> {
        let mut taken: Vec<(&str, &str)> = Vec::new();
        for (name, value) in &self.flags {
            let Some(known) = allowed.iter().find(|known| known.name == name) else {
                return Err(self.problem(format!("--{name} is no flag of it")));
            };
            match known.what {
                What::Take => {
                    let value = value.as_deref().filter(|value| !value.is_empty());
                    let Some(value) = value else {
                        return Err(self.problem(format!("--{name} has no value")));
                    };
                    if name != "mount" && taken.iter().any(|(other, _)| other == name) {
                        return Err(self.problem(format!("--{name} is there twice")));
                    }
                    taken.push((name, value));
                }
                What::Pass => {}
                What::Refuse(why) => {
                    let problem = self.problem(format!("--{name} is not supported"));
                    return Err(problem.with_hint(why));
                }
            }
        }
        Ok(taken)
    }

    /// The rest as a JSON array of strings, if it is one.
    pub(super) fn json(&self) -> Option<Vec<String>> {
        if !self.rest.starts_with('[') {
            return None;
        }
        serde_json::from_str(&self.rest).ok()
    }

    /// The rest as names with unexpanded values: `A=1 B="2 3"`, or the legacy form `A 1 2`.
    pub(super) fn pairs(&self, escape: char) -> Result<Vec<(String, String)>, Problem> {
        let all = words::split(&self.rest, escape);
        if all.first().is_some_and(|first| !first.contains('=')) {
            let Some((name, value)) = self.rest.split_once(char::is_whitespace) else {
                return Err(self.problem(format!("{} has no value: say NAME=VALUE", self.rest)));
            };
            return Ok(vec![(name.to_owned(), value.trim_start().to_owned())]);
        }
        all.into_iter()
            .map(|word| match word.split_once('=') {
                Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
                None => Err(self
                    .problem(format!("{word} is not NAME=VALUE"))
                    .with_hint("A value with blanks stands between quotes.")),
            })
            .collect()
    }
}

/// Quotes words so that a shell reads them unchanged.
pub(super) fn quoted(words: &[String]) -> String {
    let plain = |word: &str| {
        let safe = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
        !word.is_empty() && word.chars().all(safe)
    };
    let quote = |word: &String| {
        if plain(word) {
            return word.clone();
        }
        format!("'{}'", word.replace('\'', r"'\''"))
    };
    words.iter().map(quote).collect::<Vec<_>>().join(" ")
}
