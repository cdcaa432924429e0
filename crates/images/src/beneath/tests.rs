use super::*;
use std::os::unix::fs::symlink;

fn path(text: &str) -> TreePath {
    TreePath::parse(text.as_bytes()).unwrap()
}

#[test]
fn a_path_is_relative_to_its_tree_however_it_is_written() {
    for text in [
        "etc/passwd",
        "./etc/passwd",
        "/etc//passwd/",
        "//etc/./passwd",
    ] {
        assert_eq!(path(text).as_bytes(), b"etc/passwd", "{text}");
    }
    for text in ["", ".", "/", "./"] {
        assert_eq!(path(text), TreePath::root(), "{text}");
    }
}

#[test]
fn a_path_that_leads_upwards_does_not_exist() {
    for text in ["..", "../x", "a/../b", "/..", "a/.."] {
        assert_eq!(
            TreePath::parse(text.as_bytes()),
            Err(BadPath::Upwards),
            "{text}"
        );
    }
    assert_eq!(TreePath::parse(b"a\0b"), Err(BadPath::ZeroByte));
    assert_eq!(TreePath::parse(&[b'a'; 256]), Err(BadPath::TooLong));
    let deep = "a/".repeat(DEPTH_MAX + 1);
    assert_eq!(TreePath::parse(deep.as_bytes()), Err(BadPath::TooDeep));
    let long = format!("{}/", "a".repeat(200)).repeat(21);
    assert_eq!(TreePath::parse(long.as_bytes()), Err(BadPath::TooLong));
}

#[test]
fn a_path_splits_into_its_directory_and_its_name() {
    assert_eq!(path("a/b/c").split(), Some((path("a/b"), &b"c"[..])));
    assert_eq!(path("a").split(), Some((TreePath::root(), &b"a"[..])));
    assert_eq!(TreePath::root().split(), None);
}

#[test]
fn links_do_not_lead_out_of_a_tree() {
    let outside = tempfile::tempdir().unwrap();
    let home = tempfile::tempdir().unwrap();
    symlink(outside.path(), home.path().join("absolute")).unwrap();
    symlink("..", home.path().join("up")).unwrap();
    symlink("/proc/self/root", home.path().join("magic")).unwrap();
    let tree = Tree::open(home.path()).unwrap();
    for text in ["absolute", "up", "magic", "absolute/x", "up/x"] {
        assert!(tree.directory(&path(text)).is_err(), "{text}");
        assert!(
            tree.open_within(&path(text), OFlags::RDONLY).is_err(),
            "{text}"
        );
        assert!(tree.make_directories(&path(text)).is_err(), "{text}");
    }
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
}

#[test]
fn links_inside_a_tree_are_followed_on_request() {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(home.path().join("usr/bin")).unwrap();
    symlink("usr/bin", home.path().join("bin")).unwrap();
    let tree = Tree::open(home.path()).unwrap();
    assert!(tree.directory(&path("bin")).is_err());
    tree.make_directories(&path("bin/sub")).unwrap();
    assert!(home.path().join("usr/bin/sub").is_dir());
}

#[test]
fn removing_a_tree_leaves_what_its_links_point_to() {
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("kept"), "").unwrap();
    let home = tempfile::tempdir().unwrap();
    let tree = home.path().join("tree");
    std::fs::create_dir_all(tree.join("a/b")).unwrap();
    symlink(outside.path(), tree.join("a/link")).unwrap();
    remove_tree(&tree).unwrap();
    assert!(!tree.exists());
    assert!(outside.path().join("kept").exists());
    remove_tree(&tree).unwrap();
}
