use super::*;

const DEB822: &str = "\
Types: deb
# chosen by the operator
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/debian.gpg

Types: deb deb-src
URIs: http://mirror.example/security
Suites: bookworm-security
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mQINBF
 -----END PGP PUBLIC KEY BLOCK-----

Types: deb
Enabled: no
URIs: http://off.example/debian
Suites: bookworm
Components: main

Types: deb
URIs: http://mirror.example/debian
Suites: bookworm-backports
Components: main

Types: deb
URIs: http://other.example/x
Suites: bookworm
Components: main
Architectures: s390x
";

/// The directory of its files, and its mirror of Ubuntu.
struct Machine(tempfile::TempDir, Option<&'static str>);

impl Machine {
    fn new(files: &[(&str, &str)]) -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("sources.list.d")).unwrap();
        fs::write(home.path().join("os-release"), "NAME=x\nID=debian\n").unwrap();
        for (name, text) in files {
            fs::write(home.path().join(name), text).unwrap();
        }
        Self(home, None)
    }

    fn sources(&self, suite: &str) -> Result<Sources, Fault> {
        let config = BootstrapConfig {
            apt: self.0.path().to_owned(),
            os_release: self.0.path().join("os-release"),
            ubuntu_mirror: self.1.map(str::to_owned),
        };
        Apt::read(&config)?.sources_for(&suite.parse().unwrap())
    }

    fn list(&self, suite: &str) -> Vec<String> {
        let Sources(sources) = self.sources(suite).unwrap();
        let line = |source: Source| {
            format!(
                "{} {} {}",
                source.uri,
                source.suite,
                source.components.join(",")
            )
        };
        sources.into_iter().map(line).collect()
    }
}

#[test]
fn the_configured_sources_of_a_release_include_its_updates() {
    let machine = Machine::new(&[("sources.list.d/debian.sources", DEB822)]);
    assert_eq!(
        machine.list("bookworm"),
        [
            "http://mirror.example/debian bookworm main,contrib",
            "http://mirror.example/debian bookworm-updates main,contrib",
            "http://mirror.example/security bookworm-security main",
        ]
    );
}

#[test]
fn one_line_sources_are_parsed_with_their_options() {
    let list = "\
# comment
deb [arch=amd64,arm64 signed-by=/k.gpg trusted=yes] http://mirror.example/debian bookworm main # x
deb-src http://mirror.example/debian bookworm main
deb cdrom:[Debian]/ bookworm main
deb http://flat.example/ ./
debris http://mirror.example/debian bookworm main
deb [arch=s390x] http://elsewhere.example/debian bookworm main
";
    let machine = Machine::new(&[
        ("sources.list", list),
        (
            "sources.list.d/off.list.disabled",
            "deb http://off.example/ bookworm main",
        ),
    ]);
    let Sources(sources) = machine.sources("bookworm").unwrap();
    assert_eq!(sources.len(), 1);
    assert!(sources[0].trusted);
    assert_eq!(sources[0].signed_by, Some(SignedBy::Named("/k.gpg".into())));
}

#[test]
fn another_release_uses_the_mirror_of_its_distribution() {
    let debian = Machine::new(&[("sources.list.d/debian.sources", DEB822)]);
    assert_eq!(
        debian.list("trixie"),
        [
            "http://mirror.example/debian trixie main,contrib",
            "http://mirror.example/debian trixie-updates main,contrib",
            "http://mirror.example/security trixie-security main",
        ]
    );
    assert_eq!(
        debian.list("sid"),
        ["http://mirror.example/debian sid main,contrib"]
    );
    // A release that this program has not heard of is one of the machine's distribution.
    assert_eq!(debian.list("zurg").len(), 3);
    let both = "deb http://mirror.example/ubuntu noble main universe\n\
                deb http://mirror.example/debian bookworm main\n";
    let both = Machine::new(&[("sources.list", both)]);
    assert_eq!(
        both.list("jammy"),
        ["http://mirror.example/ubuntu jammy main,universe"]
    );
    assert_eq!(
        both.list("bullseye"),
        ["http://mirror.example/debian bullseye main"]
    );
}

#[test]
fn a_release_without_a_mirror_is_reported() {
    let nothing = Machine::new(&[]);
    let debian = Machine::new(&[("sources.list.d/debian.sources", DEB822)]);
    for (machine, suite) in [(&nothing, "bookworm"), (&nothing, "zurg")] {
        let fault = machine.sources(suite).unwrap_err();
        let said = matches!(&fault, Fault::Tool { detail, .. } if detail.contains(suite));
        assert!(said, "{fault}");
    }
    assert_eq!(debian.list("noble"), Vec::<String>::new());
}

#[test]
fn r2_002_a_machine_of_debian_gets_ubuntu_from_its_mirror_or_the_usual_one() {
    let root = tempfile::tempdir().unwrap();
    let home = crate::disk::Home::open(root.path()).unwrap();
    let stage = home.stage().unwrap();
    let mut debian = Machine::new(&[("sources.list.d/debian.sources", DEB822)]);
    let usual = debian.sources("noble").unwrap().write(&stage).unwrap();
    let SourceFiles::Usual { keyring } = usual else {
        panic!("it has no mirror of Ubuntu");
    };
    assert_eq!(fs::read_to_string(keyring).unwrap(), UBUNTU_KEY);
    debian.1 = Some("http://mirror.example/ubuntu");
    assert_eq!(
        debian.list("noble"),
        [
            "http://mirror.example/ubuntu noble main,universe",
            "http://mirror.example/ubuntu noble-updates main,universe",
            "http://mirror.example/ubuntu noble-security main,universe",
        ]
    );
    let listed = debian.sources("noble").unwrap().write(&stage).unwrap();
    let SourceFiles::Listed(listed) = listed else {
        panic!("it has one");
    };
    assert!(listed.text.starts_with("deb [signed-by="));
    assert_eq!(listed.keys.len(), 3);
    // A source in apt's own configuration wins.
    let configured = Machine(
        Machine::new(&[("sources.list", "deb http://own.example/u noble main")]).0,
        debian.1,
    );
    assert_eq!(
        configured.list("noble"),
        ["http://own.example/u noble main"]
    );
}

#[test]
fn sources_are_written_with_their_embedded_keys() {
    let root = tempfile::tempdir().unwrap();
    let home = crate::disk::Home::open(root.path()).unwrap();
    let stage = home.stage().unwrap();
    let machine = Machine::new(&[("sources.list.d/debian.sources", DEB822)]);
    let files = machine.sources("bookworm").unwrap().write(&stage).unwrap();
    let SourceFiles::Listed(files) = files else {
        panic!("they are configured");
    };
    let (key, inside) = &files.keys[2];
    assert!(fs::read_to_string(key).unwrap().contains("\n\nmQINBF\n"));
    assert_eq!(inside, "/etc/apt/keyrings/source-2.asc");
    let lines: Vec<&str> = files.text.lines().collect();
    assert_eq!(
        lines[0],
        "deb [signed-by=/usr/share/keyrings/debian.gpg] http://mirror.example/debian bookworm \
         main contrib"
    );
    assert!(lines[2].contains(&format!("[signed-by={}]", key.display())));
    assert_eq!(fs::read_to_string(files.list).unwrap(), files.text);
}
