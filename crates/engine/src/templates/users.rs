//! The sandboxes that keep a template from being removed.

use std::fmt;

use shoal_core::id::SandboxId;

/// How many ids an error names.
const SHOWN: usize = 10;

/// The sandboxes that keep a template from being removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Users {
    /// Those of the caller's team.
    pub own: Vec<SandboxId>,
    /// How many there are of other teams, whose ids are not the caller's to see.
    pub others: usize,
}

impl fmt::Display for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.own.len() + self.others;
        write!(f, "{total} sandbox{}", if total == 1 { "" } else { "es" })?;
        let shown: Vec<&str> = self.own.iter().take(SHOWN).map(SandboxId::as_str).collect();
        if shown.is_empty() {
            return f.write_str(" of other teams");
        }
        write!(f, " ({}", shown.join(", "))?;
        match total - shown.len() {
            0 => f.write_str(")"),
            more => write!(f, " and {more} more)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_sandboxes_are_named_and_those_of_other_teams_are_counted() {
        let users = |own: usize, others| {
            let own = (0..own).map(|n| format!("i{n}").parse().unwrap()).collect();
            Users { own, others }.to_string()
        };
        assert_eq!(users(1, 0), "1 sandbox (i0)");
        assert_eq!(users(2, 1), "3 sandboxes (i0, i1 and 1 more)");
        assert_eq!(users(0, 2), "2 sandboxes of other teams");
        assert!(users(12, 0).ends_with("i9 and 2 more)"));
    }
}
