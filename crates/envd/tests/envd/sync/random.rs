//! Random changes on both sides: the reported state is the real one.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use shoal_core::ports::inside::home::Applied;
use shoal_core::session::path::SessionPath;
use shoal_core::session::returning::{self, FILE_MAX};

use super::{Watched, digest, removing, writing};
use crate::daemon::{Daemon, daemon};

/// Names that collide often: files and directories, some of which never return.
const NAMES: [&str; 6] = ["a", "b", "c.txt", "node_modules", "d.o", "e"];

#[derive(Debug, Clone)]
enum Step {
    Write(String, &'static str),
    /// Writes another file and renames it to here, as editors do.
    Replace(String, &'static str),
    Remove(String),
    Rename(String, String),
    Outside(String, &'static str),
    OutsideRemove(String),
    Flush,
}

fn places() -> impl Strategy<Value = String> {
    let name = prop::sample::select(&NAMES[..]);
    prop::collection::vec(name, 1..4).prop_map(|names| names.join("/"))
}

fn texts() -> impl Strategy<Value = &'static str> {
    prop::sample::select(
        &[
            "",
            "one",
            "two\n",
            "a longer text than the others",
            "bin\0ary",
        ][..],
    )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (places(), texts()).prop_map(|(at, text)| Step::Write(at, text)),
        2 => (places(), texts()).prop_map(|(at, text)| Step::Replace(at, text)),
        2 => places().prop_map(Step::Remove),
        3 => (places(), places()).prop_map(|(from, to)| Step::Rename(from, to)),
        3 => (places(), texts()).prop_map(|(at, text)| Step::Outside(at, text)),
        2 => places().prop_map(Step::OutsideRemove),
        2 => Just(Step::Flush),
    ]
}

/// The files below a directory that return.
fn returning(home: &Path, at: &str, all: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(home.join(at)).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let path = SessionPath::join(at, &name).unwrap();
        if home.join(path.as_str()).is_dir() {
            returning(home, path.as_str(), all);
            continue;
        }
        let contents = fs::read(home.join(path.as_str())).unwrap();
        let size = contents.len() as u64;
        if returning::may_return(&path, size, FILE_MAX) && returning::returns(&path, &contents) {
            all.insert(path.into(), contents);
        }
    }
}

/// Does what the step does inside, if it can be done.
fn inside(watched: &Watched, home: &Path, step: &Step) {
    let is_below_a_file = |at: &str| {
        Path::new(at)
            .ancestors()
            .skip(1)
            .any(|up| home.join(up).is_file())
    };
    match step {
        Step::Write(at, text) if !is_below_a_file(at) && !home.join(at).is_dir() => {
            watched.write(at, text);
        }
        Step::Replace(at, text) if !is_below_a_file(at) && !home.join(at).is_dir() => {
            watched.write("tmp/other", text);
            watched.write(at, "");
            fs::rename(home.join("tmp/other"), home.join(at)).unwrap();
        }
        Step::Remove(at) => {
            let _ = fs::remove_file(home.join(at)).or_else(|_| fs::remove_dir_all(home.join(at)));
        }
        Step::Rename(from, to) => {
            let _ = fs::rename(home.join(from), home.join(to));
        }
        _ => {}
    }
}

async fn run(daemon: &Daemon, steps: Vec<Step>) {
    let home = daemon.home();
    let mut watched = Watched::start(daemon).await;
    for step in steps.iter().chain([&Step::Flush]) {
        inside(&watched, &home, step);
        let at = match step {
            Step::Outside(at, _) | Step::OutsideRemove(at) => at,
            Step::Flush => {
                watched.settle().await;
                let mut there = BTreeMap::new();
                returning(&home, "", &mut there);
                let told: BTreeMap<_, _> = watched
                    .known
                    .iter()
                    .map(|(at, state)| (at.clone(), state.0))
                    .collect();
                let there = there.iter().map(|(at, text)| (at.clone(), digest(text)));
                assert_eq!(told, there.collect(), "{steps:?}");
                continue;
            }
            _ => continue,
        };
        // The sandbox's events first, so that the change is based on them.
        watched.settle().await;
        let old = fs::read_to_string(home.join(at)).ok();
        let change = match (step, &old) {
            (Step::Outside(at, text), _) => writing(at, old.as_deref(), text),
            (_, Some(old)) => removing(at, old),
            (_, None) => continue,
        };
        let outcome = watched.apply(vec![change.clone()]).await.remove(0);
        if outcome != Applied::Done {
            assert!(
                matches!(outcome, Applied::Failed(_)),
                "{outcome:?} of {step:?}"
            );
            continue;
        }
        let present = change.file.map(|file| file.contents);
        assert_eq!(fs::read(home.join(at)).ok(), present.clone().map(Vec::from));
        // The caller knows what it did; only what returns is compared.
        let size = |contents: &[u8]| contents.len() as u64;
        let returns = present.filter(|contents| {
            returning::may_return(&change.path, size(contents), FILE_MAX)
                && returning::returns(&change.path, contents)
        });
        match returns {
            Some(contents) => watched.known.insert(at.clone(), (digest(contents), false)),
            None => watched.known.remove(at),
        };
    }
}

#[test]
fn what_was_told_is_what_is_there() {
    let daemon = daemon!();
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    let config = Config {
        cases: 40,
        failure_persistence: None,
        ..Config::default()
    };
    let mut runner = TestRunner::new(config);
    let outcome = runner.run(&prop::collection::vec(step(), 1..40), |steps| {
        for entry in fs::read_dir(daemon.home()).unwrap() {
            let at = entry.unwrap().path();
            let _ = fs::remove_file(&at).or_else(|_| fs::remove_dir_all(&at));
        }
        runtime.block_on(run(&daemon, steps));
        Ok(())
    });
    outcome.unwrap();
}

#[tokio::test]
async fn a_storm_of_changes_is_told_to_its_end() {
    let daemon = daemon!();
    let mut watched = Watched::start(&daemon).await;
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let home = daemon.home();
            std::thread::spawn(move || {
                let mut runner = TestRunner::new(Config::default());
                let places = places();
                let mut place = move || places.new_tree(&mut runner).unwrap().current();
                for round in 0..1_500 {
                    let (at, to) = (home.join(place()), home.join(place()));
                    // Others do the same; what cannot be done is not done.
                    let _ = match round % 5 {
                        0 => fs::create_dir_all(&at),
                        1 | 2 => fs::write(&at, format!("{round}")),
                        3 => fs::rename(&at, &to),
                        _ => fs::remove_file(&at).or_else(|_| fs::remove_dir_all(&at)),
                    };
                }
            })
        })
        .collect();
    while threads.iter().any(|thread| !thread.is_finished()) {
        watched.settle().await;
    }
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    watched.settle().await;
    let mut there = BTreeMap::new();
    returning(&daemon.home(), "", &mut there);
    let told = watched
        .known
        .iter()
        .map(|(at, state)| (at.clone(), state.0));
    let there = there.iter().map(|(at, text)| (at.clone(), digest(text)));
    assert_eq!(told.collect::<BTreeMap<_, _>>(), there.collect());
}
