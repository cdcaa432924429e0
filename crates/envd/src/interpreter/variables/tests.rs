use std::process::{Command, Stdio};

use super::*;

fn variables<const N: usize>(pairs: [(&str, &str); N]) -> Variables {
    let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
    pairs.into()
}

/// Values with special characters of the various languages.
const HOSTILE: [&str; 10] = [
    "",
    "'\"`$HOME$(id)\\",
    "a\nb\r\tc\u{1}\u{7f}",
    "é😀\u{2028}\u{feff}",
    "\\u0022);System.exit(1);//",
    "${x}%s{0}#{y}",
    "'; exit 3; '",
    "\"\"\"",
    "</script>",
    "\\",
];

/// All changes joined.
fn change(dialect: Dialect, from: &Variables, to: &Variables) -> String {
    dialect.join_all(dialect.changes(from, to).iter())
}

#[test]
fn only_what_differs_is_changed() {
    let from = variables([("A", "1"), ("B", "2"), ("C", "3")]);
    let to = variables([("A", "1"), ("B", "x"), ("D", "4")]);
    let code = change(Dialect::Bash, &from, &to);
    let wanted = r"\builtin export B=$'x' && \builtin export D=$'4' && \builtin unset C";
    assert_eq!(code, wanted);
    assert_eq!(Dialect::Bash.changes(&to, &to), []);
}

#[test]
fn each_language_has_its_own_syntax() {
    let to = variables([("A", "x\"\n😀")]);
    let none = Variables::new();
    let both = |dialect: Dialect| (change(dialect, &none, &to), change(dialect, &to, &none));
    let (set, unset) = both(Dialect::Java);
    let value = r#""x\042\012\ud83d\ude00""#;
    assert_eq!(
        set,
        format!("java.lang.System.setProperty(\"A\", {value});")
    );
    assert_eq!(unset, "java.lang.System.clearProperty(\"A\");");
    let (set, unset) = both(Dialect::R);
    let value = r#""x\U{22}\U{a}\U{1f600}""#;
    let wanted =
        format!("base::do.call(base::Sys.setenv, stats::setNames(base::list({value}), \"A\"))");
    assert_eq!(set, wanted);
    assert_eq!(unset, "base::Sys.unsetenv(\"A\")");
    let (set, unset) = both(Dialect::Script);
    assert_eq!(
        set,
        format!("{PROCESS}.env[\"A\"] = \"x\\\"\\n😀\"; void 0;")
    );
    assert_eq!(unset, format!("delete {PROCESS}.env[\"A\"]; void 0;"));
}

#[test]
fn invalid_bash_variable_names_are_skipped() {
    let to = variables([("a-b", "1"), ("1a", "1"), ("x;id", "1"), ("ok_1", "1")]);
    let code = change(Dialect::Bash, &Variables::new(), &to);
    assert_eq!(code, r"\builtin export ok_1=$'1'");
}

/// Runs code that prints the variable, and returns its output.
pub(in crate::interpreter) fn ran(program: &str, arguments: &[&str]) -> Vec<u8> {
    let mut command = Command::new(program);
    let output = command.args(arguments).stderr(Stdio::inherit()).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{arguments:?}");
    output.stdout
}

#[test]
fn bash_literals_round_trip() {
    for value in HOSTILE {
        let to = variables([("SHOWN", value)]);
        let code = change(Dialect::Bash, &Variables::new(), &to);
        let shown = ran("bash", &["-c", &format!("{code}; printf %s \"$SHOWN\"")]);
        assert_eq!(shown, value.as_bytes(), "{code}");
    }
}

#[test]
fn bash_changes_work_despite_shadowing_aliases_and_functions() {
    let (from, to) = (variables([("B", "2")]), variables([("A", "1")]));
    let code = change(Dialect::Bash, &from, &to);
    let hidden = "shopt -s expand_aliases; alias builtin=exit export=exit\n\
        export() { exit 1; }; unset() { exit 1; }; B=2\n";
    let shown = ran(
        "bash",
        &[
            "-c",
            &format!("{hidden}{code}\nprintf %s \"$A${{B-none}}\""),
        ],
    );
    assert_eq!(shown, b"1none");
}

/// Runs code in node's `vm`, without top-level `await`, followed by code that prints.
pub(in crate::interpreter) fn run_without_await(code: &str, behind: &str) -> Vec<u8> {
    let program =
        format!("new (require('vm').Script)(process.argv[1]).runInThisContext(); {behind}");
    ran("node", &["-e", &program, code])
}

#[test]
fn javascript_literals_without_await_round_trip() {
    let plainly = |from: &Variables, to: &Variables| {
        let changes = Dialect::Script.changes(from, to);
        Dialect::Script.join_fallbacks(changes.iter()).unwrap()
    };
    for value in HOSTILE {
        let (to, none) = (variables([("SHOWN", value)]), Variables::new());
        let shown = run_without_await(
            &plainly(&none, &to),
            "process.stdout.write(process.env.SHOWN)",
        );
        assert_eq!(shown, value.as_bytes());
        let both = plainly(&none, &to) + "\n" + &plainly(&to, &none);
        let shown = run_without_await(&both, "process.stdout.write(`${process.env.SHOWN}`)");
        assert_eq!(shown, b"undefined");
    }
    assert_eq!(Dialect::Bash.join_fallbacks([].iter()), None);
}

#[test]
fn python_literals_round_trip() {
    for value in HOSTILE {
        let name = format!("N{}", value.replace('=', ""));
        let to = variables([(&name, value)]);
        let set = change(Dialect::Python, &Variables::new(), &to);
        let unset = change(Dialect::Python, &to, &Variables::new());
        let look = "import os,sys\nsys.stdout.buffer.write(";
        let name = serde_json::to_string(&name).unwrap();
        let code = format!(
            "__import__ = None\n{set}\n{look}os.environ[{name}].encode())\n{unset}\n{look}b'!' if {name} in os.environ else b'.')"
        );
        let shown = ran("python3", &["-c", &code]);
        assert_eq!(shown, format!("{value}.").as_bytes(), "{code}");
    }
}
