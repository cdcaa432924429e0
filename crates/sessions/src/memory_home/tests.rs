//! The rules of the port, on which other tests rely.

use shoal_core::session::interrupted::is_interrupted;
use shoal_core::session::returning::FILE_MAX;

use super::*;

fn path(text: &str) -> SessionPath {
    text.parse().unwrap()
}

fn writing(at: &str, expected: Option<&[u8]>, contents: &'static [u8]) -> HomeChange {
    HomeChange {
        path: path(at),
        expected: expected.map(digest),
        file: Some(HomeFile {
            contents: Bytes::from_static(contents),
            executable: false,
        }),
    }
}

/// The events up to a flush.
async fn until(events: &mut HomeEvents, flush: u64) -> Vec<HomeEvent> {
    let mut seen = Vec::new();
    loop {
        match events.next().await.unwrap().unwrap() {
            HomeEvent::Settled(number) if number >= flush => return seen,
            event => seen.push(event),
        }
    }
}

#[tokio::test]
async fn what_happens_inside_is_told_and_what_comes_from_outside_is_not() {
    let home = MemoryHome::default();
    assert!(home.write(&path("a"), b"1") && !home.write(&path("a/b"), b"1"));
    let mut events = home.watch(FILE_MAX).await.unwrap();
    assert_eq!(until(&mut events, 0).await.len(), 1);
    let outcomes = home.apply(vec![
        writing("a", Some(b"1"), b"2"),
        writing("a", Some(b"1"), b"3"),
        writing("a/b", None, b"4"),
        writing("n/b", None, b"4"),
    ]);
    let outcomes = outcomes.await.unwrap();
    assert!(matches!(
        outcomes[..],
        [
            Applied::Done,
            Applied::Differs(Some(_)),
            Applied::Failed(_),
            Applied::Done
        ]
    ));
    assert!(home.rename(&path("n/b"), &path("n/c.txt")));
    assert!(home.write(&path(".gitignore"), b"a\n"));
    assert!(home.write(&path("node_modules/x"), b""));
    let flush = home.flush().await.unwrap();
    let told = until(&mut events, flush).await;
    let withheld = HomeEvent::Withheld { path: path("a") };
    let absent = HomeEvent::Absent { path: path("n/b") };
    assert!(told.contains(&withheld) && told.contains(&absent) && told.len() == 4);
    home.remove(&path("n"));
    home.tell();
    let absent = HomeEvent::Absent {
        path: path("n/c.txt"),
    };
    assert_eq!(events.next().await.unwrap().unwrap(), absent);
    home.break_watch();
    assert!(events.next().await.unwrap().is_err() && home.flush().await.is_err());
}

#[tokio::test]
async fn a_call_fails_where_the_test_says() {
    let home = MemoryHome::default();
    let both = || {
        vec![
            writing("a", None, b"new"),
            writing("b", Some(b"older"), b"new"),
        ]
    };
    for (fault, a, b) in [
        (Fault::Before, None, b"older".as_slice()),
        (Fault::After(1), Some(b"new".as_slice()), b"older"),
        (Fault::After(2), Some(b"new"), b"new"),
        (Fault::Within(1, 2), Some(b"new"), b"neder"),
    ] {
        home.remove(&path("a"));
        home.write(&path("b"), b"older");
        home.fail_next(fault);
        assert!(home.apply(both()).await.is_err());
        let files = home.files();
        assert_eq!(
            files.get(&path("a")).map(|bytes| &bytes[..]),
            a,
            "{fault:?}"
        );
        assert_eq!(files[&path("b")], b, "{fault:?}");
        assert!(is_interrupted(Some(b"older"), b"new", &files[&path("b")]));
    }
    assert!(matches!(
        home.look(vec![path("b")]).await.unwrap()[..],
        [Found::File(_)]
    ));
    assert_eq!(home.read(path("b")).await.unwrap().size, Some(5));
}
