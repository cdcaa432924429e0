//! Steps of a build.

use std::fmt;
use std::str::FromStr;

/// A step of a build, as the field `step` encodes it.
///
/// In the main stage it is `base`, `finalize` or the number of the step from 1, as in E2B. In other
/// stages these are prefixed by `stages/<index>/`, with the index from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place {
    /// Index into [`BuildStart::stages`](super::BuildStart::stages); `None` for the main stage.
    pub stage: Option<usize>,
    /// Part of the stage.
    pub part: Part,
}

/// A part of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// Preparation of the base.
    Base,
    /// A step, by its number from 1.
    Step(usize),
    /// After the last step: start command, ready command, snapshot.
    Finalize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(stage) = self.stage {
            write!(f, "stages/{stage}/")?;
        }
        match self.part {
            Part::Base => f.write_str("base"),
            Part::Step(number) => write!(f, "{number}"),
            Part::Finalize => f.write_str("finalize"),
        }
    }
}

/// Invalid step.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid build step {0:?}: expected base, finalize or a number from 1")]
pub struct InvalidPlace(String);

impl FromStr for Place {
    type Err = InvalidPlace;

    fn from_str(text: &str) -> Result<Self, InvalidPlace> {
        let refused = || InvalidPlace(text.to_owned());
        let (stage, part) = match text.strip_prefix("stages/") {
            None => (None, text),
            Some(rest) => {
                let (stage, part) = rest.split_once('/').ok_or_else(refused)?;
                (Some(stage.parse().map_err(|_| refused())?), part)
            }
        };
        let part = match part {
            "base" => Part::Base,
            "finalize" => Part::Finalize,
            number => match number.parse() {
                Ok(number) if number > 0 => Part::Step(number),
                _ => return Err(refused()),
            },
        };
        Ok(Self { stage, part })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_is_written() {
        for text in ["base", "finalize", "1", "17", "stages/0/base", "stages/2/3"] {
            assert_eq!(text.parse::<Place>().unwrap().to_string(), text);
        }
        for bad in ["", "0", "-1", "stages/1", "stages/x/1", "stages/1/", "Base"] {
            assert!(bad.parse::<Place>().is_err(), "{bad}");
        }
    }
}
