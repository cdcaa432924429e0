//! Error details, and who may see them.
//!
//! The text of an error (its `Display`) may be shown to tenants, so it contains no path and no
//! program's output. Those are in the error's source, which is only logged. An operator gets
//! [`Chain`], the text with its sources.

use std::error::Error;
use std::fmt;

/// The machine's account of a failure, with paths: for the log and for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostDetail(String);

impl HostDetail {
    /// Wraps the text.
    #[must_use]
    pub fn new(said: impl ToString) -> Self {
        Self(said.to_string())
    }
}

impl fmt::Display for HostDetail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for HostDetail {}

/// Displays an error with its sources, for the log.
#[derive(Debug, Clone, Copy)]
pub struct Chain<'a>(pub &'a (dyn Error + 'a));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = self.0.to_string();
        f.write_str(&said)?;
        let mut source = self.0.source();
        while let Some(error) = source {
            let text = error.to_string();
            // Some errors include their source in their own text.
            if !said.contains(&text) {
                write!(f, ": {text}")?;
                said = text;
            }
            source = error.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot mount the root")]
    struct Outer(#[source] HostDetail);

    #[test]
    fn the_text_is_for_everybody_and_the_chain_for_the_log() {
        let error = Outer(HostDetail::new("mount /srv/x: EBUSY"));
        assert_eq!(error.to_string(), "cannot mount the root");
        let logged = Chain(&error).to_string();
        assert_eq!(logged, "cannot mount the root: mount /srv/x: EBUSY");
        let alone = HostDetail::new("said once");
        assert_eq!(Chain(&alone).to_string(), "said once");
    }
}
