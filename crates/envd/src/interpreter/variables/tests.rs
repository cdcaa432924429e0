use std::process::{Command, Stdio};

use super::*;

fn variables<const N: usize>(pairs: [(&str, &str); N]) -> Variables {
    let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
    pairs.into()
}

/// Values that mean something in one language or another.
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

#[test]
fn only_what_differs_is_changed() {
    let from = variables([("A", "1"), ("B", "2"), ("C", "3")]);
    let to = variables([("A", "1"), ("B", "x"), ("D", "4")]);
    let code = Dialect::Bash.change(&from, &to).unwrap();
    assert_eq!(code, "export B=$'x';export D=$'4';unset C;");
    assert_eq!(Dialect::Bash.change(&to, &to), None);
}

#[test]
fn each_language_is_told_in_its_own_words() {
    let to = variables([("A", "x\"\n😀")]);
    let change = |dialect: Dialect| {
        let set = dialect.change(&Variables::new(), &to).unwrap();
        (set, dialect.change(&to, &Variables::new()).unwrap())
    };
    let (set, unset) = change(Dialect::Java);
    let value = r#""x\042\012\ud83d\ude00""#;
    assert_eq!(set, format!("System.setProperty(\"A\", {value});\n"));
    assert_eq!(unset, "System.clearProperty(\"A\");\n");
    let (set, unset) = change(Dialect::R);
    let value = r#""x\U{22}\U{a}\U{1f600}""#;
    let wanted =
        format!("do.call(base::Sys.setenv, stats::setNames(base::list({value}), \"A\"))\n");
    assert_eq!(set, wanted);
    assert_eq!(unset, "base::Sys.unsetenv(\"A\")\n");
    let (set, unset) = change(Dialect::Script);
    assert_eq!(set, "globalThis.process.env[\"A\"] = \"x\\\"\\n😀\";\n");
    assert_eq!(unset, "delete globalThis.process.env[\"A\"];\n");
}

#[test]
fn a_name_that_bash_cannot_have_is_left_out() {
    let to = variables([("a-b", "1"), ("1a", "1"), ("x;id", "1"), ("ok_1", "1")]);
    let code = Dialect::Bash.change(&Variables::new(), &to).unwrap();
    assert_eq!(code, "export ok_1=$'1';");
}

/// Runs code that is followed by a look at the variable, and gives what it printed.
fn ran(program: &str, arguments: &[&str]) -> Vec<u8> {
    let mut command = Command::new(program);
    let output = command.args(arguments).stderr(Stdio::inherit()).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{arguments:?}");
    output.stdout
}

#[test]
fn bash_reads_every_value_as_it_was_meant() {
    for value in HOSTILE {
        let to = variables([("SHOWN", value)]);
        let code = Dialect::Bash.change(&Variables::new(), &to).unwrap();
        let shown = ran("bash", &["-c", &format!("{code} printf %s \"$SHOWN\"")]);
        assert_eq!(shown, value.as_bytes(), "{code}");
    }
}

#[test]
fn python_reads_every_value_and_name_as_it_was_meant() {
    for value in HOSTILE {
        let name = format!("N{}", value.replace('=', ""));
        let to = variables([(&name, value)]);
        let set = Dialect::Python.change(&Variables::new(), &to).unwrap();
        let unset = Dialect::Python.change(&to, &Variables::new()).unwrap();
        let look = "import os,sys\nsys.stdout.buffer.write(";
        let name = serde_json::to_string(&name).unwrap();
        let code = format!(
            "{set}{look}os.environ[{name}].encode())\n{unset}{look}b'!' if {name} in os.environ else b'.')"
        );
        let shown = ran("python3", &["-c", &code]);
        assert_eq!(shown, format!("{value}.").as_bytes(), "{code}");
    }
}

#[test]
fn python_has_another_chance_without_numpy_too() {
    let code = Dialect::Python.reseed([0; 4]).unwrap();
    let code = format!(
        "import random\nrandom.seed(1); a = random.random(); random.seed(1)\n{code}\nassert a != random.random()"
    );
    ran("python3", &["-c", &code]);
}
