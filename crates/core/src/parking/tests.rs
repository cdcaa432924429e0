use proptest::prelude::*;

use super::*;

const IDLE: MilliCpu = MilliCpu(40);

fn at(millis: i64) -> Timestamp {
    Timestamp::from_unix_millis(millis)
}

fn rules() -> ParkingRules {
    ParkingRules {
        after: Duration::from_secs(60),
        backoff: 8,
        disk_room: Mib(1),
    }
}

fn facts(now: i64) -> Facts {
    Facts {
        now: at(now),
        since: at(0),
        keeps_memory: true,
        ends_at: None,
        memory: 1 << 20,
        room: None,
    }
}

fn reading(millis: i64, nanos: u64) -> CpuReading {
    CpuReading {
        at: at(millis),
        execution: ExecutionId::from_entropy([1; 16]),
        nanos,
    }
}

/// An activity that was read as quiet from 0 to `millis`, every five seconds.
fn quiet(millis: i64) -> Activity {
    let mut activity = Activity::default();
    for n in 0..=millis / 5000 {
        // 4 % of a processor, as gVisor uses.
        let nanos = u64::try_from(n).unwrap() * 200_000_000;
        activity.read(reading(n * 5000, nanos), IDLE, rules().look_every());
    }
    activity
}

#[test]
fn an_idle_sandbox_is_parked_after_the_time_and_not_before() {
    let rules = rules();
    assert_eq!(rules.judge(&quiet(60_000), &facts(60_000)), Ok(()));
    let early = rules.judge(&quiet(60_000), &facts(59_999));
    assert_eq!(early, Err(Stays::TooRecent));
    let unread = rules.judge(&Activity::default(), &facts(1_000_000));
    assert_eq!(
        unread,
        Err(Stays::TooRecent),
        "its processor time is not known"
    );
}

#[test]
fn each_fact_alone_keeps_a_sandbox_running() {
    let (rules, idle, known) = (rules(), quiet(60_000), facts(60_000));
    let cannot = Facts {
        keeps_memory: false,
        ..known
    };
    assert_eq!(rules.judge(&idle, &cannot), Err(Stays::CannotSave));
    let ends = Facts {
        ends_at: Some(at(69_000)),
        ..known
    };
    assert_eq!(rules.judge(&idle, &ends), Err(Stays::EndsSoon));
    let full = Facts {
        room: Some((2 << 20) - 1),
        ..known
    };
    assert_eq!(rules.judge(&idle, &full), Err(Stays::NoRoom));
    let fits = Facts {
        room: Some(2 << 20),
        ends_at: Some(at(70_000)),
        ..known
    };
    assert_eq!(rules.judge(&idle, &fits), Ok(()));
    let mut used = idle.clone();
    assert!(used.enter());
    assert_eq!(rules.judge(&used, &known), Err(Stays::Used));
    used.leave(at(60_000));
    assert_eq!(rules.judge(&used, &known), Err(Stays::TooRecent));
    let mut failed = idle;
    failed.failed(at(59_000), &rules);
    assert_eq!(rules.judge(&failed, &known), Err(Stays::TooRecent));
}

#[test]
fn a_busy_sandbox_is_not_idle_although_nobody_asks_it_anything() {
    let mut activity = quiet(30_000);
    // 11 % of a processor for five seconds.
    activity.read(
        reading(35_000, 1_200_000_000 + 550_000_000),
        IDLE,
        rules().look_every(),
    );
    assert_eq!(activity.idle_since(at(0)), Some(at(35_000)));
    // Another run begins to count at zero.
    let other = CpuReading {
        execution: ExecutionId::from_entropy([2; 16]),
        ..reading(40_000, 0)
    };
    activity.read(other, IDLE, rules().look_every());
    assert_eq!(activity.idle_since(at(0)), Some(at(40_000)));
    // Too long after the last reading: it may have been busy meanwhile.
    let late = CpuReading {
        at: at(90_000),
        ..other
    };
    activity.read(late, IDLE, rules().look_every());
    assert_eq!(activity.idle_since(at(0)), Some(at(90_000)));
}

#[test]
fn nobody_enters_while_a_sandbox_is_being_parked() {
    let mut activity = quiet(60_000);
    assert!(activity.close() && !activity.close() && !activity.enter());
    activity.reopen();
    assert!(activity.enter() && !activity.close());
    assert_eq!(activity.open(), 1);
}

#[test]
fn programs_and_connections_inside_keep_a_sandbox_running() {
    assert!(Inside::default().is_idle());
    for (programs, connections) in [(1, 0), (0, 1)] {
        let inside = Inside {
            programs,
            connections,
        };
        assert!(!inside.is_idle());
    }
}

#[test]
fn a_sandbox_that_is_woken_often_is_parked_less_and_less() {
    let rules = rules();
    let mut activity = Activity::default();
    let mut times = Vec::new();
    for _ in 0..5 {
        times.push(rules.idle_time(activity.short_parks).as_secs());
        activity.woken(Duration::from_secs(1), &rules);
    }
    assert_eq!(times, [60, 120, 240, 480, 480], "eight times at most");
    for _ in 0..3 {
        activity.woken(Duration::from_secs(3600), &rules);
    }
    assert_eq!(rules.idle_time(activity.short_parks), rules.after);
}

/// A step in the life of a sandbox.
#[derive(Debug, Clone)]
enum Step {
    Enter,
    Leave,
    Touch,
    Read(u64),
    Woken(u64),
    Failed,
    Pass(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        Just(Step::Enter),
        Just(Step::Leave),
        Just(Step::Touch),
        (0..2_000_000_000u64).prop_map(Step::Read),
        (0..10_000u64).prop_map(Step::Woken),
        Just(Step::Failed),
        (1..40_000u32).prop_map(Step::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn only_what_was_unused_for_the_whole_time_is_parked(
        steps in prop::collection::vec(step(), 0..60),
        backoff in 0..40u32,
    ) {
        let rules = ParkingRules { backoff, ..rules() };
        let (mut activity, mut now, mut nanos) = (Activity::default(), 0i64, 0u64);
        let (mut open, mut last_used) = (0usize, 0i64);
        for step in steps {
            match step {
                Step::Enter => {
                    prop_assert!(activity.enter());
                    open += 1;
                }
                Step::Leave if open > 0 => {
                    activity.leave(at(now));
                    open -= 1;
                    last_used = now;
                }
                Step::Leave => {}
                Step::Touch => {
                    activity.touch(at(now));
                    last_used = now;
                }
                Step::Read(more) => {
                    nanos += more;
                    activity.read(reading(now, nanos), IDLE, rules.look_every());
                }
                Step::Woken(seconds) => activity.woken(Duration::from_secs(seconds), &rules),
                Step::Failed => activity.failed(at(now), &rules),
                Step::Pass(millis) => now += i64::from(millis),
            }
            let required = rules.idle_time(activity.short_parks);
            prop_assert!(required >= rules.after && required <= rules.after * backoff.max(1));
            if rules.judge(&activity, &facts(now)).is_ok() {
                prop_assert_eq!(open, 0);
                prop_assert!(at(now).since(at(last_used)) >= required);
                // A sandbox that may be parked now may be parked later, if nothing happens.
                prop_assert!(rules.judge(&activity, &facts(now + 1)).is_ok());
            }
        }
    }
}
