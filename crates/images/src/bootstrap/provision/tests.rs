use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::PathBuf;

use super::*;

const RECIPE: &str = r#"
    suite = "bookworm"
    remove = ["/usr/lib/python3*/EXTERNALLY-MANAGED", "/usr/share/**/*.map", "/opt"]
    [user]
    name = "user"
    uid = 1000
    home = "/home/user"
    shell = "/bin/bash"
    sudo = true
    [files."/bin/hello"]
    content = "hi\n"
    mode = "0755"
    [files."/home/user/.config/x"]
    content = "mine"
    mode = "0600"
    owner = "user"
    [files."/etc/linked"]
    content = "written here"
"#;

/// A tree as packages leave it, and something outside that its links point to.
struct System {
    home: tempfile::TempDir,
}

impl System {
    fn new() -> Self {
        let system = Self {
            home: tempfile::tempdir().unwrap(),
        };
        for (path, text) in [
            ("etc/passwd", "root:x:0:0:root:/root:/bin/bash\n"),
            ("etc/group", "root:x:0:\n"),
            ("etc/shadow", "root:*:19000:0:99999:7:::\n"),
            ("etc/gshadow", "root:*::\n"),
            ("etc/skel/.bashrc", "# skeleton\n"),
            ("etc/resolv.conf", "nameserver 192.0.2.1\n"),
            ("usr/bin/true", ""),
            ("usr/lib/python3.11/EXTERNALLY-MANAGED", "no"),
            ("usr/lib/python3.11/os.py", ""),
            ("usr/share/nodejs/a/b/x.map", ""),
            ("usr/share/nodejs/a/b/x.js", ""),
            ("opt/thing/file", ""),
            ("var/log/apt/term.log", ""),
            ("var/log/dpkg.log", ""),
            ("var/log/lastlog", ""),
        ] {
            let path = system.path(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        fs::write(system.home.path().join("outside"), "outside").unwrap();
        symlink("usr/bin", system.path("bin")).unwrap();
        symlink(
            system.home.path().join("outside"),
            system.path("etc/linked"),
        )
        .unwrap();
        system
    }

    fn path(&self, path: &str) -> PathBuf {
        self.home.path().join("fs").join(path)
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    fn provision(&self, recipe: &str) -> Result<(), Fault> {
        let key = self.home.path().join("key.asc");
        fs::write(&key, "a key").unwrap();
        let sources = SourceFiles::Listed(SourceList {
            list: self.home.path().join("unused"),
            text: format!(
                "deb [signed-by={}] http://mirror.example/ x main\n",
                key.display()
            ),
            keys: vec![(key, "/etc/apt/keyrings/source-0.asc".to_owned())],
        });
        let tree = Tree::open(&self.path("")).unwrap();
        provision(&tree, &Recipe::from_toml(recipe).unwrap(), &sources)
    }
}

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: giving files away needs root");
    }
    root
}

#[test]
fn a_recipe_adds_a_user_and_files() {
    if !is_root() {
        return;
    }
    let system = System::new();
    system.provision(RECIPE).unwrap();
    assert!(
        system
            .read("etc/passwd")
            .ends_with("user:x:1000:1000::/home/user:/bin/bash\n")
    );
    assert_eq!(
        system.read("etc/sudoers.d/user"),
        "user ALL=(ALL:ALL) NOPASSWD:ALL\n"
    );
    for (path, mode, uid) in [
        ("etc/sudoers.d/user", 0o440, 0),
        ("etc/shadow", 0o640, 0),
        ("usr/bin/hello", 0o755, 0),
        ("home", 0o755, 0),
        ("home/user", 0o755, 1000),
        ("home/user/.bashrc", 0o644, 1000),
        ("home/user/.config/x", 0o600, 1000),
    ] {
        let found = fs::metadata(system.path(path)).unwrap();
        assert_eq!(
            (found.mode() & 0o7777, found.uid(), found.gid()),
            (mode, uid, uid),
            "{path}"
        );
    }
    // A link is replaced, not written through.
    assert_eq!(system.read("etc/linked"), "written here");
    assert_eq!(
        fs::read_to_string(system.home.path().join("outside")).unwrap(),
        "outside"
    );
}

#[test]
fn removal_patterns_are_applied() {
    if !is_root() {
        return;
    }
    let system = System::new();
    system.provision(RECIPE).unwrap();
    for (path, kept) in [
        ("usr/lib/python3.11/EXTERNALLY-MANAGED", false),
        ("usr/lib/python3.11/os.py", true),
        ("usr/share/nodejs/a/b/x.map", false),
        ("usr/share/nodejs/a/b/x.js", true),
        ("opt", false),
        ("etc/resolv.conf", false),
        ("var/log/apt/term.log", false),
        ("var/log/dpkg.log", false),
        ("var/log/lastlog", true),
    ] {
        assert_eq!(system.path(path).exists(), kept, "{path}");
    }
}

#[test]
fn the_image_contains_its_sources_and_their_keys() {
    if !is_root() {
        return;
    }
    let system = System::new();
    system.provision(RECIPE).unwrap();
    let list = system.read("etc/apt/sources.list");
    let expected = "deb [signed-by=/etc/apt/keyrings/source-0.asc] http://mirror.example/ x main\n";
    assert_eq!(list, expected);
    assert_eq!(system.read("etc/apt/keyrings/source-0.asc"), "a key");
}

#[test]
fn an_existing_user_is_refused() {
    if !is_root() {
        return;
    }
    let fault = System::new()
        .provision(&RECIPE.replace("name = \"user\"", "name = \"root\""))
        .unwrap_err();
    assert!(matches!(fault, Fault::Refused(_)), "{fault}");
}
