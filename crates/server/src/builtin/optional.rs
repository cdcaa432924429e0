//! Optional components of a template, such as the kernel of a language.
//!
//! A component is omitted, and named in the build log, when the mirrors lack its packages. An
//! unreachable mirror fails the build instead: the cached step would omit the component forever.

use serde::Deserialize;

use super::definition::pip_install;

/// pip's output when its index is unreachable.
const UNREACHED: &str = "Retrying \\(|Could not fetch URL";

/// An optional component.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Optional {
    /// Its name in the log.
    pub(super) name: String,
    /// Required Debian packages.
    #[serde(default)]
    apt: Vec<String>,
    /// Required Python packages.
    #[serde(default)]
    pip: Vec<String>,
}

impl Optional {
    /// All required packages.
    pub(super) fn packages(&self) -> impl Iterator<Item = &String> {
        self.apt.iter().chain(&self.pip)
    }

    /// Shell lines that install everything or nothing. Python packages come first, because apt can be
    /// simulated and pip cannot.
    fn lines(&self) -> String {
        let (name, apt) = (&self.name, self.apt.join(" "));
        let could = if apt.is_empty() {
            "true".to_owned()
        } else {
            format!("apt-get install -s -qq --no-install-recommends {apt} >/dev/null 2>$why")
        };
        let pip = if self.pip.is_empty() {
            "true".to_owned()
        } else {
            format!("{} 2>$why", pip_install(&self.pip))
        };
        let install = if apt.is_empty() {
            "true".to_owned()
        } else {
            format!("apt-get install -qq --no-install-recommends {apt}")
        };
        format!(
            "if ! {could}; then left_out {name}; \n\
             elif {pip}; then {install} || exit 1; \n\
             elif not_there; then left_out {name}; \n\
             else cat $why >&2; exit 1; fi\n"
        )
    }
}

/// Shell lines that install all available components as root.
pub(super) fn script(optional: &[Optional]) -> String {
    // Without that mode, apt only warns about unreachable mirrors and then finds no package.
    let mut script = format!(
        "export DEBIAN_FRONTEND=noninteractive why=/tmp/.why\n\
         left_out() {{ echo \"left out: $1 cannot be installed here: $(tail -n 1 $why)\"; }}\n\
         not_there() {{ grep -q 'No matching distribution found' $why && ! grep -qE '{UNREACHED}' $why; }}\n\
         apt-get update -qq -o APT::Update::Error-Mode=any || exit 1\n"
    );
    for optional in optional {
        script += &optional.lines();
    }
    script + "rm -f $why && apt-get clean && rm -rf /var/lib/apt/lists/*"
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Runs the script with fake programs, without the cleaning at its end. Returns whether it succeeded, its output, and
    /// the installed packages.
    fn run(optional: &[Optional], apt: &str, pip: &str) -> (bool, String, String) {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        for (name, text) in [("apt-get", apt), ("pip", pip)] {
            let source = directory.path().join(format!("{name}.sh"));
            let text = text.replace("LOG", log.to_str().unwrap());
            std::fs::write(&source, format!("#!/bin/sh\n{text}\n")).unwrap();
            // Another process writes the program: for a moment, children of parallel tests have all
            // descriptors of this one, and a program that is open for writing cannot be executed.
            let mut install = Command::new("install");
            install.args(["--mode=755", "--"]).arg(source);
            assert!(
                install
                    .arg(directory.path().join(name))
                    .status()
                    .unwrap()
                    .success()
            );
        }
        let why = directory.path().join("why");
        let script = script(optional).replace("/tmp/.why", why.to_str().unwrap());
        let script = script.split(" && apt-get clean").next().unwrap().to_owned();
        let path = format!("{}:/usr/bin:/bin", directory.path().display());
        let mut command = Command::new("/bin/sh");
        let ran = command.args(["-c", &script]).env("PATH", path).output();
        let ran = ran.unwrap();
        let installed = std::fs::read_to_string(log).unwrap_or_default();
        let said = String::from_utf8(ran.stdout).unwrap();
        (ran.status.success(), said, installed)
    }

    fn languages() -> Vec<Optional> {
        let optional = |name: &str, apt: &[&str], pip: &[&str]| Optional {
            name: name.to_owned(),
            apt: apt.iter().map(ToString::to_string).collect(),
            pip: pip.iter().map(ToString::to_string).collect(),
        };
        vec![
            optional("R", &["r-kernel"], &[]),
            optional("Java", &["jre"], &["jjava"]),
        ]
    }

    const APT: &str = "case $* in *-s*) ;; *install*) echo $* >>LOG ;; esac";
    const PIP: &str = "echo $* >>LOG";

    #[test]
    fn what_there_is_is_installed() {
        let (well, said, installed) = run(&languages(), APT, PIP);
        assert!(well && said.is_empty(), "{said}");
        for package in ["r-kernel", "jre", "jjava"] {
            assert!(installed.contains(package), "{installed}");
        }
    }

    #[test]
    fn what_a_mirror_has_not_is_left_out_whole_and_by_name() {
        let none = "case $* in *-s*r-kernel*) echo 'E: Unable to locate package r-kernel' >&2; \
            exit 100 ;; *-s*) ;; *install*) echo $* >>LOG ;; esac";
        let (well, said, installed) = run(&languages(), none, PIP);
        assert!(well);
        let told = "left out: R cannot be installed here: E: Unable to locate package r-kernel\n";
        assert_eq!(said, told);
        assert!(installed.contains("jjava") && !installed.contains("r-kernel"));

        let none = "echo 'ERROR: No matching distribution found for jjava' >&2; exit 1";
        let (well, said, installed) = run(&languages(), APT, none);
        assert!(well && said.starts_with("left out: Java"), "{said}");
        assert!(installed.contains("r-kernel") && !installed.contains("jre"));
    }

    #[test]
    fn a_mirror_that_does_not_answer_fails_the_build() {
        // The errors of pip and apt for a closed port.
        let gone = "echo 'WARNING: Retrying (Retry(total=0, connect=None)) after connection broken' >&2; \
            echo 'ERROR: No matching distribution found for jjava' >&2; exit 1";
        assert!(!run(&languages(), APT, gone).0);
        let warned = "case $* in *update*Error-Mode=any*) echo 'E: Failed to fetch' >&2; exit 100 ;; \
            *update*) echo 'W: Failed to fetch' >&2 ;; \
            *install*) echo 'E: Unable to locate package' >&2; exit 100 ;; esac";
        assert!(!run(&languages(), warned, PIP).0);
        let half = "case $* in *-s*|*update*) ;; *) exit 100 ;; esac";
        assert!(!run(&languages(), half, PIP).0);
    }
}
