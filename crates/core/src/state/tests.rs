use proptest::prelude::*;

use super::*;
use crate::snapshot::Contents;

fn checkpoint() -> Saved {
    Saved {
        contents: Contents::Memory,
        runtime: "runsc".parse().unwrap(),
        freeze: Duration::from_millis(7),
        memory_bytes: 1,
        file_bytes: 2,
        copied: "reflink".to_owned(),
    }
}

fn input() -> impl Strategy<Value = Input> {
    prop_oneof![
        Just(Input::Pause),
        Just(Input::Resume),
        Just(Input::Park),
        Just(Input::Wake),
        Just(Input::Snapshot),
        Just(Input::Ready),
        Just(Input::Paused(checkpoint())),
        Just(Input::PauseFailed),
        Just(Input::ResumeFailed),
        Just(Input::SnapshotEnded),
        Just(Input::Failed(FailReason::Exited)),
        Just(Input::Failed(FailReason::OutOfMemory)),
        Just(Input::Failed(FailReason::OutOfDisk)),
        Just(Input::Cleared),
        Just(Input::Kill(KillReason::TimedOut)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn every_sequence_stays_in_the_table_and_a_kill_ends_in_terminated(
        inputs in prop::collection::vec(input(), 0..40),
    ) {
        let mut state = State::Creating;
        for input in &inputs {
            let before = state.kind();
            match state.on(input) {
                Ok(next) => {
                    let listed = TRANSITIONS.contains(&(before, input.kind(), next.kind()));
                    prop_assert!(listed || next == state, "{before} {input:?} {next:?}");
                    state = next;
                }
                Err(refused) => {
                    prop_assert!(input.kind().is_command());
                    prop_assert_eq!(refused.state, before);
                }
            }
        }
        let ending = state.on(&Input::Kill(KillReason::Requested)).unwrap();
        let ended = ending.on(&Input::Cleared).unwrap();
        prop_assert_eq!(ended.kind(), S::Terminated);
    }

    #[test]
    fn terminated_is_final(inputs in prop::collection::vec(input(), 0..20)) {
        let mut state = State::Terminated(KillReason::Requested);
        for input in &inputs {
            if let Ok(next) = state.on(input) {
                state = next;
            }
        }
        prop_assert_eq!(state, State::Terminated(KillReason::Requested));
    }
}

#[test]
fn a_pair_is_listed_once_so_the_answer_does_not_depend_on_order() {
    for (index, (from, on, _)) in TRANSITIONS.iter().enumerate() {
        let again = TRANSITIONS[index + 1..]
            .iter()
            .any(|(f, o, _)| f == from && o == on);
        assert!(!again, "{from} {on} is listed twice");
    }
}

#[test]
fn metrics_and_messages_name_states_and_commands_alike() {
    let names: Vec<String> = StateKind::ALL.iter().map(StateKind::to_string).collect();
    assert_eq!(
        names.join(" "),
        "creating running pausing paused resuming parking parked waking snapshotting failed \
         terminating terminated"
    );
    let commands = [
        I::Pause,
        I::Resume,
        I::Park,
        I::Wake,
        I::Snapshot,
        I::Kill,
        I::Ready,
    ];
    let names = commands.map(|command| command.to_string());
    let expected = ["pause", "resume", "park", "wake", "snapshot", "kill", "use"];
    assert_eq!(names, expected);
}

#[test]
fn every_state_except_terminated_can_be_killed() {
    for &state in StateKind::ALL {
        let killable = TRANSITIONS.contains(&(state, I::Kill, S::Terminating));
        assert_eq!(
            killable,
            !matches!(state, S::Terminating | S::Terminated),
            "{state}"
        );
    }
}

#[test]
fn the_first_reason_of_a_kill_is_kept() {
    let ending = State::Running
        .on(&Input::Kill(KillReason::TimedOut))
        .unwrap();
    let again = ending.on(&Input::Kill(KillReason::Requested)).unwrap();
    assert_eq!(
        again.on(&Input::Cleared).unwrap(),
        State::Terminated(KillReason::TimedOut)
    );
}

#[test]
fn a_command_in_the_wrong_state_is_refused_by_name() {
    let refused = State::Paused(checkpoint()).on(&Input::Pause).unwrap_err();
    assert_eq!(refused.to_string(), "cannot pause a sandbox that is paused");
}

#[test]
fn transient_states_have_a_timer_and_resting_ones_have_none() {
    for (state, transient) in [
        (State::Creating, true),
        (State::Running, false),
        (State::Pausing, true),
        (State::Paused(checkpoint()), false),
        (State::Resuming(checkpoint()), true),
        (State::Parking, true),
        (State::Parked(checkpoint()), false),
        (State::Waking(checkpoint()), true),
        (State::Snapshotting, true),
        (State::Failed(FailReason::Exited), false),
        (State::Terminating(KillReason::Requested), true),
        (State::Terminated(KillReason::Requested), false),
    ] {
        assert_eq!(state.timer().is_some(), transient, "{state:?}");
    }
}

#[test]
fn a_state_is_stored_with_its_data() {
    for state in [
        State::Running,
        State::Paused(checkpoint()),
        State::Resuming(checkpoint()),
        State::Parking,
        State::Parked(checkpoint()),
        State::Waking(checkpoint()),
        State::Failed(FailReason::Create("no room".into())),
    ] {
        let text = serde_json::to_string(&state).unwrap();
        assert_eq!(serde_json::from_str::<State>(&text).unwrap(), state);
    }
}

#[test]
fn a_resume_that_fails_keeps_the_checkpoint() {
    let paused = State::Pausing.on(&Input::Paused(checkpoint())).unwrap();
    let resuming = paused.on(&Input::Resume).unwrap();
    assert_eq!(resuming.saved(), Some(&checkpoint()));
    let again = resuming.on(&Input::ResumeFailed).unwrap();
    assert_eq!(again, State::Paused(checkpoint()));
    assert_eq!(resuming.on(&Input::Ready).unwrap().saved(), None);
}

#[test]
fn a_parked_sandbox_wakes_from_its_checkpoint_and_a_pause_keeps_it() {
    let parking = State::Running.on(&Input::Park).unwrap();
    let parked = parking.on(&Input::Paused(checkpoint())).unwrap();
    assert_eq!(parked, State::Parked(checkpoint()));
    let waking = parked.on(&Input::Wake).unwrap();
    assert_eq!(waking.on(&Input::Ready).unwrap(), State::Running);
    let again = waking.on(&Input::ResumeFailed).unwrap();
    assert_eq!(again, State::Parked(checkpoint()));
    let paused = parked.on(&Input::Pause).unwrap();
    assert_eq!(paused, State::Paused(checkpoint()));
    assert_eq!(parking.on(&Input::PauseFailed).unwrap(), State::Running);
    for state in [parking, parked, waking] {
        assert!(state.shows_running() && state.is_parked() && !state.is_running());
    }
    assert!(!State::Pausing.shows_running() && State::Snapshotting.shows_running());
}

/// The form of earlier versions, whose databases are still read.
#[test]
fn a_stored_state_has_its_checkpoint_beside_it() {
    let text = serde_json::to_value(State::Paused(checkpoint())).unwrap();
    assert_eq!(text["state"], serde_json::json!({"state": "paused"}));
    assert_eq!(text["saved"]["copied"], "reflink");
    let failed = serde_json::to_value(State::Failed(FailReason::Exited)).unwrap();
    assert_eq!(
        failed,
        serde_json::json!({"state": {"state": "failed", "reason": {"kind": "exited"}}, "saved": null})
    );
    let without = serde_json::json!({"state": {"state": "paused"}});
    let refused = serde_json::from_value::<State>(without).unwrap_err();
    assert!(refused.to_string().contains("no checkpoint"), "{refused}");
}
