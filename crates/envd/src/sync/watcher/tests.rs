use super::super::table::Counter;
use super::*;

/// The lines up to a flush.
fn until(lines: &mut mpsc::Receiver<Bytes>, flush: u64) -> Vec<WatchLine> {
    let mut seen = Vec::new();
    loop {
        let piece = lines.blocking_recv().unwrap();
        for line in piece
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
        {
            seen.push(serde_json::from_slice(line).unwrap());
        }
        let last = seen.last();
        if matches!(last, Some(WatchLine::Settled { flush: told, .. }) if *told >= flush) {
            return seen;
        }
    }
}

#[test]
fn a_kernel_that_tells_nothing_is_told_of_and_done_without() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("d")).unwrap();
    std::fs::write(dir.path().join("d/a"), "1").unwrap();
    let home = Home::open(dir.path(), rustix::process::geteuid().as_raw()).unwrap();
    let control = Arc::new(Control::new().unwrap());
    let table = Arc::new(Mutex::new(Table::new(Counter::default())));
    let (sender, mut lines) = mpsc::channel(4);
    let path = dir.path().to_owned();
    let mut watcher = Watcher::new(home, path, 1 << 20, table, control.clone(), sender);
    watcher.notifier = Notifier::blind();
    let thread = std::thread::spawn(move || watcher.run());
    let first = until(&mut lines, 0);
    let limits = |line: &&WatchLine| matches!(line, WatchLine::Limited { path: None, .. });
    assert_eq!(first.iter().filter(limits).count(), 1, "{first:?}");
    std::fs::remove_file(dir.path().join("d/a")).unwrap();
    std::fs::write(dir.path().join("d/b"), "2").unwrap();
    let flush = control.flush().unwrap();
    let [
        WatchLine::Present { path: made, .. },
        WatchLine::Absent { path: gone, .. },
        _,
    ] = &until(&mut lines, flush)[..]
    else {
        panic!("something else was told");
    };
    assert_eq!((made.as_str(), gone.as_str()), ("d/b", "d/a"));
    // And without a flush, some time later.
    std::fs::write(dir.path().join("d/c"), "3").unwrap();
    assert!(
        lines
            .blocking_recv()
            .unwrap()
            .starts_with(b"{\"event\":\"present\"")
    );
    control.end();
    assert!(matches!(thread.join().unwrap(), WatchEnd::Closed));
    assert_eq!(control.flush(), None);
}
