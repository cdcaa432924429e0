//! The decision of a sync about a path that differs between a session and its machine.
//!
//! Both sides may have changed a file since they last agreed on it. No user's work is lost: a change wins over a
//! deletion, and of two changes both are kept, the machine's under another name ([`SessionPath::copy`]).
//!
//! [`SessionPath::copy`]: crate::session::path::SessionPath::copy

/// The states of one path; `None` for no file. `T` identifies contents: a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sides<T> {
    /// The state when both sides last agreed.
    pub agreed: Option<T>,
    /// The session's state.
    pub session: Option<T>,
    /// The machine's state.
    pub machine: Option<T>,
}

/// The step that makes both sides equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// None: they are equal. The agreement is noted.
    Agree,
    /// The machine gets what the session has.
    ToMachine,
    /// The session gets what the machine has.
    ToSession,
    /// The session keeps what the machine has under another name. Then the machine gets what the session has.
    KeepBoth,
}

impl<T: PartialEq> Sides<T> {
    /// The step that makes both sides equal.
    #[must_use]
    pub fn step(&self) -> Step {
        if self.session == self.machine {
            return Step::Agree;
        }
        let session_changed = self.session != self.agreed;
        let machine_changed = self.machine != self.agreed;
        match (session_changed, machine_changed) {
            (true, false) => Step::ToMachine,
            (false, _) => Step::ToSession,
            // A change wins over a deletion.
            (true, true) if self.session.is_none() => Step::ToSession,
            (true, true) if self.machine.is_none() => Step::ToMachine,
            (true, true) => Step::KeepBoth,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn step(agreed: u8, session: u8, machine: u8) -> Step {
        let file = |contents: u8| (contents > 0).then_some(contents);
        Sides {
            agreed: file(agreed),
            session: file(session),
            machine: file(machine),
        }
        .step()
    }

    #[test]
    fn r2_058_changes_and_deletions_travel_both_ways() {
        assert_eq!(step(1, 1, 1), Step::Agree);
        assert_eq!(step(0, 1, 1), Step::Agree);
        assert_eq!(step(1, 2, 1), Step::ToMachine);
        assert_eq!(step(1, 0, 1), Step::ToMachine);
        assert_eq!(step(0, 1, 0), Step::ToMachine);
        assert_eq!(step(1, 1, 2), Step::ToSession);
        assert_eq!(step(1, 1, 0), Step::ToSession);
        assert_eq!(step(0, 0, 1), Step::ToSession);
    }

    #[test]
    fn r2_059_of_two_changes_none_is_lost() {
        assert_eq!(step(1, 2, 3), Step::KeepBoth);
        assert_eq!(step(0, 2, 3), Step::KeepBoth);
        assert_eq!(step(1, 2, 0), Step::ToMachine);
        assert_eq!(step(1, 0, 2), Step::ToSession);
    }

    proptest! {
        #[test]
        fn a_step_makes_both_equal_and_loses_no_change(agreed in 0_u8..4, session in 0_u8..4, machine in 0_u8..4) {
            let (mut after, mut copy) = ([session, machine], None);
            match step(agreed, session, machine) {
                Step::Agree => {}
                Step::ToMachine => after[1] = session,
                Step::ToSession => after[0] = machine,
                Step::KeepBoth => {
                    copy = Some(machine);
                    after[1] = session;
                }
            }
            prop_assert_eq!(after[0], after[1]);
            for written in [session, machine].into_iter().filter(|one| *one > 0 && *one != agreed) {
                prop_assert!(after[0] == written || copy == Some(written));
            }
            // A second look changes nothing.
            prop_assert_eq!(step(after[0], after[0], after[1]), Step::Agree);
        }
    }
}
